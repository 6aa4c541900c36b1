/* The forms of arguments, results and variables (../forms.py), and the ids of the tensors in them.
 *
 * Reading a value makes a *key*: pairs of 64-bit integers, each a tag and its content. The call
 * F.softmax(x, dim=-1) has the key
 *
 *     INT 1 (positional arguments), TENSOR 0, NAMED <address of "dim">, INT -1
 *
 * engine->forms maps each key that the session has met to the number of its form, so most calls
 * need no call into Python. For a new key Python makes the form. If any part of a value cannot be
 * in a key (read_item says what can), the whole value is left to Python.
 *
 * Read from the end: form_number_of_call and form_number_of_result are what other files call. They
 * read the value (first half of the file), look up the key, and intern a new form (second half).
 */
#include "fast.h"

/* The tags. RESULT_OF begins the key of a result or of a variable. Python describes these like a
 * call with one argument: (1, description). */
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
    Log *log;        /* the log of the event; NULL while a variable is read */
    int from_op;     /* the tensors are results of an op, and autograd has not returned yet */
    int has_classes; /* the key has the address of a class, which lives only as long as the session
                      */
    int64_t key[LONGEST_KEY];
    Py_ssize_t length;
    int64_t ids[MOST_IDS];
    Py_ssize_t id_count;
    PyObject *names; /* a list that keeps the names in dicts alive; NULL: leave dicts to Python */
} Reading;

/* The outcome of reading, returned by the functions named read_... */
enum { READ, LEAVE_TO_PYTHON, ERROR };

/* Do not clear the arrays: that would cost more than reading most calls. */
static void begin_reading(Reading *reading, Engine *engine, Log *log, int from_op)
{
    reading->engine = engine;
    reading->log = log;
    reading->from_op = from_op;
    reading->has_classes = 0;
    reading->length = reading->id_count = 0;
    reading->names = NULL;
}

static int add_pair(Reading *reading, int64_t tag, int64_t content)
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
    return add_pair(reading, TENSOR, 0);
}

/* Return whether an object is a dtype, a layout or a memory format. These are never freed. */
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
    int outcome = add_pair(reading, tag, count);
    for (Py_ssize_t at = 0; outcome == READ && at < count; at++) {
        if (at >= PySequence_Fast_GET_SIZE(items))
            return LEAVE_TO_PYTHON; /* code that ran meanwhile has shortened the list */
        /* the list may be changed by what we call */
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(items, at));
        outcome = read_item(reading, item, depth + 1);
        Py_DECREF(item);
    }
    return outcome;
}

#define MOST_NAMES   1024
#define LONGEST_NAME 32
static PyObject *interned_names; /* a dict: a name → the same name, interned */

/* Return a new string with the same characters, interned. NULL with an exception: error. */
static PyObject *intern_copy(PyObject *name)
{
    const char *characters = (const char *)PyUnicode_1BYTE_DATA(name);
    PyObject *copy = PyUnicode_FromStringAndSize(characters, PyUnicode_GET_LENGTH(name));
    if (copy != NULL)
        PyUnicode_InternInPlace(&copy);
    return copy;
}

/* Return the interned string of an argument's name, borrowed. NULL with no exception: leave it to
 * Python. Python interns the names in a program, but torch's C++ makes a new string for each call
 * of an op. */
static PyObject *interned_name(PyObject *name)
{
    if (!PyUnicode_CheckExact(name))
        return NULL;
    if (PyUnicode_CHECK_INTERNED(name))
        return name;
    if (!PyUnicode_IS_COMPACT_ASCII(name) || PyUnicode_GET_LENGTH(name) > LONGEST_NAME)
        return NULL;
    if (interned_names == NULL) {
        interned_names = PyDict_New();
        if (interned_names == NULL)
            return NULL;
    }
    PyObject *interned = PyDict_GetItemWithError(interned_names, name);
    if (interned != NULL || PyErr_Occurred())
        return interned;
    if (PyDict_GET_SIZE(interned_names) >= MOST_NAMES)
        return NULL;
    interned = intern_copy(name);
    if (interned == NULL)
        return NULL;
    const int status = PyDict_SetItem(interned_names, interned, interned);
    Py_DECREF(interned); /* the dict keeps it as long as the process lives */
    return status < 0 ? NULL : interned;
}

