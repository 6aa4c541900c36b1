/* The dispatch mode (torch/ops.py): every op, below the function and module that it ran in. */
#include "fast.h"

typedef struct {
    PyObject_HEAD
    Engine *engine;
    PyObject *table;   /* plan(op, copied) → (number, written, branching, nesting, counting, way in, boxed, tensors) */
    PyObject *handler; /* the same in Python, for all that is unusual */
    Table known;       /* address of an op (and 1 where torch copied a handle) → its place in `plans` */
    PyObject *plans;   /* a list of (op, plan): the op lives as long as its address is known */
    PyObject *bound;   /* what torch calls: our handler, with the mode (asking.c) */
} OpMode;

enum { NUMBER, WRITTEN, BRANCHING, NESTING, COUNTING, WAY_IN, BOXED, TENSORS, PLAN_WORDS };
#define MOST_BOXED 16 /* positional arguments of an op that is called by its handle */

/* Tensors of the program's own classes may have handlers of their own: Python sees to these. */
static int is_unusual(PyObject *item)
{
    PyTypeObject *cls = Py_TYPE(item);
    if (cls == torch.Tensor || cls == torch.Parameter || cls == &PyLong_Type || item == Py_None)
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

/* Only a copied handle comes with a plain class among its types. */
static int is_copied(PyObject *op, PyObject *types)
{
    if (op != torch.detach || !(PyList_Check(types) || PyTuple_Check(types)) || PySequence_Fast_GET_SIZE(types) == 0)
        return 0;
    PyObject *first = PySequence_Fast_GET_ITEM(types, 0); /* borrowed from the types, which our caller owns */
    return first == (PyObject *)torch.Tensor || first == (PyObject *)torch.Parameter;
}

/* The plan of an op, owned; NULL with no exception where Python is to see to it. */
static PyObject *plan_of(OpMode *mode, PyObject *op, int copied)
{
    const int64_t word = (int64_t)(intptr_t)op + copied; /* objects do not stand at odd addresses */
    uint64_t hash;
    int64_t place = table_find(&mode->known, &word, 1, &hash);
    if (place != NONE)
        return Py_NewRef(PyTuple_GET_ITEM(PyList_GET_ITEM(mode->plans, place), 1));
    PyObject *plan = PyObject_CallMethod(mode->table, "plan", "OO", op, copied ? Py_True : Py_False);
    if (plan == NULL || !PyTuple_Check(plan) || PyTuple_GET_SIZE(plan) != PLAN_WORDS) {
        Py_XDECREF(plan);
        return NULL;
    }
    PyObject *pair = PyTuple_Pack(2, op, plan);
    place = PyList_GET_SIZE(mode->plans);
    if (pair == NULL || PyList_Append(mode->plans, pair) < 0 || table_add(&mode->known, &word, 1, hash, place) < 0)
        Py_CLEAR(plan);
    Py_XDECREF(pair);
    return plan;
}

/* The arguments that an op wrote into are new values; the first of them, owned. */
static PyObject *renew(Engine *engine, PyObject *written, PyObject *args, PyObject *kwargs)
{
    PyObject *positions = PyTuple_GET_ITEM(written, 0), *names = PyTuple_GET_ITEM(written, 1), *first = NULL;
    if (PyTuple_GET_SIZE(names) && kwargs != NULL) {
        PyObject *values = PyObject_GetAttrString(engine->session, "values");
        if (values != NULL)
            first = PyObject_CallMethod(values, "renew", "OOOO", args, kwargs, positions, names);
        Py_XDECREF(values);
        return first;
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(positions); at++) {
        Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, at));
        if (position >= PyTuple_GET_SIZE(args))
            continue;
        PyObject *found = PyTuple_GET_ITEM(args, position); /* borrowed from args, which lives */
        int several = PyList_CheckExact(found) || PyTuple_CheckExact(found);
        Py_ssize_t count = several ? PySequence_Fast_GET_SIZE(found) : 1;
        for (Py_ssize_t each = 0; each < count; each++) {
            PyObject *tensor = Py_NewRef(several ? PySequence_Fast_GET_ITEM(found, each) : found);
            PyObject *begun = engine_begin(engine, tensor), *touched = NULL;
            if (begun == Py_False)
                touched = engine_touch(engine, tensor);
            Py_DECREF(tensor);
            Py_XDECREF(touched);
            Py_XDECREF(begun);
            if (begun == NULL) {
                Py_XDECREF(first);
                return NULL;
            }
        }
        if (first == NULL)
            first = Py_NewRef(found);
    }
    return first == NULL ? Py_NewRef(Py_None) : first;
}

