/* Writes the change of a variable as a record (capture/variables/events.py: changed and write).
 *
 * As the record of a call has the forms of the arguments and of the result, the record of a change
 * has those of the values before and after. What was recorded last of each variable is remembered
 * (LastReport), so the next change need not read the old value again.
 *
 * Python calls the sink with a change and a frame (sink_call). Unusual changes are left to `changed`
 * in Python, before anything is written: a value that forms.c does not read, a value from before the
 * recording, a comprehension without a frame of its own.
 */
#include "following.h"
#include "structmember.h"

/* The fields of a change (capture/variables/watch.py: Fields). */
enum { NAME, CODE, OFFSET, LINE, SCOPE, HOW, OLD, NEW, SERIAL, FIELDS };

/* Replaces the stack above a call if the callers may change: then it is read each time. */
#define CHANGES ((int64_t)-2)

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Engine *engine;
    PyObject *calls; /* a dict: number of a running call → ReportedCall */

    /* functions of Python (events.py) */
    PyObject *python;   /* changed(change, frame): writes unusual changes */
    PyObject *begin;    /* (number of a call, log, frame) → ReportedCall, at its first change */
    PyObject *stack_at; /* (log, frame, offset) → number of the stack, if the callers may change */
    PyObject *what;     /* (name, how) → number of the row of a variable */
    PyObject *of_class; /* class → the form that all its values have, or None */

    /* constants */
    PyObject *unbound, *reported; /* UNBOUND and REPORTED (watch.py) */
    PyObject *one_form;           /* the form of one tensor */
    long long nothing;            /* the number of the form of no value */
    long long one_tensor;         /* the number of the form of one tensor */
    long long call_numbers;       /* where the numbers of this engine's calls begin */

    /* answers of Python, cached */
    Table whats;       /* (address of a name, address of how) → number of the row */
    PyObject *kept;    /* a list of those names, to keep them alive */
    PyObject *classes; /* a dict: address of a class → (class, form, number, generation) */
} Sink;

/* ---------------------------------------------------------------- the stack of a change */

/* Return the ReportedCall of a call, borrowed. NULL: there is none, or an error. */
static ReportedCall *reported_call(const Sink *sink, PyObject *serial)
{
    PyObject *call = PyDict_GetItemWithError(sink->calls, serial);
    return call != NULL && Py_TYPE(call) == &ReportedCallType ? (ReportedCall *)call : NULL;
}

/* Return the ReportedCall of a call, owned. Python makes it at the first change. */
static ReportedCall *call_of(const Sink *sink, Log *log, PyObject *serial, PyFrameObject *frame)
{
    ReportedCall *call = reported_call(sink, serial);
    if (call != NULL || PyErr_Occurred())
        return (ReportedCall *)Py_XNewRef((PyObject *)call);
    PyObject *begun = PyObject_CallFunctionObjArgs(sink->begin, serial, log, frame, NULL);
    if (begun != NULL && Py_TYPE(begun) != &ReportedCallType) {
        PyErr_SetString(PyExc_TypeError, "a ReportedCall is wanted");
        Py_CLEAR(begun);
    }
    return (ReportedCall *)begun;
}

static int64_t stack_of_change(const Sink *sink, Log *log, const ReportedCall *call,
                               PyObject *const *fields, PyFrameObject *frame)
{
    const int64_t above = call->above;
    if (above == CHANGES)
        return as_number(
            PyObject_CallFunctionObjArgs(sink->stack_at, log, frame, fields[OFFSET], NULL));
    PyCodeObject *code = PyFrame_GetCode(frame);
    const int64_t words[3] = {above, (int64_t)(intptr_t)code, PyLong_AsLongLong(fields[OFFSET])};
    Py_DECREF(code); /* its frame has it */
    return stack_of_words(sink->engine, frame, words, 3);
}

/* ---------------------------------------------------------------- the values before and after */

