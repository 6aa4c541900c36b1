/* Where one thread's records and ids go (journal/writer.py), and which log is this thread's. */
#include "fast.h"
#include "structmember.h"
#include <stdatomic.h>

static void let_go_of_records(Log *log)
{
    if (log->has_records) {
        log->has_records = 0;
        log->records = NULL;
        PyBuffer_Release(&log->record_view);
    }
}

static void let_go_of_ids(Log *log)
{
    if (log->has_ids) {
        log->has_ids = 0;
        log->ids = NULL;
        PyBuffer_Release(&log->id_view);
    }
}

/* The new memory is taken before the old one is given back: giving back may run code. */
static int set_buffer(Log *log, PyObject *buffer, void *unused)
{
    Py_buffer view;
    if (buffer == NULL || PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE) < 0)
        return -1;
    let_go_of_records(log);
    log->record_view = view;
    log->records = view.buf;
    log->has_records = 1;
    return 0;
}

static PyObject *get_buffer(Log *log, void *unused)
{
    return log->has_records ? Py_NewRef(log->record_view.obj) : PyByteArray_FromStringAndSize(NULL, 0);
}

static int set_ids(Log *log, PyObject *ids, void *unused)
{
    Py_buffer view;
    if (ids == NULL || PyObject_GetBuffer(ids, &view, PyBUF_SIMPLE) < 0)
        return -1;
    let_go_of_ids(log);
    log->id_view = view;
    log->ids = view.buf;
    log->has_ids = 1;
    return 0;
}

static PyObject *get_ids(Log *log, void *unused)
{
    return log->has_ids ? Py_NewRef(log->id_view.obj) : PyMemoryView_FromMemory("", 0, PyBUF_READ);
}

static int log_traverse(Log *log, visitproc visit, void *arg)
{
    Py_VISIT(log->steps);
    Py_VISIT(log->unread);
    Py_VISIT(log->engine);
    return 0;
}

static int log_clear(Log *log)
{
    Py_CLEAR(log->steps);
    Py_CLEAR(log->unread);
    Py_CLEAR(log->engine);
    return 0;
}

static void log_dealloc(Log *log)
{
    PyObject_GC_UnTrack(log);
    let_go_of_records(log);
    let_go_of_ids(log);
    log_clear(log);
    Py_TYPE(log)->tp_free((PyObject *)log);
}

#define WORD(name) {#name, T_LONGLONG, offsetof(Log, name), 0, NULL}
#define SWITCH(name) {#name, T_BOOL, offsetof(Log, name), 0, NULL}
static PyMemberDef log_members[] = {
    WORD(at), WORD(first), WORD(end), WORD(shift), WORD(id_at), WORD(id_base), WORD(id_end), WORD(parent), WORD(stack),
    WORD(anchor), WORD(base), WORD(module), SWITCH(on), SWITCH(listening), SWITCH(branched),
    {"steps", T_OBJECT_EX, offsetof(Log, steps), 0, NULL}, {"unread", T_OBJECT_EX, offsetof(Log, unread), 0, NULL},
    {"engine", T_OBJECT, offsetof(Log, engine), 0, NULL}, {NULL},
};
static PyGetSetDef log_getset[] = {
    {"buffer", (getter)get_buffer, (setter)set_buffer, NULL, NULL},
    {"ids", (getter)get_ids, (setter)set_ids, NULL, NULL},
    {NULL},
};
PyTypeObject LogType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Log",
    .tp_doc = "Where one thread's records go, and where its open events stand.",
    .tp_basicsize = sizeof(Log),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)log_dealloc,
    .tp_traverse = (traverseproc)log_traverse,
    .tp_clear = (inquiry)log_clear,
    .tp_members = log_members,
    .tp_getset = log_getset,
};

/* ---------------------------------------------------------------- values */

static void let_go_of_values(ValueFields *fields)
{
    if (fields->has_view) {
        fields->has_view = 0;
        fields->memory = NULL;
        PyBuffer_Release(&fields->view);
    }
}

static int set_value_buffer(ValueFields *fields, PyObject *buffer, void *unused)
{
    Py_buffer view;
    if (buffer == NULL || PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE) < 0)
        return -1;
    let_go_of_values(fields);
    fields->view = view;
    fields->memory = view.buf;
    fields->has_view = 1;
    return 0;
}

static PyObject *get_value_buffer(ValueFields *fields, void *unused)
{
    return fields->has_view ? Py_NewRef(fields->view.obj) : PyByteArray_FromStringAndSize(NULL, 0);
}

static void value_fields_dealloc(ValueFields *fields)
{
    let_go_of_values(fields);
    Py_TYPE(fields)->tp_free((PyObject *)fields);
}

static PyMemberDef value_members[] = {
    {"first", T_LONGLONG, offsetof(ValueFields, first), 0, NULL},
    {"end", T_LONGLONG, offsetof(ValueFields, end), 0, NULL},
    {"shift", T_LONGLONG, offsetof(ValueFields, shift), 0, NULL},
    {NULL},
};
static PyGetSetDef value_getset[] = {
    {"buffer", (getter)get_value_buffer, (setter)set_value_buffer, NULL, NULL},
    {NULL},
};
PyTypeObject ValueFieldsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.ValueFields",
    .tp_doc = "Where values go.",
    .tp_basicsize = sizeof(ValueFields),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)value_fields_dealloc,
    .tp_members = value_members,
    .tp_getset = value_getset,
};

/* ---------------------------------------------------------------- this thread's log */

