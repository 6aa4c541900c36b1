/* How arguments and results stood (forms.py), as sequences of words: what was met before is a number at once.
 *
 * A word is a tag, or what belongs to the tag before it. Only what is told apart by a few words is read here: tensors,
 * ints, floats, None, True, False, text that Python interned, dtypes and their like, functions by their names, slices,
 * lists, tuples and dicts of these, and what is shown as the name of its class alone. A call with anything else is described by Python as a whole.
 */
#include "fast.h"

enum { TENSOR = 1, INT, FLOAT, CONSTANT, OBJECT, LIST, TUPLE, SIZE, SLICE, DEVICE, NAMED, RESULT_OF, OPAQUE, DICT, FUNCTION };
#define FORM_ROW 8 /* a kind of row (journal/layout.py) */
#define MOST_WORDS 512
#define LONGEST_LIST 64
#define DEEPEST 8

typedef struct {
    Engine *engine;
    Log *log;
    int from_op, has_classes; /* the second: a class stands in the words, which must be able to go with its session */
    int64_t words[MOST_WORDS];
    Py_ssize_t length;
    int64_t ids[LONGEST_LIST + 8];
    Py_ssize_t id_count;
    PyObject *names; /* a list that holds the keys of dicts, which may go meanwhile; NULL: dicts are Python's affair */
} Reading;

enum { READ, NOT_HERE, ERROR };

/* Nothing is read yet; not cleared as a whole, since most of it is room. `log` is NULL where a variable is read. */
static void begin(Reading *reading, Engine *engine, Log *log, int from_op)
{
    reading->engine = engine;
    reading->log = log;
    reading->from_op = from_op;
    reading->has_classes = 0;
    reading->length = reading->id_count = 0;
    reading->names = NULL;
}

static int add(Reading *reading, int64_t tag, int64_t word)
{
    if (reading->length + 2 > MOST_WORDS)
        return NOT_HERE;
    reading->words[reading->length++] = tag;
    reading->words[reading->length++] = word;
    return READ;
}

static int read_tensor(Reading *reading, PyObject *tensor)
{
    if (reading->id_count >= (Py_ssize_t)(sizeof reading->ids / sizeof reading->ids[0]))
        return NOT_HERE;
    int64_t value = reading->from_op ? made_value(reading->engine, tensor) : plain_value_of(reading->engine, tensor);
    if (value == FAILED)
        return ERROR;
    reading->ids[reading->id_count++] = value;
    return add(reading, TENSOR, 0);
}

static int is_word(PyObject *object)
{
    for (int at = 0; at < torch.word_count; at++)
        if ((PyObject *)Py_TYPE(object) == torch.words[at])
            return 1;
    return 0;
}

static int read_item(Reading *reading, PyObject *item, int depth);

static int read_items(Reading *reading, int64_t tag, PyObject *items, int depth)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    if (count > LONGEST_LIST || depth >= DEEPEST)
        return NOT_HERE;
    int done = add(reading, tag, count);
    for (Py_ssize_t at = 0; done == READ && at < count; at++) {
        if (at >= PySequence_Fast_GET_SIZE(items))
            return NOT_HERE; /* somebody has shortened the list meanwhile */
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(items, at)); /* the list may be changed by what we call */
        done = read_item(reading, item, depth + 1);
        Py_DECREF(item);
    }
    return done;
}

#define MOST_NAMES 1024
#define LONGEST_NAME 32
static PyObject *names_kept; /* a dict: names that are not interned → the same, interned */

/* The object that stands for a name, borrowed from who passed it or from the names that are kept; NULL: there is none.
 * Python interns the names that a program writes; those that torch's C++ passes to an op are made anew each time. */
static PyObject *one_name(PyObject *name)
{
    if (!PyUnicode_CheckExact(name) || PyUnicode_CHECK_INTERNED(name))
        return PyUnicode_CheckExact(name) ? name : NULL;
    Py_ssize_t length = PyUnicode_GET_LENGTH(name);
    if (!PyUnicode_IS_COMPACT_ASCII(name) || length > LONGEST_NAME
        || (names_kept == NULL && (names_kept = PyDict_New()) == NULL))
        return NULL;
    PyObject *known = PyDict_GetItemWithError(names_kept, name);
    if (known != NULL || PyErr_Occurred() || PyDict_GET_SIZE(names_kept) >= MOST_NAMES)
        return known;
    known = PyUnicode_FromStringAndSize((const char *)PyUnicode_1BYTE_DATA(name), length); /* theirs stays as it is */
    if (known == NULL)
        return NULL;
    PyUnicode_InternInPlace(&known);
    const int done = PyDict_SetItem(names_kept, known, known);
    Py_DECREF(known); /* the dict has it, for ever */
    return done < 0 ? NULL : known;
}