/* Return the number of the row of a variable. */
static int64_t what_of(Sink *sink, PyObject *name, PyObject *how)
{
    const int64_t words[2] = {(int64_t)(intptr_t)name, (int64_t)(intptr_t)how};
    uint64_t hash;
    int64_t number = table_find(&sink->whats, words, 2, &hash);
    if (number != NONE)
        return number;
    number = as_number(PyObject_CallFunctionObjArgs(sink->what, name, how, NULL));
    if (number == FAILED || PyList_Append(sink->kept, name) < 0
        || PyList_Append(sink->kept, how) < 0
        || table_add(&sink->whats, words, 2, hash, number) < 0)
        return FAILED;
    return number;
}

/* One change on its way into the journal. */
typedef struct {
    int64_t args, result;       /* numbers of the forms before and after */
    int64_t ids[2 * MOST_HELD]; /* ids of the tensors before, then of those after */
    Py_ssize_t took;            /* how many tensors before */
    Py_ssize_t count;           /* how many tensors in all */
} Writing;

enum { WRITTEN, LEAVE_TO_PYTHON, ERROR };

/* Read the value before the change from what was recorded last; `last` may be NULL. */
static int read_before(const Sink *sink, Writing *writing, PyObject *last, PyObject *old)
{
    if (last == NULL) {
        writing->args = sink->nothing;
        return old == sink->unbound || old == sink->reported ? WRITTEN : LEAVE_TO_PYTHON;
    }
    if (Py_TYPE(last) != &LastReportType)
        return LEAVE_TO_PYTHON;
    const LastReport *report = (const LastReport *)last;
    if (report->generation != sink->engine->form_generation)
        return LEAVE_TO_PYTHON; /* the number of the form is stale */
    const Py_ssize_t count = PyTuple_GET_SIZE(report->values);
    if (count > MOST_HELD)
        return LEAVE_TO_PYTHON;
    for (Py_ssize_t at = 0; at < count; at++)
        writing->ids[at] = PyLong_AsLongLong(PyTuple_GET_ITEM(report->values, at));
    writing->args = report->form;
    writing->took = count;
    writing->count = count;
    return PyErr_Occurred() ? ERROR : WRITTEN;
}

/* Return ids as a tuple, owned. */
static PyObject *id_tuple(const int64_t *ids, Py_ssize_t count)
{
    PyObject *made = PyTuple_New(count);
    for (Py_ssize_t at = 0; made != NULL && at < count; at++) {
        PyObject *id = PyLong_FromLongLong(ids[at]);
        if (id == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, at, id);
    }
    return made;
}

/* The form of a class whose values are all shown as one text, such as <Linear>. */
enum { OF_CLASS, OF_FORM, OF_NUMBER, OF_GENERATION };

/* Ask Python for the form of a class, and cache the answer. Return it, owned. The class is part of
 * it, so that its address stays its own. */
static PyObject *ask_form_of_class(const Sink *sink, PyTypeObject *cls, PyObject *key)
{
    const long long generation = sink->engine->form_generation;
    PyObject *form = PyObject_CallOneArg(sink->of_class, (PyObject *)cls);
    if (form == NULL)
        return NULL;
    int64_t number = NONE;
    if (form != Py_None)
        number = number_of_form(sink->engine, form);
    PyObject *entry = NULL;
    if (number != FAILED)
        entry = Py_BuildValue("OOLL", cls, form, (long long)number, generation);
    Py_DECREF(form);
    if (entry != NULL && PyDict_SetItem(sink->classes, key, entry) < 0)
        Py_CLEAR(entry);
    return entry;
}

/* Return the number of the form of a class, and the form, owned. NONE: its values have different
 * forms. */