static int read_slice(Reading *reading, PySliceObject *slice, int depth)
{
    int outcome = add_pair(reading, SLICE, 0);
    /* borrowed: a slice does not change */
    PyObject *parts[] = {slice->start, slice->stop, slice->step};
    for (int at = 0; outcome == READ && at < 3; at++)
        outcome = read_item(reading, parts[at], depth + 1);
    return outcome;
}

static int read_dict(Reading *reading, PyObject *items, int depth)
{
    PyObject *name, *item;
    Py_ssize_t at = 0;
    Py_ssize_t size = PyDict_GET_SIZE(items);
    if (reading->names == NULL || size > LONGEST_LIST || depth >= DEEPEST)
        return LEAVE_TO_PYTHON;
    int outcome = add_pair(reading, DICT, size);
    while (outcome == READ && PyDict_Next(items, &at, &name, &item)) {
        if (PyDict_GET_SIZE(items) != size || !PyUnicode_CheckExact(name)
            || !PyUnicode_CHECK_INTERNED(name))
            /* a key that is no plain name, or code that ran meanwhile has changed the dict */
            return LEAVE_TO_PYTHON;
        if (PyList_Append(reading->names, name) < 0)
            return ERROR;
        outcome = add_pair(reading, NAMED, (int64_t)(intptr_t)name);
        Py_INCREF(item); /* the dict may be changed by what we call */
        if (outcome == READ)
            outcome = read_item(reading, item, depth + 1);
        Py_DECREF(item);
    }
    return outcome;
}

static int read_int(Reading *reading, PyObject *item)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(item, &overflow);
    return overflow ? LEAVE_TO_PYTHON : add_pair(reading, INT, number);
}

/* Return whether all objects of a class are shown as one text, such as <Conv2d>; -1 error. Python
 * decides this once for each class, and keeps the class alive. */
static int is_opaque_class(Engine *engine, PyTypeObject *cls)
{
    const int64_t address = (int64_t)(intptr_t)cls;
    uint64_t hash;
    const int64_t known = table_find(&engine->opaque, &address, 1, &hash);
    if (known != NONE)
        return (int)known;
    const int is_opaque = as_truth(PyObject_CallOneArg(engine->is_opaque, (PyObject *)cls));
    if (is_opaque < 0 || table_add(&engine->opaque, &address, 1, hash, is_opaque) < 0)
        return -1;
    return is_opaque;
}

/* Read an object that is shown only as the name of its class. */
static int read_opaque(Reading *reading, PyObject *item, int depth)
{
    /* More is shown of some objects that a variable itself holds (variables.c: form_of_class). */
    if (reading->log == NULL && depth == 0)
        return LEAVE_TO_PYTHON;
    const int is_opaque = is_opaque_class(reading->engine, Py_TYPE(item));
    if (is_opaque < 0)
        return ERROR;
    reading->has_classes = 1;
    if (!is_opaque)
        return LEAVE_TO_PYTHON;
    return add_pair(reading, OPAQUE, (int64_t)(intptr_t)Py_TYPE(item));
}

/* Read a function, which is shown as <function name>. Only an interned name may be in a key. */
static int read_function(Reading *reading, const PyFunctionObject *function)
{
    PyObject *name = function->func_name; /* borrowed from the function */
    if (!PyUnicode_CHECK_INTERNED(name))
        return LEAVE_TO_PYTHON;
    return add_pair(reading, FUNCTION, (int64_t)(intptr_t)name);
}

static int read_float(Reading *reading, PyObject *item)
{
    const double number = PyFloat_AS_DOUBLE(item);
    int64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return add_pair(reading, FLOAT, bits);
}

/* The hash of a device comes from its type and index, so it differs for different devices.
 * */
static int read_device(Reading *reading, PyObject *item)
{
    const Py_hash_t hash = PyObject_Hash(item);
    return hash == -1 ? ERROR : add_pair(reading, DEVICE, hash);
}

/* Read one value. A key can hold:
 *
 *   - plain tensors, ints up to 64 bits, floats, None, True, False and Ellipsis
 *   - interned text (another text with an equal value may be another object)
 *   - dtypes, layouts, memory formats, devices, and functions with an interned name
 *   - slices, sizes, lists, tuples and dicts of these
 *   - objects that are shown only as the name of their class
 */
