/* The trace functions of a thread (capture/variables/settrace.py: _make_tracer) and of one call that is followed (_make_local).
 *
 * They are set by sys.settrace and frame.f_trace as those written in Python are, so that debuggers and other threads see no
 * difference. Most calls and lines end here: nothing is followed or stored, or following.c looks behind them. A signal's
 * exception cannot fall in unnoticed: Python raises it between instructions of Python only.
 */
#include "following.h"
#include "structmember.h"

static struct { PyObject *after, *before, *closed, *fault, *line, *lines, *release_thread, *returns, *running; } names; /* of attributes, interned */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *core, *lines, *on_other, *follow;
    Call *call;
    char always, suspends;
} Local;

/* The trace function of a thread, which is told of calls. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *core, *engine, *plans, *running, *imports; /* the last three are dicts of the engine's */
    PyObject *begin, *unknown, *on_other, *follow, *dict;
} Tracer;

/* A fault of ours costs an event; what a signal handler has raised meanwhile goes on. */
static PyObject *faulted(PyObject *engine)
{
    PyObject *error = take_error();
    if (error == NULL || !is_set(engine))
        Py_RETURN_NONE;
    PyObject *done = PyObject_CallMethodOneArg(engine, names.fault, error);
    Py_DECREF(error);
    return done;
}

/* A line was done, with something to look at behind it. */
static int after_line(Local *local, PyObject *todo, int exact, PyFrameObject *frame)
{
    Call *call = local->call;
    int closed = is_true_attribute(call->engine, names.closed);
    if (closed != 0)
        return closed < 0 ? -1 : ask(PyObject_CallMethodNoArgs(local->core, names.release_thread));
    if (is_set(todo) && look_behind(call, todo, frame) < 0)
        return -1;
    if (exact == call->is_exact && !is_set(call->error))
        return 0;
    return ask(PyObject_CallFunctionObjArgs(local->follow, call, frame, exact ? Py_True : Py_False, NULL));
}

static PyObject *on_line(Local *local, PyFrameObject *frame)
{
    Call *call = local->call;
    PyObject *line = PyLong_FromLong(PyFrame_GetLineNumber(frame));
    PyObject *now = line == NULL ? NULL : PyDict_GetItemWithError(local->lines, line); /* borrowed from the plan's table */
    Py_XDECREF(line);
    if (now == NULL && PyErr_Occurred())
        return faulted(local->call->engine);
    PyObject *todo = call->pending; /* its reference is ours now */
    call->pending = Py_XNewRef(now);
    int exact = now != NULL && PyTuple_GET_ITEM(now, EXACT) == Py_True, done = 0;
    int is_idle = !is_set(todo)
                  || (PyTuple_GET_ITEM(todo, IS_QUIET) == Py_True && !is_filled(call->open) && !is_filled(call->alone)
                      && !local->always);
    if (!is_idle || exact)
        done = after_line(local, todo, exact, frame);
    Py_XDECREF(todo);
    if (done < 0)
        return faulted(local->call->engine);
    Py_RETURN_NONE;
}

static PyObject *ask_other(Local *local, PyFrameObject *frame, PyObject *event, PyObject *argument)
{
    PyObject *what = PyTuple_Pack(2, event, argument);
    PyObject *result = what == NULL ? NULL
                                    : PyObject_CallFunctionObjArgs(local->on_other, local->core, local->call, frame, what, NULL);
    Py_XDECREF(what);
    return result == NULL ? faulted(local->call->engine) : result;
}

/* The call is no longer one of those that run; by id of the frame. */
static int forget_running(const Call *call, PyFrameObject *frame)
{
    PyObject *running = PyObject_GetAttr(call->engine, names.running), *key = PyLong_FromVoidPtr(frame);
    int done = running == NULL || key == NULL || !PyDict_Check(running) ? -1 : 0;
    if (done == 0 && PyDict_GetItemWithError(running, key) == (const PyObject *)call)
        done = PyDict_DelItem(running, key);
    Py_XDECREF(running);
    Py_XDECREF(key);
    return PyErr_Occurred() ? -1 : done;
}

