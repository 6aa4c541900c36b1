/* The trace functions of a thread (capture/variables/settrace.py: _make_tracer) and of one followed
 * call (_make_local).
 *
 * They are set by sys.settrace and frame.f_trace, as trace functions written in Python are, so that
 * debuggers and other threads see no difference. Most calls are not followed and most lines store
 * nothing: these end here. For the others following.c inspects what the line has stored.
 * Instructions, returns and exceptions are handled in Python. A signal handler cannot raise in the
 * middle of this code: Python runs handlers only between bytecode instructions.
 */
#include "following.h"
#include "structmember.h"

/* Names of attributes. */
static struct {
    PyObject *closed, *fault, *line, *release_thread;
} names;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *core;     /* SettraceCore */
    PyObject *lines;    /* a dict: line number -> Action, what there is to inspect after the line */
    PyObject *on_other; /* handles all events but lines */
    PyObject *follow;   /* switches between lines and instructions */
    Call *call;
    /* the code has variables that other code may change: inspect them after every line */
    char always;
} Local;

/* The trace function of a thread; Python calls it when a call begins. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *core, *engine;
    /* the engine's dict: id of a code object -> its plan, or None if it is not followed */
    PyObject *plans;
    PyObject *begin;   /* begins a followed call: (core, frame, plan) */
    PyObject *unknown; /* passed as the plan of code that is new */
    PyObject *dict;
} Tracer;

/* Hand the exception that is set to Engine.fault: an error of ours costs one event, an exception
 * that a signal handler of the program raised is passed on. */
static PyObject *report_fault(PyObject *engine)
{
    PyObject *error = take_error();
    if (error == NULL || !is_set(engine))
        Py_RETURN_NONE;
    PyObject *done = PyObject_CallMethodOneArg(engine, names.fault, error);
    Py_DECREF(error);
    return done;
}

/* Inspect what the line before has stored, and switch between lines and instructions if the next
 * line (`exact`) needs it. */
static int after_line(Local *local, PyObject *action, int exact, PyFrameObject *frame)
{
    Call *call = local->call;
    const int closed = is_true_attribute(call->engine, names.closed);
    if (closed < 0)
        return -1;
    if (closed)
        return as_done(PyObject_CallMethodNoArgs(local->core, names.release_thread));
    if (is_set(action) && inspect_stores(call, action, frame) < 0)
        return -1;
    if (exact == call->is_exact && !is_set(call->error))
        return 0;
    return as_done(
        PyObject_CallFunctionObjArgs(local->follow, call, frame, exact ? Py_True : Py_False, NULL));
}

/* Return whether there is nothing to inspect after a line. */
static int is_idle(const Local *local, PyObject *action)
{
    if (!is_set(action))
        return 1;
    if (PyTuple_GET_ITEM(action, IS_QUIET) != Py_True || local->always)
        return 0;
    return !is_filled(local->call->open) && !is_filled(local->call->alone);
}

static PyObject *on_line(Local *local, PyFrameObject *frame)
{
    Call *call = local->call;
    PyObject *line = PyLong_FromLong(PyFrame_GetLineNumber(frame));
    /* borrowed from the plan's table */
    PyObject *next = line == NULL ? NULL : PyDict_GetItemWithError(local->lines, line);
    Py_XDECREF(line);
    if (next == NULL && PyErr_Occurred())
        return report_fault(call->engine);
    PyObject *previous = call->pending; /* its reference is ours now */
    call->pending = Py_XNewRef(next);
    const int exact = next != NULL && PyTuple_GET_ITEM(next, EXACT) == Py_True;
    int done = 0;
    if (exact || !is_idle(local, previous))
        done = after_line(local, previous, exact, frame);
    Py_XDECREF(previous);
    if (done < 0)
        return report_fault(call->engine);
    Py_RETURN_NONE;
}

/* All events but lines: settrace.py, _on_other. */
static PyObject *on_other(Local *local, PyFrameObject *frame, PyObject *event, PyObject *argument)
{
    PyObject *pair = PyTuple_Pack(2, event, argument);
    PyObject *result = NULL;
    if (pair != NULL)
        result = PyObject_CallFunctionObjArgs(local->on_other, local->core, local->call, frame,
                                              pair, NULL);
    Py_XDECREF(pair);
    return result == NULL ? report_fault(local->call->engine) : result;
}

