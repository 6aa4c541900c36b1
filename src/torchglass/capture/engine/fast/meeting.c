/* The first meeting of a module (torch/modules.py): its row, and the values of its parameters.
 *
 * A model has hundreds of modules, so what most of them need is done here: those that their caller holds itself, or in
 * a list. Roots, modules that are found elsewhere, and whatever is unusual are Python's.
 */
#include "fast.h"

#define MOST_CHILDREN 256
#define LONGEST_PATH 400 /* that is spelt here */
#define MODULE_ROW 12 /* a kind of row (journal/layout.py) */

static PyObject *modules_name, *parameters_name, *module_name, *path_name, *root_name, *described_name, *class_name;
static PyObject *other_name, *number_name;

int meeting_ready(void)
{
    static const struct { PyObject **place; const char *name; } names[] = {
        {&modules_name, "_modules"}, {&parameters_name, "_parameters"}, {&module_name, "module"}, {&path_name, "path"},
        {&root_name, "root"}, {&described_name, "described"}, {&class_name, "cls"}, {&other_name, "other"},
        {&number_name, "number"},
    };
    for (size_t at = 0; at < sizeof names / sizeof names[0]; at++)
        if ((*names[at].place = PyUnicode_InternFromString(names[at].name)) == NULL)
            return -1;
    return 0;
}

/* ---------------------------------------------------------------- classes */

/* The row of a class: asked of Python, and remembered by weak reference, since a class must be able to go. */
static int64_t class_row(Engine *engine, PyObject *cls)
{
    struct class_row *known = &engine->class_rows[(uintptr_t)cls / 64 % CLASS_ROWS];
    if (known->ref != NULL && refers_to(known->ref, cls))
        return known->row;
    int64_t row = as_number(PyObject_CallOneArg(engine->class_number, cls));
    PyObject *ref = row == FAILED ? NULL : PyWeakref_NewRef(cls, NULL);
    if (ref == NULL)
        return FAILED;
    known->row = row;
    Py_XSETREF(known->ref, ref);
    return row;
}

/* ---------------------------------------------------------------- the path */

/* What a module holds under this name, owned; NULL where that is no plain dictionary. Runs no code. */
static PyObject *held(PyObject *module, PyObject *name)
{
    PyObject *own = PyObject_GenericGetDict(module, NULL);
    PyObject *found = own == NULL ? NULL : PyDict_GetItemWithError(own, name); /* borrowed, made our own */
    found = found != NULL && PyDict_CheckExact(found) ? Py_NewRef(found) : NULL;
    Py_XDECREF(own);
    PyErr_Clear();
    return found;
}

/* The name of a child, borrowed from the dictionary. */
static PyObject *name_in(PyObject *children, const PyObject *module)
{
    PyObject *name, *child;
    Py_ssize_t at = 0;
    while (PyDict_Next(children, &at, &name, &child))
        if (child == module)
            return PyUnicode_CheckExact(name) ? name : NULL;
    return NULL;
}

/* The same one level below: in a list that the module holds. */
static PyObject *way_through(PyObject *children, PyObject *module)
{
    PyObject *name, *child, *way = NULL;
    Py_ssize_t at = 0, size = PyDict_GET_SIZE(children);
    while (way == NULL && PyDict_GET_SIZE(children) == size && PyDict_Next(children, &at, &name, &child)) {
        if (child == Py_None)
            continue;
        PyObject *below = held(child, modules_name);
        if (below == NULL || !PyUnicode_CheckExact(name)) {
            Py_XDECREF(below);
            return NULL;
        }
        PyObject *inner = PyDict_GET_SIZE(below) <= MOST_CHILDREN ? name_in(below, module) : NULL;
        if (inner != NULL)
            way = PyUnicode_FromFormat("%U.%U", name, inner);
        Py_DECREF(below);
    }
    return way;
}

/* The way from a module to one that it holds itself or in a list, owned; NULL where it is not so simple. */
static PyObject *way_to(PyObject *owner, PyObject *module)
{
    PyObject *children = held(owner, modules_name), *way = NULL;
    if (children != NULL && PyDict_GET_SIZE(children) <= MOST_CHILDREN) {
        PyObject *name = name_in(children, module);
        way = name != NULL ? Py_NewRef(name) : way_through(children, module);
    }
    Py_XDECREF(children);
    return way;
}

/* Its path in the root; NULL, with an exception or without. */
static PyObject *path_of(PyObject *above, PyObject *module)
{
    PyObject *ref = PyObject_GetAttr(above, module_name), *path = PyObject_GetAttr(above, path_name), *found = NULL;
    PyObject *owner = ref == NULL || path == NULL ? NULL : referent(ref);
    PyObject *way = owner == NULL || owner == module ? NULL : way_to(owner, module);
    if (way != NULL && PyUnicode_GET_LENGTH(way))
        found = PyUnicode_GET_LENGTH(path) ? PyUnicode_FromFormat("%U.%U", path, way) : Py_NewRef(way);
    Py_XDECREF(way);
    Py_XDECREF(owner);
    Py_XDECREF(path);
    Py_XDECREF(ref);
    return found;
}