static int read_item(Reading *reading, PyObject *item, int depth)
{
    PyTypeObject *cls = Py_TYPE(item);
    const int64_t address = (int64_t)(intptr_t)item;
    if (is_plain_tensor(item))
        return read_tensor(reading, item);
    if (cls == &PyLong_Type)
        return read_int(reading, item);
    if (item == Py_None || item == Py_True || item == Py_False || item == Py_Ellipsis)
        return add_pair(reading, CONSTANT, address);
    if (cls == &PyTuple_Type)
        return read_items(reading, TUPLE, item, depth);
    if (cls == &PyList_Type)
        return read_items(reading, LIST, item, depth);
    if (cls == &PyFloat_Type)
        return read_float(reading, item);
    if (cls == &PyUnicode_Type)
        return PyUnicode_CHECK_INTERNED(item) ? add_pair(reading, OBJECT, address)
                                              : LEAVE_TO_PYTHON;
    if (is_torch_constant(item))
        return add_pair(reading, OBJECT, address);
    if (cls == &PyFunction_Type)
        return read_function(reading, (PyFunctionObject *)item);
    if (cls == &PySlice_Type)
        return read_slice(reading, (PySliceObject *)item, depth);
    if (cls == &PyDict_Type)
        return read_dict(reading, item, depth);
    if ((PyObject *)cls == torch.size_type)
        return read_items(reading, SIZE, item, depth);
    if ((PyObject *)cls == torch.device_type)
        return read_device(reading, item);
    return read_opaque(reading, item, depth);
}

/* Append the objects whose addresses are in the key to `kept`, since they must live as long as the
 * key. Python keeps the classes (../forms.py: Readers). */
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

