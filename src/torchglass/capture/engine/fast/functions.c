/* The function mode (torch/functions.py): records each torch function that Python code calls.
 *
 * mode_call gets a function, its types and its arguments from torch. Python has made a FunctionPlan
 * for each function, which says whether it is recorded (look_up). record_call opens the event,
 * calls the function and closes the event. C has no frame, so no frame of ours is in a traceback,
 * and the innermost frame is the caller's.
 *
 * The file also has what the other modes share with it: hiding from modes that we read tensors,
 * ending interrupted optimizer steps, and counting threads. At its end are the replacements of two
 * functions that look at frames: torch's handle_torch_function, and warnings.warn.
 */
#include "fast.h"
#include "structmember.h"

/* in place of a number: it sets an attribute of its first argument, and is not recorded
 * (functions.py) */
enum { FORGETS = -2 };

/* The fields of a FunctionPlan (functions.py). */
enum {
    PLAN_NUMBER, /* of its row; NONE or FORGETS: it is not recorded */
    /* a copy of a function written in Python, in which the mode sees the calls inside; or None */
    PLAN_LISTENING_COPY,
    PLAN_REPLACEMENT, /* what is called in place of the function; or None */
    PLAN_ON_RETURN    /* called with the result; or None */
};

typedef struct {
    PyObject_HEAD
    Engine *engine;
    PyObject *table;   /* FunctionTable: a FunctionPlan for each function */
    PyObject *handler; /* the handler in Python, for calls that C leaves to it */
    /* FunctionTable.changed, which is `on_return` of functions that write in place */
    PyObject *changed;
    PyObject *on_write; /* the session's list of callbacks for writes in place */
} FunctionMode;

/* -------------------------------------------------------------- shared with ops.c and modules.c */

long count_modes(void)
{
    PyObject *answer = PyObject_CallNoArgs(torch.count_modes);
    if (answer == NULL)
        return -1;
    long count = PyLong_AsLong(answer);
    Py_DECREF(answer);
    return count;
}

PyFrameObject *caller_frame(void)
{
    return PyThreadState_GetFrame(PyThreadState_Get());
}

PyObject *call_python(PyObject *handler, PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *all[6] = {self};
    for (Py_ssize_t at = 0; at < count && at < 5; at++)
        all[at + 1] = args[at];
    return PyObject_Vectorcall(handler, all, (size_t)(count < 5 ? count : 5) + 1, NULL);
}

static PyObject *at_name, *frame_id_name, *code_name, *out_name, *enter_name, *exit_name;

/* Return whether a frame, or one above it, has this address and this code. (With the address alone
 * it may be a later frame.) */
static int stands_above(PyFrameObject *frame, long long address, const PyObject *code)
{
    int found = 0;
    PyFrameObject *each = (PyFrameObject *)Py_XNewRef((PyObject *)frame);
    while (each != NULL && !found) {
        PyCodeObject *its_code = PyFrame_GetCode(each);
        found = (long long)(intptr_t)each == address && (const PyObject *)its_code == code;
        Py_DECREF(its_code);
        PyFrameObject *above = PyFrame_GetBack(each);
        Py_DECREF(each);
        each = above;
    }
    Py_XDECREF(each);
    return found;
}

/* Return whether the innermost optimizer step is still running (log.py: OpenStep.runs_above): an
 * event inside it is open, or the frame of its wrapper is on the stack; -1: error. */
static int is_under_way(const Log *log, PyFrameObject *frame)
{
    PyObject *step = Py_NewRef(PyList_GET_ITEM(log->steps, PyList_GET_SIZE(log->steps) - 1));
    PyObject *code = PyObject_GetAttr(step, code_name);
    const long long at = as_number(PyObject_GetAttr(step, at_name));
    const long long address =
        at == FAILED ? FAILED : as_number(PyObject_GetAttr(step, frame_id_name));
    int found = code == NULL || address == FAILED
                    ? -1
                    : log->parent > at || (log->parent == at && stands_above(frame, address, code));
    Py_XDECREF(code);
    Py_DECREF(step);
    return found;
}

