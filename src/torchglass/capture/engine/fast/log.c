/* Writes the records and ids of one thread (journal/writer.py), and finds the log of this thread.
 *
 * The memory belongs to Python, which lends it as buffers. If a chunk is full, Python is asked for
 * the next one (make_room, make_id_room). A reader in another process may read the memory at any
 * time, so the word that makes a record valid is written last. */
#include "fast.h"
#include "structmember.h"
#include <stdatomic.h>

/* ---------------------------------------------------------------- memory that Python lends */

void release_memory(Memory *memory)
{
    memory->start = NULL;
    PyBuffer_Release(&memory->view); /* does nothing where there is none */
}

/* Take the new memory before releasing the old one: releasing may run code. */
int take_memory(Memory *memory, PyObject *buffer, int flags)
{
    Py_buffer view;
    if (buffer == NULL || PyObject_GetBuffer(buffer, &view, flags) < 0)
        return -1;
    release_memory(memory);
    memory->view = view;
    memory->start = view.buf;
    return 0;
}

/* ---------------------------------------------------------------- records and ids */

static int set_buffer(Log *log, PyObject *buffer, void *unused)
{
    return take_memory(&log->records, buffer, PyBUF_WRITABLE);
}

static PyObject *get_buffer(Log *log, void *unused)
{
    return log->records.start != NULL ? Py_NewRef(log->records.view.obj)
                                      : PyByteArray_FromStringAndSize(NULL, 0);
}

static int set_ids(Log *log, PyObject *ids, void *unused)
{
    return take_memory(&log->ids, ids, PyBUF_SIMPLE);
}

static PyObject *get_ids(Log *log, void *unused)
{
    return log->ids.start != NULL ? Py_NewRef(log->ids.view.obj)
                                  : PyMemoryView_FromMemory("", 0, PyBUF_READ);
}

static int log_traverse(Log *log, visitproc visit, void *arg)
{
    Py_VISIT(log->steps);
    Py_VISIT(log->engine);
    return 0;
}

static int log_clear(Log *log)
{
    Py_CLEAR(log->steps);
    Py_CLEAR(log->engine);
    return 0;
}

static void log_dealloc(Log *log)
{
    PyObject_GC_UnTrack(log);
    release_memory(&log->records);
    release_memory(&log->ids);
    log_clear(log);
    Py_TYPE(log)->tp_free((PyObject *)log);
}