/* Append ids to the log, and set `first` to the number of the first one. If the log has no room,
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

/* Append a list of ids to the log. */
static int put_id_list(Log *log, PyObject *list, int64_t *first)
{
    const Py_ssize_t count = PyList_GET_SIZE(list);
    if (count == 0)
        return 0;
    int64_t *ids = PyMem_Malloc((size_t)count * sizeof *ids);
    if (ids == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        ids[at] = PyLong_AsLongLong(PyList_GET_ITEM(list, at));
    const int status = PyErr_Occurred() ? -1 : put_ids(log, ids, count, first);
    PyMem_Free(ids);
    return status;
}

/* Take Python's answer for a value that C cannot read: (number of the form, [id of a tensor, ...]).
 * Append the ids, drop the answer and return the number. */
static int64_t take_answer(Log *log, PyObject *answer, int64_t *first)
{
    if (answer == NULL)
        return FAILED;
    long long number;
    PyObject *list;
    int64_t result = FAILED;
    if (PyArg_ParseTuple(answer, "LO!", &number, &PyList_Type, &list)
        && put_id_list(log, list, first) == 0)
        result = number;
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

/* Let Python read the whole call. */
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

/* ---------------------------------------------------------------- forms that are new to a session
 *
 *   number_of_new_key   the number of a key's form in this session, cached in engine->forms
 *     form_of_key       the form and its bytes. Python makes them once for the whole process,
 *                       because programs use the same few forms in every recording.
 *     intern            the number that the session gave to this form. A new form gets a new
 *                       number and a row in the journal.
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

static int make_process_lists(void)
{
    if (process_forms == NULL)
        process_forms = PyList_New(0);
    if (process_kept == NULL)
        process_kept = PyList_New(0);
    return process_forms == NULL || process_kept == NULL ? -1 : 0;
}

/* Return (form, bytes of its row), owned. */
static PyObject *form_of_key(Engine *engine, const Reading *reading, uint64_t hash,
                             const FormMaker *maker)
{
    uint64_t same;
    int64_t place = table_find(&form_places, reading->key, reading->length, &same);
    if (place != NONE)
        return Py_NewRef(PyList_GET_ITEM(process_forms, place));
    PyObject *form = call_unseen(maker->make_form, maker->first, maker->second);
    if (form == NULL)
        return NULL;
    PyObject *bytes = PyObject_CallOneArg(engine->form_bytes, form);
    PyObject *pair = bytes == NULL ? NULL : PyTuple_Pack(2, form, bytes);
    Py_XDECREF(bytes);
    Py_DECREF(form);
    if (pair != NULL && (make_process_lists() < 0 || remember_form(reading, hash, pair) < 0))
        Py_CLEAR(pair);
    return pair;
}

/* Write the row of a new form, and return its number as a Python int, owned. */
static PyObject *write_form(Engine *engine, PyObject *form, PyObject *bytes)
{
    if (!PyBytes_Check(bytes))
        return NULL;
    PyObject *number = PyIter_Next(engine->form_numbers);
    if (number == NULL)
        return NULL;
    RowFields *rows = (RowFields *)engine->passing;
    if (add_journal_row(rows, FORM_ROW, PyLong_AsLongLong(number), PyBytes_AS_STRING(bytes),
                        PyBytes_GET_SIZE(bytes))
            < 0
        || PyDict_SetItem(engine->form_ids, form, number) < 0)
        Py_CLEAR(number);
    return number;
}

/* Return the number of a form in this session. A new form gets a number and a row (../forms.py:
 * intern). */
static int64_t intern(Engine *engine, PyObject *form, PyObject *bytes)
{
    PyObject *number = Py_XNewRef(PyDict_GetItemWithError(engine->form_ids, form));
    if (number == NULL && !PyErr_Occurred())
        number = write_form(engine, form, bytes);
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
    int outcome = READ;
    while (outcome == READ && PyDict_Next(kwargs, &at, &name, &item)) {
        name = interned_name(name);
        if (name == NULL || PyDict_GET_SIZE(kwargs) != size)
            return PyErr_Occurred() ? ERROR : LEAVE_TO_PYTHON;
        outcome = add_pair(reading, NAMED, (int64_t)(intptr_t)name);
        Py_INCREF(item); /* the dict may be changed by what we call */
        if (outcome == READ)
            outcome = read_item(reading, item, 0);
        Py_DECREF(item);
    }
    return outcome;
}

int64_t form_number_of_call(Engine *engine, Log *log, PyObject *const *args, Py_ssize_t count,
                            PyObject *kwargs, int64_t *first)
{
    Reading reading;
    uint64_t hash;
    begin_reading(&reading, engine, log, 0);
    /* also of a call without tensors, as in Python: there its ids would begin */
    *first = log->id_base + log->id_at;
    int outcome = add_pair(&reading, INT, count);
    for (Py_ssize_t at = 0; outcome == READ && at < count; at++)
        outcome = read_item(&reading, args[at], 0);
    if (outcome == READ && kwargs != NULL)
        outcome = read_named_arguments(&reading, kwargs);
    if (outcome == ERROR)
        return FAILED;
    if (outcome == LEAVE_TO_PYTHON)
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
    int outcome = add_pair(&reading, RESULT_OF, 1);
    if (outcome == READ)
        outcome = read_item(&reading, result, 0);
    if (outcome == ERROR)
        return FAILED;
    if (outcome == LEAVE_TO_PYTHON)
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

/* Return the number of an int's form, and the form, (1, value), owned. It is not remembered for the
 * process, because a loop may count through any number of ints. */
static int64_t form_of_int(Engine *engine, const Reading *reading, PyObject *value, PyObject **form)
{
    uint64_t hash;
    int64_t number = table_find(&engine->forms, reading->key, reading->length, &hash);
    const int64_t generation = engine->form_generation;
    *form = Py_BuildValue("(iO)", 1, value);
    if (*form == NULL)
        return FAILED;
    if (number != NONE)
        return number;
    number = number_of_form(engine, *form);
    if (number == FAILED || generation != engine->form_generation)
        return number;
    if (table_add(&engine->forms, reading->key, reading->length, hash, number) < 0)
        return FAILED;
    return number;
}

/* Return the number of the form of a variable's value that was read, and the form, owned. */
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
    if (PyDict_CheckExact(value) || PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
        reading.names = PyList_New(0);
        if (reading.names == NULL)
            return FAILED;
    }
    int outcome = add_pair(&reading, RESULT_OF, 1);
    if (outcome == READ)
        outcome = read_item(&reading, value, 0);
    int64_t number = outcome == ERROR ? FAILED : NONE;
    if (outcome == READ && reading.id_count <= MOST_HELD) {
        memcpy(ids, reading.ids, (size_t)reading.id_count * 8);
        *count = reading.id_count;
        number = number_of_variable(engine, &reading, value, form);
    }
    Py_XDECREF(reading.names);
    if (number == FAILED)
        Py_CLEAR(*form);
    return number;
}
