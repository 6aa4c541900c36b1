/* Which tensor is which (values.py): identity by address and weak reference, version, metadata. */
#include "fast.h"

enum { CHANGED = -2, PENDING = -3 }; /* in place of a version, as in values.py; what Python reads with care has smaller ones */

int is_plain_tensor(const PyObject *object)
{
    return Py_TYPE(object) == torch.Tensor || Py_TYPE(object) == torch.Parameter;
}

/* ---------------------------------------------------------------- the living */

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

/* What is known of this very object; NULL where it is new. Not to be used behind a call into Python. */
static Living *find_living(const Engine *engine, const PyObject *tensor)
{
    if (engine->living == NULL)
        return NULL;
    Living *known = &engine->living[place_of(engine, tensor)];
    return known->tensor == tensor && is_alive(known) ? known : NULL;
}

/* Entries of the dead are dropped when there is no room: addresses are used again, so there are not many. */
static int grow_living(Engine *engine)
{
    Py_ssize_t alive = 0, old_size = engine->living == NULL ? 0 : engine->living_mask + 1;
    Living *old = engine->living;
    for (Py_ssize_t at = 0; at < old_size; at++)
        alive += old[at].tensor != NULL && is_alive(&old[at]);
    Py_ssize_t size = 256;
    while (size < 4 * (alive + 1))
        size *= 2;
    Living *fresh = PyMem_Calloc((size_t)size, sizeof(Living));
    if (fresh == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *gone = PyList_New(0); /* references are dropped last: that may run code */
    if (gone == NULL) {
        PyMem_Free(fresh);
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
            Py_XDECREF(old[at].ref); /* not the last reference, or a weak one of nothing: runs no code */
        }
    }
    PyMem_Free(old);
    Py_DECREF(gone);
    return 0;
}

