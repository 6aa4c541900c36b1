/* Writes the change of a variable as a record (capture/variables/events.py: changed and write).
 *
 * The record has the form of the value before and of the value after, as an event has those of its
 * arguments and its result. What was written last of each variable is remembered as a tuple (Told),
 * so the next change need not read the old value again. Unusual changes are left to `changed` in
 * Python, before anything is written: a value that forms.c does not read, a value from before the
 * recording, a comprehension without a frame of its own.
 */
#include "following.h"
#include "structmember.h"

/* of a change (capture/variables/watch.py) */
enum { NAME, CODE, OFFSET, LINE, SCOPE, HOW, OLD, NEW, SERIAL, FIELDS };
/* of what was written last of a variable (events.py: Told) */
enum { FORM, VALUES, TENSOR_ID, GENERATION, FORM_ITSELF, TOLD_FIELDS };
#define CHANGES                                                                                    \
    ((int64_t)-2) /* in place of the stack above a call: its callers may change, so it is read     \
                     each time */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Engine *engine;
    PyObject *calls; /* a dict: number of a running call -> ToldCall */
    /* functions of Python (events.py) */
    PyObject *python; /* changed(change, frame), for all that is unusual */
    /* (number of a call, log, frame) -> ToldCall, at the first change in a call */
    PyObject *begin;
    /* (log, frame, offset) -> number of the stack, for a call whose callers may change */
    PyObject *stack_at;
    PyObject *what;     /* (name, how) -> number of the row of a variable */
    PyObject *of_class; /* class -> the form that all its values have, or None */
    /* constants */
    /* marks in place of a value: it has none; it is as written last */
    PyObject *unbound, *told;
    PyObject *one_form;            /* the form of one tensor */
    long long nothing, one_tensor; /* the numbers of the form of no value, and of one tensor */
    long long call_numbers;        /* where the numbers of this engine's calls begin */
    /* what Python has answered */
    Table whats;       /* (address of a name, address of how) -> number of the row */
    PyObject *kept;    /* a list of those names, so that their addresses stay theirs */
    PyObject *classes; /* a dict: address of a class -> (class, form, number, generation) */
} Sink;

/* ---------------------------------------------------------------- the stack of a change */

/* The ToldCall of a call, borrowed; NULL: there is none, or an error. */
static ToldCall *told_call(const Sink *sink, PyObject *serial)
{
    PyObject *call = PyDict_GetItemWithError(sink->calls, serial);
    return call != NULL && Py_TYPE(call) == &ToldCallType ? (ToldCall *)call : NULL;
}

/* The ToldCall of a call, owned; Python makes it at the first change. */
static ToldCall *call_of(const Sink *sink, Log *log, PyObject *serial, PyFrameObject *frame)
{
    ToldCall *call = told_call(sink, serial);
    if (call != NULL || PyErr_Occurred())
        return (ToldCall *)Py_XNewRef((PyObject *)call);
    PyObject *begun = PyObject_CallFunctionObjArgs(sink->begin, serial, log, frame, NULL);
    if (begun != NULL && Py_TYPE(begun) != &ToldCallType) {
        PyErr_SetString(PyExc_TypeError, "a ToldCall is wanted");
        Py_CLEAR(begun);
    }
    return (ToldCall *)begun;
}

static int64_t stack_of_change(const Sink *sink, Log *log, const ToldCall *call,
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

/* The number of the row of a variable. */
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
    Py_ssize_t took, count;     /* how many tensors before; how many in all */
} Writing;

enum { WRITTEN, LEAVE_TO_PYTHON, ERROR };

/* Read the value before the change from what was written last. */
static int read_before(const Sink *sink, Writing *writing, PyObject *known, PyObject *old)
{
    if (known == NULL) {
        writing->args = sink->nothing;
        return old == sink->unbound || old == sink->told ? WRITTEN : LEAVE_TO_PYTHON;
    }
    if (!PyTuple_CheckExact(known) || PyTuple_GET_SIZE(known) != TOLD_FIELDS
        || PyLong_AsLongLong(PyTuple_GET_ITEM(known, GENERATION)) != sink->engine->form_generation)
        return PyErr_Occurred() ? ERROR : LEAVE_TO_PYTHON; /* the number of its form is stale */
    /* borrowed from the tuple, which the caller holds */
    PyObject *values = PyTuple_GET_ITEM(known, VALUES);
    writing->args = PyLong_AsLongLong(PyTuple_GET_ITEM(known, FORM));
    writing->took = writing->count = PyTuple_GET_SIZE(values);
    if (writing->took > MOST_HELD)
        return LEAVE_TO_PYTHON;
    for (Py_ssize_t at = 0; at < writing->took; at++)
        writing->ids[at] = PyLong_AsLongLong(PyTuple_GET_ITEM(values, at));
    return PyErr_Occurred() ? ERROR : WRITTEN;
}