static int64_t form_of_class(const Sink *sink, PyTypeObject *cls, PyObject **form)
{
    PyObject *key = PyLong_FromVoidPtr(cls);
    if (key == NULL)
        return FAILED;
    PyObject *entry = Py_XNewRef(PyDict_GetItemWithError(sink->classes, key));
    if (entry != NULL
        && PyLong_AsLongLong(PyTuple_GET_ITEM(entry, OF_GENERATION))
               != sink->engine->form_generation)
        Py_CLEAR(entry); /* the number of the form is stale */
    if (entry == NULL && !PyErr_Occurred())
        entry = ask_form_of_class(sink, cls, key);
    Py_DECREF(key);
    if (entry == NULL)
        return FAILED;
    const int64_t number = PyLong_AsLongLong(PyTuple_GET_ITEM(entry, OF_NUMBER));
    if (number != NONE)
        *form = Py_NewRef(PyTuple_GET_ITEM(entry, OF_FORM));
    Py_DECREF(entry);
    return number;
}

/* Forget what was recorded last of a variable that has lost its value. */
static int forget_report(PyObject *last, PyObject *name)
{
    if (PyDict_DelItem(last, name) == 0)
        return WRITTEN;
    if (!PyErr_ExceptionMatches(PyExc_KeyError))
        return ERROR;
    PyErr_Clear();
    return WRITTEN;
}

/* Read the value after the change: its form (owned), and the ids of its tensors. */
static int read_form(const Sink *sink, Writing *writing, PyObject *value, PyObject **form)
{
    Engine *engine = sink->engine;
    int64_t *ids = writing->ids + writing->took;
    Py_ssize_t count = 0;
    if (is_plain_tensor(value)) {
        ids[0] = plain_value_of(engine, value);
        if (ids[0] == FAILED)
            return ERROR;
        count = 1;
        writing->result = sink->one_tensor;
        *form = Py_NewRef(sink->one_form);
    } else {
        writing->result = form_number_of_variable(engine, value, ids, &count, form);
        if (writing->result == NONE)
            writing->result = form_of_class(sink, Py_TYPE(value), form);
        if (writing->result == FAILED)
            return ERROR;
        if (writing->result == NONE)
            return LEAVE_TO_PYTHON;
    }
    writing->count = writing->took + count;
    return WRITTEN;
}

/* Read the value after the change, and remember it for the next change. */
static int read_new(const Sink *sink, Writing *writing, PyObject *last, PyObject *name,
                    PyObject *value)
{
    if (value == sink->unbound) {
        writing->result = NONE;
        return forget_report(last, name);
    }
    PyObject *form = NULL;
    int outcome = read_form(sink, writing, value, &form);
    if (outcome != WRITTEN)
        return outcome;
    outcome = ERROR;
    PyObject *ids = id_tuple(writing->ids + writing->took, writing->count - writing->took);
    if (ids != NULL) {
        const void *tensor = is_plain_tensor(value) ? value : NULL;
        PyObject *report = (PyObject *)new_report(writing->result, ids, tensor,
                                                  sink->engine->form_generation, form);
        if (report != NULL && PyDict_SetItem(last, name, report) == 0)
            outcome = WRITTEN;
        Py_XDECREF(report);
        Py_DECREF(ids);
    }
    Py_DECREF(form);
    return outcome;
}

/* ---------------------------------------------------------------- the record */

/* Write the record of a change that was read. */
static int write_read(Sink *sink, Log *log, int64_t stack, const Writing *writing,
                      PyObject *const *fields)
{
    Engine *engine = sink->engine;
    const int64_t what = what_of(sink, fields[NAME], fields[HOW]);
    if (what == FAILED)
        return ERROR;
    int64_t first = NONE;
    int64_t outputs = NONE;
    if (writing->count > 0)
        first = add_ids(log, writing->ids, writing->count);
    if (first == FAILED)
        return ERROR;
    if (first != NONE && writing->count > writing->took)
        outputs = first + writing->took;
    const int64_t now = now_ns();
    const int64_t at = log->at;
    const int64_t words[RECORD_WORDS] = {
        [WHAT] = what,
        [PARENT] = log->parent,
        [STACK] = stack,
        [ARGS] = writing->args,
        [INPUTS] = first,
        [CALL] = sink->call_numbers + PyLong_AsLongLong(fields[SERIAL]),
        [RESULT] = writing->result,
        [OUTPUTS] = outputs,
        [ERROR_ROW] = NONE,
        [NODES] = NONE,
        [END] = now,
        [START] = now,
    };
    if (!write_record(log, at, words))
        return WRITTEN; /* there is no room any more */
    log->at = at + 1;
    if (!log->listening)
        return WRITTEN;
    if (tell_listeners(engine, log, at, "open") < 0 || tell_listeners(engine, log, at, "close") < 0)
        return ERROR;
    return WRITTEN;
}

