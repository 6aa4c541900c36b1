/* Tensors and torch's own state, read where they are (direct.py finds where that is, and tries it).
 *
 * Torch's getters are written for anybody: each asks whether something overrides it, is ready for C++ exceptions and
 * warnings, and gives a Python object. Of a plain tensor we want a few words that stand in it. What they mean is not
 * decided here: they are a key, under which is remembered what the getters said of the first tensor with these words.
 */
#include "fast.h"

#define INLINE_DIMENSIONS 5 /* torch keeps the sizes and strides of so many in the tensor itself */
#define TO_KIND (13 * 8) /* from the number of dimensions: dtype, device and switches in one word; dispatch keys follow */
#define KIND_MASK ((int64_t)((((uint64_t)1) << 63) - 1)) /* its highest bit is nobody's */

int is_direct;
static struct {
    Py_ssize_t tensor;                            /* in the Python object: the address of what C++ calls the tensor */
    Py_ssize_t storage, autograd, counter, sizes; /* in that */
    Py_ssize_t count;                             /* in the counter of versions */
} to;
static uint64_t (*peek_node)(void);
static int64_t (*mode_count)(void);
static _Bool (*requires_grad)(const void *);

static inline int64_t word_at(const char *place)
{
    int64_t word;
    memcpy(&word, place, 8);
    return word;
}

static inline const char *inner(const PyObject *tensor)
{
    return (const char *)(intptr_t)word_at((const char *)tensor + to.tensor);
}

int64_t direct_node(void)
{
    return (int64_t)peek_node();
}

long direct_modes(void)
{
    return (long)mode_count();
}

int direct_version(const PyObject *tensor, int64_t *version)
{
    const char *impl = inner(tensor);
    const char *counter = impl == NULL ? NULL : (const char *)(intptr_t)word_at(impl + to.counter);
    if (counter == NULL)
        return 0; /* inference tensors keep none */
    uint32_t count;
    memcpy(&count, counter + to.count, 4);
    *version = count;
    return 1;
}

int direct_grad(const PyObject *tensor)
{
    const char *impl = inner(tensor);
    return impl != NULL && word_at(impl + to.autograd) != 0 && requires_grad(impl);
}

Py_ssize_t direct_key(const PyObject *tensor, int64_t *words, int64_t *address)
{
    const char *impl = inner(tensor);
    const int64_t dimensions = impl == NULL ? -1 : word_at(impl + to.sizes);
    if (dimensions < 0 || dimensions > INLINE_DIMENSIONS)
        return 0;
    const size_t bytes = (size_t)dimensions * 8;
    words[0] = (int64_t)(intptr_t)Py_TYPE(tensor) + 1; /* odd: keys that the getters made begin with an address */
    words[1] = word_at(impl + to.sizes + TO_KIND) & KIND_MASK;
    words[2] = word_at(impl + to.sizes + TO_KIND + 8);
    words[DIRECT_GRAD] = direct_grad(tensor);
    words[DIRECT_SIZES - 1] = dimensions;
    memcpy(words + DIRECT_SIZES, impl + to.sizes + 8, bytes);
    memcpy(words + DIRECT_SIZES + dimensions, impl + to.sizes + 8 + INLINE_DIMENSIONS * 8, bytes);
    *address = word_at(impl + to.storage);
    return DIRECT_SIZES + 2 * dimensions;
}

/* read_directly(offsets: tensor, storage, autograd, counter, sizes, count; addresses: peek, count of modes, requires_grad);
 * None: no longer. */
PyObject *read_directly(PyObject *module, PyObject *found)
{
    unsigned long long node, modes, grad;
    is_direct = 0;
    if (found == Py_None)
        Py_RETURN_NONE;
    if (!PyArg_ParseTuple(found, "nnnnnnKKK", &to.tensor, &to.storage, &to.autograd, &to.counter, &to.sizes, &to.count, &node,
                          &modes, &grad))
        return NULL;
    peek_node = (uint64_t (*)(void))(uintptr_t)node;
    mode_count = (int64_t (*)(void))(uintptr_t)modes;
    requires_grad = (_Bool (*)(const void *))(uintptr_t)grad;
    is_direct = 1;
    Py_RETURN_NONE;
}

/* What is read of a tensor: (version, words, address of its storage); None where it has none. For the trial. */
PyObject *words_of_tensor(PyObject *module, PyObject *tensor)
{
    int64_t words[DIRECT_WORDS], address, version;
    const int has_version = is_direct && direct_version(tensor, &version);
    const Py_ssize_t length = has_version ? direct_key(tensor, words, &address) : 0;
    PyObject *all = length ? PyTuple_New(length) : NULL;
    if (length == 0)
        Py_RETURN_NONE;
    for (Py_ssize_t at = 0; all != NULL && at < length; at++) {
        PyObject *word = PyLong_FromLongLong(words[at]);
        if (word == NULL)
            Py_CLEAR(all);
        else
            PyTuple_SET_ITEM(all, at, word);
    }
    return all == NULL ? NULL : Py_BuildValue("LNL", (long long)version, all, (long long)address);
}

/* (number of the next autograd node, function modes on the stack), as they are read here. For the trial. */
PyObject *words_of_torch(PyObject *module, PyObject *unused)
{
    if (!is_direct)
        Py_RETURN_NONE;
    return Py_BuildValue("Ll", (long long)direct_node(), direct_modes());
}
