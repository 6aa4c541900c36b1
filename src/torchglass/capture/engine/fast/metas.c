/* What a tensor is like (values.py: shape, strides, dtype, device, whether it takes gradients), as the number of a row. */
#include "fast.h"

#define MOST_DIMENSIONS 32

static PyObject *get(PyGetSetDef *attribute, PyObject *tensor)
{
    return attribute->get(tensor, attribute->closure);
}

int version_of(PyObject *tensor, int64_t *version)
{
    if (is_direct && is_plain_tensor(tensor) && direct_version(tensor, version))
        return 0;
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

static int64_t read_address(PyObject *tensor)
{
    return as_number(PyObject_CallOneArg(torch.storage_address, tensor));
}

/* ---------------------------------------------------------------- metadata that is new in this session
 *
 * Programs have tensors of the same few shapes in every recording: the bytes of a row are kept for the process. */

#define META_ROW 9 /* a kind of row (journal/layout.py) */
#define MOST_KNOWN 4096
static Table known; /* words → a place in the list */
static PyObject *known_metas; /* a list: pairs of metadata, as Python has it, and its bytes */

/* The metadata that was found under a key, and its bytes; owned, NULL with no exception where it is new. */
static PyObject *known_meta(const int64_t *words, Py_ssize_t length)
{
    uint64_t hash;
    const int64_t place = table_find(&known, words, length, &hash);
    return place == NONE ? NULL : Py_NewRef(PyList_GET_ITEM(known_metas, place));
}

static int keep_meta(const int64_t *words, Py_ssize_t length, PyObject *pair)
{
    uint64_t hash;
    if (known_metas == NULL && (known_metas = PyList_New(0)) == NULL)
        return -1;
    if (PyList_GET_SIZE(known_metas) >= MOST_KNOWN || table_find(&known, words, length, &hash) != NONE)
        return 0;
    if (PyList_Append(known_metas, pair) < 0)
        return -1;
    return table_add(&known, words, length, hash, PyList_GET_SIZE(known_metas) - 1);
}

/* The same of what the getters gave, as it was before or is now; owned. */
static PyObject *find_meta(Engine *engine, const int64_t *words, Py_ssize_t length, PyObject *const *parts, PyObject *cls)
{
    PyObject *pair = known_meta(words, length);
    if (pair != NULL)
        return pair;
    PyObject *meta = PyTuple_Pack(6, parts[0], parts[1], parts[2], parts[3], parts[4], cls);
    PyObject *bytes = meta == NULL ? NULL : PyObject_CallOneArg(engine->meta_bytes, meta);
    pair = bytes == NULL || !PyBytes_Check(bytes) ? NULL : PyTuple_Pack(2, meta, bytes);
    Py_XDECREF(bytes);
    Py_XDECREF(meta);
    if (pair != NULL && keep_meta(words, length, pair) < 0)
        Py_CLEAR(pair);
    return pair;
}

/* Its number in this session, given now if it is new (values.py: meta_id), and remembered under its key. */
static int64_t number_of_meta(Engine *engine, PyObject *pair, const int64_t *words, Py_ssize_t length)
{
    PyObject *meta = PyTuple_GET_ITEM(pair, 0), *bytes = PyTuple_GET_ITEM(pair, 1); /* borrowed from the pair */
    PyObject *number = Py_XNewRef(PyDict_GetItemWithError(engine->meta_ids, meta));
    if (number == NULL && !PyErr_Occurred() && (number = PyIter_Next(engine->meta_numbers)) != NULL
        && (add_journal_row((RowFields *)engine->rows, META_ROW, PyLong_AsLongLong(number), PyBytes_AS_STRING(bytes),
                            PyBytes_GET_SIZE(bytes)) < 0
            || PyDict_SetItem(engine->meta_ids, meta, number) < 0))
        Py_CLEAR(number);
    uint64_t hash;
    const int64_t row = as_number(number);
    if (row == FAILED || table_find(&engine->metas, words, length, &hash) != NONE)
        return row;
    return table_add(&engine->metas, words, length, hash, row) < 0 ? FAILED : row;
}

/* ---------------------------------------------------------------- reading it */

/* What a tensor says of itself by torch's getters. */
typedef struct {
    PyObject *parts[5]; /* shape, stride, dtype, device, requires_grad */
    int64_t words[2 * MOST_DIMENSIONS + 8], address;
    Py_ssize_t length; /* 0: its sizes are symbolic, and cannot be hashed */
} Said;

static int ask_getters(PyObject *tensor, Said *said)
{
    PyObject **parts = said->parts, *nothing = PyTuple_New(0);
    if (nothing == NULL)
        return -1;
    /* The stride comes first: tensors without one (sparse) are read with care. */
    parts[1] = ((PyCFunctionWithKeywords)(void (*)(void))torch.stride->ml_meth)(tensor, nothing, NULL);
    Py_DECREF(nothing);
    if (parts[1] == NULL || (parts[0] = get(torch.shape, tensor)) == NULL || (parts[2] = get(torch.dtype, tensor)) == NULL
        || (parts[3] = get(torch.device, tensor)) == NULL || (parts[4] = get(torch.requires_grad, tensor)) == NULL)
        return -1;
    if (!PyTuple_Check(parts[0]) || !PyTuple_Check(parts[1]) || PyTuple_GET_SIZE(parts[0]) > MOST_DIMENSIONS
        || PyTuple_GET_SIZE(parts[1]) > MOST_DIMENSIONS)
        return -1;
    const Py_hash_t device = PyObject_Hash(parts[3]); /* tells devices apart: it is made of type and index */
    if (device == -1)
        return -1;
    int64_t *words = said->words;
    words[0] = (int64_t)(intptr_t)Py_TYPE(tensor);
    words[1] = (int64_t)(intptr_t)parts[2]; /* dtypes live for ever */
    words[2] = device;
    words[DIRECT_GRAD] = parts[4] == Py_True;
    said->length = DIRECT_SIZES - 1;
    if (add_sizes(parts[0], words, &said->length) < 0 || add_sizes(parts[1], words, &said->length) < 0)
        said->length = 0;
    return PyErr_Occurred() || (said->address = read_address(tensor)) == FAILED ? -1 : 0;
}

/* Whether what stands in a tensor is what it says: then the next one with these words is known by them. */
static int are_the_same(const Said *said, const int64_t *words, Py_ssize_t length, int64_t address)
{
    const int64_t count = length == 0 ? 0 : words[DIRECT_SIZES - 1];
    const size_t bytes = (size_t)count * 8;
    return length != 0 && said->length == DIRECT_SIZES + 2 * count + 1 && said->words[DIRECT_SIZES - 1] == count
           && said->words[DIRECT_SIZES + count] == count && said->words[DIRECT_GRAD] == words[DIRECT_GRAD]
           && memcmp(said->words + DIRECT_SIZES, words + DIRECT_SIZES, bytes) == 0
           && memcmp(said->words + DIRECT_SIZES + count + 1, words + DIRECT_SIZES + count, bytes) == 0
           && said->address == address;
}

static int64_t row_of_said(Engine *engine, const Said *said, PyTypeObject *cls, const int64_t *words, Py_ssize_t length,
                           int64_t address)
{
    PyObject *const *parts = said->parts;
    uint64_t hash;
    int64_t row;
    if (said->length == 0) {
        PyObject *meta = PyTuple_Pack(6, parts[0], parts[1], parts[2], parts[3], parts[4], (PyObject *)cls);
        row = meta == NULL ? FAILED : as_number(PyObject_CallOneArg(engine->meta_id, meta));
        Py_XDECREF(meta);
        return row;
    }
    const int is_same = are_the_same(said, words, length, address);
    if (!is_same && (row = table_find(&engine->metas, said->words, said->length, &hash)) != NONE)
        return row;
    PyObject *pair = find_meta(engine, said->words, said->length, parts, (PyObject *)cls);
    row = pair == NULL ? FAILED : number_of_meta(engine, pair, said->words, said->length);
    if (row != FAILED && is_same
        && (keep_meta(words, length, pair) < 0 || number_of_meta(engine, pair, words, length) == FAILED))
        row = FAILED;
    Py_XDECREF(pair);
    return row;
}

/* The row of a tensor's metadata by torch's getters; `words` are what stands in it, if that can be read. */
static int64_t ask_meta(Engine *engine, PyObject *tensor, int64_t *address, const int64_t *words, Py_ssize_t length)
{
    Said said = {.parts = {NULL}};
    Unseen unseen;
    if (enter_unseen(&unseen) < 0)
        return FAILED;
    const int is_said = ask_getters(tensor, &said) == 0;
    int64_t row = leave_unseen(&unseen) < 0 || !is_said
                      ? FAILED
                      : row_of_said(engine, &said, Py_TYPE(tensor), words, length, *address);
    *address = said.address;
    for (int at = 0; at < 5; at++)
        Py_XDECREF(said.parts[at]);
    return row;
}

int64_t read_meta(Engine *engine, PyObject *tensor, int64_t *address)
{
    int64_t words[DIRECT_WORDS], row;
    uint64_t hash;
    *address = 0;
    const Py_ssize_t length = is_direct ? direct_key(tensor, words, address) : 0;
    if (length == 0)
        return ask_meta(engine, tensor, address, words, 0);
    if ((row = table_find(&engine->metas, words, length, &hash)) != NONE)
        return row;
    PyObject *pair = known_meta(words, length);
    if (pair == NULL)
        return ask_meta(engine, tensor, address, words, length);
    row = number_of_meta(engine, pair, words, length);
    Py_DECREF(pair);
    return row;
}

int grad_of(PyObject *tensor)
{
    if (is_direct)
        return direct_grad(tensor);
    PyObject *found = get(torch.requires_grad, tensor);
    Py_XDECREF(found); /* True or False, which live for ever */
    return found == NULL ? -1 : found == Py_True;
}