/* What is remembered of a change for the next one (events.py: Told), owned. */
static PyObject *told_of(const Sink *sink, const Writing *writing, PyObject *tensor, PyObject *form)
{
    PyObject *values = PyTuple_New(writing->count - writing->took);
    for (Py_ssize_t at = writing->took; values != NULL && at < writing->count; at++) {
        PyObject *value = PyLong_FromLongLong(writing->ids[at]);
        if (value == NULL)
            Py_CLEAR(values);
        else
            PyTuple_SET_ITEM(values, at - writing->took, value);
    }
    PyObject *const parts[TOLD_FIELDS] = {
        PyLong_FromLongLong(writing->result),
        values,
        PyLong_FromVoidPtr(tensor),
        PyLong_FromLongLong(sink->engine->form_generation),
        Py_NewRef(form),
    };
    PyObject *told = PyTuple_New(TOLD_FIELDS);
    for (int at = 0; at < TOLD_FIELDS; at++) {
        if (parts[at] == NULL)
            Py_CLEAR(told);
        if (told != NULL)
            PyTuple_SET_ITEM(told, at, parts[at]);
        else
            Py_XDECREF(parts[at]);
    }
    return told;
}

/* The number of the form of a class whose values are all shown as one text, such as <Linear>; NONE:
 * it is no such class. */
static int64_t form_of_class(const Sink *sink, PyTypeObject *cls, PyObject **form)
{
    PyObject *key = PyLong_FromVoidPtr(cls);
    PyObject *entry = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(sink->classes, key));
    const long long generation = sink->engine->form_generation;
    int64_t number = FAILED;
    if (entry != NULL && PyLong_AsLongLong(PyTuple_GET_ITEM(entry, 3)) != generation)
        Py_CLEAR(entry); /* the number is stale */
    if (entry == NULL && key != NULL && !PyErr_Occurred()) {
        PyObject *found = PyObject_CallOneArg(sink->of_class, (PyObject *)cls);
        number = found == NULL      ? FAILED
                 : found == Py_None ? NONE
                                    : number_of_form(sink->engine, found);
        if (number != FAILED) /* the class is in it so that its address stays its own */
            entry = Py_BuildValue("OOLL", cls, found, (long long)number, generation);
        Py_XDECREF(found);
        if (entry != NULL && PyDict_SetItem(sink->classes, key, entry) < 0)
            Py_CLEAR(entry);
    }
    Py_XDECREF(key);
    if (entry == NULL)
        return FAILED;
    number = PyLong_AsLongLong(PyTuple_GET_ITEM(entry, 2));
    if (number != NONE)
        *form = Py_NewRef(PyTuple_GET_ITEM(entry, 1));
    Py_DECREF(entry);
    return number;
}

/* Read the value after the change, and remember it for the next one. */
static int read_new(const Sink *sink, Writing *writing, PyObject *told, PyObject *name,
                    PyObject *value)
{
    Engine *engine = sink->engine;
    PyObject *form = NULL;
    PyObject *tensor = NULL;
    PyObject *entry;
    Py_ssize_t count = 0;
    if (value == sink->unbound) {
        writing->result = NONE;
        if (PyDict_DelItem(told, name) < 0) {
            if (!PyErr_ExceptionMatches(PyExc_KeyError))
                return ERROR;
            PyErr_Clear();
        }
        return WRITTEN;
    }
    if (is_plain_tensor(value)) {
        int64_t number = plain_value_of(engine, value);
        if (number == FAILED)
            return ERROR;
        writing->ids[writing->count] = number;
        writing->result = sink->one_tensor;
        form = Py_NewRef(sink->one_form);
        tensor = value; /* borrowed from the change; only its address is remembered */
        count = 1;
    } else {
        writing->result =
            form_number_of_variable(engine, value, writing->ids + writing->count, &count, &form);
        if (writing->result == NONE)
            writing->result = form_of_class(sink, Py_TYPE(value), &form);
        if (writing->result == FAILED)
            return ERROR;
        if (writing->result == NONE)
            return LEAVE_TO_PYTHON;
    }
    writing->count += count;
    entry = told_of(sink, writing, tensor, form);
    Py_DECREF(form);
    int done = entry == NULL ? -1 : PyDict_SetItem(told, name, entry);
    Py_XDECREF(entry);
    return done < 0 ? ERROR : WRITTEN;
}

