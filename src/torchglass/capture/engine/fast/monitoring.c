/* The callbacks of sys.monitoring by which calls are followed from Python 3.12 on
 * (capture/variables/monitoring.py).
 *
 * Handled here is what most events need: nothing, often for good (DISABLE); inspecting what an
 * instruction has stored (following.c); beginning a call of known code; ending a call whose
 * variables need no last check. All other events are left to the callback in Python, before
 * anything is done. A compiled callback has no frame, so the innermost frame is the program's.
 */
#include "following.h"
#include "structmember.h"

/* Names of attributes. */
static struct {
    PyObject *after, *alert, *always, *begin, *closed, *code, *fault;
    PyObject *is_loud, *is_muted, *is_on, *owns_thread;
} names;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *engine;
    /* a dict of the engine: address of a code object -> its plan, or None if it is not followed */
    PyObject *plans;
    PyObject *running; /* a dict of the engine: address of a frame -> its Call */
    PyObject *imports; /* a dict of the engine: not empty while a module is imported */
    /* sys.monitoring.DISABLE: returned for an instruction whose events are not wanted any more */
    PyObject *disable;
    PyObject *python; /* the callback in Python that this one replaces */
    int depth;        /* which frame an event is about; 1: the innermost */
} Callback;

/* ----------------------------------------------------------- the frame and the call of an event */

/* Return the frame, owned; NULL where there is none or no memory for it. */
static PyFrameObject *frame_of(const Callback *callback)
{
    PyFrameObject *frame = caller_frame();
    for (int depth = callback->depth; depth > 1 && frame != NULL; depth--) {
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    return frame;
}

/* Return the item whose key is an address, owned; NULL with no exception: there is none. */
static PyObject *found_by_address(PyObject *dict, const void *address)
{
    PyObject *key = PyLong_FromVoidPtr((void *)address);
    /* borrowed, made our own */
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(dict, key);
    Py_XINCREF(found);
    Py_XDECREF(key);
    return found;
}

/* Return the call of a frame, owned; NULL without an exception where it is not followed. */
static Call *call_of(const Callback *callback, const PyFrameObject *frame)
{
    PyObject *found = found_by_address(callback->running, frame);
    if (found != NULL && !is_ready(found))
        Py_CLEAR(found);
    return (Call *)found;
}

/* ---------------------------------------------------------------- the answer of a callback */

/* Report an error of ours, which costs one event. An exception that a signal handler of the program
 * raised is passed on. */
static PyObject *faulted(const Callback *callback)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyObject *error = take_error();
    PyObject *done = PyObject_CallMethodOneArg(callback->engine, names.fault, error);
    Py_DECREF(error);
    return done;
}

static PyObject *nothing_or_fault(const Callback *callback, int done)
{
    if (done < 0)
        return faulted(callback);
    Py_RETURN_NONE;
}

static PyObject *ask_python(const Callback *callback, PyObject *const *args, size_t flags)
{
    return PyObject_Vectorcall(callback->python, args, PyVectorcall_NARGS(flags), NULL);
}

/* -------------------------------------------------------- a call begins, or a generator resumes */

/* Return whether calls on this thread are followed at all: 1, 0, -1 error. */
static int is_followed(const Callback *callback)
{
    int closed = is_true_attribute(callback->engine, names.closed);
    if (closed != 0)
        return closed < 0 ? -1 : 0;
    return as_truth(PyObject_CallMethodNoArgs(callback->engine, names.owns_thread));
}

static int begin(const Callback *callback, PyObject *plan, PyFrameObject *frame, int silent)
{
    Call *known = silent ? call_of(callback, frame) : NULL;
    int is_known = known != NULL && known->plan == plan;
    Py_XDECREF(known);
    if (is_known || PyErr_Occurred())
        return is_known ? 0 : -1;
    int followed = is_followed(callback);
    if (followed <= 0)
        return followed;
    return as_done(PyObject_CallMethodObjArgs(callback->engine, names.begin, frame, plan,
                                              silent ? Py_True : Py_False, NULL));
}

static PyObject *begin_or_go_on(const Callback *callback, PyObject *const *args, size_t flags,
                                int silent)
{
    PyObject *plan = found_by_address(callback->plans, args[0]);
    if (plan == Py_None) {
        Py_DECREF(plan);
        return Py_NewRef(callback->disable);
    }
    int is_on = plan == NULL ? 0 : is_true_attribute(plan, names.is_on);
    PyObject *result;
    if (PyErr_Occurred())
        result = faulted(callback);
    else if (!is_on || is_filled(callback->imports))
        /* it is met for the first time, or may be part of an import */
        result = ask_python(callback, args, flags);
    else {
        PyFrameObject *frame = frame_of(callback);
        result =
            nothing_or_fault(callback, frame == NULL ? 0 : begin(callback, plan, frame, silent));
        Py_XDECREF(frame);
    }
    Py_XDECREF(plan);
    return result;
}

static PyObject *on_start(const Callback *callback, PyObject *const *args, size_t flags)
{
    return begin_or_go_on(callback, args, flags, 0);
}