static int set_living(Engine *engine, PyObject *tensor, int64_t value, int64_t version, int had_grad, int64_t before)
{
    PyObject *ref = PyWeakref_NewRef(tensor, NULL);
    if (ref == NULL || (2 * (engine->living_count + 1) > (engine->living == NULL ? 0 : engine->living_mask + 1)
                        && grow_living(engine) < 0)) {
        Py_XDECREF(ref);
        return -1;
    }
    Living *known = &engine->living[place_of(engine, tensor)];
    PyObject *old_ref = known->ref;
    const int64_t measured = known->tensor == tensor && is_alive(known) ? known->measured : 0; /* or it was another's */
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

/* ---------------------------------------------------------------- reading them */

static int write_value(Engine *engine, int64_t number, int64_t version, int64_t address, int64_t before, int64_t row)
{
    ValueFields *fields = engine->values;
    int64_t place = number * VALUE_BYTES + fields->shift;
    if (fields->has_view && number >= fields->first && number < fields->end && place >= 0
        && place + VALUE_BYTES <= fields->view.len) {
        volatile int64_t *words = (volatile int64_t *)(fields->memory + place);
        words[0] = version;
        words[1] = address;
        words[2] = before;
        words[3] = row + 1; /* last: it says that the others are there */
        return 0;
    }
    PyObject *done = PyObject_CallFunction(engine->write_value, "LLLLL", (long long)number, (long long)version,
                                           (long long)address, (long long)before, (long long)row);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int64_t ask_python(Engine *engine, PyObject *tensor)
{
    return as_number(PyObject_CallOneArg(engine->reluctant, tensor));
}

/* A tensor refused to be read: Python reads it with care. What a signal handler raised meanwhile goes on. */
static int64_t with_care(Engine *engine, PyObject *tensor)
{
    return let_go(engine) < 0 ? FAILED : ask_python(engine, tensor);
}

/* ---------------------------------------------------------------- values */

/* Complete the value of a tensor that an op made: its version and gradient are what they will be. */
static int64_t settle_op(Engine *engine, PyObject *tensor, const Living *pending)
{
    int64_t value = pending->value, before = pending->before, version;
    const int had_grad = pending->had_grad;
    if (version_of(tensor, &version) < 0)
        return with_care(engine, tensor);
    const int grad = grad_of(tensor);
    if (grad < 0)
        return with_care(engine, tensor);
    if (version || grad != had_grad) {
        int64_t address, row = read_meta(engine, tensor, &address);
        if (row == FAILED)
            return with_care(engine, tensor);
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
        return with_care(engine, tensor); /* inference tensors keep none */
    const Living *known = find_living(engine, tensor);
    if (known != NULL) {
        if (known->version == version)
            return known->value;
        if (known->version == PENDING)
            return settle_op(engine, tensor, known);
        before = known->value & NUMBER_MASK;
    }
    int64_t address, row = read_meta(engine, tensor, &address);
    if (row == FAILED)
        return with_care(engine, tensor);
    int64_t number = engine->next_value++, value = number | row << NUMBER_BITS;
    if (set_living(engine, tensor, value, version, 0, NONE) < 0)
        return FAILED;
    return write_value(engine, number, version, address, before, row) < 0 ? FAILED : value;
}

int64_t value_of(Engine *engine, PyObject *tensor)
{
    return is_plain_tensor(tensor) ? plain_value_of(engine, tensor) : ask_python(engine, tensor);
}

/* A new value of a tensor that an op gave or wrote into; autograd has yet to do its part. */
static int64_t begin_value(Engine *engine, PyObject *tensor, int64_t before)
{
    int64_t version, address;
    int64_t row = version_of(tensor, &version) < 0 ? FAILED : read_meta(engine, tensor, &address);
    const int grad = row == FAILED ? -1 : grad_of(tensor);
    if (grad < 0)
        return FAILED;
    int64_t number = engine->next_value++, value = number | row << NUMBER_BITS;
    if (set_living(engine, tensor, value, PENDING, grad, before) < 0)
        return FAILED;
    return write_value(engine, number, version, address, before, row) < 0 ? FAILED : value;
}

int64_t made_value(Engine *engine, PyObject *tensor)
{
    const Living *known = find_living(engine, tensor);
    if (is_plain_tensor(tensor) && known == NULL) {
        int64_t value = begin_value(engine, tensor, NONE);
        return value == FAILED ? with_care(engine, tensor) : value;
    }
    if (known != NULL && known->version == PENDING)
        return known->value;
    return value_of(engine, tensor);
}

/* ---------------------------------------------------------------- asked by Python */

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

PyObject *engine_made(Engine *engine, PyObject *tensor)
{
    return as_object(made_value(engine, tensor));
}

/* The value and version by which an object is known; None where it is not. */
PyObject *engine_known(Engine *engine, PyObject *object)
{
    const Living *known = find_living(engine, object);
    if (known == NULL)
        Py_RETURN_NONE;
    return Py_BuildValue("LL", (long long)known->value, (long long)known->version);
}

/* An op that wrote into a tensor has not counted that as a new version yet. */
int has_changed(Engine *engine, PyObject *tensor, int64_t number)
{
    Living *known = find_living(engine, tensor);
    if (known == NULL)
        return 1;
    int64_t before = known->measured;
    known->measured = number + 1;
    return before != 0 && before != number + 1;
}

PyObject *engine_forget(Engine *engine, PyObject *object)
{
    measuring_forget(engine);
    Living *known = find_living(engine, object);
    if (known != NULL) { /* the place stays taken, by an object that is not alive */
        PyObject *ref = known->ref;
        known->ref = NULL;
        Py_XDECREF(ref);
    }
    Py_RETURN_NONE;
}

/* Look at an object again when it is met next. */
PyObject *engine_touch(Engine *engine, PyObject *object)
{
    Living *known = find_living(engine, object);
    if (known != NULL)
        known->version = CHANGED;
    Py_RETURN_NONE;
}

void same_numbers(Engine *engine, PyObject *object)
{
    Living *known = find_living(engine, object);
    if (known != NULL && known->version == CHANGED)
        known->measured = 0;
}

/* An op has written into a tensor: a new value begins; False where it must be read with care. */
PyObject *engine_begin(Engine *engine, PyObject *tensor)
{
    const Living *known = find_living(engine, tensor);
    int64_t before = known == NULL ? NONE : known->value & NUMBER_MASK;
    if (!is_plain_tensor(tensor) || begin_value(engine, tensor, before) == FAILED) {
        if (let_go(engine) < 0)
            return NULL;
        Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

/* The objects that are alive; those that wait for autograd, or all. */
static PyObject *list_living(Engine *engine, int all)
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t at = 0; found != NULL && engine->living != NULL && at <= engine->living_mask; at++) {
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

/* (object, value, version): what Python has read with care. */
PyObject *engine_remember(Engine *engine, PyObject *args)
{
    PyObject *object;
    long long value, version;
    if (!PyArg_ParseTuple(args, "OLL", &object, &value, &version) || set_living(engine, object, value, version, 0, NONE) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *engine_next_value(Engine *engine, PyObject *unused)
{
    return PyLong_FromLongLong(engine->next_value++);
}
