/* The open and the close of an event (edges.py). */
#include "fast.h"

#define SPARE 8 /* ids for which there is room when an event opens, beyond its arguments */

/* Pause our trace functions, which follow variables, while an event is written. resume_tracer takes
 * the answer and turns them on again. The answer is one of these:
 *
 *   NULL              nothing was paused, because this thread has no trace function of ours
 *   Py_None           PyThreadState_EnterTracing was called. It is ten times cheaper than
 *                     sys.settrace, and a debugger that is installed meanwhile stays installed. It
 *                     silences profilers too, so it is used only if there is no profiler.
 *   a trace function  sys.settrace(None) was called, so this function must be set again
 */
static PyObject *pause_tracer(Engine *engine)
{
    if (PyDict_GET_SIZE(engine->tracers) == 0)
        return NULL;
    PyThreadState *state = PyThreadState_Get();
    /* borrowed from the thread */
    PyObject *current = state->c_profilefunc == NULL ? state->c_traceobj : NULL;
    if (current != NULL && PyDict_GetItemWithError(engine->tracers, current) == current) {
        PyThreadState_EnterTracing(state);
        return Py_NewRef(Py_None);
    }
    PyErr_Clear();
    PyObject *sys_gettrace = PySys_GetObject("gettrace"); /* borrowed from sys */
    PyObject *tracer = sys_gettrace == NULL ? NULL : PyObject_CallNoArgs(sys_gettrace);
    if (tracer == NULL) {
        PyErr_Clear();
        return NULL;
    }
    /* borrowed, so made our own below */
    PyObject *ours = PyDict_GetItemWithError(engine->tracers, tracer);
    Py_XINCREF(ours);
    Py_DECREF(tracer);
    if (ours != NULL) {
        PyObject *done = PyObject_CallOneArg(PySys_GetObject("settrace"), Py_None);
        Py_XDECREF(done);
    }
    PyErr_Clear();
    return ours;
}

static void resume_tracer(PyObject *tracer)
{
    if (tracer == NULL)
        return;
    if (tracer == Py_None) {
        PyThreadState_LeaveTracing(PyThreadState_Get());
        Py_DECREF(tracer);
        return;
    }
    PyObject *error = take_error();
    PyObject *done = PyObject_CallOneArg(PySys_GetObject("settrace"), tracer);
    Py_XDECREF(done);
    Py_DECREF(tracer);
    PyErr_Clear();
    if (error != NULL)
        put_error(error);
}

/* Likewise for torch.jit.trace, which would make what we read part of its graph (jit.py): only
 * while a program uses it. */
static int pauses_jit_trace;

PyObject *pause_traces(PyObject *module, PyObject *wanted)
{
    pauses_jit_trace = PyObject_IsTrue(wanted) > 0;
    Py_RETURN_NONE;
}

PyObject *pause_trace(void)
{
    if (!pauses_jit_trace)
        return NULL;
    PyObject *state = PyObject_CallNoArgs(torch.get_tracing_state);
    if (state == Py_None)
        Py_CLEAR(state);
    PyObject *done = state == NULL ? NULL : PyObject_CallOneArg(torch.set_tracing_state, Py_None);
    if (done == NULL)
        Py_CLEAR(state);
    Py_XDECREF(done);
    PyErr_Clear();
    return state;
}

void resume_trace(PyObject *state)
{
    if (state == NULL)
        return;
    PyObject *error = take_error();
    PyObject *done = PyObject_CallOneArg(torch.set_tracing_state, state);
    Py_XDECREF(done);
    Py_DECREF(state);
    PyErr_Clear();
    if (error != NULL)
        put_error(error);
}

int tell_listeners(Engine *engine, Log *log, int64_t at, const char *edge)
{
    return as_done(PyObject_CallMethod(engine->session, "tell", "OLs", log, (long long)at, edge));
}

/* Return the number that this thread gives to its next autograd node. */
static int64_t next_node(void)
{
    return as_number(PyObject_CallNoArgs(torch.next_node));
}

/* Return the word NODES of an event that closes: how far the numbers are, and in backward which
 * node was being run. */