static int write_change(Sink *sink, Log *log, const ReportedCall *call, int64_t stack,
                        PyObject *const *fields)
{
    if (call->last == NULL || !PyDict_Check(call->last))
        return LEAVE_TO_PYTHON;
    const int room = make_room(log);
    if (room < 0)
        return ERROR;
    if (room == 0)
        return LEAVE_TO_PYTHON; /* Python counts the lost event */
    Writing writing;
    writing.took = 0;
    writing.count = 0;
    PyObject *last = Py_NewRef(call->last);
    PyObject *before = Py_XNewRef(PyDict_GetItemWithError(last, fields[NAME]));
    int outcome = ERROR;
    if (!PyErr_Occurred())
        outcome = read_before(sink, &writing, before, fields[OLD]);
    Py_XDECREF(before);
    if (outcome == WRITTEN)
        outcome = read_new(sink, &writing, last, fields[NAME], fields[NEW]);
    if (outcome == WRITTEN)
        outcome = write_read(sink, log, stack, &writing, fields);
    Py_DECREF(last);
    return outcome;
}

/* Return whether this value can be read without calling torch. */
static int is_plain(const Sink *sink, PyObject *value)
{
    PyTypeObject *cls = Py_TYPE(value);
    return value == Py_None || value == sink->unbound || cls == &PyLong_Type
           || cls == &PyUnicode_Type || cls == &PyBool_Type || cls == &PyFloat_Type
           || cls == &PyBytes_Type || cls == &PyComplex_Type;
}

static int record_change(Sink *sink, Log *log, PyObject *const *fields, PyFrameObject *frame)
{
    ReportedCall *call = call_of(sink, log, fields[SERIAL], frame);
    if (call == NULL)
        return ERROR;
    const int64_t stack = stack_of_change(sink, log, call, fields, frame);
    int outcome = ERROR;
    if (stack != FAILED && is_plain(sink, fields[NEW])) {
        outcome = write_change(sink, log, call, stack, fields);
    } else if (stack != FAILED) {
        Unseen unseen;
        if (enter_reading(&unseen) >= 0) {
            outcome = write_change(sink, log, call, stack, fields);
            if (leave_reading(&unseen) < 0)
                outcome = ERROR;
        }
    }
    Py_DECREF(call);
    return outcome;
}

static int is_in_comprehension(PyObject *scope)
{
#if PY_VERSION_HEX >= 0x030C0000
    static PyObject *mark;
    if (mark == NULL && (mark = PyUnicode_InternFromString("comp>")) == NULL)
        return -1;
    return (int)PyUnicode_Tailmatch(scope, mark, 0, PY_SSIZE_T_MAX, 1);
#else
    return 0; /* it has a frame of its own */
#endif
}

/* changed(change, frame) -> whether it was recorded */
static PyObject *sink_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Sink *sink = (Sink *)self;
    if (PyVectorcall_NARGS(flags) != 2 || !PyTuple_Check(args[0])
        || PyTuple_GET_SIZE(args[0]) != FIELDS || !PyFrame_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a change and a frame are wanted");
        return NULL;
    }
    Log *log = current_log();
    if (log == NULL || !log->on || log->engine != (PyObject *)sink->engine)
        Py_RETURN_FALSE;
    /* borrowed from the tuple, which the caller holds */
    PyObject *const *fields = &PyTuple_GET_ITEM(args[0], 0);
    int outcome = is_in_comprehension(fields[SCOPE]);
    if (outcome < 0)
        return NULL;
    if (outcome == 0) {
        Py_INCREF(log);
        Py_INCREF(sink);
        log->on = 0; /* what is read here is not the program's doing */
        PyObject *traced = pause_trace();
        outcome = record_change(sink, log, fields, (PyFrameObject *)args[1]);
        resume_trace(traced);
        log->on = 1;
        Py_DECREF(sink);
        Py_DECREF(log);
    }
    if (outcome == LEAVE_TO_PYTHON)
        return PyObject_Vectorcall(sink->python, args, 2, NULL);
    return outcome == ERROR ? NULL : Py_NewRef(Py_True);
}

