/* The dispatch mode (torch/ops.py): records each op inside the event of the function or module that
 * called it.
 *
 * Python makes a plan for each op (OpTable.compiled_plan), and this file keeps it by the address of
 * the op. An op that C cannot record, such as one that gets a tensor of a subclass, goes to the
 * handler in Python as a whole.
 *
 * torch dispatches `detach` also when it copies the Python object of a tensor (its handle), for
 * which the program has called nothing. Such an event gets a note, so `detach` has a second plan,
 * for copies.
 */
#include "fast.h"

typedef struct {
    PyObject_HEAD
    Engine *engine;
    PyObject *table;   /* OpTable of torch/ops.py */
    PyObject *handler; /* the same mode in Python, for all that is unusual */
    /* address of an op, or that address + 1 for copies of handles → its place in `plans` */
    Table plan_places;
    /* a list of (op, plan); it keeps the op, so that its address stays its own */
    PyObject *plans;
} OpMode;

/* The fields of a plan (torch/ops.py: CompiledPlan). */
enum {
    NUMBER, /* of the op's row in the journal */
    /* (positions, names) of the arguments that the op writes into; None: it writes into none */
    WRITTEN,
    BRANCHING, /* whether its backward formula behaves differently if a dispatch mode is on */
    CALLABLE,  /* the built-in function that the op calls, or the op itself */
    HANDLE,    /* the dispatcher's handle of the op; None: there is none */
    TENSORS,   /* positions of the arguments that are single tensors */
    PLAN_FIELDS
};
#define MOST_BOXED 16 /* positional arguments of an op that is called by its handle */

/* Tensors of the program's own classes may have handlers of their own: these go to Python. */
static int is_unusual(PyObject *item)
{
    PyTypeObject *cls = Py_TYPE(item);
    if (is_plain_tensor(item) || cls == &PyLong_Type || item == Py_None)
        return 0;
    if (cls == &PyList_Type || cls == &PyTuple_Type) {
        for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(item); at++)
            if (is_unusual(PySequence_Fast_GET_ITEM(item, at)))
                return 1;
        return 0;
    }
    return PyType_IsSubtype(cls, torch.Tensor);
}

static int are_unusual(PyObject *args, PyObject *kwargs)
{
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(args); at++)
        if (is_unusual(PyTuple_GET_ITEM(args, at)))
            return 1;
    PyObject *name, *item;
    Py_ssize_t at = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &at, &name, &item))
        if (is_unusual(item))
            return 1;
    return 0;
}

/* Return whether torch dispatches `detach` to copy a handle: only then a plain class is among the
 * types. */
static int is_copied(PyObject *op, PyObject *types)
{
    if (op != torch.detach || !(PyList_Check(types) || PyTuple_Check(types))
        || PySequence_Fast_GET_SIZE(types) == 0)
        return 0;
    /* borrowed from the types, which our caller owns */
    PyObject *first = PySequence_Fast_GET_ITEM(types, 0);
    return first == (PyObject *)torch.Tensor || first == (PyObject *)torch.Parameter;
}

/* Return the plan of an op, owned; NULL with no exception where the op is left to Python. */
static PyObject *plan_of(OpMode *mode, PyObject *op, int copied)
{
    const int64_t word = (int64_t)(intptr_t)op + copied; /* objects do not stand at odd addresses */
    uint64_t hash;
    int64_t place = table_find(&mode->plan_places, &word, 1, &hash);
    if (place != NONE)
        return Py_NewRef(PyTuple_GET_ITEM(PyList_GET_ITEM(mode->plans, place), 1));
    PyObject *plan =
        PyObject_CallMethod(mode->table, "compiled_plan", "OO", op, copied ? Py_True : Py_False);
    if (plan == NULL || !PyTuple_Check(plan) || PyTuple_GET_SIZE(plan) != PLAN_FIELDS) {
        Py_XDECREF(plan);
        return NULL;
    }
    PyObject *pair = PyTuple_Pack(2, op, plan);
    place = PyList_GET_SIZE(mode->plans);
    if (pair == NULL || PyList_Append(mode->plans, pair) < 0
        || table_add(&mode->plan_places, &word, 1, hash, place) < 0)
        Py_CLEAR(plan);
    Py_XDECREF(pair);
    return plan;
}

/* Make a tensor that an op wrote into a new value. */
static int make_new_value(Engine *engine, PyObject *tensor)
{
    Py_INCREF(tensor); /* a list may be changed by what we call */
    PyObject *has_begun = engine_begin_pending(engine, tensor);
    PyObject *marked = NULL;
    if (has_begun == Py_False) /* C cannot read it: its next use is a new value */
        marked = engine_mark_changed(engine, tensor);
    Py_DECREF(tensor);
    Py_XDECREF(marked);
    Py_XDECREF(has_begun);
    return has_begun == NULL ? -1 : 0;
}

/* Make the arguments that an op wrote into new values, and return the first of them, owned; None
 * where there is none. */