static int read_slice(Reading *reading, PySliceObject *slice, int depth)
{
    int done = add(reading, SLICE, 0);
    PyObject *parts[] = {slice->start, slice->stop, slice->step}; /* borrowed: a slice does not change */
    for (int at = 0; done == READ && at < 3; at++)
        done = read_item(reading, parts[at], depth + 1);
    return done;
}

static int read_dict(Reading *reading, PyObject *items, int depth)
{
    PyObject *name, *item;
    Py_ssize_t at = 0, size = PyDict_GET_SIZE(items);
    if (reading->names == NULL || size > LONGEST_LIST || depth >= DEEPEST)
        return NOT_HERE;
    int done = add(reading, DICT, size);
    while (done == READ && PyDict_Next(items, &at, &name, &item)) {
        if (PyDict_GET_SIZE(items) != size || !PyUnicode_CheckExact(name) || !PyUnicode_CHECK_INTERNED(name))
            return NOT_HERE; /* other keys; or somebody has changed it meanwhile */
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
    return overflow ? NOT_HERE : add(reading, INT, number);
}

/* What is shown as the name of its class alone; asked of Python, which keeps the class, once for each. */
static int read_opaque(Reading *reading, PyObject *item, int depth)
{
    if (reading->log == NULL && depth == 0)
        return NOT_HERE; /* what a variable holds itself: there more is told of some classes (variables.c: form_of_class) */
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
    return is_opaque ? add(reading, OPAQUE, cls) : NOT_HERE;
}

/* `<function name>` */
static int read_function(Reading *reading, const PyFunctionObject *function)
{
    PyObject *name = function->func_name; /* borrowed; one that is not interned may go */
    return PyUnicode_CHECK_INTERNED(name) ? add(reading, FUNCTION, (int64_t)(intptr_t)name) : NOT_HERE;
}

static int read_item(Reading *reading, PyObject *item, int depth)
{
    PyTypeObject *cls = Py_TYPE(item);
    if (cls == torch.Tensor || cls == torch.Parameter)
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
    if ((cls == &PyUnicode_Type && PyUnicode_CHECK_INTERNED(item)) || is_word(item))
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
        Py_hash_t device = PyObject_Hash(item); /* made of type and index: tells devices apart */
        return device == -1 ? ERROR : add(reading, DEVICE, device);
    }
    if (cls == &PyUnicode_Type || cls == &PyDict_Type)
        return NOT_HERE;
    return read_opaque(reading, item, depth);
}

/* Objects whose addresses stand in a key must live as long as it; classes do (forms.py: Readers). */
static int keep_objects(PyObject *kept, const Reading *reading)
{
    for (Py_ssize_t at = 0; at + 1 < reading->length; at += 2)
        if ((reading->words[at] == OBJECT || reading->words[at] == NAMED || reading->words[at] == FUNCTION)
            && PyList_Append(kept, (PyObject *)(intptr_t)reading->words[at + 1]) < 0)
            return -1;
    return 0;
}

static int put_ids(Log *log, const Reading *reading, int64_t *first)
{
    int64_t begin = add_ids(log, reading->ids, reading->id_count);
    if (begin == FAILED)
        return -1;
    if (begin != NONE)
        *first = begin;
    return 0;
}