static int64_t nodes_word(const Engine *engine)
{
    int64_t next = next_node();
    int64_t number = MOST_NODES;
    if (next == FAILED || !engine->in_backward)
        return next == FAILED ? FAILED : next & NODE_MASK;
    PyObject *node = PyObject_CallNoArgs(torch.current_node);
    if (node == NULL)
        return FAILED;
    if (node != Py_None)
        number = as_number(PyObject_CallMethod(node, "_sequence_nr", NULL));
    Py_DECREF(node);
    if (number == FAILED && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear(); /* of nodes that accumulate gradients it is the largest there is */
        number = MOST_NODES;
    }
    if (number == FAILED)
        return FAILED;
    return (next & NODE_MASK) | ((number < MOST_NODES ? number : MOST_NODES) + 1) << NODE_BITS;
}

/* There was no room for an event: log.lost += 1. */
static int count_lost(Log *log)
{
    PyObject *lost = PyObject_GetAttrString((PyObject *)log, "lost");
    PyObject *one = PyLong_FromLong(1);
    PyObject *more = lost == NULL || one == NULL ? NULL : PyNumber_Add(lost, one);
    const int done = more == NULL ? -1 : PyObject_SetAttrString((PyObject *)log, "lost", more);
    Py_XDECREF(lost);
    Py_XDECREF(one);
    Py_XDECREF(more);
    return done;
}

static int64_t write_open(Engine *engine, Log *log, int64_t what, PyFrameObject *frame,
                          PyObject *const *args, Py_ssize_t count, PyObject *kwargs)
{
    int64_t first;
    int room = make_room(log);
    if (room < 0)
        return FAILED;
    if (room == 0)
        return count_lost(log) < 0 ? FAILED : NONE;
    int64_t at = log->at;
    int id_room = make_id_room(log, count + SPARE);
    if (id_room <= 0)
        return id_room < 0 ? FAILED : NONE;
    int64_t form = form_number_of_call(engine, log, args, count, kwargs, &first);
    int64_t stack = form == FAILED ? FAILED : stack_of(engine, log, frame);
    if (stack == FAILED || look_at_rounds(engine, log, frame, stack, at) < 0)
        return FAILED;
    int64_t node = next_node();
    if (node == FAILED)
        return FAILED;
    const int64_t words[RECORD_WORDS] = {
        [WHAT] = what,   [PARENT] = log->parent, [STACK] = stack,
        [ARGS] = form,   [INPUTS] = first,       [CALL] = -2 - node, /* layout.py: CALL */
        [RESULT] = NONE, [OUTPUTS] = NONE,       [ERROR_ROW] = NONE,
        [NODES] = NONE,  [END] = NONE,           [START] = now_ns(),
    };
    if (!write_record(log, at, words))
        return NONE;
    log->at = at + 1;
    log->parent = at;
    log->stack = stack;
    if (engine->measurer != NULL && measure_taken(engine, log, at, args, count, kwargs) < 0)
        return FAILED;
    if (log->listening && tell_listeners(engine, log, at, "open") < 0)
        return FAILED;
    return at;
}

int64_t open_event(Engine *engine, Log *log, int64_t what, PyFrameObject *frame,
                   PyObject *const *args, Py_ssize_t count, PyObject *kwargs)
{
    if (is_forked_child())
        return NONE;
    /* what Python runs meanwhile (`__del__`, a signal handler) must not record into this log */
    log->on = 0;
    PyObject *tracer = pause_tracer(engine);
    PyObject *traced = pause_trace();
    int64_t at = write_open(engine, log, what, frame, args, count, kwargs);
    log->on = 1;
    resume_trace(traced);
    resume_tracer(tracer);
    return at;
}

static int write_close(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op)
{
    int64_t outputs, end = now_ns();
    int64_t form = form_number_of_result(engine, log, result, from_op, &outputs);
    int64_t nodes = form == FAILED ? FAILED : nodes_word(engine);
    if (nodes == FAILED)
        return -1;
    const int64_t closing[5] = {form, outputs, NONE, nodes, end};
    if (close_record(log, at, closing) < 0)
        return -1;
    if (engine->measurer != NULL && measure_given(engine, log, at, result, from_op) < 0)
        return -1;
    return log->listening ? tell_listeners(engine, log, at, "close") : 0;
}

int close_event(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op)
{
    if (is_forked_child())
        return 0;
    char was_on = log->on; /* after a compiled region it was off */
    log->on = 0;
    PyObject *tracer = pause_tracer(engine);
    PyObject *traced = pause_trace();
    int done = write_close(engine, log, at, result, from_op);
    log->on = was_on;
    resume_trace(traced);
    resume_tracer(tracer);
    return done;
}
