/* The forms of arguments, results and variables (../forms.py), and the ids of the tensors in them.
 *
 * A value is read into a *key*: 64-bit integers in pairs, a tag and what belongs to it.
 * F.softmax(x, dim=-1) has the key
 *
 *     INT 1 (positional arguments), TENSOR 0, NAMED <address of "dim">, INT -1
 *
 * The table engine->forms turns a key that the session has met into the number of its form, without
 * a call into Python. For a new key Python makes the form. What a key cannot hold is left to Python
 * as a whole: see read_item.
 */
#include "fast.h"

/* The tags. RESULT_OF begins the key of a result or a variable: Python's form of it is (1,
 * description), as if it were the one argument of a call. */
enum {
    TENSOR = 1,
    INT,
    FLOAT,
    CONSTANT,
    OBJECT,
    LIST,
    TUPLE,
    SIZE,
    SLICE,
    DEVICE,
    NAMED,
    RESULT_OF,
    OPAQUE,
    DICT,
    FUNCTION
};
#define FORM_ROW     8 /* a kind of row (journal/layout.py) */
#define LONGEST_KEY  512
#define LONGEST_LIST 64
#define DEEPEST      8
#define MOST_IDS     (LONGEST_LIST + 8)

/* A value that is being read: its key and the ids of its tensors so far. */
typedef struct {
    Engine *engine;
    Log *log;    /* of the event; NULL while a variable is read */
    int from_op; /* the tensors are what an op returned, and autograd has not returned yet */
    /* the key holds the address of a class: it may not outlive the session, which keeps the class
     */
    int has_classes;
    int64_t key[LONGEST_KEY];
    Py_ssize_t length;
    int64_t ids[MOST_IDS];
    Py_ssize_t id_count;
    /* a list that keeps the names in dicts alive; NULL: dicts are left to Python */
    PyObject *names;
} Reading;

/* What the functions named read_… return. */
enum { READ, LEAVE_TO_PYTHON, ERROR };

/* The arrays stay as they are: clearing them would cost more than reading most calls. */
static void begin_reading(Reading *reading, Engine *engine, Log *log, int from_op)
{
    reading->engine = engine;
    reading->log = log;
    reading->from_op = from_op;
    reading->has_classes = 0;
    reading->length = reading->id_count = 0;
    reading->names = NULL;
}

static int add(Reading *reading, int64_t tag, int64_t content)
{
    if (reading->length + 2 > LONGEST_KEY)
        return LEAVE_TO_PYTHON;
    reading->key[reading->length++] = tag;
    reading->key[reading->length++] = content;
    return READ;
}

static int read_tensor(Reading *reading, PyObject *tensor)
{
    if (reading->id_count >= MOST_IDS)
        return LEAVE_TO_PYTHON;
    int64_t value = reading->from_op ? value_after_op(reading->engine, tensor)
                                     : plain_value_of(reading->engine, tensor);
    if (value == FAILED)
        return ERROR;
    reading->ids[reading->id_count++] = value;
    return add(reading, TENSOR, 0);
}

/* Whether it is a dtype, a layout or a memory format: objects that live as long as the process. */
static int is_torch_constant(PyObject *object)
{
    for (int at = 0; at < torch.constant_type_count; at++)
        if ((PyObject *)Py_TYPE(object) == torch.constant_types[at])
            return 1;
    return 0;
}

static int read_item(Reading *reading, PyObject *item, int depth);

static int read_items(Reading *reading, int64_t tag, PyObject *items, int depth)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    if (count > LONGEST_LIST || depth >= DEEPEST)
        return LEAVE_TO_PYTHON;
    int done = add(reading, tag, count);
    for (Py_ssize_t at = 0; done == READ && at < count; at++) {
        if (at >= PySequence_Fast_GET_SIZE(items))
            return LEAVE_TO_PYTHON; /* code that ran meanwhile has shortened the list */
        /* the list may be changed by what we call */
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(items, at));
        done = read_item(reading, item, depth + 1);
        Py_DECREF(item);
    }
    return done;
}

