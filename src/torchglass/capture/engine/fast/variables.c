/* What is told of a variable, as a record (capture/variables/events.py: changed and write).
 *
 * Whatever is unusual is left to Python's own `changed`, as a whole and before anything is written: a value that forms.c
 * does not read, what a variable held before the block began, a comprehension that has no frame of its own.
 */
#include "following.h"
#include "structmember.h"

enum { NAME, CODE, OFFSET, LINE, SCOPE, HOW, OLD, NEW, SERIAL, FIELDS }; /* of a change (capture/variables/watch.py) */
enum { FORM, VALUES, TENSOR_ID, GENERATION, FORM_ITSELF, TOLD_FIELDS };  /* of what was told (events.py: Told) */
#define CHANGES ((int64_t)-2) /* in the place of the stack above a call: another each time */
#define MOST_CALLS 10000      /* events.py: whose variables are remembered */
#define NEAR 16               /* frames that are walked to find the stack above a call */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Engine *engine;
    PyObject *calls;      /* a dict: what was told of each call under way, by its number */
    PyObject *python;     /* changed, of the engine in Python */
    PyObject *begin;      /* a call is told of for the first time, whose stack Python has to find: (its number, log, frame) */
    PyObject *stack_at, *what;
    PyObject *unbound, *told;     /* marks for values */
    PyObject *one_form;           /* of one tensor */
    long long nothing, one_tensor; /* numbers of forms */
    long long call_numbers;
    Table whats;                  /* (address of a name, address of how) → its number */
    PyObject *kept;               /* a list of those names */
    PyObject *of_class;           /* asked for the form that all values of a class have, or None … */
    PyObject *classes;            /* … and what it said, by address: (class, form, number, generation) */
} Sink;

static PyObject *code_name, *running_name; /* of attributes, interned */

/* ---------------------------------------------------------------- where it stands */

/* What is known of a call by its number, borrowed; NULL: nothing, or an error. */
static ToldCall *told_call(const Sink *sink, PyObject *serial)
{
    PyObject *call = PyDict_GetItemWithError(sink->calls, serial);
    return call != NULL && Py_TYPE(call) == &ToldCallType ? (ToldCall *)call : NULL;
}

/* The stack above the call of a frame, where that is known to be watched; CHANGES: it is not. `all` are by id of frame. */
static int64_t known_above(const Sink *sink, PyObject *all, PyFrameObject *frame, PyCodeObject *code)
{
    PyObject *key = PyLong_FromVoidPtr(frame);
    PyObject *running = key == NULL ? NULL : PyDict_GetItemWithError(all, key); /* borrowed, made our own */
    Py_XINCREF(running);
    Py_XDECREF(key);
    int64_t above = PyErr_Occurred() ? FAILED : CHANGES;
    if (running != NULL && is_ready(running)) {
        PyObject *planned = PyObject_GetAttr(((Call *)running)->plan, code_name);
        ToldCall *call = planned == (PyObject *)code ? told_call(sink, ((Call *)running)->serial) : NULL;
        above = PyErr_Occurred() ? FAILED : call == NULL ? CHANGES : call->above;
        Py_XDECREF(planned);
    }
    Py_XDECREF(running);
    return above;
}

/* The stack of a call's callers (ToldCalls._above); `done` says whether it was found here. */
static int64_t stack_above(const Sink *sink, PyObject *running, const Log *log, PyFrameObject *frame, int *done)
{
    int64_t words[2 * NEAR + 1], number = NONE;
    Py_ssize_t length = 1;
    PyFrameObject *caller = PyFrame_GetBack(frame), *each = (PyFrameObject *)Py_XNewRef((PyObject *)caller);
    *done = 0;
    for (int count = 0; count < NEAR && !*done; count++) { /* far: Python leaves milestones on the way */
        int64_t base = CHANGES;
        if (each == NULL || (long long)(intptr_t)each == log->anchor)
            base = each == NULL ? NONE : log->base;
        else {
            PyCodeObject *code = PyFrame_GetCode(each);
            words[length++] = (int64_t)(intptr_t)code;
            words[length++] = PyFrame_GetLasti(each);
            base = known_above(sink, running, each, code);
            Py_DECREF(code); /* its frame has it */
        }
        if (base != CHANGES) {
            words[0] = base;
            number = base == FAILED || length == 1 ? base : stack_of_words(sink->engine, caller, words, length);
            *done = 1;
        } else
            Py_SETREF(each, PyFrame_GetBack(each));
    }
    Py_XDECREF(each);
    Py_XDECREF(caller);
    return number;
}