int heal_steps(Engine *engine, Log *log, PyFrameObject *frame)
{
    if (log->steps == NULL || PyList_GET_SIZE(log->steps) == 0)
        return 0;
    const int is_fine = is_under_way(log, frame);
    if (is_fine != 0)
        return is_fine < 0 ? forgive(engine) : 0;
    PyObject *done = PyObject_CallMethod(engine->session, "heal_steps", "OO", log,
                                         frame == NULL ? Py_None : (PyObject *)frame);
    Py_XDECREF(done);
    return done == NULL ? forgive(engine) : 0;
}

PyObject *fail_event(Engine *engine, Log *log, int64_t at)
{
    PyObject *error = take_error();
    PyObject *done =
        PyObject_CallMethod(engine->session, "fail_event", "OLO", log, (long long)at, error);
    /* a signal handler of the program has raised meanwhile: that exception goes on instead */
    if (done == NULL) {
        Py_DECREF(error);
        return NULL;
    }
    Py_DECREF(done);
    put_error(error);
    return NULL;
}

/* Our mode where it is the only one on the stack, owned; NULL with no exception where it is not. */
static PyObject *only_mode(long count)
{
    static PyObject *zero;
    if (count != 1 || (zero == NULL && (zero = PyLong_FromLong(0)) == NULL))
        return NULL;
    PyObject *top = PyObject_CallOneArg(torch.mode_at, zero);
    if (top != NULL && !PyObject_TypeCheck(top, &FunctionModeType))
        Py_CLEAR(top);
    return top;
}

static _Thread_local int reading; /* this thread is inside enter_reading: no mode is on the stack */

int enter_unseen(Unseen *unseen)
{
    *unseen = NULL;
    if (reading)
        return 0;
    const long count = count_modes();
    if (count <= 0)
        return (int)count;
    *unseen = PyObject_CallNoArgs(torch.no_functions);
    PyObject *entered = *unseen == NULL ? NULL : PyObject_CallMethodNoArgs(*unseen, enter_name);
    Py_XDECREF(entered);
    if (entered == NULL)
        Py_CLEAR(*unseen);
    return entered == NULL ? -1 : (int)count;
}

/* An exception that is set stays set. */
int leave_unseen(Unseen *unseen)
{
    if (*unseen == NULL)
        return 0;
    PyObject *error = take_error();
    PyObject *all[] = {*unseen, Py_None, Py_None, Py_None};
    PyObject *done = PyObject_VectorcallMethod(exit_name, all, 4, NULL);
    Py_XDECREF(done);
    Py_CLEAR(*unseen);
    if (error != NULL) {
        PyErr_Clear();
        put_error(error);
        return -1;
    }
    return done == NULL ? -1 : 0;
}

int enter_reading(Unseen *unseen)
{
    const int count = enter_unseen(unseen);
    reading += count >= 0;
    return count;
}

int leave_reading(Unseen *unseen)
{
    reading--;
    return leave_unseen(unseen);
}

PyObject *call_unseen(PyObject *callable, PyObject *first, PyObject *second)
{
    Unseen unseen;
    if (enter_unseen(&unseen) < 0)
        return NULL;
    PyObject *answer = PyObject_CallFunctionObjArgs(callable, first, second, NULL);
    if (leave_unseen(&unseen) < 0)
        Py_CLEAR(answer);
    return answer;
}

/* ---------------------------------------------------------------- threads inside a handler
 *
 * All of this runs with the lock of Python held. */

static _Thread_local int handlers; /* how many handlers this thread is inside */
static int threads_inside;

void enter_handler(void)
{
    threads_inside += handlers++ == 0;
}

void leave_handler(void)
{
    threads_inside -= --handlers == 0;
}

PyObject *stay_aside(PyObject *module, PyObject *unused)
{
    threads_inside -= handlers > 0;
    handlers = 0;
    Py_RETURN_NONE;
}

PyObject *others_inside(PyObject *module, PyObject *unused)
{
    return PyLong_FromLong(threads_inside - (handlers > 0));
}

