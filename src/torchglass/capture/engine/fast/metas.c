/* Reads a tensor's metadata (value_table.py) and finds its row: shape, strides, dtype, device,
 * requires_grad.
 *
 * We call torch's getters through their C descriptors and with all modes off, so that no function
 * mode or subclass of the program sees that we read.
 */
#include "fast.h"

#define MOST_DIMENSIONS 32

static PyObject *get(PyGetSetDef *attribute, PyObject *tensor)
{
    return attribute->get(tensor, attribute->closure);
}

int version_of(PyObject *tensor, int64_t *version)
{
    Unseen unseen;
    if (enter_unseen(&unseen) < 0)
        return -1;
    PyObject *found = get(torch.version, tensor);
    if (leave_unseen(&unseen) < 0)
        Py_CLEAR(found);
    if (found == NULL)
        return -1;
    *version = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return *version == -1 && PyErr_Occurred() ? -1 : 0;
}

int grad_of(PyObject *tensor)
{
    PyObject *found = get(torch.requires_grad, tensor);
    Py_XDECREF(found); /* True or False, which live for ever */
    return found == NULL ? -1 : found == Py_True;
}

/* ---------------------------------------------------------------- metadata */

enum { SHAPE, STRIDE, DTYPE, DEVICE, REQUIRES_GRAD, PARTS };

/* The metadata of one tensor, and the key under which its row is found in Engine.metas. */
typedef struct {
    PyObject *parts[PARTS]; /* owned */
    int64_t key[2 * MOST_DIMENSIONS + 6];
    Py_ssize_t key_length; /* 0: no key, since sizes are symbolic */
    int64_t address;       /* of its memory */
} TensorFacts;

static int add_sizes(PyObject *sizes, int64_t *words, Py_ssize_t *length)
{
    Py_ssize_t count = PyTuple_GET_SIZE(sizes);
    words[(*length)++] = count;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *size = PyTuple_GET_ITEM(sizes, at); /* borrowed from `sizes` */
        if (!PyLong_CheckExact(size))
            return -1; /* symbolic */
        words[(*length)++] = PyLong_AsLongLong(size);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int has_sizes(PyObject *sizes)
{
    return PyTuple_Check(sizes) && PyTuple_GET_SIZE(sizes) <= MOST_DIMENSIONS;
}

static int ask_getters(PyObject *tensor, PyObject **parts)
{
    PyObject *nothing = PyTuple_New(0);
    if (nothing == NULL)
        return -1;
    /* The stride comes first: it fails for tensors without one (sparse), which Python then reads.
     */
    parts[STRIDE] =
        ((PyCFunctionWithKeywords)(void (*)(void))torch.stride->ml_meth)(tensor, nothing, NULL);
    Py_DECREF(nothing);
    if (parts[STRIDE] == NULL)
        return -1;
    parts[SHAPE] = get(torch.shape, tensor);
    if (parts[SHAPE] == NULL || !has_sizes(parts[SHAPE]) || !has_sizes(parts[STRIDE]))
        return -1;
    parts[DTYPE] = get(torch.dtype, tensor);
    if (parts[DTYPE] == NULL)
        return -1;
    parts[DEVICE] = get(torch.device, tensor);
    if (parts[DEVICE] == NULL)
        return -1;
    parts[REQUIRES_GRAD] = get(torch.requires_grad, tensor);
    return parts[REQUIRES_GRAD] == NULL ? -1 : 0;
}

static int read_facts(PyObject *tensor, TensorFacts *facts)
{
    if (ask_getters(tensor, facts->parts) < 0)
        return -1;
    /* hash(device) is made of type and index, so it differs between devices */
    const Py_hash_t device = PyObject_Hash(facts->parts[DEVICE]);
    if (device == -1)
        return -1;
    int64_t *words = facts->key;
    words[0] = (int64_t)(intptr_t)Py_TYPE(tensor);
    words[1] = (int64_t)(intptr_t)facts->parts[DTYPE]; /* dtypes live for ever */
    words[2] = device;
    words[3] = facts->parts[REQUIRES_GRAD] == Py_True;
    facts->key_length = 4;
    if (add_sizes(facts->parts[SHAPE], words, &facts->key_length) < 0
        || add_sizes(facts->parts[STRIDE], words, &facts->key_length) < 0)
        facts->key_length = 0;
    if (PyErr_Occurred())
        return -1;
    facts->address = as_number(PyObject_CallOneArg(torch.storage_address, tensor));
    return facts->address == FAILED ? -1 : 0;
}

/* Return the row of what a tensor says, remembered; Python makes it where it is new in this
 * session. */
static int64_t row_of(Engine *engine, const TensorFacts *facts, PyTypeObject *cls)
{
    uint64_t hash;
    int64_t row = facts->key_length == 0
                      ? NONE
                      : table_find(&engine->metas, facts->key, facts->key_length, &hash);
    if (row != NONE)
        return row;
    PyObject *const *parts = facts->parts;
    PyObject *meta = PyTuple_Pack(6, parts[SHAPE], parts[STRIDE], parts[DTYPE], parts[DEVICE],
                                  parts[REQUIRES_GRAD], cls);
    row = meta == NULL ? FAILED : as_number(PyObject_CallOneArg(engine->meta_id, meta));
    Py_XDECREF(meta);
    if (row == FAILED || facts->key_length == 0
        || table_find(&engine->metas, facts->key, facts->key_length, &hash) != NONE)
        return row;
    return table_add(&engine->metas, facts->key, facts->key_length, hash, row) < 0 ? FAILED : row;
}

int64_t read_meta(Engine *engine, PyObject *tensor, int64_t *address)
{
    TensorFacts facts;
    memset(facts.parts, 0, sizeof facts.parts);
    Unseen unseen;
    if (enter_unseen(&unseen) < 0)
        return FAILED;
    int is_read = read_facts(tensor, &facts) == 0;
    if (leave_unseen(&unseen) < 0)
        is_read = 0;
    const int64_t row = is_read ? row_of(engine, &facts, Py_TYPE(tensor)) : FAILED;
    *address = is_read ? facts.address : 0;
    for (int at = 0; at < PARTS; at++)
        Py_XDECREF(facts.parts[at]);
    return row;
}