/* The log of a thread, looked for; borrowed from the dictionary. */
static Log *find_log(unsigned long ident)
{
    static PyTypeObject *usual;
    PyObject *key = PyLong_FromUnsignedLong(ident);
    PyObject *log = key == NULL ? NULL : PyDict_GetItemWithError(torch.logs, key);
    Py_XDECREF(key);
    if (log == NULL) {
        PyErr_Clear();
        return NULL;
    }
    if (Py_TYPE(log) != usual) { /* there is one class of logs */
        if (!PyObject_TypeCheck(log, &LogType))
            return NULL;
        usual = Py_TYPE(log);
    }
    return (Log *)log;
}

/* Asked for several times an event, and mostly by the same thread while no other comes or goes: the answer is kept. */
Log *current_log(void)
{
    static unsigned long last;
    static uint64_t version;
    static Log *known; /* borrowed from the dictionary, as long as that is as it was */
    if (torch.logs == NULL)
        return NULL;
    const unsigned long ident = PyThread_get_thread_ident();
    const uint64_t now = version_of_dict(torch.logs);
    if (now == 0 || now != version || ident != last) {
        known = find_log(ident);
        version = known == NULL ? 0 : version_of_dict(torch.logs); /* none, or no memory to look for it: that is asked again */
        last = ident;
    }
    return known;
}

/* ---------------------------------------------------------------- room, and closing */

static int ask(Log *log, const char *method, Py_ssize_t count)
{
    PyObject *answer = count < 0 ? PyObject_CallMethod((PyObject *)log, method, NULL)
                                 : PyObject_CallMethod((PyObject *)log, method, "n", count);
    if (answer == NULL)
        return -1;
    int is_true = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return is_true;
}

/* Other threads may end a chunk, move it, or let go of it; they do so while we are in Python, so it is asked again. */
int64_t *record_at(Log *log, int64_t at)
{
    int64_t place = at * RECORD_BYTES + log->shift;
    if (!log->has_records || at < log->first || place < 0 || place + RECORD_BYTES > log->record_view.len)
        return NULL;
    return (int64_t *)(log->records + place);
}

int make_room(Log *log)
{
    return log->at < log->end ? 1 : ask(log, "more", -1);
}

static int has_id_room(const Log *log, Py_ssize_t count)
{
    return log->has_ids && log->id_at >= 0 && log->id_at + count <= log->id_end
           && (log->id_at + count) * 8 <= log->id_view.len;
}

int make_id_room(Log *log, Py_ssize_t count)
{
    if (has_id_room(log, count))
        return 1;
    int made = ask(log, "more_ids", count);
    return made <= 0 ? made : has_id_room(log, count);
}

int64_t add_ids(Log *log, const int64_t *ids, Py_ssize_t count)
{
    int room = make_id_room(log, count);
    if (room <= 0)
        return room < 0 ? FAILED : NONE;
    memcpy(log->ids + log->id_at, ids, (size_t)count * 8);
    log->id_at += count;
    return log->id_base + log->id_at - count;
}

/* START comes last: with it the record is there. */
int write_record(Log *log, int64_t at, const int64_t words[RECORD_WORDS])
{
    int64_t *record = record_at(log, at);
    if (record == NULL)
        return 0;
    memcpy(record, words, (RECORD_WORDS - 1) * 8);
    atomic_signal_fence(memory_order_release);
    *(volatile int64_t *)(record + START) = words[START];
    return 1;
}

/* END comes last: a reader takes the others for good once it is there. */
int close_record(Log *log, int64_t at, const int64_t closing[5])
{
    int64_t *record = at < log->at ? record_at(log, at) : NULL;
    if (record != NULL) {
        memcpy(record + RESULT, closing, 4 * 8);
        atomic_signal_fence(memory_order_release);
        *(volatile int64_t *)(record + END) = closing[4];
        return 0;
    }
    PyObject *done = PyObject_CallMethod((PyObject *)log, "close", "LLLLLL", (long long)at, (long long)closing[0],
                                         (long long)closing[1], (long long)closing[2], (long long)closing[3],
                                         (long long)closing[4]);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

int64_t word_of(Log *log, int64_t at, int word)
{
    const int64_t *record = record_at(log, at);
    if (record != NULL)
        return record[word];
    return as_number(PyObject_CallMethod((PyObject *)log, "word", "Li", (long long)at, word));
}

/* left_open(memory, where the first record begins, how many) → which of them have no end, counted from the first */
PyObject *left_open(PyObject *module, PyObject *args)
{
    Py_buffer memory;
    Py_ssize_t begin, count;
    if (!PyArg_ParseTuple(args, "y*nn", &memory, &begin, &count))
        return NULL;
    PyObject *found = PyList_New(0);
    const int fits = begin >= 0 && count >= 0 && begin <= memory.len && count <= (memory.len - begin) / RECORD_BYTES;
    for (Py_ssize_t at = 0; found != NULL && fits && at < count; at++) {
        int64_t end;
        memcpy(&end, (const char *)memory.buf + begin + at * RECORD_BYTES + END * 8, 8);
        PyObject *number = end == NONE ? PyLong_FromSsize_t(at) : NULL;
        if (end == NONE && (number == NULL || PyList_Append(found, number) < 0))
            Py_CLEAR(found);
        Py_XDECREF(number);
    }
    PyBuffer_Release(&memory);
    if (found != NULL && !fits) {
        PyErr_SetString(PyExc_ValueError, "there are not so many records");
        Py_CLEAR(found);
    }
    return found;
}