#define MOST_NAMES   1024
#define LONGEST_NAME 32
static PyObject *interned_names; /* a dict: names that are not interned → the same, interned */

/* The interned string of an argument's name, borrowed; NULL with no exception: it is left to
 * Python. Python interns the names that a program writes, but torch's C++ passes new strings to
 * each call of an op. */
static PyObject *interned_name(PyObject *name)
{
    if (!PyUnicode_CheckExact(name))
        return NULL;
    if (PyUnicode_CHECK_INTERNED(name))
        return name;
    Py_ssize_t length = PyUnicode_GET_LENGTH(name);
    if (!PyUnicode_IS_COMPACT_ASCII(name) || length > LONGEST_NAME
        || (interned_names == NULL && (interned_names = PyDict_New()) == NULL))
        return NULL;
    PyObject *interned = PyDict_GetItemWithError(interned_names, name);
    if (interned != NULL || PyErr_Occurred() || PyDict_GET_SIZE(interned_names) >= MOST_NAMES)
        return interned;
    /* a copy: theirs stays as it is */
    interned = PyUnicode_FromStringAndSize((const char *)PyUnicode_1BYTE_DATA(name), length);
    if (interned == NULL)
        return NULL;
    PyUnicode_InternInPlace(&interned);
    const int done = PyDict_SetItem(interned_names, interned, interned);
    Py_DECREF(interned); /* the dict keeps it as long as the process lives */
    return done < 0 ? NULL : interned;
}

static int read_slice(Reading *reading, PySliceObject *slice, int depth)
{
    int done = add(reading, SLICE, 0);
    /* borrowed: a slice does not change */
    PyObject *parts[] = {slice->start, slice->stop, slice->step};
    for (int at = 0; done == READ && at < 3; at++)
        done = read_item(reading, parts[at], depth + 1);
    return done;
}

static int read_dict(Reading *reading, PyObject *items, int depth)
{
    PyObject *name, *item;
    Py_ssize_t at = 0;
    Py_ssize_t size = PyDict_GET_SIZE(items);
    if (reading->names == NULL || size > LONGEST_LIST || depth >= DEEPEST)
        return LEAVE_TO_PYTHON;
    int done = add(reading, DICT, size);
    while (done == READ && PyDict_Next(items, &at, &name, &item)) {
        if (PyDict_GET_SIZE(items) != size || !PyUnicode_CheckExact(name)
            || !PyUnicode_CHECK_INTERNED(name))
            /* a key that is no plain name, or code that ran meanwhile has changed the dict */
            return LEAVE_TO_PYTHON;
        if (PyList_Append(reading->names, name) < 0)
            return ERROR;
        done = add(reading, NAMED, (int64_t)(intptr_t)name);
        Py_INCREF(item); /* the dict may be changed by what we call */
        if (done == READ)
            done = read_item(reading, item, depth + 1);
        Py_DECREF(item);
    }
    return done;
}

static int read_int(Reading *reading, PyObject *item)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(item, &overflow);
    return overflow ? LEAVE_TO_PYTHON : add(reading, INT, number);
}

/* An object that is shown only as the name of its class, such as <Conv2d>. Python decides this once
 * for each class, and keeps the class. */
static int read_opaque(Reading *reading, PyObject *item, int depth)
{
    if (reading->log == NULL && depth == 0)
        /* of a variable's own value more is shown for some classes (variables.c: form_of_class) */
        return LEAVE_TO_PYTHON;
    Engine *engine = reading->engine;
    const int64_t cls = (int64_t)(intptr_t)Py_TYPE(item);
    uint64_t hash;
    int64_t is_opaque = table_find(&engine->opaque, &cls, 1, &hash);
    if (is_opaque == NONE) {
        PyObject *answer = PyObject_CallOneArg(engine->is_opaque, (PyObject *)Py_TYPE(item));
        if (answer == NULL)
            return ERROR;
        is_opaque = answer == Py_True;
        Py_DECREF(answer);
        if (table_add(&engine->opaque, &cls, 1, hash, is_opaque) < 0)
            return ERROR;
    }
    reading->has_classes = 1;
    return is_opaque ? add(reading, OPAQUE, cls) : LEAVE_TO_PYTHON;
}