PyObject *after_fork(PyObject *module, PyObject *unused)
{
    threads_inside = handlers > 0;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- one call */

static int are_plain(PyObject *types)
{
    if (!PyTuple_Check(types))
        return PyList_Check(types) && PyList_GET_SIZE(types) == 0;
    Py_ssize_t count = PyTuple_GET_SIZE(types);
    return count == 0 || (count == 1 && PyTuple_GET_ITEM(types, 0) == (PyObject *)torch.Tensor);
}

/* Return the plan of a function, owned; NULL with an exception. */
static PyObject *plan_of(FunctionMode *mode, PyObject *func)
{
    PyObject *plan = PyDict_GetItemWithError(mode->table, func); /* borrowed from the table */
    if (plan != NULL)
        return Py_NewRef(plan);
    return PyErr_Occurred() ? NULL : PyObject_GetItem(mode->table, func);
}

/* Return whether torch's own handle_torch_function called us: then a function written in Python
 * stands above that. */
static int is_torchs_handler(void)
{
    PyFrameObject *frame = caller_frame();
    PyCodeObject *code = frame == NULL ? NULL : PyFrame_GetCode(frame);
    int found = code != NULL && code == torch.handler_code;
    Py_XDECREF(code);
    Py_XDECREF(frame);
    return found;
}

/* One call of a torch function. The caller of record_call owns all references. */
typedef struct {
    PyObject *func, *types, *args;
    PyObject *kwargs; /* NULL: none */
    PyObject *plan;
    /* The function is written in Python and called us itself, through handle_torch_function. */
    int from_python;
} TorchCall;

/* Return the frame that called torch, owned. `own` is the frame that called us. If that is the frame
 * of a torch function written in Python, its caller called torch. */
static PyFrameObject *place_of_call(const TorchCall *call, PyFrameObject *own)
{
    if (own != NULL && call->from_python)
        return PyFrame_GetBack(own);
    return (PyFrameObject *)Py_XNewRef((PyObject *)own);
}

/* The fields of a log that an open event changes. */
typedef struct {
    long long parent, anchor, base;
} State;

static void restore(Log *log, const State *state)
{
    log->parent = state->parent;
    log->anchor = state->anchor;
    log->base = state->base;
}

/* Take all function modes off the stack, which an interrupted torch function may have left there.
 */
static int drop_modes(void)
{
    PyObject *error = take_error();
    for (long count = count_modes(); count > 0; count--) {
        PyObject *mode = PyObject_CallNoArgs(torch.pop_mode);
        Py_XDECREF(mode);
    }
    PyErr_Clear();
    if (error != NULL)
        put_error(error);
    return 0;
}

/* Call the listening copy of a function with our mode on the stack again, so that the mode sees the
 * calls inside. */
static PyObject *call_listening_copy(FunctionMode *mode, const TorchCall *call)
{
    PyObject *copy = PyTuple_GET_ITEM(call->plan, PLAN_LISTENING_COPY);
    PyObject *pushed = PyObject_CallOneArg(torch.push_mode, (PyObject *)mode);
    if (pushed == NULL)
        return NULL;
    Py_DECREF(pushed);
    PyObject *result = PyObject_Call(copy, call->args, call->kwargs);
    if (result == NULL)
        return NULL;
    PyObject *popped = PyObject_CallNoArgs(torch.pop_mode);
    if (popped == NULL)
        Py_CLEAR(result);
    Py_XDECREF(popped);
    return result;
}

/* After a few calls (FunctionTable.after_return): guard their backward pass, or report that `out=`
 * was written. */
static int after_return(FunctionMode *mode, Log *log, PyObject *result, PyObject *kwargs)
{
    if (!log->branched && (kwargs == NULL || PyDict_GetItemWithError(kwargs, out_name) == NULL))
        return PyErr_Occurred() ? -1 : 0;
    return as_done(PyObject_CallMethod(mode->table, "after_return", "OOO", log, result,
                                       kwargs == NULL ? Py_None : kwargs));
}

/* Return whether a write in place needs no more than a mark on the first argument: that is no list,
 * and nobody wants to hear of the write. */
static int only_marks_first(const FunctionMode *mode, PyObject *args)
{
    return PyList_GET_SIZE(mode->on_write) == 0 && PyTuple_GET_SIZE(args) > 0
           && !PyList_Check(PyTuple_GET_ITEM(args, 0)) && !PyTuple_Check(PyTuple_GET_ITEM(args, 0));
}

/* Call a plan's `on_return` (FunctionTable.changed or converted). Return what is recorded as the
 * result, owned. */
static PyObject *call_on_return(FunctionMode *mode, PyObject *on_return, PyObject *args,
                                PyObject *result, int has_inner_events)
{
    if (!PyMethod_Check(on_return) || PyMethod_GET_FUNCTION(on_return) != mode->changed
        || !only_marks_first(mode, args))
        return PyObject_CallFunctionObjArgs(on_return, args, result,
                                            has_inner_events ? Py_True : Py_False, NULL);
    PyObject *first = PyTuple_GET_ITEM(args, 0); /* borrowed from args, which our caller owns */
    if (!(has_inner_events && mode->engine->records_ops))
        Py_DECREF(engine_mark_changed(mode->engine, first)); /* gives None */
    return Py_NewRef(result == Py_None ? first : result);
}

/* Close the event of a call that has returned. */
static int finish(FunctionMode *mode, Log *log, int64_t at, const TorchCall *call, PyObject *result)
{
    PyObject *on_return = PyTuple_GET_ITEM(call->plan, PLAN_ON_RETURN); /* borrowed from the plan */
    PyObject *shown;
    if (on_return == Py_None)
        shown = Py_NewRef(result);
    else
        shown = call_on_return(mode, on_return, call->args, result, log->at > at + 1);
    if (shown == NULL)
        return -1;
    const int status = close_event(mode->engine, log, at, shown, 0);
    Py_DECREF(shown);
    if (status < 0)
        return -1;
    return after_return(mode, log, result, call->kwargs);
}

/* Close the event of a call that an exception left. The exception stays set. */
static void fail_call(FunctionMode *mode, Log *log, int64_t at, const State *state)
{
    PyObject *error = take_error();
    /* a signal may have left one half way */
    PyObject *done = PyObject_CallOneArg(mode->engine->finish_pops, error);
    if (done == NULL) /* a signal handler has raised: that exception goes on instead */
        Py_SETREF(error, take_error());
    Py_XDECREF(done);
    put_error(error);
    drop_modes();
    restore(log, state);
    fail_event(mode->engine, log, at);
}

/* Return whether to call the listening copy: not inside a call of the same function. */
static int should_listen(Log *log, const TorchCall *call, int64_t what, int64_t parent)
{
    if (PyTuple_GET_ITEM(call->plan, PLAN_LISTENING_COPY) == Py_None || !are_plain(call->types))
        return 0;
    return parent < 0 || word_of(log, parent, WHAT) != what;
}

/* Open the event of a call, and say in `listens` whether to call the listening copy. */
static int64_t open_call(FunctionMode *mode, Log *log, const TorchCall *call, PyFrameObject *own,
                         int *listens)
{
    Engine *engine = mode->engine;
    const int64_t what = PyLong_AsLongLong(PyTuple_GET_ITEM(call->plan, PLAN_NUMBER));
    const long long parent = log->parent;
    PyFrameObject *frame = place_of_call(call, own);
    const int64_t at = open_event(engine, log, what, frame, &PyTuple_GET_ITEM(call->args, 0),
                                  PyTuple_GET_SIZE(call->args), call->kwargs);
    Py_XDECREF(frame);
    if (at < 0)
        return at;
    *listens = should_listen(log, call, what, parent);
    if (*listens || engine->records_ops) {
        log->anchor = (long long)(intptr_t)own;
        /* `stack` is of this record, unless a signal handler was recorded since. */
        log->base = log->at == at + 1 ? log->stack : word_of(log, at, STACK);
    }
    return PyErr_Occurred() ? FAILED : at;
}

/* Return what to call: the replacement in the plan, or the function itself. Borrowed. */
static PyObject *callable_of(PyObject *plan, PyObject *func)
{
    if (plan == NULL || PyTuple_GET_ITEM(plan, PLAN_REPLACEMENT) == Py_None)
        return func;
    return PyTuple_GET_ITEM(plan, PLAN_REPLACEMENT);
}

/* Call a function whose event could not be opened. */
static PyObject *call_unrecorded(FunctionMode *mode, Log *log, const TorchCall *call)
{
    PyObject *kwargs = call->kwargs == NULL ? Py_None : call->kwargs;
    return PyObject_CallMethod(mode->table, "call_unrecorded", "OOOO", log,
                               callable_of(call->plan, call->func), call->args, kwargs);
}

/* Call a function whose event is open, and close the event. */
static PyObject *call_recorded(FunctionMode *mode, Log *log, int64_t at, const TorchCall *call,
                               int listens, const State *before)
{
    PyObject *result;
    if (listens)
        result = call_listening_copy(mode, call);
    else
        result = PyObject_Call(callable_of(call->plan, call->func), call->args, call->kwargs);
    if (result == NULL) {
        fail_call(mode, log, at, before);
        return NULL;
    }
    restore(log, before);
    reading++;
    const int status = finish(mode, log, at, call, result);
    reading--;
    if (status < 0 && forgive(mode->engine) < 0)
        Py_CLEAR(result);
    return result;
}

/* Record a call. */
static PyObject *record_call(FunctionMode *mode, Log *log, const TorchCall *call)
{
    Engine *engine = mode->engine;
    PyFrameObject *own = caller_frame();
    if (heal_steps(engine, log, own) < 0) {
        Py_XDECREF(own);
        return NULL;
    }
    const State before = {log->parent, log->anchor, log->base};
    int listens = 0;
    reading++; /* our callers have made sure that no mode is on the stack */
    const int64_t at = open_call(mode, log, call, own, &listens);
    reading--;
    PyObject *result = NULL;
    if (at >= 0) {
        result = call_recorded(mode, log, at, call, listens, &before);
    } else {
        restore(log, &before);
        if (at != FAILED || forgive(engine) == 0)
            result = call_unrecorded(mode, log, call);
    }
    Py_XDECREF(own);
    return result;
}

/* What to do with a call. */
enum Verdict {
    VERDICT_FAILED = -1,
    CALL_ONLY, /* it is not recorded */
    RECORD,
    BY_PYTHON,   /* the handler in Python decides */
    MARK_CHANGED /* it is not recorded, but changes its first argument */
};

/* Find the plan and the log (both owned, or NULL), and decide. */
static enum Verdict look_up(FunctionMode *mode, PyObject *func, PyObject **plan, Log **log)
{
    int64_t what = NONE;
    /* first: in a forked child this ends the recording */
    *log = (Log *)Py_XNewRef((PyObject *)current_log());
    *plan = plan_of(mode, func);
    if (*plan != NULL)
        what = PyLong_AsLongLong(PyTuple_GET_ITEM(*plan, PLAN_NUMBER));
    else if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Clear(); /* a callable of the program that cannot be hashed */
    else
        return VERDICT_FAILED;
    if (*log == NULL || !mode->engine->running || PyList_GET_SIZE(torch.leaving))
        return BY_PYTHON;
    if (what == FORGETS)
        return MARK_CHANGED;
    return what >= 0 && (*log)->on ? RECORD : CALL_ONLY;
}

/* Call a function that only sets an attribute of its first argument, most often `grad`. */
static PyObject *call_setter(FunctionMode *mode, PyObject *func, PyObject *args, PyObject *kwargs)
{
    PyObject *first = PyTuple_GET_ITEM(args, 0); /* borrowed from args, which our caller owns */
    Py_DECREF(engine_mark_changed(mode->engine, first)); /* gives None */
    PyObject *result = PyObject_Call(func, args, kwargs);
    forget_measurement(mode->engine, first);
    return result;
}

static PyObject *call_function(FunctionMode *mode, PyObject *const *given, PyObject *args,
                               PyObject *kwargs)
{
    PyObject *func = given[0]; /* borrowed from our caller, as is the next one */
    PyObject *types = given[1];
    PyObject *result = NULL;
    PyObject *plan;
    Log *log;
    const enum Verdict verdict = look_up(mode, func, &plan, &log);
    const long other_modes = verdict == RECORD ? count_modes() : 0;
    if (verdict == MARK_CHANGED && only_marks_first(mode, args)) {
        result = call_setter(mode, func, args, kwargs);
    } else if (verdict == CALL_ONLY) {
        result = PyObject_Call(callable_of(plan, func), args, kwargs);
    } else if (verdict == RECORD && other_modes == 0 && !is_torchs_handler()) {
        const TorchCall call = {func, types, args, kwargs, plan, 0};
        enter_handler();
        result = record_call(mode, log, &call);
        leave_handler();
    } else if (verdict > CALL_ONLY && other_modes >= 0) {
        /* Python hides each step from the other modes. */
        PyObject *all[] = {func, types, args, kwargs == NULL ? Py_None : kwargs};
        result = call_python(mode->handler, (PyObject *)mode, all, 4);
    }
    Py_XDECREF(plan);
    Py_XDECREF(log);
    return result;
}

/* __torch_function__(func, types, args=(), kwargs=None) */
static PyObject *mode_call(FunctionMode *mode, PyObject *const *args, Py_ssize_t count)
{
    if (mode->engine == NULL || count < 2 || (count > 2 && !PyTuple_Check(args[2]))) {
        PyErr_SetString(PyExc_TypeError, "a function, types, a tuple and a dict are wanted");
        return NULL;
    }
    PyObject *given = count > 2 ? Py_NewRef(args[2]) : PyTuple_New(0);
    PyObject *kwargs = count > 3 && args[3] != Py_None && PyDict_GET_SIZE(args[3]) ? args[3] : NULL;
    PyObject *result = given == NULL ? NULL : call_function(mode, args, given, kwargs);
    Py_XDECREF(given);
    return result;
}

/* ----------------------------------------------------- torch.overrides.handle_torch_function
 *
 * A torch function that is written in Python asks whether a mode overrides it, and if so calls
 * handle_torch_function. Ours calls the function once more, so the function has two frames on the
 * stack. */

/* A list of the frames that called us and have a second frame below, innermost first. */
struct twice {
    PyFrameObject *frame;
    struct twice *above;
};
static _Thread_local struct twice *under_way;

static int needs_python(PyObject *relevant)
{
    if (!PyTuple_Check(relevant))
        return 1;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(relevant); at++) {
        PyTypeObject *cls = Py_TYPE(PyTuple_GET_ITEM(relevant, at));
        if (cls != torch.Tensor && cls != torch.Parameter && cls != Py_TYPE(Py_None)
            && cls != &PyLong_Type && cls != &PyFloat_Type && cls != &PyBool_Type)
            return 1;
    }
    return 0;
}

