/* Memory for chunks (journal/homes.py): that of recordings that are gone is used again.
 *
 * Fresh memory has to be got from the system page by page, which takes longer than all that a short recording writes into
 * it. Whoever holds a chunk holds a reference to its bytearray, or has it exported: without either nobody can see it.
 */
#include "fast.h"

#define MOST_KEPT 16
#define LARGEST_KEPT (1 << 18) /* bytes, and some for a header: what is kept in all stays small */

static PyObject *kept[MOST_KEPT]; /* bytearrays, in use or not */
static int oldest;

static int is_free(PyObject *memory, Py_ssize_t size)
{
    return memory != NULL && Py_REFCNT(memory) == 1 && PyByteArray_GET_SIZE(memory) == size
           && ((PyByteArrayObject *)memory)->ob_exports == 0;
}

/* zeros(size) → a bytearray of so many zeros that nobody else has */
PyObject *zeros(PyObject *module, PyObject *wanted)
{
    Py_ssize_t size = PyLong_AsSsize_t(wanted);
    if (size < 0)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    PyObject *found = NULL;
    for (int at = 0; at < MOST_KEPT && found == NULL; at++)
        if (is_free(kept[at], size))
            found = Py_NewRef(kept[at]);
    const int is_new = found == NULL;
    if (is_new && (found = PyByteArray_FromStringAndSize(NULL, size)) == NULL)
        return NULL;
    memset(PyByteArray_AS_STRING(found), 0, (size_t)size);
    if (is_new && size <= LARGEST_KEPT + 4096) {
        PyObject *before = kept[oldest];
        kept[oldest] = Py_NewRef(found);
        oldest = (oldest + 1) % MOST_KEPT;
        Py_XDECREF(before);
    }
    return found;
}