static PyObject *make_new_values(Engine *engine, PyObject *written, PyObject *args,
                                 PyObject *kwargs)
{
    PyObject *positions = PyTuple_GET_ITEM(written, 0);
    PyObject *names = PyTuple_GET_ITEM(written, 1);
    PyObject *first = NULL;
    if (PyTuple_GET_SIZE(names) && kwargs != NULL) {
        PyObject *values = PyObject_GetAttrString(engine->session, "values");
        if (values != NULL)
            first = PyObject_CallMethod(values, "new_values_for_written", "OOOO", args, kwargs,
                                        positions, names);
        Py_XDECREF(values);
        return first;
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(positions); at++) {
        Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, at));
        if (position >= PyTuple_GET_SIZE(args))
            continue;
        /* borrowed from args, which our caller owns */
        PyObject *argument = PyTuple_GET_ITEM(args, position);
        int is_list = PyList_CheckExact(argument) || PyTuple_CheckExact(argument);
        Py_ssize_t count = is_list ? PySequence_Fast_GET_SIZE(argument) : 1;
        for (Py_ssize_t each = 0; each < count; each++) {
            PyObject *tensor = is_list ? PySequence_Fast_GET_ITEM(argument, each) : argument;
            if (make_new_value(engine, tensor) < 0) {
                Py_XDECREF(first);
                return NULL;
            }
        }
        if (first == NULL)
            first = Py_NewRef(argument);
    }
    return first == NULL ? Py_NewRef(Py_None) : first;
}

/* Close the event with the result, or with the first argument that was written into if the op
 * returns None. */
static int finish(OpMode *mode, Log *log, int64_t at, PyObject *plan, PyObject *args,
                  PyObject *kwargs, PyObject *result)
{
    /* borrowed from the plan, which we own */
    PyObject *written = PyTuple_GET_ITEM(plan, WRITTEN);
    PyObject *shown = Py_NewRef(result);
    if (written != Py_None) {
        PyObject *changed = make_new_values(mode->engine, written, args, kwargs);
        if (changed == NULL) {
            Py_DECREF(shown);
            return -1;
        }
        if (result == Py_None)
            Py_SETREF(shown, changed);
        else
            Py_DECREF(changed);
    }
    log->made_from = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL;
    int done = close_event(mode->engine, log, at, shown, 1);
    log->made_from = NULL;
    Py_DECREF(shown);
    return done;
}

/* open_op and close_op: a mode that is on (ours, in backward) must not see that we read tensors. */
static int64_t open_op(OpMode *mode, Log *log, PyObject *plan, PyObject *args, PyObject *kwargs,
                       PyFrameObject *frame)
{
    Unseen unseen;
    int64_t what = PyLong_AsLongLong(PyTuple_GET_ITEM(plan, NUMBER));
    if (enter_reading(&unseen) < 0)
        return FAILED;
    int64_t at = open_event(mode->engine, log, what, frame, &PyTuple_GET_ITEM(args, 0),
                            PyTuple_GET_SIZE(args), kwargs);
    return leave_reading(&unseen) < 0 ? FAILED : at;
}

static int close_op(OpMode *mode, Log *log, int64_t at, PyObject *plan, PyObject *args,
                    PyObject *kwargs, PyObject *result)
{
    Unseen unseen;
    if (enter_reading(&unseen) < 0)
        return -1;
    int done = finish(mode, log, at, plan, args, kwargs, result);
    return leave_reading(&unseen) < 0 ? -1 : done;
}

/* Return whether a number is passed for a tensor parameter, as autograd does for the 2 of `x * 2`.
 * Tensors of other classes do not come here. */
static int has_numbers(PyObject *args, PyObject *positions)
{
    for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(positions); each++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, each));
        /* borrowed from args */
        PyObject *item = at < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, at) : Py_None;
        if (item != Py_None && !PyType_IsSubtype(Py_TYPE(item), torch.Tensor))
            return 1;
    }
    return 0;
}

/* Call the op; `other_modes`: how many function modes are on. Its handle is the shortest way, and
 * no function mode sees the call a second time (OpTable.call_unasked). */
static PyObject *call_op(OpMode *mode, PyObject *plan, PyObject *op, PyObject *args,
                         PyObject *kwargs, long other_modes)
{
    /* borrowed from the plan, which our caller owns, as are all below */
    PyObject *handle = PyTuple_GET_ITEM(plan, HANDLE);
    const Py_ssize_t count = PyTuple_GET_SIZE(args);
    if (handle != Py_None && count <= MOST_BOXED
        && !has_numbers(args, PyTuple_GET_ITEM(plan, TENSORS))) {
        PyObject *all[MOST_BOXED + 1] = {handle};
        for (Py_ssize_t at = 0; at < count; at++)
            all[at + 1] = PyTuple_GET_ITEM(args, at);
        return PyObject_VectorcallDict(torch.call_boxed, all, (size_t)count + 1, kwargs);
    }
    if (other_modes == 0)
        return PyObject_Call(PyTuple_GET_ITEM(plan, CALLABLE), args, kwargs);
    return PyObject_CallMethod(mode->table, "call_unasked", "OOO", op, args,
                               kwargs == NULL ? Py_None : kwargs);
}