/* Call a function as our mode's handler does, with the mode off the stack. */
static PyObject *call_as_mode(FunctionMode *mode, const TorchCall *call, Log *log,
                              enum Verdict verdict)
{
    PyObject *popped = PyObject_CallNoArgs(torch.pop_mode);
    if (popped == NULL)
        return NULL;
    struct twice here = {caller_frame(), under_way};
    under_way = &here;
    enter_handler();
    PyObject *result;
    if (verdict == RECORD)
        result = record_call(mode, log, call);
    else
        result = PyObject_Call(callable_of(call->plan, call->func), call->args, call->kwargs);
    leave_handler();
    under_way = here.above;
    Py_XDECREF(here.frame);
    PyObject *error = result == NULL ? take_error() : NULL;
    PyObject *pushed = PyObject_CallOneArg(torch.push_mode, popped);
    Py_XDECREF(pushed);
    Py_DECREF(popped);
    if (error != NULL) {
        PyErr_Clear();
        put_error(error);
    } else if (pushed == NULL) {
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *named_arguments(PyObject *const *values, PyObject *names)
{
    PyObject *kwargs = PyDict_New();
    for (Py_ssize_t at = 0; kwargs != NULL && at < PyTuple_GET_SIZE(names); at++)
        if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(names, at), values[at]) < 0)
            Py_CLEAR(kwargs);
    return kwargs;
}