/* The call has returned, or an exception leaves it: then the last instruction is none that returns. */
static int leave(Local *local, PyFrameObject *frame)
{
    Call *call = local->call;
    PyObject *offset = PyLong_FromLong(PyFrame_GetLasti(frame)), *returns = PyObject_GetAttr(call->plan, names.returns);
    int returned = offset == NULL || returns == NULL ? -1 : PySet_Contains(returns, offset);
    Py_XDECREF(offset);
    Py_XDECREF(returns);
    if (returned < 0)
        return -1;
    PyObject *error = call->error, *own = call->local; /* their references are ours now */
    call->error = call->local = NULL;
    int done = forget_running(call, frame);
    if (done == 0)
        done = end_followed(call, !returned && error != NULL ? error : Py_None);
    Py_XDECREF(error);
    Py_XDECREF(own);
    return done;
}

/* settrace.py: _on_return, of a call that cannot be suspended and has nothing more to be looked at when it ends. */
static PyObject *on_return(Local *local, PyFrameObject *frame, PyObject *event, PyObject *argument)
{
    Call *call = local->call;
    if (local->always || local->suspends)
        return ask_other(local, frame, event, argument);
    int closed = is_true_attribute(call->engine, names.closed);
    if (closed != 0)
        return closed < 0 ? faulted(local->call->engine) : ask_other(local, frame, event, argument);
    PyObject *last = call->pending; /* its reference is ours now */
    call->pending = NULL;
    int done = is_set(last) ? look_behind(call, last, frame) : 0;
    Py_XDECREF(last);
    int over = done < 0 ? -1 : is_filled(call->open) ? is_over(call, frame) : 1;
    if (over == 0)
        return ask_other(local, frame, event, argument); /* what was stored last wants a thorough look */
    if (over < 0 || leave(local, frame) < 0)
        return faulted(local->call->engine);
    Py_RETURN_NONE;
}

/* By the offset of the instruction that is about to be done, in a table of the plan's; owned. NULL: nothing, or an error. */
static PyObject *found_at(const Call *call, PyObject *table_name, PyObject *offset)
{
    PyObject *table = PyObject_GetAttr(call->plan, table_name);
    PyObject *found = table == NULL || !PyDict_Check(table) ? NULL : PyDict_GetItemWithError(table, offset);
    Py_XINCREF(found);
    Py_XDECREF(table);
    return found;
}

/* Whether an instruction is looked behind here: 1; 0 there is nothing to do; Python's affair: -1. */
static int is_looked_behind(const Call *call, PyObject *action)
{
    if (!call->is_exact)
        return 0;
    if (PyTuple_GET_ITEM(action, MUTATOR) == Py_None
        || (is_set(call->pending) && PyTuple_GET_ITEM(call->pending, IS_SHARED) == Py_True))
        return 1;
    int stores = PyTuple_GET_SIZE(PyTuple_GET_ITEM(action, FAST)) || PyTuple_GET_SIZE(PyTuple_GET_ITEM(action, TARGETS))
                 || PyTuple_GET_SIZE(PyTuple_GET_ITEM(action, ROOTS));
    return stores ? -1 : 0; /* what the line's calls have changed is looked at when the line is done */
}

/* An instruction is about to be done, in a line that is followed by them (settrace.py: _on_opcode): most do nothing. */
static PyObject *on_opcode(Local *local, PyFrameObject *frame, PyObject *event, PyObject *argument)
{
    Call *call = local->call;
    PyObject *offset = PyLong_FromLong(PyFrame_GetLasti(frame));
    PyObject *before = offset == NULL ? NULL : found_at(call, names.before, offset);
    PyObject *after = PyErr_Occurred() ? NULL : found_at(call, names.after, offset);
    Py_XDECREF(offset);
    int done = PyErr_Occurred() ? -1 : 0, is_pythons = before != NULL;
    if (done == 0 && after != NULL && !is_pythons) {
        int closed = is_true_attribute(call->engine, names.closed), looked = is_looked_behind(call, after);
        is_pythons = closed > 0 || looked < 0;
        done = closed < 0 ? -1 : looked > 0 && !closed ? look_behind(call, after, frame) : 0;
    }
    Py_XDECREF(before);
    Py_XDECREF(after);
    if (done < 0)
        return faulted(local->call->engine);
    if (is_pythons)
        return ask_other(local, frame, event, argument);
    Py_RETURN_NONE;
}

/* Compared as text: Python's own string for an event need not be the interned one. */
static int is_event(PyObject *event, const char *name)
{
    return PyUnicode_Check(event) && PyUnicode_CompareWithASCIIString(event, name) == 0;
}