static PyObject *on_resume(const Callback *callback, PyObject *const *args, size_t flags)
{
    return begin_or_go_on(callback, args, flags, 1);
}

/* ----------------------------------------------------------- an instruction is about to be done */

enum Verdict {
    SILENCE, /* this instruction needs no more events */
    NOTHING, /* nothing to do this time */
    INSPECT, /* inspect what the instruction before has stored */
    HANDLER, /* an exception is handled here: left to Python */
    FAULT
};

/* Return what to do before an instruction. If it can only have changed a container in place, there
 * is nothing to do unless a call is alert (looking.c). */
static enum Verdict judge(PyObject *plan, PyObject *action)
{
    PyObject *mentioned = PyTuple_GET_ITEM(action, MENTIONED); /* borrowed from the action */
    if (PyTuple_GET_ITEM(action, IS_QUIET) != Py_True || !PyTuple_Check(mentioned)
        || PyTuple_GET_SIZE(mentioned))
        return PyTuple_GET_ITEM(action, HANDLES) == Py_True ? HANDLER : INSPECT;
    int alert = is_true_attribute(plan, names.alert);
    if (alert != 0)
        return alert < 0 ? FAULT : INSPECT;
    int is_loud = is_true_attribute(plan, names.is_loud);
    if (is_loud != 0)
        return is_loud < 0 ? FAULT : NOTHING;
    return PyObject_SetAttr(plan, names.is_muted, Py_True) < 0 ? FAULT : SILENCE;
}

/* Inspect what the instruction before has stored. */
static int inspect(const Callback *callback, PyObject *plan, PyObject *action)
{
    PyFrameObject *frame = frame_of(callback);
    Call *call = frame == NULL ? NULL : call_of(callback, frame);
    int done = PyErr_Occurred() ? -1 : 0;
    if (call != NULL && call->plan == plan) {
        int closed = is_true_attribute(callback->engine, names.closed);
        if (closed < 0)
            done = -1;
        else if (!closed && !(call->skipped_line && call->skipped_line == stored_line(action)))
            done = inspect_stores(call, action, frame);
    }
    Py_XDECREF(call);
    Py_XDECREF(frame);
    return done;
}

static PyObject *on_instruction(const Callback *callback, PyObject *const *args, size_t flags)
{
    PyObject *plan = found_by_address(callback->plans, args[0]);
    PyObject *action = NULL;
    if (is_set(plan)) {
        PyObject *after = PyObject_GetAttr(plan, names.after);
        if (after != NULL && PyDict_Check(after))
            action = Py_XNewRef(PyDict_GetItemWithError(after, args[1]));
        Py_XDECREF(after);
    }
    enum Verdict verdict = FAULT;
    if (!PyErr_Occurred())
        verdict = action == NULL ? SILENCE : judge(plan, action);
    if (verdict == INSPECT && inspect(callback, plan, action) < 0)
        verdict = FAULT;
    Py_XDECREF(action);
    Py_XDECREF(plan);
    if (verdict == HANDLER)
        return ask_python(callback, args, flags);
    return verdict == SILENCE ? Py_NewRef(callback->disable)
                              : nothing_or_fault(callback, verdict == FAULT ? -1 : 0);
}

/* ---------------------------------------------------------------- a call ends */

/* Return whether Python has to check the variables of a call once more when it ends; -1: error. */
static int needs_last_check(Call *call, PyFrameObject *frame)
{
    if (!is_filled(call->open))
        return is_true_attribute(call->plan, names.always);
    const enum Checked checked = check_at_end(call, frame);
    return checked == CHECK_FAILED ? -1 : checked == ASK_PYTHON;
}

/* End a call whose variables need no last check. */
static int leave(const Callback *callback, Call *call, PyFrameObject *frame)
{
    PyObject *key = PyLong_FromVoidPtr(frame);
    int done = key == NULL ? -1 : PyDict_DelItem(callback->running, key);
    Py_XDECREF(key);
    return done < 0 ? -1 : end_followed(call, Py_None);
}

static int is_of(const Call *call, PyObject *code)
{
    PyObject *own = PyObject_GetAttr(call->plan, names.code);
    Py_XDECREF(own); /* the plan has it; only its address is compared */
    return own == NULL ? -1 : own == code;
}

static PyObject *on_return(const Callback *callback, PyObject *const *args, size_t flags)
{
    if (is_filled(callback->imports))
        return ask_python(callback, args, flags);
    PyFrameObject *frame = frame_of(callback);
    Call *call = frame == NULL ? NULL : call_of(callback, frame);
    int own = call == NULL ? 0 : is_of(call, args[0]);
    int last = own > 0 ? needs_last_check(call, frame) : 0;
    int done = PyErr_Occurred() ? -1 : 0;
    if (own > 0 && last == 0)
        done = leave(callback, call, frame);
    /* also an old entry of another call at this address */
    int is_pythons = call != NULL && done == 0 && (own == 0 || last > 0);
    Py_XDECREF(call);
    Py_XDECREF(frame);
    return is_pythons ? ask_python(callback, args, flags) : nothing_or_fault(callback, done);
}