/* Python describes all of it: (number of the form, list of values). */
static int64_t take_described(Log *log, PyObject *answer, int64_t *first)
{
    if (answer == NULL)
        return FAILED;
    long long number;
    PyObject *found;
    int64_t result = FAILED, *ids = NULL;
    if (PyArg_ParseTuple(answer, "LO!", &number, &PyList_Type, &found)) {
        Py_ssize_t count = PyList_GET_SIZE(found);
        ids = PyMem_Malloc((size_t)(count + 1) * 8);
        if (ids == NULL)
            PyErr_NoMemory();
        for (Py_ssize_t at = 0; ids != NULL && at < count; at++)
            ids[at] = PyLong_AsLongLong(PyList_GET_ITEM(found, at));
        if (!PyErr_Occurred()) {
            int64_t begin = count ? add_ids(log, ids, count) : NONE;
            if (begin != FAILED)
                result = number;
            if (begin != FAILED && begin != NONE)
                *first = begin;
        }
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

static int64_t described_call(Engine *engine, Log *log, PyObject *const *args, Py_ssize_t count, PyObject *kwargs, int64_t *first)
{
    PyObject *packed = pack(args, count);
    if (packed == NULL)
        return FAILED;
    PyObject *answer = call_unseen(engine->describe_call, packed, kwargs == NULL ? Py_None : kwargs);
    Py_DECREF(packed);
    return take_described(log, answer, first);
}

/* ---------------------------------------------------------------- forms that are new in this session
 *
 * Programs use the same few in every recording: what Python made of a sequence of words is kept for the process. */

#define MOST_KNOWN 4096
static Table known; /* words → a place in the list */
static PyObject *known_forms, *known_objects; /* lists: pairs of a form and its bytes; what keys refer to */

/* Python's form of what was read, and its bytes, as it was before, or as `make` says of these arguments. Owned. */
static PyObject *find_form(Engine *engine, const Reading *reading, uint64_t hash, PyObject *make, PyObject *const *given)
{
    uint64_t same;
    int64_t place = table_find(&known, reading->words, reading->length, &same);
    if (place != NONE)
        return Py_NewRef(PyList_GET_ITEM(known_forms, place));
    PyObject *form = call_unseen(make, given[0], given[1]);
    PyObject *bytes = form == NULL ? NULL : PyObject_CallOneArg(engine->form_bytes, form);
    PyObject *pair = bytes == NULL ? NULL : PyTuple_Pack(2, form, bytes);
    Py_XDECREF(bytes);
    Py_XDECREF(form);
    if (pair == NULL || (known_forms == NULL && (known_forms = PyList_New(0)) == NULL)
        || (known_objects == NULL && (known_objects = PyList_New(0)) == NULL)) {
        Py_XDECREF(pair);
        return NULL;
    }
    if (!reading->has_classes && PyList_GET_SIZE(known_forms) < MOST_KNOWN
        && table_find(&known, reading->words, reading->length, &same) == NONE
        && (keep_objects(known_objects, reading) < 0 || PyList_Append(known_forms, pair) < 0
            || table_add(&known, reading->words, reading->length, hash, PyList_GET_SIZE(known_forms) - 1) < 0))
        Py_CLEAR(pair);
    return pair;
}

/* The number of a form in this session, given now if it is new (forms.py: intern). */
static int64_t intern(Engine *engine, PyObject *form, PyObject *bytes)
{
    PyObject *number = Py_XNewRef(PyDict_GetItemWithError(engine->form_ids, form));
    if (number == NULL && !PyErr_Occurred() && PyBytes_Check(bytes)
        && (number = PyIter_Next(engine->form_numbers)) != NULL
        && (add_journal_row((RowFields *)engine->passing, FORM_ROW, PyLong_AsLongLong(number), PyBytes_AS_STRING(bytes),
                            PyBytes_GET_SIZE(bytes)) < 0
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

/* A number that was given before all of them lost their meaning must not be remembered behind that. */
static int64_t number_of(Engine *engine, const Reading *reading, uint64_t hash, PyObject *make, PyObject *const *given)
{
    const int64_t generation = engine->form_generation;
    PyObject *pair = find_form(engine, reading, hash, make, given);
    int64_t number = pair == NULL ? FAILED : intern(engine, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
    Py_XDECREF(pair);
    if (number == FAILED || generation != engine->form_generation)
        return number;
    if (keep_objects(engine->kept, reading) < 0
        || table_add(&engine->forms, reading->words, reading->length, hash, number) < 0)
        return FAILED;
    return number;
}

static int64_t new_form_of_call(Engine *engine, const Reading *reading, uint64_t hash, PyObject *const *args,
                                Py_ssize_t count, PyObject *kwargs)
{
    PyObject *packed = pack(args, count);
    if (packed == NULL)
        return FAILED;
    PyObject *const given[] = {packed, kwargs == NULL ? Py_None : kwargs};
    int64_t number = number_of(engine, reading, hash, engine->form_of_call, given);
    Py_DECREF(packed);
    return number;
}

int64_t form_of_call(Engine *engine, Log *log, PyObject *const *args, Py_ssize_t count, PyObject *kwargs, int64_t *first)
{
    Reading reading;
    uint64_t hash;
    begin(&reading, engine, log, 0);
    *first = log->id_base + log->id_at;
    int done = add(&reading, INT, count);
    for (Py_ssize_t at = 0; done == READ && at < count; at++)
        done = read_item(&reading, args[at], 0);
    if (kwargs != NULL && done == READ) {
        PyObject *name, *item;
        Py_ssize_t at = 0, size = PyDict_GET_SIZE(kwargs);
        while (done == READ && PyDict_Next(kwargs, &at, &name, &item)) {
            if ((name = one_name(name)) == NULL || PyDict_GET_SIZE(kwargs) != size)
                done = PyErr_Occurred() ? ERROR : NOT_HERE;
            else if ((done = add(&reading, NAMED, (int64_t)(intptr_t)name)) == READ) {
                Py_INCREF(item);
                done = read_item(&reading, item, 0);
                Py_DECREF(item);
            }
        }
    }
    if (done == ERROR)
        return FAILED;
    if (done == NOT_HERE)
        return described_call(engine, log, args, count, kwargs, first);
    if (put_ids(log, &reading, first) < 0)
        return FAILED;
    int64_t number = table_find(&engine->forms, reading.words, reading.length, &hash);
    if (number != NONE)
        return number;
    return new_form_of_call(engine, &reading, hash, args, count, kwargs);
}

int64_t form_of_result(Engine *engine, Log *log, PyObject *result, int from_op, int64_t *first)
{
    Reading reading;
    uint64_t hash;
    begin(&reading, engine, log, from_op);
    *first = NONE;
    int done = add(&reading, RESULT_OF, 1);
    if (done == READ)
        done = read_item(&reading, result, 0);
    if (done == ERROR)
        return FAILED;
    if (done == NOT_HERE)
        return take_described(log, call_unseen(engine->describe_result, result, from_op ? Py_True : Py_False), first);
    if (reading.id_count && put_ids(log, &reading, first) < 0)
        return FAILED;
    int64_t number = table_find(&engine->forms, reading.words, reading.length, &hash);
    if (number != NONE)
        return number;
    PyObject *const given[] = {result, NULL};
    return number_of(engine, &reading, hash, engine->form_of_result, given);
}

/* ---------------------------------------------------------------- what a variable holds */

/* An int is its own form; not kept for the process, since a loop counts through as many as it likes. */
static int64_t form_of_int(Engine *engine, const Reading *reading, PyObject *value, PyObject **form)
{
    uint64_t hash;
    int64_t number = table_find(&engine->forms, reading->words, reading->length, &hash);
    const int64_t generation = engine->form_generation;
    if ((*form = Py_BuildValue("(iO)", 1, value)) == NULL)
        return FAILED;
    if (number != NONE)
        return number;
    number = number_of_form(engine, *form);
    if (number != FAILED && generation == engine->form_generation
        && table_add(&engine->forms, reading->words, reading->length, hash, number) < 0)
        number = FAILED;
    return number;
}

/* The number of what was read. */
static int64_t number_of_variable(Engine *engine, const Reading *reading, PyObject *value, PyObject **form)
{
    uint64_t hash;
    if (PyLong_CheckExact(value))
        return form_of_int(engine, reading, value, form);
    PyObject *const given[] = {value, NULL};
    int64_t number = table_find(&engine->forms, reading->words, reading->length, &hash);
    if (number == NONE)
        number = number_of(engine, reading, hash, engine->form_of_result, given);
    PyObject *pair = number == FAILED ? NULL : find_form(engine, reading, hash, engine->form_of_result, given);
    if (pair == NULL)
        return FAILED;
    *form = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    Py_DECREF(pair);
    return number;
}

int64_t form_of_variable(Engine *engine, PyObject *value, int64_t *ids, Py_ssize_t *count, PyObject **form)
{
    Reading reading;
    begin(&reading, engine, NULL, 0);
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