static PyObject *local_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *kwnames)
{
    Local *local = (Local *)self;
    if (PyVectorcall_NARGS(flags) != 3 || !PyFrame_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a frame, an event and its argument are wanted");
        return NULL;
    }
    if (local->call == NULL || !is_ready((PyObject *)local->call))
        Py_RETURN_NONE; /* the collector is taking it apart */
    Py_INCREF(local); /* the frame may let go of it meanwhile */
    PyObject *result;
    if (args[1] == names.line || is_event(args[1], "line"))
        result = on_line(local, (PyFrameObject *)args[0]);
    else if (is_event(args[1], "opcode"))
        result = on_opcode(local, (PyFrameObject *)args[0], args[1], args[2]);
    else if (is_event(args[1], "return"))
        result = on_return(local, (PyFrameObject *)args[0], args[1], args[2]);
    else
        result = ask_other(local, (PyFrameObject *)args[0], args[1], args[2]);
    Py_DECREF(local);
    return result;
}

static int local_traverse(Local *local, visitproc visit, void *arg)
{
    Py_VISIT(local->core);
    Py_VISIT(local->lines);
    Py_VISIT(local->on_other);
    Py_VISIT(local->follow);
    Py_VISIT((PyObject *)local->call);
    return 0;
}

static int local_clear(Local *local)
{
    Py_CLEAR(local->core);
    Py_CLEAR(local->lines);
    Py_CLEAR(local->on_other);
    Py_CLEAR(local->follow);
    Py_CLEAR(local->call);
    return 0;
}

static void local_dealloc(Local *local)
{
    PyObject_GC_UnTrack(local);
    local_clear(local);
    Py_TYPE(local)->tp_free((PyObject *)local);
}

static Local *new_local(PyTypeObject *type, PyObject *core, PyObject *call, PyObject *lines, PyObject *on_other, PyObject *follow)
{
    Local *local = (Local *)type->tp_alloc(type, 0);
    if (local != NULL) {
        local->vectorcall = local_call;
        local->core = Py_NewRef(core);
        local->call = (Call *)Py_NewRef(call);
        local->lines = Py_NewRef(lines);
        local->on_other = Py_NewRef(on_other);
        local->follow = Py_NewRef(follow);
    }
    return local;
}

/* Local(core, call, lines, always, suspends, on_other, follow) */
static PyObject *local_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *core, *call, *lines, *on_other, *follow;
    int always, suspends;
    if (!PyArg_ParseTuple(args, "OO!O!ppOO", &core, &CallType, &call, &PyDict_Type, &lines, &always, &suspends, &on_other,
                          &follow))
        return NULL;
    Local *local = new_local(type, core, call, lines, on_other, follow);
    if (local != NULL) {
        local->always = (char)always;
        local->suspends = (char)suspends;
    }
    return (PyObject *)local;
}

static PyTypeObject LocalType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Local",
    .tp_doc = "The trace function of one call.",
    .tp_basicsize = sizeof(Local),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Local, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = local_new,
    .tp_dealloc = (destructor)local_dealloc,
    .tp_traverse = (traverseproc)local_traverse,
    .tp_clear = (inquiry)local_clear,
};

/* What is to be done for a code: None for nothing, the mark for what is not known yet; borrowed. NULL: error. */
static PyObject *plan_of(const Tracer *tracer, PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *key = PyLong_FromVoidPtr(code);
    Py_DECREF(code);
    PyObject *plan = key == NULL ? NULL : PyDict_GetItemWithError(tracer->plans, key);
    Py_XDECREF(key);
    return plan != NULL || PyErr_Occurred() ? plan : tracer->unknown;
}

/* A call of known code begins: its trace function, owned; None where Python has to begin it. NULL error. */
static PyObject *begin_here(const Tracer *tracer, PyFrameObject *frame, PyObject *plan)
{
    PyObject *lines = PyObject_GetAttr(plan, names.lines), *local = NULL;
    if (lines == NULL || !PyDict_Check(lines) || !PyDict_GET_SIZE(lines)) {
        Py_XDECREF(lines);
        return lines == NULL ? NULL : Py_NewRef(Py_None); /* only its end matters */
    }
    PyObject *call = begin_followed(tracer->engine, tracer->running, plan, frame);
    if (call == Py_None)
        local = Py_NewRef(Py_None);
    else if (call != NULL) {
        local = (PyObject *)new_local(&LocalType, tracer->core, call, lines, tracer->on_other, tracer->follow);
        Py_XSETREF(((Call *)call)->local, Py_XNewRef(local));
    }
    Py_XDECREF(call);
    Py_DECREF(lines);
    return local;
}