/* A call is told of for the first time (ToldCalls.begin); `above` is the stack of its callers. Owned. */
static ToldCall *new_told_call(const Sink *sink, PyObject *serial, int64_t above)
{
    if (PyDict_GET_SIZE(sink->calls) >= MOST_CALLS)
        PyDict_Clear(sink->calls);
    ToldCall *call = (ToldCall *)PyObject_CallNoArgs((PyObject *)&ToldCallType);
    if (call != NULL) {
        call->above = above;
        if (PyDict_SetItem(sink->calls, serial, (PyObject *)call) < 0)
            Py_CLEAR(call);
    }
    return call;
}

/* What is known of the call, owned; it is made if this is the first that is told of it. */
static ToldCall *call_of(const Sink *sink, Log *log, PyObject *serial, PyFrameObject *frame)
{
    ToldCall *call = told_call(sink, serial);
    if (call != NULL || PyErr_Occurred())
        return (ToldCall *)Py_XNewRef((PyObject *)call);
    PyCodeObject *code = PyFrame_GetCode(frame);
    int found = 0, can_be_resumed = (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
    Py_DECREF(code);
    PyObject *running = PyObject_GetAttr(sink->calls, running_name);
    int64_t above = running == NULL ? FAILED : NONE;
    if (running != NULL && PyDict_Check(running) && !can_be_resumed)
        above = stack_above(sink, running, log, frame, &found);
    Py_XDECREF(running);
    if (above == FAILED)
        return NULL;
    if (found)
        return new_told_call(sink, serial, above);
    PyObject *begun = PyObject_CallFunctionObjArgs(sink->begin, serial, log, frame, NULL);
    if (begun != NULL && Py_TYPE(begun) != &ToldCallType) {
        PyErr_SetString(PyExc_TypeError, "what is known of a call is wanted");
        Py_CLEAR(begun);
    }
    return (ToldCall *)begun;
}

static int64_t stack_of_change(const Sink *sink, Log *log, const ToldCall *call, PyObject *const *fields, PyFrameObject *frame)
{
    const int64_t above = call->above;
    if (above == CHANGES)
        return as_number(PyObject_CallFunctionObjArgs(sink->stack_at, log, frame, fields[OFFSET], NULL));
    PyCodeObject *code = PyFrame_GetCode(frame);
    const int64_t words[3] = {above, (int64_t)(intptr_t)code, PyLong_AsLongLong(fields[OFFSET])};
    Py_DECREF(code); /* its frame has it */
    return stack_of_words(sink->engine, frame, words, 3);
}

/* ---------------------------------------------------------------- what it is */

static int64_t what_of(Sink *sink, PyObject *name, PyObject *how)
{
    const int64_t words[2] = {(int64_t)(intptr_t)name, (int64_t)(intptr_t)how};
    uint64_t hash;
    int64_t number = table_find(&sink->whats, words, 2, &hash);
    if (number != NONE)
        return number;
    if ((number = learned_variable(sink->engine, name, how)) == NONE)
        number = as_number(PyObject_CallFunctionObjArgs(sink->what, name, how, NULL));
    if (number == FAILED || PyList_Append(sink->kept, name) < 0 || PyList_Append(sink->kept, how) < 0
        || table_add(&sink->whats, words, 2, hash, number) < 0)
        return FAILED;
    return number;
}

/* One change on its way into the journal. */
typedef struct {
    int64_t args, result;
    int64_t ids[2 * MOST_HELD];
    Py_ssize_t took, count; /* values before; all of them */
} Writing;

enum { WRITTEN, NOT_HERE, ERROR };

/* What the variable held, as it was told. */
static int read_before(const Sink *sink, Writing *writing, PyObject *known, PyObject *old)
{
    if (known == NULL) {
        writing->args = sink->nothing;
        return old == sink->unbound || old == sink->told ? WRITTEN : NOT_HERE;
    }
    if (!PyTuple_CheckExact(known) || PyTuple_GET_SIZE(known) != TOLD_FIELDS
        || PyLong_AsLongLong(PyTuple_GET_ITEM(known, GENERATION)) != sink->engine->form_generation)
        return PyErr_Occurred() ? ERROR : NOT_HERE; /* its number has lost its meaning */
    PyObject *values = PyTuple_GET_ITEM(known, VALUES); /* borrowed from the tuple, which the caller holds */
    writing->args = PyLong_AsLongLong(PyTuple_GET_ITEM(known, FORM));
    writing->took = writing->count = PyTuple_GET_SIZE(values);
    if (writing->took > MOST_HELD)
        return NOT_HERE;
    for (Py_ssize_t at = 0; at < writing->took; at++)
        writing->ids[at] = PyLong_AsLongLong(PyTuple_GET_ITEM(values, at));
    return PyErr_Occurred() ? ERROR : WRITTEN;
}

/* Remember what is told: (form, values, id of the tensor, generation, the form itself), as Python does. Owned. */
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
        PyLong_FromLongLong(writing->result), values, PyLong_FromVoidPtr(tensor),
        PyLong_FromLongLong(sink->engine->form_generation), Py_NewRef(form),
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

/* The form of a value of a class whose values are all described alike, as `<Linear>`; NONE: they are not. */
static int64_t form_of_class(const Sink *sink, PyTypeObject *cls, PyObject **form)
{
    PyObject *key = PyLong_FromVoidPtr(cls);
    PyObject *entry = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(sink->classes, key));
    const long long generation = sink->engine->form_generation;
    int64_t number = FAILED;
    if (entry != NULL && PyLong_AsLongLong(PyTuple_GET_ITEM(entry, 3)) != generation)
        Py_CLEAR(entry); /* the number has lost its meaning */
    if (entry == NULL && key != NULL && !PyErr_Occurred()) {
        PyObject *found = PyObject_CallOneArg(sink->of_class, (PyObject *)cls);
        number = found == NULL    ? FAILED
                 : found == Py_None ? NONE
                                    : number_of_form(sink->engine, found);
        if (number != FAILED) /* with the class, so that its address stays its own */
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

/* What it holds now, and that it is remembered. */
static int read_new(const Sink *sink, Writing *writing, PyObject *told, PyObject *name, PyObject *value)
{
    Engine *engine = sink->engine;
    PyObject *form = NULL, *tensor = NULL, *entry;
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
    if (Py_TYPE(value) == torch.Tensor || Py_TYPE(value) == torch.Parameter) {
        int64_t number = plain_value_of(engine, value);
        if (number == FAILED)
            return ERROR;
        writing->ids[writing->count] = number;
        writing->result = sink->one_tensor;
        form = Py_NewRef(sink->one_form);
        tensor = value; /* borrowed from the change; only its address is told */
        count = 1;
    } else {
        writing->result = form_of_variable(engine, value, writing->ids + writing->count, &count, &form);
        if (writing->result == NONE)
            writing->result = form_of_class(sink, Py_TYPE(value), &form);
        if (writing->result == FAILED)
            return ERROR;
        if (writing->result == NONE)
            return NOT_HERE;
    }
    writing->count += count;
    entry = told_of(sink, writing, tensor, form);
    Py_DECREF(form);
    int done = entry == NULL ? -1 : PyDict_SetItem(told, name, entry);
    Py_XDECREF(entry);
    return done < 0 ? ERROR : WRITTEN;
}

/* ---------------------------------------------------------------- the record */

static int tell_listeners(const Sink *sink, Log *log, int64_t at)
{
    const char *edges[] = {"open", "close"};
    for (int edge = 0; edge < 2; edge++) {
        PyObject *done = PyObject_CallMethod(sink->engine->session, "tell", "OLs", log, (long long)at, edges[edge]);
        if (done == NULL)
            return -1;
        Py_DECREF(done);
    }
    return 0;
}

static int write_read(Sink *sink, Log *log, int64_t stack, const Writing *writing, PyObject *const *fields)
{
    int64_t what = what_of(sink, fields[NAME], fields[HOW]), first = NONE, now = now_ns(), at = log->at;
    if (what == FAILED || (writing->count && (first = add_ids(log, writing->ids, writing->count)) == FAILED))
        return ERROR;
    const int64_t words[RECORD_WORDS] = {
        what, log->parent, stack, writing->args, first, sink->call_numbers + PyLong_AsLongLong(fields[SERIAL]),
        writing->result, writing->count > writing->took && first != NONE ? first + writing->took : NONE, NONE, NONE, now, now,
    };
    if (!write_record(log, at, words))
        return WRITTEN; /* there is no room any more */
    log->at = at + 1;
    return log->listening && tell_listeners(sink, log, at) < 0 ? ERROR : WRITTEN;
}

static int write_change(Sink *sink, Log *log, const ToldCall *call, int64_t stack, PyObject *const *fields)
{
    Writing writing;
    writing.took = writing.count = 0;
    if (call->told == NULL || !PyDict_Check(call->told))
        return NOT_HERE;
    PyObject *told = Py_NewRef(call->told);
    int room = make_room(log), done = room < 0 ? ERROR : NOT_HERE; /* where there is none, Python counts what is lost */
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

/* Of such a value nothing is read that torch could notice. */
static int is_plain(const Sink *sink, PyObject *value)
{
    PyTypeObject *cls = Py_TYPE(value);
    return value == Py_None || value == sink->unbound || cls == &PyLong_Type || cls == &PyUnicode_Type
           || cls == &PyBool_Type || cls == &PyFloat_Type || cls == &PyBytes_Type || cls == &PyComplex_Type;
}

static int record_change(Sink *sink, Log *log, PyObject *const *fields, PyFrameObject *frame)
{
    ToldCall *call = call_of(sink, log, fields[SERIAL], frame);
    int64_t stack = call == NULL ? FAILED : stack_of_change(sink, log, call, fields, frame);
    int done = ERROR, plain = is_plain(sink, fields[NEW]);
    Unseen unseen;
    if (stack != FAILED && (plain || enter_unseen(&unseen) >= 0)) {
        done = write_change(sink, log, call, stack, fields);
        if (!plain && leave_unseen(&unseen) < 0)
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

/* changed(change, frame): whether note was taken */
static PyObject *sink_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Sink *sink = (Sink *)self;
    if (PyVectorcall_NARGS(flags) != 2 || !PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != FIELDS
        || !PyFrame_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a change and a frame are wanted");
        return NULL;
    }
    Log *log = current_log();
    if (log == NULL || !log->on || log->engine != (PyObject *)sink->engine)
        Py_RETURN_FALSE;
    PyObject *const *fields = &PyTuple_GET_ITEM(args[0], 0); /* borrowed from the tuple, which the caller holds */
    int done = is_in_comprehension(fields[SCOPE]);
    if (done < 0)
        return NULL;
    if (done == 0) {
        Py_INCREF(log);
        Py_INCREF(sink);
        log->on = 0; /* what is read here is not the program's doing */
        done = record_change(sink, log, fields, (PyFrameObject *)args[1]);
        log->on = 1;
        Py_DECREF(sink);
        Py_DECREF(log);
    }
    if (done == NOT_HERE)
        return PyObject_Vectorcall(sink->python, args, 2, NULL);
    return done == ERROR ? NULL : Py_NewRef(Py_True);
}

/* left(serial, error): a call has ended, its variables hold nothing any more (events.py: VariableEvents.left) */
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

#define OBJECTS(each)                                                                                                  \
    each(engine) each(calls) each(python) each(begin) each(stack_at) each(what)         \
    each(unbound) each(told) each(one_form) each(kept) each(of_class) each(classes)

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

/* VariableSink(engine, calls, changed, begin, stack_at, what, two marks, a form, of_class, three numbers) */
static PyObject *sink_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *engine, *calls, *python, *begin, *stack_at, *what, *unbound, *told, *one_form, *of_class;
    long long nothing, one_tensor, call_numbers;
    if (!PyArg_ParseTuple(args, "O!O!OOOOOOOOLLL", &EngineType, &engine, &PyDict_Type, &calls, &python, &begin, &stack_at, &what, &unbound, &told, &one_form, &of_class, &nothing, &one_tensor,
                          &call_numbers))
        return NULL;
    Sink *sink = (Sink *)type->tp_alloc(type, 0);
    if (sink == NULL || (sink->kept = PyList_New(0)) == NULL || (sink->classes = PyDict_New()) == NULL) {
        Py_XDECREF(sink);
        return NULL;
    }
    sink->call = sink_call;
    sink->engine = (Engine *)Py_NewRef(engine);
#define TAKE(name) sink->name = Py_NewRef(name);
    TAKE(calls) TAKE(python) TAKE(begin) TAKE(stack_at) TAKE(what) TAKE(unbound)
    TAKE(told) TAKE(one_form) TAKE(of_class)
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
    code_name = PyUnicode_InternFromString("code");
    running_name = PyUnicode_InternFromString("running");
    if (code_name == NULL || running_name == NULL || PyType_Ready(&SinkType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "VariableSink", (PyObject *)&SinkType);
}
