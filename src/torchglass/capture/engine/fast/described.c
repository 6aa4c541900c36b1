/* What a module shows of itself (torch/modules.py, settings.py): its settings, and the values of its parameters.
 *
 * Programs have the same few kinds of modules in every recording: the text that Python made of a module's settings is
 * kept for the process, by all that it can depend on. A class is known by its version, which changes with the class and
 * is never given twice; so no class is kept alive.
 */
#include "fast.h"

#define DESCRIBED_ROW 13 /* a kind of row (journal/layout.py) */
#define MOST_WORDS 256
#define MOST_KNOWN 4096
#define LONGEST_TUPLE 16

static PyObject *parameters_name;

int described_ready(void)
{
    return (parameters_name = PyUnicode_InternFromString("_parameters")) == NULL ? -1 : 0;
}

/* ---------------------------------------------------------------- bytes that grow */

typedef struct { char *bytes; Py_ssize_t length, room; } Text;

static int append(Text *text, const void *bytes, Py_ssize_t length)
{
    if (text->length + length > text->room) {
        Py_ssize_t room = 2 * text->room + length + 512;
        char *more = PyMem_Realloc(text->bytes, (size_t)room);
        if (more == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        text->bytes = more;
        text->room = room;
    }
    memcpy(text->bytes + text->length, bytes, (size_t)length);
    text->length += length;
    return 0;
}

static int append_number(Text *text, int64_t number)
{
    char digits[LONGEST_NUMBER];
    return append(text, digits, put_number(digits, number) - digits);
}

/* What stands in a row, of ASCII alone. */
static int append_ascii(Text *text, PyObject *word)
{
    if (!PyUnicode_Check(word) || !PyUnicode_IS_COMPACT_ASCII(word)) {
        PyErr_SetString(PyExc_TypeError, "what stands in a row is ASCII");
        return -1;
    }
    return append(text, PyUnicode_1BYTE_DATA(word), PyUnicode_GET_LENGTH(word));
}

/* ---------------------------------------------------------------- parameters */

/* A parameter: `,"weight",12`. */
static int append_parameter(Engine *engine, Text *all, PyObject *name, PyObject *parameter)
{
    int64_t value = value_of(engine, parameter);
    if (value == FAILED)
        return -1;
    if (is_plain_text(name)) {
        if (append(all, ",\"", 2) < 0 || append_ascii(all, name) < 0 || append(all, "\",", 2) < 0)
            return -1;
        return append_number(all, value);
    }
    PyObject *quoted = PyObject_CallOneArg(engine->quoted, name);
    int done = quoted == NULL || append(all, ",", 1) < 0 || append_ascii(all, quoted) < 0 || append(all, ",", 1) < 0 ? -1 : 0;
    Py_XDECREF(quoted);
    return done < 0 ? -1 : append_number(all, value);
}

/* Names and values by turns, as they stand in a row. */
static PyObject *parameters_of(Engine *engine, PyObject *module)
{
    PyObject *held_ones = held(module, parameters_name), *name, *parameter;
    Py_ssize_t at = 0, size = held_ones == NULL ? 0 : PyDict_GET_SIZE(held_ones);
    Text all = {NULL, 0, 0};
    int done = 0;
    while (done == 0 && size && PyDict_GET_SIZE(held_ones) == size && PyDict_Next(held_ones, &at, &name, &parameter)) {
        if (parameter == Py_None)
            continue;
        Py_INCREF(name); /* what is read here may run code */
        Py_INCREF(parameter);
        done = append_parameter(engine, &all, name, parameter);
        Py_DECREF(parameter);
        Py_DECREF(name);
    }
    PyObject *found = done < 0 ? NULL : PyUnicode_FromKindAndData(PyUnicode_1BYTE_KIND, all.bytes, all.length);
    PyMem_Free(all.bytes);
    Py_XDECREF(held_ones);
    return found;
}

/* Of a module below a root, whose settings are read with those of the others: 1 done, 0 Python's affair, -1 error. */
int describe_module(Engine *engine, Log *log, int64_t number, PyObject *module)
{
    ModuleRow *row = log->listening ? NULL : (ModuleRow *)Py_XNewRef((PyObject *)module_row(engine, number));
    int done = PyErr_Occurred() ? -1 : 0;
    if (row != NULL && row->root != NONE) {
        done = 1;
        if (!row->described) {
            row->described = 1;
            int64_t cls = class_row(engine, (PyObject *)Py_TYPE(module)); /* lazy ones change theirs */
            PyObject *found = cls == FAILED ? NULL : parameters_of(engine, module);
            if (found != NULL) {
                row->cls = cls;
                Py_XSETREF(row->parameters, Py_NewRef(found));
            }
            if (found == NULL || PyList_Append(log->unread, (PyObject *)row) < 0)
                done = -1;
            Py_XDECREF(found);
        }
    }
    Py_XDECREF((PyObject *)row);
    return done;
}

/* ---------------------------------------------------------------- settings that were read before */

enum { ATOM = 1, NUMBER, REAL, TUPLE, OTHER, GIVEN };
enum { NEVER, BY_NAMES, BY_TORCH }; /* what Python says of a text: what it can depend on (settings.py) */

static Table known; /* words → a place in the list */
static PyObject *known_texts, *known_words; /* lists; the second keeps what keys refer to */

typedef struct {
    int64_t words[MOST_WORDS];
    Py_ssize_t length;
    int has_others; /* something that is told by more than its own value */
} Key;

static int add(Key *key, int64_t tag, int64_t word)
{
    if (key->length + 2 > MOST_WORDS)
        return 0;
    key->words[key->length++] = tag;
    key->words[key->length++] = word;
    return 1;
}

static int add_value(Key *key, PyObject *value, int depth)
{
    PyTypeObject *cls = Py_TYPE(value);
    if (value == Py_None || cls == &PyBool_Type || (cls == &PyUnicode_Type && PyUnicode_CHECK_INTERNED(value)))
        return add(key, ATOM, (int64_t)(intptr_t)value);
    if (cls == &PyLong_Type) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        return !overflow && add(key, NUMBER, number);
    }
    if (cls == &PyFloat_Type) {
        double number = PyFloat_AS_DOUBLE(value);
        int64_t bits;
        memcpy(&bits, &number, 8);
        return add(key, REAL, bits);
    }
    if (cls == &PyUnicode_Type)
        return 0; /* an address would not tell */
    if (cls == &PyTuple_Type && depth == 0 && PyTuple_GET_SIZE(value) <= LONGEST_TUPLE) {
        int done = add(key, TUPLE, PyTuple_GET_SIZE(value));
        for (Py_ssize_t at = 0; done && at < PyTuple_GET_SIZE(value); at++)
            done = add_value(key, PyTuple_GET_ITEM(value, at), 1);
        return done;
    }
    key->has_others = 1;
    return add(key, OTHER, 0);
}