static int finish(OpMode *mode, Log *log, int64_t at, PyObject *plan, PyObject *args, PyObject *kwargs, PyObject *result)
{
    PyObject *written = PyTuple_GET_ITEM(plan, WRITTEN), *shown = Py_NewRef(result); /* borrowed from the plan, which we own */
    if (written != Py_None) {
        PyObject *changed = renew(mode->engine, written, args, kwargs);
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

/* Open or close the event of an op; where a mode is on (ours, in backward) it must not see that we read tensors. */
static int64_t open_op(OpMode *mode, Log *log, PyObject *plan, PyObject *args, PyObject *kwargs, PyFrameObject *frame)
{
    Unseen unseen;
    int64_t what = PyLong_AsLongLong(PyTuple_GET_ITEM(plan, NUMBER));
    if (enter_reading(mode->engine, log, &unseen) < 0)
        return FAILED;
    int64_t at = open_event(mode->engine, log, what, frame, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args), kwargs);
    return leave_unseen(&unseen) < 0 ? FAILED : at;
}

static int close_op(OpMode *mode, Log *log, int64_t at, PyObject *plan, PyObject *args, PyObject *kwargs, PyObject *result)
{
    Unseen unseen;
    if (enter_reading(mode->engine, log, &unseen) < 0)
        return -1;
    int done = finish(mode, log, at, plan, args, kwargs, result);
    return leave_unseen(&unseen) < 0 ? -1 : done;
}

/* Whether a number stands where a tensor is due: so autograd passes `x * 2`. Tensors of other classes do not come here. */
static int has_numbers(PyObject *args, PyObject *positions)
{
    for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(positions); each++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, each));
        PyObject *item = at < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, at) : Py_None; /* borrowed from args */
        if (item != Py_None && !PyType_IsSubtype(Py_TYPE(item), torch.Tensor))
            return 1;
    }
    return 0;
}

/* By its handle, which is the shortest way, and asks no function modes once more where they are on (OpTable.call_unasked). */
static PyObject *call_op(OpMode *mode, PyObject *plan, PyObject *op, PyObject *args, PyObject *kwargs, long crowded)
{
    PyObject *handle = PyTuple_GET_ITEM(plan, BOXED); /* borrowed from the plan, which our caller owns, as are all below */
    const Py_ssize_t count = PyTuple_GET_SIZE(args);
    if (handle != Py_None && count <= MOST_BOXED && !has_numbers(args, PyTuple_GET_ITEM(plan, TENSORS))) {
        PyObject *all[MOST_BOXED + 1] = {handle};
        for (Py_ssize_t at = 0; at < count; at++)
            all[at + 1] = PyTuple_GET_ITEM(args, at);
        return PyObject_VectorcallDict(torch.call_boxed, all, (size_t)count + 1, kwargs);
    }
    if (crowded == 0) /* what the op itself would call */
        return PyObject_Call(PyTuple_GET_ITEM(plan, WAY_IN), args, kwargs);
    return PyObject_CallMethod(mode->table, "call_unasked", "OOO", op, args, kwargs == NULL ? Py_None : kwargs);
}

static PyObject *record_op(OpMode *mode, Log *log, PyObject *plan, PyObject *op, PyObject *args, PyObject *kwargs, long crowded)
{
    Engine *engine = mode->engine;
    PyFrameObject *frame = caller_frame();
    int healed = heal_steps(engine, log, frame);
    const long long parent = log->parent;
    int64_t at = healed < 0 ? NONE : open_op(mode, log, plan, args, kwargs, frame);
    Py_XDECREF(frame);
    if (healed < 0)
        return NULL;
    if (at == FAILED) {
        log->parent = parent;
        if (forgive(engine) < 0)
            return NULL;
    }
    PyObject *result = call_op(mode, plan, op, args, kwargs, crowded);
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
    PyObject *kwargs = count > 3 && args[3] != Py_None && PyDict_GET_SIZE(args[3]) ? args[3] : NULL;
    PyObject *plan = NULL, *result = NULL;
    Log *log = (Log *)Py_XNewRef((PyObject *)current_log());
    long crowded = 0;
    int usual = count >= 3 && PyTuple_Check(args[2]) && log != NULL && log->on && mode->engine->records_ops
                && !are_unusual(args[2], kwargs);
    if (usual && (crowded = count_modes()) >= 0) {
        plan = plan_of(mode, args[0], is_copied(args[0], args[1]));
        usual = plan != NULL;
        if (!usual && PyErr_Occurred()) /* Python tries once more, and knows what to do without a plan */
            forgive(mode->engine);
    }
    if (usual && crowded >= 0) {
        enter_handler();
        result = record_op(mode, log, plan, args[0], args[2], kwargs, crowded);
        leave_handler();
    } else if (!PyErr_Occurred())
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
    table_clear(&mode->known);
    Py_CLEAR(mode->engine);
    Py_CLEAR(mode->table);
    Py_CLEAR(mode->handler);
    Py_CLEAR(mode->plans);
    unbind_handler(&mode->bound);
    return 0;
}

static void mode_dealloc(OpMode *mode)
{
    PyObject_GC_UnTrack(mode);
    mode_clear(mode);
    Py_TYPE(mode)->tp_free((PyObject *)mode);
}

static PyMethodDef mode_methods[];

static PyObject *mode_attribute(PyObject *mode, char *name)
{
    return handler_or_attribute(mode, name, ((OpMode *)mode)->bound);
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
    if (mode->plans == NULL || bind_handler((PyObject *)mode, &mode_methods[0], mode_attribute, &mode->bound) < 0)
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
    .tp_doc = "Records the ops that it is told of.",
    .tp_basicsize = sizeof(OpMode),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)mode_dealloc,
    .tp_getattr = mode_attribute,
    .tp_getattro = PyObject_GenericGetAttr,
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