static PyObject *begin_call(const Tracer *tracer, PyFrameObject *frame)
{
    PyObject *plan = plan_of(tracer, frame);
    int closed = plan == NULL ? -1 : is_true_attribute(tracer->engine, names.closed);
    if (closed < 0)
        return NULL;
    if (plan == Py_None && !closed)
        Py_RETURN_NONE;
    if (plan != tracer->unknown && !closed && !is_filled(tracer->imports)) {
        Py_INCREF(plan); /* the table is cleared when the block ends */
        PyObject *local = begin_here(tracer, frame, plan);
        Py_DECREF(plan);
        if (local != Py_None)
            return local;
        Py_DECREF(local);
    }
    return PyObject_CallFunctionObjArgs(tracer->begin, tracer->core, frame, plan, NULL);
}

static PyObject *tracer_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *kwnames)
{
    Tracer *tracer = (Tracer *)self;
    if (PyVectorcall_NARGS(flags) != 3 || !PyFrame_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a frame, an event and its argument are wanted");
        return NULL;
    }
    if (tracer->core == NULL)
        Py_RETURN_NONE; /* the collector is taking it apart */
    Py_INCREF(tracer); /* the thread may let go of it meanwhile */
    PyObject *local = begin_call(tracer, (PyFrameObject *)args[0]);
    if (local == NULL)
        local = faulted(tracer->engine);
    Py_DECREF(tracer);
    return local;
}

#define TRACER_OBJECTS(each) each(core) each(engine) each(plans) each(running) each(imports) each(begin) each(unknown) each(on_other) each(follow)

static int tracer_traverse(Tracer *tracer, visitproc visit, void *arg)
{
#define VISIT(name) Py_VISIT(tracer->name);
    TRACER_OBJECTS(VISIT)
    Py_VISIT(tracer->dict);
    return 0;
}

static int tracer_clear(Tracer *tracer)
{
#define CLEAR(name) Py_CLEAR(tracer->name);
    TRACER_OBJECTS(CLEAR)
    Py_CLEAR(tracer->dict);
    return 0;
}

static void tracer_dealloc(Tracer *tracer)
{
    PyObject_GC_UnTrack(tracer);
    tracer_clear(tracer);
    Py_TYPE(tracer)->tp_free((PyObject *)tracer);
}

/* Tracer(core, engine, its plans, running calls and imports, begin, unknown, on_other, follow) */
static PyObject *tracer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *core, *engine, *plans, *running, *imports, *begin, *unknown, *on_other, *follow;
    if (!PyArg_ParseTuple(args, "OOO!O!O!OOOO", &core, &engine, &PyDict_Type, &plans, &PyDict_Type, &running, &PyDict_Type,
                          &imports, &begin, &unknown, &on_other, &follow))
        return NULL;
    Tracer *tracer = (Tracer *)type->tp_alloc(type, 0);
    if (tracer == NULL)
        return NULL;
    tracer->vectorcall = tracer_call;
#define TAKE(name) tracer->name = Py_NewRef(name);
    TRACER_OBJECTS(TAKE)
    return (PyObject *)tracer;
}

static PyGetSetDef tracer_attributes[] = {{"__dict__", PyObject_GenericGetDict, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyTypeObject TracerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Tracer",
    .tp_doc = "The trace function of a thread.",
    .tp_basicsize = sizeof(Tracer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Tracer, vectorcall),
    .tp_dictoffset = offsetof(Tracer, dict),
    .tp_getset = tracer_attributes,
    .tp_call = PyVectorcall_Call,
    .tp_new = tracer_new,
    .tp_dealloc = (destructor)tracer_dealloc,
    .tp_traverse = (traverseproc)tracer_traverse,
    .tp_clear = (inquiry)tracer_clear,
};

int tracing_ready(PyObject *module)
{
    struct { PyObject **place; const char *text; } all[] = {
        {&names.after, "after"}, {&names.before, "before"}, {&names.closed, "closed"}, {&names.fault, "fault"},
        {&names.line, "line"}, {&names.lines, "lines"}, {&names.release_thread, "release_thread"}, {&names.returns, "returns"},
        {&names.running, "running"},
    };
    for (size_t at = 0; at < sizeof all / sizeof all[0]; at++)
        if ((*all[at].place = PyUnicode_InternFromString(all[at].text)) == NULL)
            return -1;
    if (PyType_Ready(&LocalType) < 0 || PyType_Ready(&TracerType) < 0
        || PyModule_AddObjectRef(module, "Tracer", (PyObject *)&TracerType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Local", (PyObject *)&LocalType);
}
