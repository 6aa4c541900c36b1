/* The table of known tensors (value_table.py): which value a tensor holds now.
 *
 * A value is passed around packed into one integer: its number in the low bits, the row of its
 * metadata above. Each known tensor has an entry (Living). Its `version` says which state it is in:
 *
 *   v >= 0             known: while torch counts this version, the tensor is the same value
 *   PENDING            an op made or wrote it. Its version and requires_grad are final only when
 *                      autograd has returned. The next use completes it (complete_pending) and
 *                      keeps its number.
 *   CHANGED            something may have changed it without counting a version, so the next use
 *                      is a new value
 *   READ_IN_PYTHON...  C could not read it (a subclass, an inference tensor). Python did, and keeps
 *                      its version here (fast/value_table.py).
 */
#include "fast.h"

enum { CHANGED = -2, PENDING = -3 }; /* in place of a version, as in value_table.py */

/* ---------------------------------------------------------------- the table of known tensors
 *
 * Open addressing by the tensor's address; an entry stays when its tensor dies, until the address
 * is used again. */

static Py_ssize_t place_of(const Engine *engine, const PyObject *tensor)
{
    uint64_t hash = (uint64_t)(uintptr_t)tensor * 0x9E3779B97F4A7C15u;
    Py_ssize_t at = (Py_ssize_t)((hash >> 20) & (uint64_t)engine->living_mask);
    while (engine->living[at].tensor != NULL && engine->living[at].tensor != tensor)
        at = (at + 1) & engine->living_mask;
    return at;
}

static int is_alive(const Living *known)
{
    return known->ref != NULL && refers_to(known->ref, known->tensor);
}

/* Return the entry of this very object; NULL if it is new. A call into Python may move the table:
 * then ask again. */
static Living *find_living(const Engine *engine, const PyObject *tensor)
{
    if (engine->living == NULL)
        return NULL;
    Living *known = &engine->living[place_of(engine, tensor)];
    return known->tensor == tensor && is_alive(known) ? known : NULL;
}

/* Make the table larger, without the entries of dead tensors. */
static int grow_living(Engine *engine)
{
    /* Weak references of dead tensors, dropped at the end, since that may run code. The list is
     * made first: making it may start the garbage collector, and a finalizer that uses tensors may
     * move the table. */
    PyObject *gone = PyList_New(0);
    if (gone == NULL)
        return -1;
    Py_ssize_t alive = 0;
    Py_ssize_t old_size = engine->living == NULL ? 0 : engine->living_mask + 1;
    Living *old = engine->living;
    for (Py_ssize_t at = 0; at < old_size; at++)
        alive += old[at].tensor != NULL && is_alive(&old[at]);
    Py_ssize_t size = 256;
    while (size < 4 * (alive + 1))
        size *= 2;
    Living *fresh = PyMem_Calloc((size_t)size, sizeof(Living));
    if (fresh == NULL) {
        Py_DECREF(gone);
        PyErr_NoMemory();
        return -1;
    }
    engine->living = fresh;
    engine->living_mask = size - 1;
    engine->living_count = 0;
    for (Py_ssize_t at = 0; at < old_size; at++) {
        if (old[at].tensor == NULL)
            continue;
        if (is_alive(&old[at])) {
            fresh[place_of(engine, old[at].tensor)] = old[at];
            engine->living_count++;
        } else {
            if (old[at].ref != NULL && PyList_Append(gone, old[at].ref) < 0)
                PyErr_Clear();
            /* runs no code: `gone` has a reference too, or the tensor is dead */
            Py_XDECREF(old[at].ref);
        }
    }
    PyMem_Free(old);
    Py_DECREF(gone);
    return 0;
}

/* Write the entry of a tensor; `had_grad` and `before` matter while it is pending only. */
static int set_living(Engine *engine, PyObject *tensor, int64_t value, int64_t version,
                      int had_grad, int64_t before)
{
    PyObject *ref = PyWeakref_NewRef(tensor, NULL);
    if (ref == NULL
        || (2 * (engine->living_count + 1) > (engine->living == NULL ? 0 : engine->living_mask + 1)
            && grow_living(engine) < 0)) {
        Py_XDECREF(ref);
        return -1;
    }
    Living *known = &engine->living[place_of(engine, tensor)];
    PyObject *old_ref = known->ref;
    int64_t measured = 0;
    if (known->tensor == tensor
        && is_alive(known)) /* else the entry was of a dead tensor at this address */
        measured = known->measured;
    engine->living_count += known->tensor == NULL;
    *known = (Living){tensor, ref, value, version, (char)had_grad, before, measured};
    Py_XDECREF(old_ref);
    return 0;
}