/* Call a function that has called handle_torch_function(func, relevant_args, *args, **kwargs). */
static PyObject *call_handled(FunctionMode *mode, PyObject *const *args, Py_ssize_t count,
                              PyObject *names, PyObject *plan, Log *log, enum Verdict verdict)
{
    PyObject *given = pack(args + 2, count - 2);
    if (given == NULL)
        return NULL;
    PyObject *kwargs = NULL;
    PyObject *result = NULL;
    if (names != NULL && PyTuple_GET_SIZE(names) > 0)
        kwargs = named_arguments(args + count, names);
    if (!PyErr_Occurred()) {
        const TorchCall call = {args[0], torch.plain_types, given, kwargs, plan, 1};
        result = call_as_mode(mode, &call, log, verdict);
    }
    Py_XDECREF(kwargs);
    Py_DECREF(given);
    return result;
}

/* handle_torch_function(func, relevant_args, *args, **kwargs), as torch.overrides has it. */
PyObject *handle_torch_function(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *names)
{
    FunctionMode *mode = NULL;
    if (count >= 2 && !needs_python(args[1]))
        mode = (FunctionMode *)only_mode(count_modes());
    if (mode == NULL && PyErr_Occurred())
        return NULL;
    PyObject *plan = NULL;
    PyObject *result = NULL;
    Log *log = NULL;
    enum Verdict verdict = BY_PYTHON;
    if (mode != NULL)
        verdict = look_up(mode, args[0], &plan, &log);
    if (verdict
        >= BY_PYTHON) /* torch's own function finds our handler in Python, or another mode */
        result = PyObject_Vectorcall(torch.handle_torch_function, args, (size_t)count, names);
    else if (verdict >= CALL_ONLY)
        result = call_handled(mode, args, count, names, plan, log, verdict);
    Py_XDECREF(plan);
    Py_XDECREF(log);
    Py_XDECREF(mode);
    return result;
}