/* A function, shown as <function name>. */
static int read_function(Reading *reading, const PyFunctionObject *function)
{
    PyObject *name = function->func_name; /* borrowed; only an interned name may stand in a key */
    return PyUnicode_CHECK_INTERNED(name) ? add(reading, FUNCTION, (int64_t)(intptr_t)name)
                                          : LEAVE_TO_PYTHON;
}

/* Read tensors, ints, floats, None, True, False, ..., interned text, dtypes and their like,
 * functions with interned names, slices, devices, sizes, lists, tuples and dicts of these, and what
 * is shown only as the name of its class. */
static int read_item(Reading *reading, PyObject *item, int depth)
{
    PyTypeObject *cls = Py_TYPE(item);
    if (is_plain_tensor(item))
        return read_tensor(reading, item);
    if (cls == &PyLong_Type)
        return read_int(reading, item);
    if (item == Py_None || item == Py_True || item == Py_False || item == Py_Ellipsis)
        return add(reading, CONSTANT, (int64_t)(intptr_t)item);
    if (cls == &PyTuple_Type)
        return read_items(reading, TUPLE, item, depth);
    if (cls == &PyList_Type)
        return read_items(reading, LIST, item, depth);
    if (cls == &PyFloat_Type) {
        double number = PyFloat_AS_DOUBLE(item);
        int64_t bits;
        memcpy(&bits, &number, 8);
        return add(reading, FLOAT, bits);
    }
    if ((cls == &PyUnicode_Type && PyUnicode_CHECK_INTERNED(item)) || is_torch_constant(item))
        return add(reading, OBJECT, (int64_t)(intptr_t)item);
    if (cls == &PyFunction_Type)
        return read_function(reading, (PyFunctionObject *)item);
    if (cls == &PySlice_Type)
        return read_slice(reading, (PySliceObject *)item, depth);
    if (cls == &PyDict_Type)
        return read_dict(reading, item, depth);
    if ((PyObject *)cls == torch.size_type)
        return read_items(reading, SIZE, item, depth);
    if ((PyObject *)cls == torch.device_type) {
        /* it is made of type and index, so it differs for different devices */
        Py_hash_t device = PyObject_Hash(item);
        return device == -1 ? ERROR : add(reading, DEVICE, device);
    }
    if (cls
        == &PyUnicode_Type) /* its address would be no key: an equal text may be another object */
        return LEAVE_TO_PYTHON;
    return read_opaque(reading, item, depth);
}

/* Append to `kept` the objects whose addresses stand in the key, since they must live as long as
 * the key. Classes are kept by Python (../forms.py: Readers). */
static int keep_objects(PyObject *kept, const Reading *reading)
{
    for (Py_ssize_t at = 0; at + 1 < reading->length; at += 2) {
        const int64_t tag = reading->key[at];
        const int is_address = tag == OBJECT || tag == NAMED || tag == FUNCTION;
        if (is_address && PyList_Append(kept, (PyObject *)(intptr_t)reading->key[at + 1]) < 0)
            return -1;
    }
    return 0;
}

/* Append ids to the log, and set `first` to the place of the first one; where the log has no room
 * `first` stays as it is. */
static int put_ids(Log *log, const int64_t *ids, Py_ssize_t count, int64_t *first)
{
    int64_t place = add_ids(log, ids, count);
    if (place == FAILED)
        return -1;
    if (place != NONE)
        *first = place;
    return 0;
}

/* Take Python's answer for a value that is not read here, (number of the form, [id of a tensor,
 * …]): return the number and write the ids. */