/* ---------------------------------------------------------------- the row */

/* Where a module stands: the number of its root's row, its path, and its own address; all three as Python has them. */
typedef struct { PyObject *root, *path, *id, *module; } Place;

/* Whether a row is that of this module at this place. */
static int is_row_at(PyObject *row, const Place *place)
{
    PyObject *root = PyObject_GetAttr(row, root_name), *path = PyObject_GetAttr(row, path_name);
    PyObject *ref = PyObject_GetAttr(row, module_name);
    int is_it = root == NULL || path == NULL || ref == NULL ? -1 : PyObject_RichCompareBool(root, place->root, Py_EQ);
    if (is_it > 0)
        is_it = PyUnicode_Compare(path, place->path) == 0 && refers_to(ref, place->module);
    Py_XDECREF(root);
    Py_XDECREF(path);
    Py_XDECREF(ref);
    return is_it;
}

/* The row of a module that was met at this place; NONE. */
static int64_t row_at(Engine *engine, const Place *place)
{
    int is_it = 0;
    PyObject *row = Py_XNewRef(PyDict_GetItemWithError(engine->modules_met, place->id));
    while (row != NULL && row != Py_None && (is_it = is_row_at(row, place)) == 0)
        Py_SETREF(row, PyObject_GetAttr(row, other_name));
    int64_t number = is_it > 0 ? as_number(PyObject_GetAttr(row, number_name)) : NONE;
    Py_XDECREF(row);
    return PyErr_Occurred() ? FAILED : number;
}

/* Whether a text stands in a row as it is, between quotes. */
static int is_plain_text(PyObject *text)
{
    int is_plain = PyUnicode_CheckExact(text) && PyUnicode_IS_COMPACT_ASCII(text);
    for (Py_ssize_t at = 0; is_plain && at < PyUnicode_GET_LENGTH(text); at++) {
        Py_UCS1 each = PyUnicode_1BYTE_DATA(text)[at];
        is_plain = each >= ' ' && each < 127 && each != '"' && each != '\\';
    }
    return is_plain;
}

/* The bytes of the row (journal/rows.py: encoded_module); Python spells what is not plain text. */
static PyObject *payload_of(Engine *engine, int64_t cls, PyObject *root, PyObject *path)
{
    if (is_plain_text(path) && PyUnicode_GET_LENGTH(path) < LONGEST_PATH) {
        char row[LONGEST_PATH + 64];
        int size = snprintf(row, sizeof row, "[%lld,%lld,\"%s\"]", (long long)cls, PyLong_AsLongLong(root),
                            (const char *)PyUnicode_1BYTE_DATA(path));
        return PyBytes_FromStringAndSize(row, size);
    }
    return PyObject_CallFunction(engine->encoded_module, "LOO", (long long)cls, root, path);
}

/* Write the row; with the journal's lock held, as another thread may meet the same. */
static int64_t add_row(Engine *engine, const Place *place)
{
    PyObject *number = NULL, *ref = NULL, *payload = NULL, *row = NULL;
    int64_t found = row_at(engine, place);
    if (found != NONE)
        return found;
    int64_t cls = class_row(engine, (PyObject *)Py_TYPE(place->module));
    PyObject *other = PyDict_GetItemWithError(engine->modules_met, place->id); /* borrowed, made our own */
    other = Py_NewRef(other == NULL ? Py_None : other);
    if (cls != FAILED && (payload = payload_of(engine, cls, place->root, place->path)) != NULL
        && (ref = PyWeakref_NewRef(place->module, NULL)) != NULL && (number = PyIter_Next(engine->module_numbers)) != NULL
        && (row = PyObject_CallFunction(engine->module_class, "OOLOOO", number, ref, (long long)cls, place->root,
                                        place->path, other)) != NULL
        && add_journal_row((RowFields *)engine->rows, MODULE_ROW, PyLong_AsLongLong(number), payload) == 0
        && PyDict_SetItem(engine->module_table, number, row) == 0 && PyDict_SetItem(engine->modules_met, place->id, row) == 0)
        found = PyLong_AsLongLong(number);
    else
        found = FAILED;
    Py_DECREF(other);
    Py_XDECREF(row);
    Py_XDECREF(payload);
    Py_XDECREF(number);
    Py_XDECREF(ref);
    return found;
}