/* nn.Module's own tables, which no layer shows: most of what a module holds. */
static int is_table(PyObject *name, PyObject *value)
{
    return (PyDict_Check(value) || PyAnySet_CheckExact(value)) && name != parameters_name
           && PyUnicode_IS_COMPACT_ASCII(name) && PyUnicode_1BYTE_DATA(name)[0] == '_';
}

/* Which parameters there are: some layers show whether they have a bias. */
static int add_parameters(Key *key, PyObject *parameters)
{
    PyObject *name, *parameter;
    Py_ssize_t at = 0;
    while (PyDict_Next(parameters, &at, &name, &parameter))
        if (!PyUnicode_CheckExact(name) || !PyUnicode_CHECK_INTERNED(name)
            || !add(key, parameter == Py_None ? OTHER : GIVEN, (int64_t)(intptr_t)name))
            return 0;
    return 1;
}

/* All that the settings of a module can depend on; 0: it is not so simple. Runs no code. */
static int read_key(Key *key, PyObject *module)
{
    PyObject *own = PyObject_GenericGetDict(module, NULL), *name, *value;
    Py_ssize_t at = 0;
    int done = own != NULL && Py_TYPE(module)->tp_version_tag != 0;
    key->length = key->has_others = 0;
    PyErr_Clear();
    if (done)
        done = add(key, Py_TYPE(module)->tp_version_tag, 0);
    while (done && PyDict_Next(own, &at, &name, &value)) {
        done = PyUnicode_CheckExact(name) && PyUnicode_CHECK_INTERNED(name);
        if (!done || is_table(name, value))
            continue;
        done = add(key, ATOM, (int64_t)(intptr_t)name);
        if (done)
            done = name == parameters_name && PyDict_CheckExact(value) ? add_parameters(key, value)
                                                                       : add_value(key, value, 0);
    }
    Py_XDECREF(own);
    return done;
}

/* The same in three words, so that what a module holds need not be looked at in each block: the versions of its class, of
 * its dictionary and of that of its parameters. Nothing that a key is made of changes without one of them. */
static Table by_versions;
enum { VERSIONS = 3 };

/* 0: a version is not to be had. Runs no code. */
static int read_versions(int64_t words[VERSIONS], PyObject *module)
{
    PyObject *own = PyObject_GenericGetDict(module, NULL);
    PyObject *parameters = own == NULL ? NULL : PyDict_GetItemWithError(own, parameters_name); /* borrowed from it */
    words[0] = Py_TYPE(module)->tp_version_tag;
    words[1] = own == NULL ? 0 : (int64_t)version_of_dict(own);
    words[2] = parameters == NULL || !PyDict_CheckExact(parameters) ? 0 : (int64_t)version_of_dict(parameters);
    Py_XDECREF(own);
    PyErr_Clear();
    return words[0] != 0 && words[1] != 0 && words[2] != 0;
}

/* Versions of what has changed since are of no use: all go when there are many. */
static int keep_versions(const int64_t words[VERSIONS], uint64_t hash, int64_t place)
{
    if (by_versions.count >= MOST_KNOWN)
        table_clear(&by_versions);
    return table_add(&by_versions, words, VERSIONS, hash, place);
}