/* Python reports each call that an exception leaves; few of them are followed. */
static PyObject *on_unwind(const Callback *callback, PyObject *const *args, size_t flags)
{
    if (!is_filled(callback->imports)) {
        PyFrameObject *frame = frame_of(callback);
        Call *call = frame == NULL ? NULL : call_of(callback, frame);
        Py_XDECREF(frame);
        if (call == NULL)
            return nothing_or_fault(callback, PyErr_Occurred() ? -1 : 0);
        Py_DECREF(call);
    }
    return ask_python(callback, args, flags);
}

/* ---------------------------------------------------------------- the type */

typedef PyObject *(*Event)(const Callback *, PyObject *const *, size_t);

static PyObject *handle(PyObject *self, Event event, Py_ssize_t arguments, PyObject *const *args,
                        size_t flags)
{
    if (PyVectorcall_NARGS(flags) != arguments || !PyCode_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError,
                        "the arguments of a callback of sys.monitoring are wanted");
        return NULL;
    }
    /* Python drops it if another callback is registered, which we may do meanwhile */
    Py_INCREF(self);
    PyObject *result = ((Callback *)self)->engine == NULL ? Py_NewRef(Py_None)
                                                          : event((Callback *)self, args, flags);
    Py_DECREF(self);
    return result;
}

#define DEFINE_HANDLER(event, count)                                                               \
    static PyObject *handle_##event(PyObject *self, PyObject *const *args, size_t flags,           \
                                    PyObject *keywords)                                            \
    {                                                                                              \
        return handle(self, on_##event, count, args, flags);                                       \
    }
DEFINE_HANDLER(start, 2)
DEFINE_HANDLER(resume, 2)
DEFINE_HANDLER(instruction, 2)
DEFINE_HANDLER(return, 3)
DEFINE_HANDLER(unwind, 3)

static const struct {
    const char *name;
    vectorcallfunc call;
} events[] = {
    {"start", handle_start},   {"resume", handle_resume}, {"instruction", handle_instruction},
    {"return", handle_return}, {"unwind", handle_unwind},
};

#define OBJECTS(each)                                                                              \
    each(engine) each(plans) each(running) each(imports) each(disable) each(python)

static int callback_traverse(Callback *callback, visitproc visit, void *arg)
{
#define VISIT(name) Py_VISIT(callback->name);
    OBJECTS(VISIT)
    return 0;
}

static int callback_clear(Callback *callback)
{
#define CLEAR(name) Py_CLEAR(callback->name);
    OBJECTS(CLEAR)
    return 0;
}

static void callback_dealloc(Callback *callback)
{
    PyObject_GC_UnTrack(callback);
    callback_clear(callback);
    Py_TYPE(callback)->tp_free((PyObject *)callback);
}

/* Callback(event, engine, its plans, running calls and imports, DISABLE, the one in Python, depth)
 */
static PyObject *callback_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *engine, *plans, *running, *imports, *disable, *python;
    const char *event;
    int depth;
    if (!PyArg_ParseTuple(args, "sOO!O!O!OOi", &event, &engine, &PyDict_Type, &plans, &PyDict_Type,
                          &running, &PyDict_Type, &imports, &disable, &python, &depth))
        return NULL;
    vectorcallfunc call = NULL;
    for (size_t at = 0; at < sizeof events / sizeof events[0]; at++)
        if (strcmp(event, events[at].name) == 0)
            call = events[at].call;
    if (call == NULL)
        return PyErr_Format(PyExc_ValueError, "no such event: %s", event);
    Callback *callback = (Callback *)type->tp_alloc(type, 0);
    if (callback == NULL)
        return NULL;
    callback->vectorcall = call;
    callback->depth = depth;
#define TAKE(name) callback->name = Py_NewRef(name);
    OBJECTS(TAKE)
    return (PyObject *)callback;
}

static PyTypeObject CallbackType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Callback",
    .tp_doc = "A callback of sys.monitoring for one kind of event.",
    .tp_basicsize = sizeof(Callback),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Callback, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = callback_new,
    .tp_dealloc = (destructor)callback_dealloc,
    .tp_traverse = (traverseproc)callback_traverse,
    .tp_clear = (inquiry)callback_clear,
};

int monitoring_ready(PyObject *module)
{
    const AttributeName all[] = {
        {&names.after, "after"},
        {&names.alert, "alert"},
        {&names.always, "always"},
        {&names.begin, "begin"},
        {&names.closed, "closed"},
        {&names.code, "code"},
        {&names.fault, "fault"},
        {&names.is_loud, "is_loud"},
        {&names.is_muted, "is_muted"},
        {&names.is_on, "is_on"},
        {&names.owns_thread, "owns_thread"},
    };
    if (INTERN_NAMES(all) < 0)
        return -1;
    if (PyType_Ready(&CallbackType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Callback", (PyObject *)&CallbackType);
}