/* ---------------------------------------------------------------- warnings.warn
 *
 * `stacklevel` counts frames. Frames that the program would not have must not be counted: second
 * frames of a function (above), and frames of our own functions that replace functions of torch
 * (guards.py). */

static int is_twice(const PyFrameObject *frame)
{
    for (const struct twice *each = under_way; each != NULL; each = each->above)
        if (each->frame == frame)
            return 1;
    return 0;
}

/* The kinds of frames. Above one of ours may be torch's handle_torch_function, and above that the
 * function that called it, which has a second frame. */
enum { COUNTS, OURS, TORCHS_HANDLER, HAS_SECOND };

static int kind_of(PyFrameObject *frame, int below)
{
    if (below == TORCHS_HANDLER)
        return HAS_SECOND;
    PyCodeObject *code = PyFrame_GetCode(frame);
    int kind = is_twice(frame) ? HAS_SECOND : COUNTS;
    if (PyUnicode_Tailmatch(code->co_filename, torch.own_folder, 0, PY_SSIZE_T_MAX, -1) == 1)
        kind = OURS;
    else if (below == OURS && code == torch.handler_code)
        kind = TORCHS_HANDLER;
    Py_DECREF(code);
    return kind;
}

/* Return how many frames to skip between here and the frame that `level` means without us. */
static long frames_to_skip(long level)
{
    long skipped = 0;
    int kind = COUNTS;
    PyFrameObject *frame = caller_frame();
    while (frame != NULL && level > 0) {
        PyFrameObject *above = PyFrame_GetBack(frame);
        kind = kind_of(frame, kind);
        if (kind != COUNTS)
            skipped++;
        else
            level--;
        Py_DECREF(frame);
        frame = above;
    }
    Py_XDECREF(frame);
    return skipped;
}