/* Objects whose addresses stand in a key live as long as it. */
static int keep_words(const Key *key)
{
    for (Py_ssize_t at = 2; at + 1 < key->length; at += 2) {
        int64_t tag = key->words[at], word = key->words[at + 1];
        if ((tag == ATOM || tag == GIVEN || tag == OTHER) && word != 0
            && PyList_Append(known_words, (PyObject *)(intptr_t)word) < 0)
            return -1;
    }
    return 0;
}

static int keep_text(const Key *key, uint64_t hash, PyObject *text)
{
    uint64_t same;
    if ((known_texts == NULL && (known_texts = PyList_New(0)) == NULL)
        || (known_words == NULL && (known_words = PyList_New(0)) == NULL))
        return -1;
    if (PyList_GET_SIZE(known_texts) >= MOST_KNOWN || table_find(&known, key->words, key->length, &same) != NONE)
        return 0;
    if (keep_words(key) < 0 || PyList_Append(known_texts, text) < 0)
        return -1;
    return table_add(&known, key->words, key->length, hash, PyList_GET_SIZE(known_texts) - 1);
}

/* ---------------------------------------------------------------- reading them */

/* The settings of a module that does not look as it did in an earlier block; Python says of what is new what it depends on. */
static PyObject *ask_settings(Engine *engine, ModuleRow *row, PyObject *module, PyObject *classes, const int64_t *versions)
{
    Key key;
    uint64_t hash, versions_hash;
    int is_simple = read_key(&key, module);
    int64_t place = is_simple ? table_find(&known, key.words, key.length, &hash) : NONE;
    if (place != NONE) {
        if (versions != NULL && table_find(&by_versions, versions, VERSIONS, &versions_hash) == NONE
            && keep_versions(versions, versions_hash, place) < 0)
            return NULL;
        return Py_NewRef(PyList_GET_ITEM(known_texts, place));
    }
    PyObject *answer = PyObject_CallFunctionObjArgs(engine->settings, (PyObject *)row, classes, NULL), *text = NULL;
    int depends;
    if (answer != NULL && PyArg_ParseTuple(answer, "Ui", &text, &depends)) {
        Py_INCREF(text);
        if (is_simple && (depends == BY_NAMES || (depends == BY_TORCH && !key.has_others))) {
            Key again; /* the program may have changed it meanwhile */
            if (read_key(&again, module) && again.length == key.length
                && memcmp(again.words, key.words, (size_t)key.length * 8) == 0 && keep_text(&key, hash, text) < 0)
                Py_CLEAR(text);
        }
    }
    Py_XDECREF(answer);
    return text;
}

/* The settings of a module, between quotes; owned. */
static PyObject *settings_of(Engine *engine, ModuleRow *row, PyObject *module, PyObject *classes)
{
    int64_t versions[VERSIONS];
    uint64_t hash;
    const int has_versions = read_versions(versions, module);
    const int64_t place = has_versions ? table_find(&by_versions, versions, VERSIONS, &hash) : NONE;
    if (place != NONE)
        return Py_NewRef(PyList_GET_ITEM(known_texts, place));
    return ask_settings(engine, row, module, classes, has_versions ? versions : NULL);
}

/* `[number,class,"settings",names and values of parameters]` */
static int append_described(Engine *engine, Text *all, ModuleRow *row, PyObject *classes)
{
    PyObject *module = referent(row->module);
    PyObject *settings = module == NULL ? PyUnicode_FromString("\"\"") : settings_of(engine, row, module, classes);
    const Py_ssize_t before = all->length;
    int done = settings == NULL ? -1 : 0;
    if (done == 0
        && (append(all, before ? ",[" : "[[[", before ? 2 : 3) < 0 || append_number(all, row->number) < 0
            || append(all, ",", 1) < 0 || append_number(all, row->cls) < 0 || append(all, ",", 1) < 0
            || append_ascii(all, settings) < 0 || append_ascii(all, row->parameters) < 0 || append(all, "]", 1) < 0)) {
        all->length = before;
        done = -1;
    }
    Py_XDECREF(settings);
    Py_XDECREF(module);
    return done;
}

int read_settings(Engine *engine, Log *log)
{
    Text all = {NULL, 0, 0};
    PyObject *classes = PyDict_New(), *error = NULL;
    int done = classes == NULL ? -1 : 0;
    Py_ssize_t count;
    while (done == 0 && (count = PyList_GET_SIZE(log->unread)) > 0) {
        PyObject *row = Py_NewRef(PyList_GET_ITEM(log->unread, count - 1));
        done = PyList_SetSlice(log->unread, count - 1, count, NULL); /* first: what is read here may come back */
        if (done == 0 && Py_TYPE(row) == &ModuleRowType && append_described(engine, &all, (ModuleRow *)row, classes) < 0)
            done = forgive(engine);
        Py_DECREF(row);
    }
    if (done < 0)
        error = take_error();
    if (all.length && (append(&all, "]]", 2) < 0
                       || add_journal_row((RowFields *)engine->rows, DESCRIBED_ROW, 0, all.bytes, all.length) < 0))
        done = -1;
    if (error != NULL) { /* the program's own */
        PyErr_Clear();
        put_error(error);
    }
    PyMem_Free(all.bytes);
    Py_XDECREF(classes);
    return done;
}