static int64_t add_row_locked(Engine *engine, const Place *place)
{
    PyObject *taken = PyObject_CallMethod(engine->rows_lock, "acquire", NULL);
    if (taken == NULL)
        return FAILED;
    Py_DECREF(taken);
    int64_t row = add_row(engine, place);
    PyObject *error = take_error(), *left = PyObject_CallMethod(engine->rows_lock, "release", NULL);
    Py_XDECREF(left);
    if (error != NULL) {
        PyErr_Clear();
        put_error(error);
    }
    return left == NULL ? FAILED : row;
}

int64_t meet_module(Engine *engine, int64_t caller, PyObject *module)
{
    PyObject *key = caller == NONE || engine->module_table == NULL ? NULL : PyLong_FromLongLong(caller);
    PyObject *above = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(engine->module_table, key));
    PyObject *path = above == NULL ? NULL : path_of(above, module), *root = NULL, *id = NULL;
    int64_t row = NONE;
    if (path != NULL && (root = PyObject_GetAttr(above, root_name)) != NULL && (id = PyLong_FromVoidPtr(module)) != NULL) {
        if (PyLong_AsLongLong(root) == NONE)
            Py_SETREF(root, Py_NewRef(key)); /* the caller is the root itself */
        const Place place = {root, path, id, module};
        row = row_at(engine, &place);
        if (row == NONE)
            row = add_row_locked(engine, &place);
    }
    Py_XDECREF(id);
    Py_XDECREF(root);
    Py_XDECREF(path);
    Py_XDECREF(above);
    Py_XDECREF(key);
    return PyErr_Occurred() ? FAILED : row;
}

/* ---------------------------------------------------------------- its parameters */

/* A parameter, appended to those before it: `,"weight",12`. */
static int append_parameter(Engine *engine, PyObject **all, PyObject *name, PyObject *parameter)
{
    int64_t value = value_of(engine, parameter);
    PyObject *longer = NULL;
    if (value != FAILED && is_plain_text(name)) {
        longer = PyUnicode_FromFormat("%U,\"%U\",%lld", *all, name, (long long)value);
    } else if (value != FAILED) {
        PyObject *quoted = PyObject_CallOneArg(engine->quoted, name);
        longer = quoted == NULL ? NULL : PyUnicode_FromFormat("%U,%U,%lld", *all, quoted, (long long)value);
        Py_XDECREF(quoted);
    }
    if (longer == NULL)
        return -1;
    Py_SETREF(*all, longer);
    return 0;
}

/* Names and values by turns, as they stand in a row. */
static PyObject *parameters_of(Engine *engine, PyObject *module)
{
    PyObject *held_ones = held(module, parameters_name), *found = PyUnicode_New(0, 127), *name, *parameter;
    Py_ssize_t at = 0, size = held_ones == NULL ? 0 : PyDict_GET_SIZE(held_ones);
    int done = found == NULL ? -1 : 0;
    while (done == 0 && size && PyDict_GET_SIZE(held_ones) == size && PyDict_Next(held_ones, &at, &name, &parameter)) {
        if (parameter == Py_None)
            continue;
        Py_INCREF(name); /* what is read here may run code */
        Py_INCREF(parameter);
        done = append_parameter(engine, &found, name, parameter);
        Py_DECREF(parameter);
        Py_DECREF(name);
    }
    if (done < 0)
        Py_CLEAR(found);
    Py_XDECREF(held_ones);
    return found;
}

/* Of a module below a root, whose settings are read with those of the others: 1 done, 0 Python's affair, -1 error. */
int describe_module(Engine *engine, Log *log, int64_t number, PyObject *module)
{
    PyObject *key = engine->module_table == NULL || log->listening ? NULL : PyLong_FromLongLong(number);
    PyObject *row = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(engine->module_table, key));
    PyObject *root = row == NULL ? NULL : PyObject_GetAttr(row, root_name), *described = NULL, *cls = NULL, *found = NULL;
    int done = PyErr_Occurred() ? -1 : 0;
    if (root != NULL && PyLong_AsLongLong(root) != NONE && (described = PyObject_GetAttr(row, described_name)) != NULL) {
        done = 1;
        if (described == Py_False) {
            int64_t class_now = PyObject_SetAttr(row, described_name, Py_True) < 0
                                    ? FAILED : class_row(engine, (PyObject *)Py_TYPE(module)); /* lazy ones change theirs */
            if (class_now == FAILED || (cls = PyLong_FromLongLong(class_now)) == NULL
                || PyObject_SetAttr(row, class_name, cls) < 0 || (found = parameters_of(engine, module)) == NULL
                || PyObject_SetAttrString(row, "parameters", found) < 0 || PyList_Append(log->unread, row) < 0)
                done = -1;
        }
    }
    Py_XDECREF(found);
    Py_XDECREF(cls);
    Py_XDECREF(described);
    Py_XDECREF(root);
    Py_XDECREF(row);
    Py_XDECREF(key);
    return PyErr_Occurred() ? -1 : done;
}
