/* Writes rows into the journal (journal/shared.py): a row for each form, stack, code object … that
 * is met for the first time.
 *
 * A row is its length and checksum, its kind and number, and a payload. Rows follow each other
 * without gaps.
 */
#include "fast.h"
#include "structmember.h"
#include <stdatomic.h>

#define HEAD 20 /* length, checksum, kind, number */

/* Write a number as Python spells it; `place` has room for LONGEST_NUMBER. Return the end of it.
 * */
char *put_number(char *place, int64_t number)
{
    char digits[LONGEST_NUMBER], *first = digits + sizeof digits;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do
        *--first = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (number < 0)
        *--first = '-';
    size_t length = (size_t)(digits + sizeof digits - first);
    memcpy(place, first, length);
    return place + length;
}

/* --------------------------------------------------------- where rows go; the base of RowWriter */

static int set_buffer(RowFields *fields, PyObject *buffer, void *unused)
{
    return take_memory(&fields->memory, buffer, PyBUF_WRITABLE);
}

static PyObject *get_buffer(RowFields *fields, void *unused)
{
    return fields->memory.start != NULL ? Py_NewRef(fields->memory.view.obj)
                                        : PyByteArray_FromStringAndSize(NULL, 0);
}

static void row_fields_dealloc(RowFields *fields)
{
    release_memory(&fields->memory);
    Py_TYPE(fields)->tp_free((PyObject *)fields);
}

int has_room(const RowFields *fields, Py_ssize_t length)
{
    const int64_t end = fields->at + HEAD + length;
    return fields->memory.start != NULL && fields->at >= 0 && end <= fields->end
           && end <= fields->memory.view.len;
}

/* The head is written last: without it there is no row yet. Python runs nothing in between. */
static void put_row(RowFields *fields, uint32_t kind, int64_t number, const char *payload,
                    Py_ssize_t length)
{
    char *place = fields->memory.start + fields->at, head[HEAD], name[12];
    memcpy(name, &kind, 4);
    memcpy(name + 4, &number, 8);
    uint32_t size = (uint32_t)length;
    uint32_t sum = checksum_of(0, (const unsigned char *)name, sizeof name);
    sum = checksum_of(sum, (const unsigned char *)payload, length);
    memcpy(head, &size, 4);
    memcpy(head + 4, &sum, 4);
    memcpy(head + 8, name, sizeof name);
    fields->at += HEAD + length;
    memcpy(place + HEAD, payload, (size_t)length);
    atomic_signal_fence(memory_order_release);
    memcpy(place, head, HEAD);
}

int add_journal_row(RowFields *fields, uint32_t kind, int64_t number, const char *payload,
                    Py_ssize_t length)
{
    is_forked_child(); /* this ends the recording in a child, so there is no room any more */
    /* other threads may run meanwhile, and fill the room that was made */
    while (!has_room(fields, length)) {
        int is_made = as_truth(PyObject_CallMethod((PyObject *)fields, "more", "n", HEAD + length));
        if (is_made <= 0)
            return is_made; /* 0: nothing may be written any more */
    }
    put_row(fields, kind, number, payload, length);
    return 0;
}

/* add(kind, number, payload) */
static PyObject *rows_add(RowFields *fields, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyBytes_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "a kind, a number and bytes are wanted");
        return NULL;
    }
    unsigned long kind = PyLong_AsUnsignedLong(args[0]);
    long long number = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()
        || add_journal_row(fields, (uint32_t)kind, number, PyBytes_AS_STRING(args[2]),
                           PyBytes_GET_SIZE(args[2]))
               < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMemberDef row_members[] = {
    {"at", T_LONGLONG, offsetof(RowFields, at), 0, NULL},
    {"end", T_LONGLONG, offsetof(RowFields, end), 0, NULL},
    {NULL},
};
static PyGetSetDef row_getset[] = {
    {"buffer", (getter)get_buffer, (setter)set_buffer, NULL, NULL},
    {NULL},
};
static PyMethodDef row_methods[] = {
    {"add", (PyCFunction)(void (*)(void))rows_add, METH_FASTCALL,
     "Write one row; it is there when this returns."},
    {NULL},
};
PyTypeObject RowFieldsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.RowFields",
    .tp_doc = "Where rows go.",
    .tp_basicsize = sizeof(RowFields),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)row_fields_dealloc,
    .tp_members = row_members,
    .tp_getset = row_getset,
    .tp_methods = row_methods,
};

int rows_ready(PyObject *module)
{
    checksum_ready();
    return PyType_Ready(&RowFieldsType) < 0
               ? -1
               : PyModule_AddObjectRef(module, "RowFields", (PyObject *)&RowFieldsType);
}