void living_clear(Engine *engine)
{
    Living *old = engine->living;
    Py_ssize_t size = old == NULL ? 0 : engine->living_mask + 1;
    engine->living = NULL;
    engine->living_count = engine->living_mask = 0;
    for (Py_ssize_t at = 0; at < size; at++)
        Py_XDECREF(old[at].ref);
    PyMem_Free(old);
}

/* ---------------------------------------------------------------- reading tensors */

static int write_value(Engine *engine, int64_t number, int64_t version, int64_t address,
                       int64_t before, int64_t row)
{
    ValueFields *fields = engine->values;
    volatile int64_t *words = (volatile int64_t *)entry_at(fields, number, VALUE_BYTES);
    if (words != NULL) {
        words[0] = version;
        words[1] = address;
        words[2] = before;
        words[3] = row + 1; /* last: a reader takes an entry for complete when this is not 0 */
        return 0;
    }
    return as_done(PyObject_CallFunction(engine->write_value, "LLLLL", (long long)number,
                                         (long long)version, (long long)address, (long long)before,
                                         (long long)row));
}

static int64_t read_in_python(Engine *engine, PyObject *tensor)
{
    return as_number(PyObject_CallOneArg(engine->value_of_unusual, tensor));
}

/* C could not read this tensor: drop torch's exception and let Python read it. An exception of one
 * of the program's signal handlers is passed on. */
static int64_t fall_back_to_python(Engine *engine, PyObject *tensor)
{
    return drop_own_error(engine) < 0 ? FAILED : read_in_python(engine, tensor);
}

/* ---------------------------------------------------------------- values */

/* Complete a pending value: autograd has returned, so version and requires_grad are final. Its
 * number stays. */
static int64_t complete_pending(Engine *engine, PyObject *tensor, const Living *pending)
{
    const int64_t before = pending->before;
    int64_t value = pending->value, version;
    const int had_grad = pending->had_grad;
    if (version_of(tensor, &version) < 0)
        return fall_back_to_python(engine, tensor);
    const int grad = grad_of(tensor);
    if (grad < 0)
        return fall_back_to_python(engine, tensor);
    if (version || grad != had_grad) {
        int64_t address, row = read_meta(engine, tensor, &address);
        if (row == FAILED)
            return fall_back_to_python(engine, tensor);
        if (write_value(engine, value & NUMBER_MASK, version, address, before, row) < 0)
            return FAILED;
        value = (value & NUMBER_MASK) | row << NUMBER_BITS;
    }
    return set_living(engine, tensor, value, version, 0, NONE) < 0 ? FAILED : value;
}

int64_t plain_value_of(Engine *engine, PyObject *tensor)
{
    int64_t version, before = NONE;
    if (version_of(tensor, &version) < 0)
        return fall_back_to_python(engine, tensor); /* inference tensors keep none */
    const Living *known = find_living(engine, tensor);
    if (known != NULL) {
        if (known->version == version)
            return known->value;
        if (known->version == PENDING)
            return complete_pending(engine, tensor, known);
        before = known->value & NUMBER_MASK;
    }
    int64_t address, row = read_meta(engine, tensor, &address);
    if (row == FAILED)
        return fall_back_to_python(engine, tensor);
    int64_t number = engine->next_value++;
    int64_t value = number | row << NUMBER_BITS;
    if (set_living(engine, tensor, value, version, 0, NONE) < 0)
        return FAILED;
    return write_value(engine, number, version, address, before, row) < 0 ? FAILED : value;
}

int64_t value_of(Engine *engine, PyObject *tensor)
{
    return is_plain_tensor(tensor) ? plain_value_of(engine, tensor)
                                   : read_in_python(engine, tensor);
}

/* Give a tensor that an op made or wrote a new value, pending until autograd has returned. */
static int64_t begin_pending(Engine *engine, PyObject *tensor, int64_t before)
{
    int64_t version, address;
    int64_t row = version_of(tensor, &version) < 0 ? FAILED : read_meta(engine, tensor, &address);
    const int grad = row == FAILED ? -1 : grad_of(tensor);
    if (grad < 0)
        return FAILED;
    int64_t number = engine->next_value++;
    int64_t value = number | row << NUMBER_BITS;
    if (set_living(engine, tensor, value, PENDING, grad, before) < 0)
        return FAILED;
    return write_value(engine, number, version, address, before, row) < 0 ? FAILED : value;
}