/* warnings.warn(message, category=None, stacklevel=1, source=None, …) */
PyObject *warn_past_copies(PyObject *self, PyObject *args, PyObject *kwargs)
{
    /* borrowed from args */
    PyObject *given = PyTuple_GET_SIZE(args) > 2 ? PyTuple_GET_ITEM(args, 2) : NULL;
    if (given == NULL && kwargs != NULL)
        given = PyDict_GetItemString(kwargs, "stacklevel"); /* borrowed from kwargs */
    long level = given != NULL && PyLong_CheckExact(given) ? PyLong_AsLong(given) : 1;
    long skipped = level > 1 && level < 1000 ? frames_to_skip(level) : 0;
    if (skipped == 0) {
        PyErr_Clear();
        return PyObject_Call(torch.warn, args, kwargs);
    }
    PyObject *first =
        PyTuple_GetSlice(args, 0, PyTuple_GET_SIZE(args) > 2 ? 2 : PyTuple_GET_SIZE(args));
    PyObject *named = kwargs == NULL ? PyDict_New() : PyDict_Copy(kwargs);
    PyObject *result = NULL;
    PyObject *deeper = PyLong_FromLong(level + skipped);
    if (first != NULL && named != NULL && deeper != NULL
        && PyDict_SetItemString(named, "stacklevel", deeper) == 0
        && (PyTuple_GET_SIZE(args) < 4
            || PyDict_SetItemString(named, "source", PyTuple_GET_ITEM(args, 3)) == 0))
        result = PyObject_Call(torch.warn, first, named);
    Py_XDECREF(first);
    Py_XDECREF(named);
    Py_XDECREF(deeper);
    return result;
}