/* left(serial, error): a call has ended, so forget its variables (events.py: VariableEvents.left)
 */
static PyObject *sink_left(Sink *sink, PyObject *const *args, Py_ssize_t count)
{
    int there = count == 2 ? PyDict_Contains(sink->calls, args[0]) : 0;
    if (there < 0 || (there > 0 && PyDict_DelItem(sink->calls, args[0]) < 0))
        return NULL;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the type */

static PyMethodDef sink_methods[] = {
    {"left", (PyCFunction)(void (*)(void))sink_left, METH_FASTCALL, "A call has ended."},
    {NULL},
};

#define OBJECTS(each)                                                                              \
    each(engine) each(calls) each(python) each(begin) each(stack_at) each(what) each(unbound)      \
        each(reported) each(one_form) each(kept) each(of_class) each(classes)

static int sink_traverse(Sink *sink, visitproc visit, void *arg)
{
#define VISIT(name) Py_VISIT((PyObject *)sink->name);
    OBJECTS(VISIT)
    return 0;
}

static int sink_clear(Sink *sink)
{
    table_clear(&sink->whats);
#define CLEAR(name) Py_CLEAR(sink->name);
    OBJECTS(CLEAR)
    return 0;
}

static void sink_dealloc(Sink *sink)
{
    PyObject_GC_UnTrack(sink);
    sink_clear(sink);
    Py_TYPE(sink)->tp_free((PyObject *)sink);
}

/* VariableSink(engine, calls, changed, begin, stack_at, what, two marks, a form, of_class, three
 * numbers) */
static PyObject *sink_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *engine, *calls, *python, *begin, *stack_at, *what, *unbound, *reported, *one_form,
        *of_class;
    long long nothing, one_tensor, call_numbers;
    if (!PyArg_ParseTuple(args, "O!O!OOOOOOOOLLL", &EngineType, &engine, &PyDict_Type, &calls,
                          &python, &begin, &stack_at, &what, &unbound, &reported, &one_form,
                          &of_class, &nothing, &one_tensor, &call_numbers))
        return NULL;
    Sink *sink = (Sink *)type->tp_alloc(type, 0);
    if (sink == NULL || (sink->kept = PyList_New(0)) == NULL
        || (sink->classes = PyDict_New()) == NULL) {
        Py_XDECREF(sink);
        return NULL;
    }
    sink->call = sink_call;
    sink->engine = (Engine *)Py_NewRef(engine);
#define TAKE(name) sink->name = Py_NewRef(name);
    TAKE(calls)
    TAKE(python)
    TAKE(begin)
    TAKE(stack_at)
    TAKE(what)
    TAKE(unbound)
    TAKE(reported)
    TAKE(one_form)
    TAKE(of_class)
    sink->nothing = nothing;
    sink->one_tensor = one_tensor;
    sink->call_numbers = call_numbers;
    return (PyObject *)sink;
}

static PyTypeObject SinkType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.VariableSink",
    .tp_doc = "Writes changes of variables into the log of the calling thread.",
    .tp_basicsize = sizeof(Sink),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Sink, call),
    .tp_call = PyVectorcall_Call,
    .tp_new = sink_new,
    .tp_dealloc = (destructor)sink_dealloc,
    .tp_traverse = (traverseproc)sink_traverse,
    .tp_clear = (inquiry)sink_clear,
    .tp_methods = sink_methods,
};

int variables_ready(PyObject *module)
{
    if (PyType_Ready(&SinkType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "VariableSink", (PyObject *)&SinkType);
}