static int64_t take_answer(Log *log, PyObject *answer, int64_t *first)
{
    if (answer == NULL)
        return FAILED;
    long long number;
    PyObject *list;
    int64_t result = FAILED;
    int64_t *ids = NULL;
    if (PyArg_ParseTuple(answer, "LO!", &number, &PyList_Type, &list)) {
        Py_ssize_t count = PyList_GET_SIZE(list);
        ids = PyMem_Malloc((size_t)(count + 1) * 8);
        if (ids == NULL)
            PyErr_NoMemory();
        for (Py_ssize_t at = 0; ids != NULL && at < count; at++)
            ids[at] = PyLong_AsLongLong(PyList_GET_ITEM(list, at));
        if (!PyErr_Occurred() && (count == 0 || put_ids(log, ids, count, first) == 0))
            result = number;
    }
    PyMem_Free(ids);
    Py_DECREF(answer);
    return result;
}

PyObject *pack(PyObject *const *args, Py_ssize_t count)
{
    PyObject *packed = PyTuple_New(count);
    for (Py_ssize_t at = 0; packed != NULL && at < count; at++)
        PyTuple_SET_ITEM(packed, at, Py_NewRef(args[at]));
    return packed;
}

/* Leave the whole call to Python. */
static int64_t number_by_python(Engine *engine, Log *log, PyObject *const *args, Py_ssize_t count,
                                PyObject *kwargs, int64_t *first)
{
    PyObject *packed = pack(args, count);
    if (packed == NULL)
        return FAILED;
    PyObject *answer = call_unseen(engine->intern_call, packed, kwargs == NULL ? Py_None : kwargs);
    Py_DECREF(packed);
    return take_answer(log, answer, first);
}

/* ------------------------------------------------------------------ forms that are new to a session
 *
 *   number_of_new_key   the number of a key's form in this session. It is cached in engine->forms.
 *     form_of_key       the form and its bytes. Python makes them once for the whole process, because
 *                       programs use the same few forms in every recording.
 *     intern            the number that the session gave to this form. A new form gets a new number
 *                       and a row in the journal.
 *
 * A new key need not be a new form: other keys may lead to the same form, and Python interns forms
 * too. */

#define MOST_FORMS 4096
static Table form_places;       /* key → its place in the list below */
static PyObject *process_forms; /* a list of pairs (form, bytes of its row) */
static PyObject *process_kept;  /* a list of the objects whose addresses stand in those keys */

/* How Python makes a form that is not known yet: a callback of the engine, and its arguments (the
 * second may be NULL). */
typedef struct {
    PyObject *make_form, *first, *second;
} FormMaker;

/* Remember a form for the process, if there is room and its key may live so long. */
static int remember_form(const Reading *reading, uint64_t hash, PyObject *pair)
{
    uint64_t same;
    if (reading->has_classes || PyList_GET_SIZE(process_forms) >= MOST_FORMS)
        return 0;
    if (table_find(&form_places, reading->key, reading->length, &same) != NONE)
        return 0; /* Python has come here for the same key meanwhile */
    if (keep_objects(process_kept, reading) < 0 || PyList_Append(process_forms, pair) < 0)
        return -1;
    return table_add(&form_places, reading->key, reading->length, hash,
                     PyList_GET_SIZE(process_forms) - 1);
}

/* (form, bytes of its row), owned. */
static PyObject *form_of_key(Engine *engine, const Reading *reading, uint64_t hash,
                             const FormMaker *maker)
{
    uint64_t same;
    int64_t place = table_find(&form_places, reading->key, reading->length, &same);
    if (place != NONE)
        return Py_NewRef(PyList_GET_ITEM(process_forms, place));
    PyObject *form = call_unseen(maker->make_form, maker->first, maker->second);
    PyObject *bytes = form == NULL ? NULL : PyObject_CallOneArg(engine->form_bytes, form);
    PyObject *pair = bytes == NULL ? NULL : PyTuple_Pack(2, form, bytes);
    Py_XDECREF(bytes);
    Py_XDECREF(form);
    if (pair == NULL)
        return NULL;
    if ((process_forms == NULL && (process_forms = PyList_New(0)) == NULL)
        || (process_kept == NULL && (process_kept = PyList_New(0)) == NULL)
        || remember_form(reading, hash, pair) < 0)
        Py_CLEAR(pair);
    return pair;
}