#define WORD(name)   {#name, T_LONGLONG, offsetof(Log, name), 0, NULL}
#define SWITCH(name) {#name, T_BOOL, offsetof(Log, name), 0, NULL}
static PyMemberDef log_members[] = {
    WORD(at),
    WORD(first),
    WORD(end),
    WORD(shift),
    WORD(id_at),
    WORD(id_base),
    WORD(id_end),
    WORD(parent),
    WORD(stack),
    WORD(anchor),
    WORD(base),
    WORD(module),
    SWITCH(on),
    SWITCH(listening),
    SWITCH(branched),
    {"steps", T_OBJECT_EX, offsetof(Log, steps), 0, NULL},
    {"engine", T_OBJECT, offsetof(Log, engine), 0, NULL},
    {NULL},
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

static int set_value_buffer(ValueFields *fields, PyObject *buffer, void *unused)
{
    return take_memory(&fields->memory, buffer, PyBUF_WRITABLE);
}

static PyObject *get_value_buffer(ValueFields *fields, void *unused)
{
    return fields->memory.start != NULL ? Py_NewRef(fields->memory.view.obj)
                                        : PyByteArray_FromStringAndSize(NULL, 0);
}

static void value_fields_dealloc(ValueFields *fields)
{
    release_memory(&fields->memory);
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

/* Look up the log of a thread, borrowed from the dictionary of all logs. NULL: it is not recorded.
 * An exception that is set stays set. */
static Log *find_log(unsigned long ident)
{
    static PyTypeObject *log_class; /* the one class that logs have */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *key = PyLong_FromUnsignedLong(ident);
    PyObject *log = key == NULL ? NULL : PyDict_GetItemWithError(torch.logs, key);
    Py_XDECREF(key);
    PyErr_Restore(type, value, traceback); /* this drops an error of the lookup */
    if (log == NULL)
        return NULL;
    if (Py_TYPE(log) != log_class) {
        if (!PyObject_TypeCheck(log, &LogType))
            return NULL;
        log_class = Py_TYPE(log);
    }
    return (Log *)log;
}

/* How we notice forks, also those of C libraries: the kernel clears this page in a forked child
 * (MADV_WIPEONFORK). `leave` is then called in the child. */
static struct {
    Py_buffer page;
    PyObject *leave;
} fork_watch;

int is_forked_child(void)
{
    const char *owns_journal = fork_watch.page.buf;
    if (owns_journal == NULL || *(const volatile char *)owns_journal)
        return 0;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *answer = PyObject_CallNoArgs(fork_watch.leave);
    Py_XDECREF(answer);
    PyErr_Restore(type, value, traceback);
    return 1;
}

/* watch_forks(page, what to call in a child) */
PyObject *watch_forks(PyObject *module, PyObject *args)
{
    PyObject *page, *leave;
    if (!PyArg_ParseTuple(args, "OO", &page, &leave)
        || PyObject_GetBuffer(page, &fork_watch.page, PyBUF_SIMPLE) < 0)
        return NULL;
    fork_watch.leave = Py_NewRef(leave);
    Py_RETURN_NONE;
}

/* This is called several times per event, so the last answer is cached. It holds for the same
 * thread while the dictionary of logs has not changed, which its version says. */
Log *current_log(void)
{
    static unsigned long cached_thread;
    static uint64_t cached_version; /* 0: nothing is cached */
    static Log *cached;             /* borrowed from the dictionary, while that does not change */
    if (torch.logs == NULL || is_forked_child())
        return NULL;
    const unsigned long thread = PyThread_get_thread_ident();
    const uint64_t version = version_of_dict(torch.logs);
    if (version != 0 && version == cached_version && thread == cached_thread)
        return cached;
    cached = find_log(thread);
    cached_thread = thread;
    cached_version = cached == NULL ? 0 : version_of_dict(torch.logs);
    return cached;
}

/* ---------------------------------------------------------------- writing records and ids */

/* Never keep this pointer over a call into Python: other threads may move or free the chunk
 * meanwhile. */
int64_t *record_at(Log *log, int64_t at)
{
    int64_t place = at * RECORD_BYTES + log->shift;
    if (log->records.start == NULL || at < log->first || place < 0
        || place + RECORD_BYTES > log->records.view.len)
        return NULL;
    return (int64_t *)(log->records.start + place);
}

int make_room(Log *log)
{
    if (log->at < log->end)
        return 1;
    return as_truth(PyObject_CallMethod((PyObject *)log, "more", NULL));
}

static int has_id_room(const Log *log, Py_ssize_t count)
{
    return log->ids.start != NULL && log->id_at >= 0 && log->id_at + count <= log->id_end
           && (log->id_at + count) * 8 <= log->ids.view.len;
}

int make_id_room(Log *log, Py_ssize_t count)
{
    if (has_id_room(log, count))
        return 1;
    const int status = as_truth(PyObject_CallMethod((PyObject *)log, "more_ids", "n", count));
    if (status <= 0)
        return status;
    return has_id_room(log, count);
}

int64_t add_ids(Log *log, const int64_t *ids, Py_ssize_t count)
{
    int room = make_id_room(log, count);
    if (room < 0)
        return FAILED;
    if (room == 0)
        return NONE;
    memcpy((int64_t *)log->ids.start + log->id_at, ids, (size_t)count * 8);
    log->id_at += count;
    return log->id_base + log->id_at - count;
}

/* Write START last: it says that the record is complete. */
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

/* Write END last: once a reader sees it, the other words are final. */
int close_record(Log *log, int64_t at, const int64_t closing[5])
{
    int64_t *record = at < log->at ? record_at(log, at) : NULL;
    if (record != NULL) {
        memcpy(record + RESULT, closing, 4 * 8);
        atomic_signal_fence(memory_order_release);
        *(volatile int64_t *)(record + END) = closing[4];
        return 0;
    }
    return as_done(PyObject_CallMethod((PyObject *)log, "close", "LLLLLL", (long long)at,
                                       (long long)closing[0], (long long)closing[1],
                                       (long long)closing[2], (long long)closing[3],
                                       (long long)closing[4]));
}

int64_t word_of(Log *log, int64_t at, int word)
{
    const int64_t *record = record_at(log, at);
    if (record != NULL)
        return record[word];
    return as_number(PyObject_CallMethod((PyObject *)log, "word", "Li", (long long)at, word));
}