/* ---------------------------------------------------------------- the record */

static int write_read(Sink *sink, Log *log, int64_t stack, const Writing *writing,
                      PyObject *const *fields)
{
    int64_t what = what_of(sink, fields[NAME], fields[HOW]);
    int64_t first = NONE;
    int64_t now = now_ns();
    int64_t at = log->at;
    if (what == FAILED
        || (writing->count && (first = add_ids(log, writing->ids, writing->count)) == FAILED))
        return ERROR;
    const int has_outputs = writing->count > writing->took && first != NONE;
    const int64_t words[RECORD_WORDS] = {
        [WHAT] = what,
        [PARENT] = log->parent,
        [STACK] = stack,
        [ARGS] = writing->args,
        [INPUTS] = first,
        [CALL] = sink->call_numbers + PyLong_AsLongLong(fields[SERIAL]),
        [RESULT] = writing->result,
        [OUTPUTS] = has_outputs ? first + writing->took : NONE,
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
    Engine *engine = sink->engine;
    return tell_listeners(engine, log, at, "open") < 0
                   || tell_listeners(engine, log, at, "close") < 0
               ? ERROR
               : WRITTEN;
}

static int write_change(Sink *sink, Log *log, const ToldCall *call, int64_t stack,
                        PyObject *const *fields)
{
    Writing writing;
    writing.took = writing.count = 0;
    if (call->told == NULL || !PyDict_Check(call->told))
        return LEAVE_TO_PYTHON;
    PyObject *told = Py_NewRef(call->told);
    /* without room Python counts the lost event */
    int room = make_room(log);
    int done = room < 0 ? ERROR : LEAVE_TO_PYTHON;
    if (room > 0) {
        PyObject *known = Py_XNewRef(PyDict_GetItemWithError(told, fields[NAME]));
        done = PyErr_Occurred() ? ERROR : read_before(sink, &writing, known, fields[OLD]);
        Py_XDECREF(known);
        if (done == WRITTEN)
            done = read_new(sink, &writing, told, fields[NAME], fields[NEW]);
        if (done == WRITTEN)
            done = write_read(sink, log, stack, &writing, fields);
    }
    Py_DECREF(told);
    return done;
}

/* Whether reading this value calls nothing of torch. */
static int is_plain(const Sink *sink, PyObject *value)
{
    PyTypeObject *cls = Py_TYPE(value);
    return value == Py_None || value == sink->unbound || cls == &PyLong_Type
           || cls == &PyUnicode_Type || cls == &PyBool_Type || cls == &PyFloat_Type
           || cls == &PyBytes_Type || cls == &PyComplex_Type;
}

static int record_change(Sink *sink, Log *log, PyObject *const *fields, PyFrameObject *frame)
{
    ToldCall *call = call_of(sink, log, fields[SERIAL], frame);
    int64_t stack = call == NULL ? FAILED : stack_of_change(sink, log, call, fields, frame);
    int done = ERROR;
    int plain = is_plain(sink, fields[NEW]);
    Unseen unseen;
    if (stack != FAILED && (plain || enter_reading(&unseen) >= 0)) {
        done = write_change(sink, log, call, stack, fields);
        if (!plain && leave_reading(&unseen) < 0)
            done = ERROR;
    }
    Py_XDECREF(call);
    return done;
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
    int done = is_in_comprehension(fields[SCOPE]);
    if (done < 0)
        return NULL;
    if (done == 0) {
        Py_INCREF(log);
        Py_INCREF(sink);
        log->on = 0; /* what is read here is not the program's doing */
        PyObject *traced = pause_trace();
        done = record_change(sink, log, fields, (PyFrameObject *)args[1]);
        resume_trace(traced);
        log->on = 1;
        Py_DECREF(sink);
        Py_DECREF(log);
    }
    if (done == LEAVE_TO_PYTHON)
        return PyObject_Vectorcall(sink->python, args, 2, NULL);
    return done == ERROR ? NULL : Py_NewRef(Py_True);
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
        each(told) each(one_form) each(kept) each(of_class) each(classes)

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
    PyObject *engine, *calls, *python, *begin, *stack_at, *what, *unbound, *told, *one_form,
        *of_class;
    long long nothing, one_tensor, call_numbers;
    if (!PyArg_ParseTuple(args, "O!O!OOOOOOOOLLL", &EngineType, &engine, &PyDict_Type, &calls,
                          &python, &begin, &stack_at, &what, &unbound, &told, &one_form, &of_class,
                          &nothing, &one_tensor, &call_numbers))
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
    TAKE(told)
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
