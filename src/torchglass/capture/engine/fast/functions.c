/* The function mode (torch/functions.py): every torch function that Python code calls.
 *
 * There is no frame of ours here, so none stands in a traceback, and the caller's frame is the place that open events
 * below are linked to.
 */
#include "fast.h"
#include "structmember.h"

enum { FORGETS = -2 };

typedef struct {
    PyObject_HEAD
    Engine *engine;
    PyObject *table;   /* what each function is to us: (number, copy to look inside, what to call instead, what more) */
    PyObject *handler; /* the same in Python, for all that is unusual */
    PyObject *changed;  /* FunctionTable.changed: what some plans say that there is more to do */
    PyObject *on_write; /* the session's list of those who are told of changes */
    PyObject *bound;    /* what torch calls: our handler, with the mode (asking.c) */
} FunctionMode;

/* ---------------------------------------------------------------- shared with the other two */

long count_modes(void)
{
    if (is_direct)
        return direct_modes();
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

static PyObject *at_name, *frame_id_name, *code_name, *out_name;

/* Whether a frame, or one above it, is this very one: an address alone may be another's by now. */
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

/* Whether the innermost step is under way (log.py: OpenStep.runs_above): an event inside of it is open, or the frame of
 * its wrapper is on the stack. 0: Python looks, and heals. -1 error. */
static int is_under_way(const Log *log, PyFrameObject *frame)
{
    PyObject *step = Py_NewRef(PyList_GET_ITEM(log->steps, PyList_GET_SIZE(log->steps) - 1));
    PyObject *code = PyObject_GetAttr(step, code_name);
    const long long at = as_number(PyObject_GetAttr(step, at_name));
    const long long address = at == FAILED ? FAILED : as_number(PyObject_GetAttr(step, frame_id_name));
    int found = code == NULL || address == FAILED ? -1
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
    PyObject *done = PyObject_CallMethod(engine->session, "heal_steps", "OO", log, frame == NULL ? Py_None : (PyObject *)frame);
    Py_XDECREF(done);
    return done == NULL ? forgive(engine) : 0;
}

PyObject *fail_event(Engine *engine, Log *log, int64_t at)
{
    PyObject *error = take_error();
    PyObject *done = PyObject_CallMethod(engine->session, "fail_event", "OLO", log, (long long)at, error);
    if (done == NULL) { /* the program's own, raised meanwhile by a signal handler: it goes on instead */
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

/* Our own mode must not see that we read tensors, nor may anybody else's. */
int enter_unseen(Unseen *unseen)
{
    unseen->mode = unseen->context = NULL;
    long count = count_modes();
    if (count <= 0)
        return (int)count;
    if (count == 1) { /* mostly ours: to take it off is the shortest way to ask */
        PyObject *mode = PyObject_CallNoArgs(torch.pop_mode);
        if (mode == NULL || PyObject_TypeCheck(mode, &FunctionModeType)) {
            unseen->mode = mode;
            return mode == NULL ? -1 : 1;
        }
        PyObject *back = PyObject_CallOneArg(torch.push_mode, mode);
        Py_DECREF(mode);
        if (back == NULL)
            return -1;
        Py_DECREF(back);
    }
    unseen->context = PyObject_CallNoArgs(torch.no_functions);
    PyObject *entered = unseen->context == NULL ? NULL : PyObject_CallMethod(unseen->context, "__enter__", NULL);
    Py_XDECREF(entered);
    if (entered == NULL)
        Py_CLEAR(unseen->context);
    return entered == NULL ? -1 : (int)count;
}

/* Whatever is raised meanwhile goes on. */
int leave_unseen(Unseen *unseen)
{
    if (unseen->mode == NULL && unseen->context == NULL)
        return 0;
    PyObject *error = take_error(), *done;
    if (unseen->mode != NULL)
        done = PyObject_CallOneArg(torch.push_mode, unseen->mode);
    else
        done = PyObject_CallMethod(unseen->context, "__exit__", "OOO", Py_None, Py_None, Py_None);
    Py_XDECREF(done);
    Py_CLEAR(unseen->mode);
    Py_CLEAR(unseen->context);
    if (error != NULL) {
        PyErr_Clear();
        put_error(error);
        return -1;
    }
    return done == NULL ? -1 : 0;
}

int enter_reading(const Engine *engine, const Log *log, Unseen *unseen)
{
    unseen->mode = unseen->context = NULL;
    if (is_direct && engine->measurer == NULL && !log->listening && direct_modes() <= 1)
        return 0;
    return enter_unseen(unseen);
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

/* ---------------------------------------------------------------- threads inside
 *
 * All of it is done with Python's lock held. */

static _Thread_local int handlers; /* under way in this thread */
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

/* The plan of a function, owned; NULL with an exception. */
static PyObject *plan_of(FunctionMode *mode, PyObject *func)
{
    PyObject *plan = PyDict_GetItemWithError(mode->table, func); /* borrowed from the table */
    if (plan != NULL)
        return Py_NewRef(plan);
    plan = PyErr_Occurred() ? NULL : learned_plan(mode->engine, mode->table, func);
    return plan != NULL || PyErr_Occurred() ? plan : PyObject_GetItem(mode->table, func);
}

/* Whether torch's own handle_torch_function called us: then a function written in Python stands above that. */
static int is_torchs_handler(void)
{
    PyFrameObject *frame = caller_frame();
    PyCodeObject *code = frame == NULL ? NULL : PyFrame_GetCode(frame);
    int found = code != NULL && code == torch.handler_code;
    Py_XDECREF(code);
    Py_XDECREF(frame);
    return found;
}

/* Who called torch, owned. `own` is the frame that called us: that of a function written in Python, where there is one. */
static PyFrameObject *place_of_call(PyFrameObject *own, int from_python)
{
    return own != NULL && from_python ? PyFrame_GetBack(own) : (PyFrameObject *)Py_XNewRef((PyObject *)own);
}

typedef struct { long long parent, anchor, base; } State;

static void restore(Log *log, const State *state)
{
    log->parent = state->parent;
    log->anchor = state->anchor;
    log->base = state->base;
}

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

/* Call the function; a copy of it, to look inside, with our mode on the stack: again, where it was taken off. */
static PyObject *call_inside(FunctionMode *mode, PyObject *call, PyObject *args, PyObject *kwargs, int pushes)
{
    if (!pushes)
        return PyObject_Call(call, args, kwargs);
    PyObject *pushed = PyObject_CallOneArg(torch.push_mode, (PyObject *)mode);
    if (pushed == NULL)
        return NULL;
    Py_DECREF(pushed);
    PyObject *result = PyObject_Call(call, args, kwargs);
    if (result != NULL) {
        PyObject *popped = PyObject_CallNoArgs(torch.pop_mode);
        if (popped == NULL)
            Py_CLEAR(result);
        Py_XDECREF(popped);
    }
    return result;
}

/* What few calls need when they have returned: a cure; to say that ``out=`` was written into. */
static int behind(FunctionMode *mode, Log *log, PyObject *result, PyObject *kwargs)
{
    if (!log->branched && (kwargs == NULL || PyDict_GetItemWithError(kwargs, out_name) == NULL))
        return PyErr_Occurred() ? -1 : 0;
    PyObject *done =
        PyObject_CallMethod(mode->table, "behind", "OOO", log, result, kwargs == NULL ? Py_None : kwargs);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Whether all that is to do about a change is to look at the first argument again: it is no list, nobody is told. */
static int is_touch(const FunctionMode *mode, PyObject *args)
{
    return PyList_GET_SIZE(mode->on_write) == 0 && PyTuple_GET_SIZE(args) > 0
           && !PyList_Check(PyTuple_GET_ITEM(args, 0)) && !PyTuple_Check(PyTuple_GET_ITEM(args, 0));
}

/* Do what more there is to do when a function has returned (FunctionTable.changed, converted): what to show, owned. */
static PyObject *call_special(FunctionMode *mode, PyObject *special, PyObject *args, PyObject *result, int seen)
{
    if (!PyMethod_Check(special) || PyMethod_GET_FUNCTION(special) != mode->changed || !is_touch(mode, args))
        return PyObject_CallFunctionObjArgs(special, args, result, seen ? Py_True : Py_False, NULL);
    PyObject *first = PyTuple_GET_ITEM(args, 0); /* borrowed from args, which our caller owns */
    if (!(seen && mode->engine->records_ops))
        Py_DECREF(engine_touch(mode->engine, first)); /* gives None */
    return Py_NewRef(result == Py_None ? first : result);
}

static int finish(FunctionMode *mode, Log *log, int64_t at, PyObject *plan, PyObject *args, PyObject *kwargs, PyObject *result)
{
    PyObject *special = PyTuple_GET_ITEM(plan, 3), *shown = Py_NewRef(result); /* borrowed from the plan, which we own */
    if (special != Py_None) {
        PyObject *found = call_special(mode, special, args, result, log->at > at + 1);
        if (found == NULL) {
            Py_DECREF(shown);
            return -1;
        }
        Py_SETREF(shown, found);
    }
    int done = close_event(mode->engine, log, at, shown, 0);
    Py_DECREF(shown);
    return done < 0 ? -1 : behind(mode, log, result, kwargs);
}

/* Close a call that an exception left, which goes on. */
static void fail_call(FunctionMode *mode, Log *log, int64_t at, const State *state)
{
    PyObject *error = take_error();
    PyObject *done = PyObject_CallOneArg(mode->engine->finish_pops, error); /* a signal may have left one half way */
    if (done == NULL) /* of a signal: it is what goes on now */
        Py_SETREF(error, take_error());
    Py_XDECREF(done);
    put_error(error);
    drop_modes();
    restore(log, state);
    fail_event(mode->engine, log, at);
}

/* Open the event of a call; `again` says whether the copy is to be called, to look inside. */
static int64_t open_call(FunctionMode *mode, Log *log, PyObject *plan, PyObject *types, PyObject *args, PyObject *kwargs,
                         PyFrameObject *own, int from_python, int *again)
{
    Engine *engine = mode->engine;
    int64_t what = PyLong_AsLongLong(PyTuple_GET_ITEM(plan, 0)), at;
    const long long parent = log->parent;
    PyFrameObject *frame = place_of_call(own, from_python);
    at = open_event(engine, log, what, frame, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args), kwargs);
    Py_XDECREF(frame);
    if (at < 0)
        return at;
    *again = PyTuple_GET_ITEM(plan, 1) != Py_None && are_plain(types)
             && !(parent >= 0 && word_of(log, parent, WHAT) == what);
    if (*again || engine->records_ops) {
        log->anchor = (long long)(intptr_t)own;
        log->base = log->at == at + 1 ? log->stack : word_of(log, at, STACK); /* or a signal handler was recorded since */
    }
    return PyErr_Occurred() ? FAILED : at;
}

/* What is to be called; borrowed from the plan, or from who calls us. */
static PyObject *called(PyObject *plan, PyObject *func)
{
    return plan == NULL || PyTuple_GET_ITEM(plan, 2) == Py_None ? func : PyTuple_GET_ITEM(plan, 2);
}

/* A call that is recorded. */
static PyObject *record_call(FunctionMode *mode, Log *log, PyObject *plan, PyObject *func, PyObject *types, PyObject *args,
                             PyObject *kwargs, int from_python)
{
    Engine *engine = mode->engine;
    PyObject *call = called(plan, func);
    PyFrameObject *own = caller_frame();
    PyObject *result = NULL;
    int again = 0;
    if (heal_steps(engine, log, own) < 0) {
        Py_XDECREF(own);
        return NULL;
    }
    const State state = {log->parent, log->anchor, log->base};
    int64_t at = open_call(mode, log, plan, types, args, kwargs, own, from_python, &again);
    if (at < 0) {
        restore(log, &state);
        if (at != FAILED || forgive(engine) == 0)
            result = PyObject_CallMethod(mode->table, "call_unrecorded", "OOOO", log, call, args,
                                         kwargs == NULL ? Py_None : kwargs);
        Py_XDECREF(own);
        return result;
    }
    result = call_inside(mode, again ? PyTuple_GET_ITEM(plan, 1) : call, args, kwargs, again);
    if (result == NULL) {
        fail_call(mode, log, at, &state);
    } else {
        restore(log, &state);
        if (finish(mode, log, at, plan, args, kwargs, result) < 0 && forgive(engine) < 0)
            Py_CLEAR(result);
    }
    Py_XDECREF(own);
    return result;
}

enum { BY_PYTHON = 2, TOUCHES = 3 };

/* What a function is to us, and whether it is recorded just now: 1, 0 not at all, -1 error, BY_PYTHON it sees to it, TOUCHES
 * not at all, but what was known of its first argument no longer holds. */
static int look_up(FunctionMode *mode, PyObject *func, PyObject **plan, Log **log)
{
    int64_t what = NONE;
    *plan = plan_of(mode, func);
    *log = (Log *)Py_XNewRef((PyObject *)current_log());
    if (*plan != NULL)
        what = PyLong_AsLongLong(PyTuple_GET_ITEM(*plan, 0));
    else if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Clear(); /* somebody's own callable that cannot be hashed */
    else
        return -1;
    if (*log == NULL || !mode->engine->running || PyList_GET_SIZE(torch.leaving))
        return BY_PYTHON;
    return what == FORGETS ? TOUCHES : what >= 0 && (*log)->on;
}

static PyObject *call_function(FunctionMode *mode, PyObject *const *given, PyObject *args, PyObject *kwargs)
{
    PyObject *plan, *result = NULL, *func = given[0], *types = given[1]; /* borrowed from who calls us */
    Log *log;
    int recorded = look_up(mode, func, &plan, &log);
    long crowded = recorded == 1 ? count_modes() : 0;
    if (recorded == TOUCHES && is_touch(mode, args)) {
        PyObject *first = PyTuple_GET_ITEM(args, 0); /* borrowed from args, which our caller owns */
        Py_DECREF(engine_touch(mode->engine, first)); /* gives None */
        result = PyObject_Call(func, args, kwargs);
        same_numbers(mode->engine, first); /* an attribute was set, most often `grad` */
    } else if (recorded == 0)
        result = PyObject_Call(called(plan, func), args, kwargs);
    else if (recorded == 1 && crowded == 0 && !is_torchs_handler()) {
        enter_handler();
        result = record_call(mode, log, plan, func, types, args, kwargs, 0);
        leave_handler();
    } else if (recorded > 0 && crowded >= 0) { /* with other modes on the stack each step must be hidden from them */
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

/* ---------------------------------------------------------------- torch's own way to a mode
 *
 * A function of torch's that is written in Python asks whether anything overrides it, and if so calls
 * handle_torch_function. While that is ours, and the function is called again from here, it stands twice on the stack. */

struct twice { PyFrameObject *frame; struct twice *above; };
static _Thread_local struct twice *under_way; /* frames that called us and are there a second time, innermost first */

static int needs_python(PyObject *relevant)
{
    if (!PyTuple_Check(relevant))
        return 1;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(relevant); at++) {
        PyTypeObject *cls = Py_TYPE(PyTuple_GET_ITEM(relevant, at));
        if (cls != torch.Tensor && cls != torch.Parameter && cls != Py_TYPE(Py_None) && cls != &PyLong_Type
            && cls != &PyFloat_Type && cls != &PyBool_Type)
            return 1;
    }
    return 0;
}

/* Call a function as our mode's handler would, with the mode off the stack. */
static PyObject *call_as_mode(FunctionMode *mode, PyObject *func, PyObject *args, PyObject *kwargs, PyObject *plan, Log *log,
                              int recorded)
{
    PyObject *popped = PyObject_CallNoArgs(torch.pop_mode), *result;
    if (popped == NULL)
        return NULL;
    struct twice here = {caller_frame(), under_way};
    under_way = &here;
    enter_handler();
    result = recorded ? record_call(mode, log, plan, func, torch.plain_types, args, kwargs, 1)
                      : PyObject_Call(called(plan, func), args, kwargs);
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
    } else if (pushed == NULL)
        Py_CLEAR(result);
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

/* handle_torch_function(public_api, relevant_args, *args, **kwargs), as torch.overrides has it. */
PyObject *handle_torch_function(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *plan = NULL, *given = NULL, *kwargs = NULL, *result = NULL;
    Log *log = NULL;
    int recorded = 2, has_names = names != NULL && PyTuple_GET_SIZE(names) > 0;
    FunctionMode *mode = count >= 2 && !needs_python(args[1]) ? (FunctionMode *)only_mode(count_modes()) : NULL;
    if (mode != NULL)
        recorded = look_up(mode, args[0], &plan, &log);
    else if (PyErr_Occurred())
        return NULL;
    if (recorded >= BY_PYTHON) { /* Python's own way leads to our handler in Python, or to somebody else's */
        result = PyObject_Vectorcall(torch.handle_torch_function, args, (size_t)count, names);
    } else if (recorded >= 0 && (given = PyTuple_New(count - 2)) != NULL) {
        for (Py_ssize_t at = 2; at < count; at++)
            PyTuple_SET_ITEM(given, at - 2, Py_NewRef(args[at]));
        if (!has_names || (kwargs = named_arguments(args + count, names)) != NULL)
            result = call_as_mode(mode, args[0], given, kwargs, plan, log, recorded);
    }
    Py_XDECREF(given);
    Py_XDECREF(kwargs);
    Py_XDECREF(plan);
    Py_XDECREF(log);
    Py_XDECREF(mode);
    return result;
}

/* ---------------------------------------------------------------- warnings
 *
 * Who warns counts frames from where it stands: those that are there a second time are none of them. */

static int is_twice(const PyFrameObject *frame)
{
    for (const struct twice *each = under_way; each != NULL; each = each->above)
        if (each->frame == frame)
            return 1;
    return 0;
}

static long frames_twice(long level)
{
    long twice = 0;
    PyFrameObject *frame = caller_frame();
    while (frame != NULL && level > 0) {
        PyFrameObject *above = PyFrame_GetBack(frame);
        if (is_twice(frame))
            twice++;
        else
            level--;
        Py_DECREF(frame);
        frame = above;
    }
    Py_XDECREF(frame);
    return twice;
}

/* warnings.warn(message, category=None, stacklevel=1, source=None, …) */
PyObject *warn_past_copies(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *given = PyTuple_GET_SIZE(args) > 2 ? PyTuple_GET_ITEM(args, 2) : NULL; /* borrowed from args */
    if (given == NULL && kwargs != NULL)
        given = PyDict_GetItemString(kwargs, "stacklevel"); /* borrowed from kwargs */
    long level = given != NULL && PyLong_CheckExact(given) ? PyLong_AsLong(given) : 1;
    long twice = level > 1 && level < 1000 ? frames_twice(level) : 0;
    if (twice == 0) {
        PyErr_Clear();
        return PyObject_Call(torch.warn, args, kwargs);
    }
    PyObject *first = PyTuple_GetSlice(args, 0, PyTuple_GET_SIZE(args) > 2 ? 2 : PyTuple_GET_SIZE(args));
    PyObject *named = kwargs == NULL ? PyDict_New() : PyDict_Copy(kwargs), *result = NULL;
    PyObject *deeper = PyLong_FromLong(level + twice);
    if (first != NULL && named != NULL && deeper != NULL && PyDict_SetItemString(named, "stacklevel", deeper) == 0
        && (PyTuple_GET_SIZE(args) < 4 || PyDict_SetItemString(named, "source", PyTuple_GET_ITEM(args, 3)) == 0))
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
    unbind_handler(&mode->bound);
    return 0;
}

static void mode_dealloc(FunctionMode *mode)
{
    PyObject_GC_UnTrack(mode);
    mode_clear(mode);
    Py_TYPE(mode)->tp_free((PyObject *)mode);
}

static PyMethodDef mode_methods[];

static PyObject *mode_attribute(PyObject *mode, char *name)
{
    return handler_or_attribute(mode, name, ((FunctionMode *)mode)->bound);
}

/* set_up(engine, table, handler, changed, on_write) */
static PyObject *mode_set_up(FunctionMode *mode, PyObject *args)
{
    PyObject *engine, *table, *handler, *changed, *on_write;
    if (!PyArg_ParseTuple(args, "O!O!OOO!", &EngineType, &engine, &PyDict_Type, &table, &handler, &changed, &PyList_Type,
                          &on_write))
        return NULL;
    Py_XSETREF(mode->changed, Py_NewRef(changed));
    Py_XSETREF(mode->on_write, Py_NewRef(on_write));
    Py_XSETREF(mode->engine, (Engine *)Py_NewRef(engine));
    Py_XSETREF(mode->table, Py_NewRef(table));
    Py_XSETREF(mode->handler, Py_NewRef(handler));
    if (bind_handler((PyObject *)mode, &mode_methods[0], mode_attribute, &mode->bound) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef mode_methods[] = {
    {"__torch_function__", (PyCFunction)(void (*)(void))mode_call, METH_FASTCALL, NULL},
    {"set_up", (PyCFunction)mode_set_up, METH_VARARGS, NULL},
    {NULL},
};

PyTypeObject FunctionModeType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.FunctionMode",
    .tp_doc = "Records the torch functions that it is told of.",
    .tp_basicsize = sizeof(FunctionMode),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)mode_dealloc,
    .tp_getattr = mode_attribute,
    .tp_getattro = PyObject_GenericGetAttr,
    .tp_traverse = (traverseproc)mode_traverse,
    .tp_clear = (inquiry)mode_clear,
    .tp_methods = mode_methods,
};

int functions_ready(PyObject *module)
{
    if ((out_name = PyUnicode_InternFromString("out")) == NULL || (at_name = PyUnicode_InternFromString("at")) == NULL
        || (frame_id_name = PyUnicode_InternFromString("frame_id")) == NULL
        || (code_name = PyUnicode_InternFromString("code")) == NULL || PyType_Ready(&FunctionModeType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "FunctionMode", (PyObject *)&FunctionModeType);
}