/* ---------------------------------------------------------------- the type */

static int mode_traverse(FunctionMode *mode, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)mode->engine);
    Py_VISIT(mode->table);
    Py_VISIT(mode->handler);
    Py_VISIT(mode->changed);
    Py_VISIT(mode->on_write);
    return 0;
}

static int mode_clear(FunctionMode *mode)
{
    Py_CLEAR(mode->engine);
    Py_CLEAR(mode->table);
    Py_CLEAR(mode->handler);
    Py_CLEAR(mode->changed);
    Py_CLEAR(mode->on_write);
    return 0;
}

static void mode_dealloc(FunctionMode *mode)
{
    PyObject_GC_UnTrack(mode);
    mode_clear(mode);
    Py_TYPE(mode)->tp_free((PyObject *)mode);
}

/* set_up(engine, table, handler, changed, on_write) */
static PyObject *mode_set_up(FunctionMode *mode, PyObject *args)
{
    PyObject *engine, *table, *handler, *changed, *on_write;
    if (!PyArg_ParseTuple(args, "O!O!OOO!", &EngineType, &engine, &PyDict_Type, &table, &handler,
                          &changed, &PyList_Type, &on_write))
        return NULL;
    Py_XSETREF(mode->changed, Py_NewRef(changed));
    Py_XSETREF(mode->on_write, Py_NewRef(on_write));
    Py_XSETREF(mode->engine, (Engine *)Py_NewRef(engine));
    Py_XSETREF(mode->table, Py_NewRef(table));
    Py_XSETREF(mode->handler, Py_NewRef(handler));
    Py_RETURN_NONE;
}

static PyMethodDef mode_methods[] = {
    {"__torch_function__", (PyCFunction)(void (*)(void))mode_call, METH_FASTCALL, NULL},
    {"set_up", (PyCFunction)mode_set_up, METH_VARARGS, NULL},
    {NULL},
};

PyTypeObject FunctionModeType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.FunctionMode",
    .tp_doc = "A function mode that records the torch functions that are called.",
    .tp_basicsize = sizeof(FunctionMode),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)mode_dealloc,
    .tp_traverse = (traverseproc)mode_traverse,
    .tp_clear = (inquiry)mode_clear,
    .tp_methods = mode_methods,
};

int functions_ready(PyObject *module)
{
    const AttributeName all[] = {
        {&out_name, "out"},   {&at_name, "at"},           {&frame_id_name, "frame_id"},
        {&code_name, "code"}, {&enter_name, "__enter__"}, {&exit_name, "__exit__"},
    };
    if (INTERN_NAMES(all) < 0 || PyType_Ready(&FunctionModeType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "FunctionMode", (PyObject *)&FunctionModeType);
}