/* Compare as text: Python's own string for an event need not be the interned one. */
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
        Py_RETURN_NONE; /* the garbage collector has cleared it */
    Py_INCREF(local);   /* the frame may drop its reference while this runs */
    PyObject *result;
    if (args[1] == names.line || is_event(args[1], "line"))
        result = on_line(local, (PyFrameObject *)args[0]);
    else
        result = on_other(local, (PyFrameObject *)args[0], args[1], args[2]);
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

static Local *new_local(PyTypeObject *type, PyObject *core, PyObject *call, PyObject *lines,
                        PyObject *on_other, PyObject *follow)
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

/* Local(core, call, lines, always, on_other, follow) */
static PyObject *local_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *core, *call, *lines, *on_other, *follow;
    int always;
    if (!PyArg_ParseTuple(args, "OO!O!pOO", &core, &CallType, &call, &PyDict_Type, &lines, &always,
                          &on_other, &follow))
        return NULL;
    Local *local = new_local(type, core, call, lines, on_other, follow);
    if (local != NULL) {
        local->always = (char)always;
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

/* Return the plan for a frame's code: None if it is not followed, `unknown` if it is new.
 * Borrowed; NULL with an exception. */
static PyObject *plan_of(const Tracer *tracer, PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *key = PyLong_FromVoidPtr(code);
    Py_DECREF(code);
    PyObject *plan = key == NULL ? NULL : PyDict_GetItemWithError(tracer->plans, key);
    Py_XDECREF(key);
    return plan != NULL || PyErr_Occurred() ? plan : tracer->unknown;
}

static PyObject *begin_call(const Tracer *tracer, PyFrameObject *frame)
{
    PyObject *plan = plan_of(tracer, frame);
    int closed = plan == NULL ? -1 : is_true_attribute(tracer->engine, names.closed);
    if (closed < 0)
        return NULL;
    if (plan == Py_None && !closed)
        Py_RETURN_NONE;
    Py_INCREF(plan); /* the table is cleared when the block ends */
    PyObject *local = PyObject_CallFunctionObjArgs(tracer->begin, tracer->core, frame, plan, NULL);
    Py_DECREF(plan);
    return local;
}

static PyObject *tracer_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *kwnames)
{
    Tracer *tracer = (Tracer *)self;
    if (PyVectorcall_NARGS(flags) != 3 || !PyFrame_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a frame, an event and its argument are wanted");
        return NULL;
    }
    if (tracer->core == NULL)
        Py_RETURN_NONE; /* the garbage collector has cleared it */
    Py_INCREF(tracer);  /* the thread may drop its reference while this runs */
    PyObject *local = begin_call(tracer, (PyFrameObject *)args[0]);
    if (local == NULL)
        local = report_fault(tracer->engine);
    Py_DECREF(tracer);
    return local;
}

#define TRACER_OBJECTS(each) each(core) each(engine) each(plans) each(begin) each(unknown)

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

/* Tracer(core, engine, its plans, begin, unknown) */
static PyObject *tracer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *core, *engine, *plans, *begin, *unknown;
    if (!PyArg_ParseTuple(args, "OOO!OO", &core, &engine, &PyDict_Type, &plans, &begin, &unknown))
        return NULL;
    Tracer *tracer = (Tracer *)type->tp_alloc(type, 0);
    if (tracer == NULL)
        return NULL;
    tracer->vectorcall = tracer_call;
#define TAKE(name) tracer->name = Py_NewRef(name);
    TRACER_OBJECTS(TAKE)
    return (PyObject *)tracer;
}

static PyGetSetDef tracer_attributes[] = {{"__dict__", PyObject_GenericGetDict, NULL, NULL, NULL},
                                          {NULL, NULL, NULL, NULL, NULL}};

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
    const AttributeName all[] = {
        {&names.closed, "closed"},
        {&names.fault, "fault"},
        {&names.line, "line"},
        {&names.release_thread, "release_thread"},
    };
    if (INTERN_NAMES(all) < 0)
        return -1;
    if (PyType_Ready(&LocalType) < 0 || PyType_Ready(&TracerType) < 0
        || PyModule_AddObjectRef(module, "Tracer", (PyObject *)&TracerType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Local", (PyObject *)&LocalType);
}