static PyObject *record_op(OpMode *mode, Log *log, PyObject *plan, PyObject *op, PyObject *args,
                           PyObject *kwargs, long other_modes)
{
    Engine *engine = mode->engine;
    PyFrameObject *frame = caller_frame();
    /* an optimizer step that was interrupted is no parent of this op */
    int healed = heal_steps(engine, log, frame);
    const long long parent = log->parent;
    int64_t at = healed < 0 ? NONE : open_op(mode, log, plan, args, kwargs, frame);
    Py_XDECREF(frame);
    if (healed < 0)
        return NULL;
    /* an error of ours costs the event, and the op is called all the same; one of the program goes
     * on */
    if (at == FAILED) {
        log->parent = parent;
        if (forgive(engine) < 0)
            return NULL;
    }
    PyObject *result = call_op(mode, plan, op, args, kwargs, other_modes);
    if (at >= 0)
        log->parent = parent;
    if (result == NULL)
        return at < 0 ? NULL : fail_event(engine, log, at);
    if (PyTuple_GET_ITEM(plan, BRANCHING) == Py_True)
        log->branched = 1;
    if (at >= 0 && close_op(mode, log, at, plan, args, kwargs, result) < 0 && forgive(engine) < 0)
        Py_CLEAR(result);
    return result;
}

/* __torch_dispatch__(op, types, args=(), kwargs=None) */
static PyObject *mode_call(OpMode *mode, PyObject *const *args, Py_ssize_t count)
{
    if (mode->engine == NULL) {
        PyErr_SetString(PyExc_TypeError, "this mode was not set up");
        return NULL;
    }
    PyObject *op = count > 2 ? args[0] : NULL;
    PyObject *types = count > 2 ? args[1] : NULL;
    PyObject *op_args = count > 2 && PyTuple_Check(args[2]) ? args[2] : NULL;
    PyObject *kwargs = count > 3 && args[3] != Py_None && PyDict_GET_SIZE(args[3]) ? args[3] : NULL;
    PyObject *plan = NULL;
    PyObject *result = NULL;
    Log *log = (Log *)Py_XNewRef((PyObject *)current_log());
    const int is_recorded = log != NULL && log->on && mode->engine->records_ops;
    if (is_recorded && op_args != NULL && !are_unusual(op_args, kwargs)) {
        const long other_modes = count_modes();
        if (other_modes >= 0)
            plan = plan_of(mode, op, is_copied(op, types));
        if (plan != NULL) {
            enter_handler();
            result = record_op(mode, log, plan, op, op_args, kwargs, other_modes);
            leave_handler();
        } else if (other_modes >= 0 && PyErr_Occurred()) /* Python tries once more, and knows what
                                                            to do without a plan */
            forgive(mode->engine);
    }
    if (plan == NULL && !PyErr_Occurred())
        result = call_python(mode->handler, (PyObject *)mode, args, count);
    Py_XDECREF(plan);
    Py_XDECREF(log);
    return result;
}

static int mode_traverse(OpMode *mode, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)mode->engine);
    Py_VISIT(mode->table);
    Py_VISIT(mode->handler);
    Py_VISIT(mode->plans);
    return 0;
}

static int mode_clear(OpMode *mode)
{
    table_clear(&mode->plan_places);
    Py_CLEAR(mode->engine);
    Py_CLEAR(mode->table);
    Py_CLEAR(mode->handler);
    Py_CLEAR(mode->plans);
    return 0;
}

static void mode_dealloc(OpMode *mode)
{
    PyObject_GC_UnTrack(mode);
    mode_clear(mode);
    Py_TYPE(mode)->tp_free((PyObject *)mode);
}

/* set_up(engine, table, handler) */
static PyObject *mode_set_up(OpMode *mode, PyObject *args)
{
    PyObject *engine, *table, *handler;
    if (!PyArg_ParseTuple(args, "O!OO", &EngineType, &engine, &table, &handler))
        return NULL;
    Py_XSETREF(mode->engine, (Engine *)Py_NewRef(engine));
    Py_XSETREF(mode->table, Py_NewRef(table));
    Py_XSETREF(mode->handler, Py_NewRef(handler));
    Py_XSETREF(mode->plans, PyList_New(0));
    if (mode->plans == NULL)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef mode_methods[] = {
    {"__torch_dispatch__", (PyCFunction)(void (*)(void))mode_call, METH_FASTCALL, NULL},
    {"set_up", (PyCFunction)mode_set_up, METH_VARARGS, NULL},
    {NULL},
};

static PyTypeObject OpModeType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.OpMode",
    .tp_doc = "A dispatch mode that records the ops that are called.",
    .tp_basicsize = sizeof(OpMode),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)mode_dealloc,
    .tp_traverse = (traverseproc)mode_traverse,
    .tp_clear = (inquiry)mode_clear,
    .tp_methods = mode_methods,
};

int ops_ready(PyObject *module)
{
    if (PyType_Ready(&OpModeType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "OpMode", (PyObject *)&OpModeType);
}