int64_t value_after_op(Engine *engine, PyObject *tensor)
{
    const Living *known = find_living(engine, tensor);
    if (is_plain_tensor(tensor) && known == NULL) {
        int64_t value = begin_pending(engine, tensor, NONE);
        return value == FAILED ? fall_back_to_python(engine, tensor) : value;
    }
    if (known != NULL && known->version == PENDING)
        return known->value;
    return value_of(engine, tensor);
}

/* ---------------------------------------------------------- methods of Engine, called by Python */

static PyObject *as_object(int64_t value)
{
    return value == FAILED ? NULL : PyLong_FromLongLong(value);
}

PyObject *engine_value_of(Engine *engine, PyObject *tensor)
{
    return as_object(value_of(engine, tensor));
}

PyObject *engine_plain_value_of(Engine *engine, PyObject *tensor)
{
    return as_object(plain_value_of(engine, tensor));
}

PyObject *engine_value_after_op(Engine *engine, PyObject *tensor)
{
    return as_object(value_after_op(engine, tensor));
}

/* known(object) -> (value, version), or None if the object is new */
PyObject *engine_known(Engine *engine, PyObject *object)
{
    const Living *known = find_living(engine, object);
    if (known == NULL)
        Py_RETURN_NONE;
    return Py_BuildValue("LL", (long long)known->value, (long long)known->version);
}

int mark_measured(Engine *engine, PyObject *tensor, int64_t number)
{
    Living *known = find_living(engine, tensor);
    if (known == NULL)
        return 1;
    const int64_t before = known->measured;
    known->measured = number + 1;
    return before != 0 && before != number + 1;
}

/* forget(object): drop its entry and its weak reference */
PyObject *engine_forget(Engine *engine, PyObject *object)
{
    measuring_forget(engine);
    Living *known = find_living(engine, object);
    if (known != NULL) { /* the entry stays, as one of a dead tensor */
        PyObject *ref = known->ref;
        known->ref = NULL;
        Py_XDECREF(ref);
    }
    Py_RETURN_NONE;
}

/* mark_changed(object): its next use is a new value */
PyObject *engine_mark_changed(Engine *engine, PyObject *object)
{
    Living *known = find_living(engine, object);
    if (known != NULL)
        known->version = CHANGED;
    Py_RETURN_NONE;
}

void forget_measurement(Engine *engine, PyObject *object)
{
    Living *known = find_living(engine, object);
    if (known != NULL && known->version == CHANGED)
        known->measured = 0;
}

/* begin_pending(tensor): an op has written into it. False: C cannot read it, and nothing was done.
 */
PyObject *engine_begin_pending(Engine *engine, PyObject *tensor)
{
    const Living *known = find_living(engine, tensor);
    int64_t before = known == NULL ? NONE : known->value & NUMBER_MASK;
    if (!is_plain_tensor(tensor) || begin_pending(engine, tensor, before) == FAILED) {
        if (drop_own_error(engine) < 0)
            return NULL;
        Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

/* List the living objects, or only those whose value is pending. */
static PyObject *list_living(Engine *engine, int all)
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t at = 0; found != NULL && engine->living != NULL && at <= engine->living_mask;
         at++) {
        const Living *known = &engine->living[at];
        if (known->tensor != NULL && is_alive(known) && (all || known->version == PENDING)
            && PyList_Append(found, known->tensor) < 0)
            Py_CLEAR(found);
    }
    return found;
}

PyObject *engine_pending(Engine *engine, PyObject *unused)
{
    return list_living(engine, 0);
}

PyObject *engine_living_objects(Engine *engine, PyObject *unused)
{
    return list_living(engine, 1);
}

/* remember(object, value, version): Python has read it */
PyObject *engine_remember(Engine *engine, PyObject *args)
{
    PyObject *object;
    long long value, version;
    if (!PyArg_ParseTuple(args, "OLL", &object, &value, &version)
        || set_living(engine, object, value, version, 0, NONE) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *engine_next_value(Engine *engine, PyObject *unused)
{
    return PyLong_FromLongLong(engine->next_value++);
}