/* The number of a form in this session; a new form gets a number and a row (../forms.py: intern).
 */
static int64_t intern(Engine *engine, PyObject *form, PyObject *bytes)
{
    PyObject *number = Py_XNewRef(PyDict_GetItemWithError(engine->form_ids, form));
    if (number == NULL && !PyErr_Occurred() && PyBytes_Check(bytes)
        && (number = PyIter_Next(engine->form_numbers)) != NULL
        && (add_journal_row((RowFields *)engine->passing, FORM_ROW, PyLong_AsLongLong(number),
                            PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes))
                < 0
            || PyDict_SetItem(engine->form_ids, form, number) < 0))
        Py_CLEAR(number);
    return as_number(number);
}

int64_t number_of_form(Engine *engine, PyObject *form)
{
    PyObject *bytes = PyObject_CallOneArg(engine->form_bytes, form);
    int64_t number = bytes == NULL ? FAILED : intern(engine, form, bytes);
    Py_XDECREF(bytes);
    return number;
}

static int64_t number_of_new_key(Engine *engine, const Reading *reading, uint64_t hash,
                                 const FormMaker *maker)
{
    const int64_t generation = engine->form_generation;
    PyObject *pair = form_of_key(engine, reading, hash, maker);
    int64_t number = pair == NULL
                         ? FAILED
                         : intern(engine, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
    Py_XDECREF(pair);
    /* If the numbers have begun anew meanwhile (../forms.py: carry), this one may be stale: return
     * it, but do not cache it. */
    if (number == FAILED || generation != engine->form_generation)
        return number;
    if (keep_objects(engine->kept, reading) < 0
        || table_add(&engine->forms, reading->key, reading->length, hash, number) < 0)
        return FAILED;
    return number;
}

static int64_t number_of_new_call(Engine *engine, const Reading *reading, uint64_t hash,
                                  PyObject *const *args, Py_ssize_t count, PyObject *kwargs)
{
    PyObject *packed = pack(args, count);
    if (packed == NULL)
        return FAILED;
    const FormMaker maker = {engine->make_call_form, packed, kwargs == NULL ? Py_None : kwargs};
    int64_t number = number_of_new_key(engine, reading, hash, &maker);
    Py_DECREF(packed);
    return number;
}

/* ------------------------------------------------------- the arguments and the result of a call */

static int read_named_arguments(Reading *reading, PyObject *kwargs)
{
    PyObject *name, *item;
    Py_ssize_t at = 0;
    Py_ssize_t size = PyDict_GET_SIZE(kwargs);
    int done = READ;
    while (done == READ && PyDict_Next(kwargs, &at, &name, &item)) {
        name = interned_name(name);
        if (name == NULL || PyDict_GET_SIZE(kwargs) != size)
            return PyErr_Occurred() ? ERROR : LEAVE_TO_PYTHON;
        done = add(reading, NAMED, (int64_t)(intptr_t)name);
        Py_INCREF(item); /* the dict may be changed by what we call */
        if (done == READ)
            done = read_item(reading, item, 0);
        Py_DECREF(item);
    }
    return done;
}

int64_t form_number_of_call(Engine *engine, Log *log, PyObject *const *args, Py_ssize_t count,
                            PyObject *kwargs, int64_t *first)
{
    Reading reading;
    uint64_t hash;
    begin_reading(&reading, engine, log, 0);
    /* also of a call without tensors, as in Python: there its ids would begin */
    *first = log->id_base + log->id_at;
    int done = add(&reading, INT, count);
    for (Py_ssize_t at = 0; done == READ && at < count; at++)
        done = read_item(&reading, args[at], 0);
    if (done == READ && kwargs != NULL)
        done = read_named_arguments(&reading, kwargs);
    if (done == ERROR)
        return FAILED;
    if (done == LEAVE_TO_PYTHON)
        return number_by_python(engine, log, args, count, kwargs, first);
    if (put_ids(log, reading.ids, reading.id_count, first) < 0)
        return FAILED;
    int64_t number = table_find(&engine->forms, reading.key, reading.length, &hash);
    if (number != NONE)
        return number;
    return number_of_new_call(engine, &reading, hash, args, count, kwargs);
}

int64_t form_number_of_result(Engine *engine, Log *log, PyObject *result, int from_op,
                              int64_t *first)
{
    Reading reading;
    uint64_t hash;
    begin_reading(&reading, engine, log, from_op);
    *first = NONE; /* of a result without tensors, as in Python */
    int done = add(&reading, RESULT_OF, 1);
    if (done == READ)
        done = read_item(&reading, result, 0);
    if (done == ERROR)
        return FAILED;
    if (done == LEAVE_TO_PYTHON)
        return take_answer(
            log, call_unseen(engine->intern_result, result, from_op ? Py_True : Py_False), first);
    if (reading.id_count && put_ids(log, reading.ids, reading.id_count, first) < 0)
        return FAILED;
    int64_t number = table_find(&engine->forms, reading.key, reading.length, &hash);
    if (number != NONE)
        return number;
    const FormMaker maker = {engine->make_result_form, result, NULL};
    return number_of_new_key(engine, &reading, hash, &maker);
}

/* ---------------------------------------------------------------- what a variable holds */

/* The number of an int, whose form is (1, value): it is made here, and not remembered for the
 * process, because a loop may count through any number of ints. */
static int64_t form_of_int(Engine *engine, const Reading *reading, PyObject *value, PyObject **form)
{
    uint64_t hash;
    int64_t number = table_find(&engine->forms, reading->key, reading->length, &hash);
    const int64_t generation = engine->form_generation;
    if ((*form = Py_BuildValue("(iO)", 1, value)) == NULL)
        return FAILED;
    if (number != NONE)
        return number;
    number = number_of_form(engine, *form);
    if (number != FAILED && generation == engine->form_generation
        && table_add(&engine->forms, reading->key, reading->length, hash, number) < 0)
        number = FAILED;
    return number;
}

/* The number of the form of a variable's value, after it was read; `form` is set to the form,
 * owned. */
static int64_t number_of_variable(Engine *engine, const Reading *reading, PyObject *value,
                                  PyObject **form)
{
    uint64_t hash;
    if (PyLong_CheckExact(value))
        return form_of_int(engine, reading, value, form);
    const FormMaker maker = {engine->make_result_form, value, NULL};
    int64_t number = table_find(&engine->forms, reading->key, reading->length, &hash);
    if (number == NONE)
        number = number_of_new_key(engine, reading, hash, &maker);
    PyObject *pair = number == FAILED ? NULL : form_of_key(engine, reading, hash, &maker);
    if (pair == NULL)
        return FAILED;
    *form = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    Py_DECREF(pair);
    return number;
}

int64_t form_number_of_variable(Engine *engine, PyObject *value, int64_t *ids, Py_ssize_t *count,
                                PyObject **form)
{
    Reading reading;
    begin_reading(&reading, engine, NULL, 0);
    *count = 0;
    *form = NULL;
    if ((PyDict_CheckExact(value) || PyList_CheckExact(value) || PyTuple_CheckExact(value))
        && (reading.names = PyList_New(0)) == NULL)
        return FAILED;
    int done = add(&reading, RESULT_OF, 1);
    if (done == READ)
        done = read_item(&reading, value, 0);
    int64_t number = done == ERROR ? FAILED : NONE;
    if (done == READ && reading.id_count <= MOST_HELD) {
        memcpy(ids, reading.ids, (size_t)reading.id_count * 8);
        *count = reading.id_count;
        number = number_of_variable(engine, &reading, value, form);
    }
    Py_XDECREF(reading.names);
    if (number == FAILED)
        Py_CLEAR(*form);
    return number;
}
