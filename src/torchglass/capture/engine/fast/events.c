/* The open and the close of an event (edges.py). */
#include "fast.h"

#define SPARE 8 /* ids for which there is room when an event opens, beyond its arguments */

/* Trace functions of ours, which follow variables, must not be told of what runs in here. Python can be told so itself,
 * which takes a tenth of taking the function away, and leaves a debugger that is set meanwhile where it is; but it would
 * not tell a profiler either, so not where there is one. */
static PyObject *pause_tracer(Engine *engine)
{
    if (PyDict_GET_SIZE(engine->tracers) == 0)
        return NULL;
    PyThreadState *state = PyThreadState_Get();
    PyObject *current = state->c_profilefunc == NULL ? state->c_traceobj : NULL; /* borrowed from the thread */
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
    PyObject *ours = PyDict_GetItemWithError(engine->tracers, tracer); /* borrowed, so made our own below */
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

static int tell(Engine *engine, Log *log, int64_t at, const char *edge)
{
    PyObject *done = PyObject_CallMethod(engine->session, "tell", "OLs", log, (long long)at, edge);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* The number that this thread gives to its next autograd node. */
static int64_t next_node(void)
{
    return is_direct ? direct_node() : as_number(PyObject_CallNoArgs(torch.next_node));
}

/* The word NODES of an event that closes: how far the numbers are, and in backward which node was being run. */
static int64_t nodes_word(const Engine *engine)
{
    int64_t next = next_node(), number = MOST_NODES;
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

static int64_t write_open(Engine *engine, Log *log, int64_t what, PyFrameObject *frame, PyObject *const *args,
                          Py_ssize_t count, PyObject *kwargs)
{
    int64_t first;
    int room = make_room(log);
    if (room < 0)
        return FAILED;
    if (room == 0) {
        PyObject *lost = PyObject_GetAttrString((PyObject *)log, "lost");
        PyObject *more = lost == NULL ? NULL : PyNumber_Add(lost, Py_True);
        int done = more == NULL ? -1 : PyObject_SetAttrString((PyObject *)log, "lost", more);
        Py_XDECREF(lost);
        Py_XDECREF(more);
        return done < 0 ? FAILED : NONE;
    }
    int64_t at = log->at;
    int id_room = make_id_room(log, count + SPARE);
    if (id_room <= 0)
        return id_room < 0 ? FAILED : NONE;
    int64_t form = form_of_call(engine, log, args, count, kwargs, &first);
    int64_t stack = form == FAILED ? FAILED : stack_of(engine, log, frame);
    if (stack == FAILED)
        return FAILED;
    int64_t node = next_node();
    if (node == FAILED)
        return FAILED;
    const int64_t words[RECORD_WORDS] = {
        what, log->parent, stack, form, first, -2 - node, NONE, NONE, NONE, NONE, NONE, now_ns(),
    };
    if (!write_record(log, at, words))
        return NONE;
    log->at = at + 1;
    log->parent = at;
    log->stack = stack;
    if (engine->measurer != NULL && measure_taken(engine, log, at, args, count, kwargs) < 0)
        return FAILED;
    if (log->listening && tell(engine, log, at, "open") < 0)
        return FAILED;
    return at;
}

int64_t open_event(Engine *engine, Log *log, int64_t what, PyFrameObject *frame, PyObject *const *args, Py_ssize_t count,
                   PyObject *kwargs)
{
    log->on = 0; /* what Python runs in between (`__del__`, a signal handler) must not write here */
    PyObject *tracer = pause_tracer(engine);
    int64_t at = write_open(engine, log, what, frame, args, count, kwargs);
    log->on = 1;
    resume_tracer(tracer);
    return at;
}

static int write_close(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op)
{
    int64_t outputs, end = now_ns();
    int64_t form = form_of_result(engine, log, result, from_op, &outputs);
    int64_t nodes = form == FAILED ? FAILED : nodes_word(engine);
    if (nodes == FAILED)
        return -1;
    const int64_t closing[5] = {form, outputs, NONE, nodes, end};
    if (close_record(log, at, closing) < 0)
        return -1;
    if (engine->measurer != NULL && measure_given(engine, log, at, result, from_op) < 0)
        return -1;
    return log->listening ? tell(engine, log, at, "close") : 0;
}

int close_event(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op)
{
    char was_on = log->on; /* after a compiled region it was off */
    log->on = 0;
    PyObject *tracer = pause_tracer(engine);
    int done = write_close(engine, log, at, result, from_op);
    log->on = was_on;
    resume_tracer(tracer);
    return done;
}
