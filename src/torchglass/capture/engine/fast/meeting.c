/* The first meeting of a module (torch/modules.py): its row, and the values of its parameters.
 *
 * A model has hundreds of modules, so what most of them need is done here: those that their caller holds itself, or in
 * a list. Roots, modules that are found elsewhere, and whatever is unusual are Python's.
 */
#include "fast.h"
#include "structmember.h"

#define MOST_CHILDREN 256
#define MANY_CHILDREN 16 /* from so many on their places are kept */
#define DEEPEST_MODEL 256
#define MOST_VISITS 20000 /* of modules below a root, each way to one counted: they may be shared, or contain themselves */
#define LONGEST_PATH 400 /* that is spelt here */
#define MODULE_ROW 12 /* a kind of row (journal/layout.py) */

static PyObject *modules_name, *parameters_name;

/* ---------------------------------------------------------------- a row */

/* ModuleAtPath(number, module, cls, root, path, other) */
static PyObject *row_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    long long number, cls, root;
    PyObject *module, *path, *other;
    if (!PyArg_ParseTuple(args, "LOLLUO", &number, &module, &cls, &root, &path, &other))
        return NULL;
    ModuleRow *row = (ModuleRow *)type->tp_alloc(type, 0);
    if (row == NULL)
        return NULL;
    row->number = number;
    row->cls = cls;
    row->root = root;
    row->module = Py_NewRef(module);
    row->path = Py_NewRef(path);
    row->other = Py_NewRef(other);
    row->parameters = PyUnicode_New(0, 127);
    return (PyObject *)row;
}

static void row_dealloc(ModuleRow *row)
{
    Py_XDECREF(row->module);
    Py_XDECREF(row->path);
    Py_XDECREF(row->other);
    Py_XDECREF(row->parameters);
    Py_XDECREF(row->below);
    Py_TYPE(row)->tp_free((PyObject *)row);
}

static PyMemberDef row_members[] = {
    {"number", T_LONGLONG, offsetof(ModuleRow, number), READONLY, NULL},
    {"cls", T_LONGLONG, offsetof(ModuleRow, cls), 0, NULL},
    {"root", T_LONGLONG, offsetof(ModuleRow, root), READONLY, NULL},
    {"module", T_OBJECT, offsetof(ModuleRow, module), READONLY, NULL},
    {"path", T_OBJECT, offsetof(ModuleRow, path), READONLY, NULL},
    {"other", T_OBJECT, offsetof(ModuleRow, other), READONLY, NULL},
    {"parameters", T_OBJECT, offsetof(ModuleRow, parameters), 0, NULL},
    {"below", T_OBJECT, offsetof(ModuleRow, below), 0, NULL},
    {"described", T_BOOL, offsetof(ModuleRow, described), 0, NULL},
    {NULL},
};
PyTypeObject ModuleRowType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.ModuleAtPath",
    .tp_doc = "One module under one path.",
    .tp_basicsize = sizeof(ModuleRow),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = row_new,
    .tp_dealloc = (destructor)row_dealloc,
    .tp_members = row_members,
};

int meeting_ready(PyObject *module)
{
    if ((modules_name = PyUnicode_InternFromString("_modules")) == NULL
        || (parameters_name = PyUnicode_InternFromString("_parameters")) == NULL || PyType_Ready(&ModuleRowType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "ModuleAtPath", (PyObject *)&ModuleRowType);
}

static ModuleRow *as_row(PyObject *found)
{
    return found != NULL && Py_TYPE(found) == &ModuleRowType ? (ModuleRow *)found : NULL;
}

ModuleRow *module_row(Engine *engine, int64_t number)
{
    PyObject *key = engine->module_table == NULL || number < 0 ? NULL : PyLong_FromLongLong(number);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(engine->module_table, key);
    Py_XDECREF(key);
    return as_row(found);
}

/* ---------------------------------------------------------------- classes */

/* The row of a class: asked of Python, and remembered by weak reference, since a class must be able to go. */
int64_t class_row(Engine *engine, PyObject *cls)
{
    uint64_t hash = (uint64_t)(uintptr_t)cls * 0x9E3779B97F4A7C15u;
    struct class_row *known = NULL;
    for (int step = 0; step < CLASS_STEPS; step++) { /* a model's classes may meet in one place: look at a few */
        known = &engine->class_rows[((hash >> 40) + (uint64_t)step) & (CLASS_ROWS - 1)];
        if (known->ref == NULL)
            break;
        if (refers_to(known->ref, cls))
            return known->row;
    }
    int64_t row = learned_class(engine, cls);
    if (row == NONE)
        row = as_number(PyObject_CallOneArg(engine->class_number, cls));
    PyObject *ref = row == FAILED ? NULL : PyWeakref_NewRef(cls, NULL);
    if (ref == NULL)
        return FAILED;
    known->row = row;
    Py_XSETREF(known->ref, ref);
    return row;
}

/* ---------------------------------------------------------------- the path */

/* Runs no code. */
PyObject *held(PyObject *module, PyObject *name)
{
    PyObject *own = PyObject_GenericGetDict(module, NULL);
    PyObject *found = own == NULL ? NULL : PyDict_GetItemWithError(own, name); /* borrowed, made our own */
    found = found != NULL && PyDict_CheckExact(found) ? Py_NewRef(found) : NULL;
    Py_XDECREF(own);
    PyErr_Clear();
    return found;
}

/* The place of each child in a dictionary of many, by their addresses and its length; the first of those that are there
 * twice. All of them are looked for one after the other. */
static int index_children(Engine *engine, PyObject *children)
{
    PyObject *name, *child;
    uint64_t hash;
    Py_ssize_t at = 0, place = 0;
    int64_t key[3] = {(int64_t)(intptr_t)children, PyDict_GET_SIZE(children), 0};
    if (table_find(&engine->child_places, key, 3, &hash) != NONE)
        return 0;
    if (table_add(&engine->child_places, key, 3, hash, 0) < 0)
        return -1;
    for (; PyDict_Next(children, &at, &name, &child); place = at) {
        key[2] = (int64_t)(intptr_t)child;
        if (table_find(&engine->child_places, key, 3, &hash) == NONE
            && table_add(&engine->child_places, key, 3, hash, place) < 0)
            return -1;
    }
    return 0;
}

/* The name of a child, borrowed from the dictionary. What was found in it before may be there no longer. */
static PyObject *name_in(Engine *engine, PyObject *children, const PyObject *module)
{
    PyObject *name, *child;
    uint64_t hash;
    Py_ssize_t at = 0;
    if (PyDict_GET_SIZE(children) >= MANY_CHILDREN && index_children(engine, children) == 0) {
        const int64_t key[3] = {(int64_t)(intptr_t)children, PyDict_GET_SIZE(children), (int64_t)(intptr_t)module};
        const int64_t place = table_find(&engine->child_places, key, 3, &hash);
        if (place == NONE)
            return NULL; /* Python looks everywhere */
        at = (Py_ssize_t)place;
        if (PyDict_Next(children, &at, &name, &child) && child == module)
            return PyUnicode_CheckExact(name) ? name : NULL;
        at = 0;
    }
    PyErr_Clear();
    while (PyDict_Next(children, &at, &name, &child))
        if (child == module)
            return PyUnicode_CheckExact(name) ? name : NULL;
    return NULL;
}

/* Two names with a dot between them, owned. */
static PyObject *joined(PyObject *first, PyObject *second)
{
    if (!PyUnicode_IS_COMPACT_ASCII(first) || !PyUnicode_IS_COMPACT_ASCII(second))
        return PyUnicode_FromFormat("%U.%U", first, second);
    Py_ssize_t length = PyUnicode_GET_LENGTH(first), more = PyUnicode_GET_LENGTH(second);
    PyObject *made = PyUnicode_New(length + 1 + more, 127);
    if (made != NULL) {
        Py_UCS1 *place = PyUnicode_1BYTE_DATA(made);
        memcpy(place, PyUnicode_1BYTE_DATA(first), (size_t)length);
        place[length] = '.';
        memcpy(place + length + 1, PyUnicode_1BYTE_DATA(second), (size_t)more);
    }
    return made;
}

/* The same one level below: in a list that the module holds. */
static PyObject *way_through(Engine *engine, PyObject *children, PyObject *module)
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
        PyObject *inner = PyDict_GET_SIZE(below) <= MOST_CHILDREN ? name_in(engine, below, module) : NULL;
        if (inner != NULL)
            way = joined(name, inner);
        Py_DECREF(below);
    }
    return way;
}

/* The way from a module to one that it holds itself or in a list, owned; NULL where it is not so simple. */
static PyObject *way_to(Engine *engine, PyObject *owner, PyObject *module)
{
    PyObject *children = held(owner, modules_name), *way = NULL;
    if (children != NULL && PyDict_GET_SIZE(children) <= MOST_CHILDREN) {
        PyObject *name = name_in(engine, children, module);
        way = name != NULL ? Py_NewRef(name) : way_through(engine, children, module);
    }
    Py_XDECREF(children);
    return way;
}

/* Its path in the root; NULL, with an exception or without. */
static PyObject *path_of(Engine *engine, const ModuleRow *above, PyObject *module)
{
    PyObject *owner = referent(above->module), *path = above->path, *found = NULL;
    PyObject *way = owner == NULL || owner == module ? NULL : way_to(engine, owner, module);
    if (way != NULL && PyUnicode_GET_LENGTH(way))
        found = PyUnicode_GET_LENGTH(path) ? joined(path, way) : Py_NewRef(way);
    Py_XDECREF(way);
    Py_XDECREF(owner);
    return found;
}

/* ---------------------------------------------------------------- meeting it */

/* Where a module stands: the number of its root's row, its path, and its own address as Python has it; whether the path is
 * spelt here. */
typedef struct { int64_t root; PyObject *path, *id, *module; int is_short; } Place;

/* The row of a module that was met at this place; NONE. */
static int64_t row_at(Engine *engine, const Place *place)
{
    const ModuleRow *row = as_row(PyDict_GetItemWithError(engine->modules_met, place->id)); /* borrowed: runs no code */
    for (; row != NULL; row = as_row(row->other))
        if (row->root == place->root && PyUnicode_Compare(row->path, place->path) == 0
            && refers_to(row->module, place->module))
            return row->number;
    return PyErr_Occurred() ? FAILED : NONE;
}

int is_plain_text(PyObject *text)
{
    int is_plain = PyUnicode_CheckExact(text) && PyUnicode_IS_COMPACT_ASCII(text);
    for (Py_ssize_t at = 0; is_plain && at < PyUnicode_GET_LENGTH(text); at++) {
        Py_UCS1 each = PyUnicode_1BYTE_DATA(text)[at];
        is_plain = each >= ' ' && each < 127 && each != '"' && each != '\\';
    }
    return is_plain;
}

/* Write the bytes of the row (journal/rows.py: encoded_module); Python spells what is not plain text. */
static int write_row(Engine *engine, int64_t number, int64_t cls, const Place *place)
{
    RowFields *rows = (RowFields *)engine->rows;
    if (!place->is_short) {
        PyObject *payload =
            PyObject_CallFunction(engine->encoded_module, "LLO", (long long)cls, (long long)place->root, place->path);
        int done = payload == NULL || !PyBytes_Check(payload)
                       ? -1 : add_journal_row(rows, MODULE_ROW, number, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload));
        Py_XDECREF(payload);
        return done;
    }
    char row[LONGEST_PATH + 2 * LONGEST_NUMBER + 8], *end = row;
    size_t length = (size_t)PyUnicode_GET_LENGTH(place->path);
    *end++ = '[';
    end = put_number(end, cls);
    *end++ = ',';
    end = put_number(end, place->root);
    *end++ = ',';
    *end++ = '"';
    memcpy(end, PyUnicode_1BYTE_DATA(place->path), length);
    end += length;
    *end++ = '"';
    *end++ = ']';
    return add_journal_row(rows, MODULE_ROW, number, row, end - row);
}

/* A row for what was not met before; `cls` is that of its class, `ref` refers to it. Runs Python only to make room. */
static int64_t add_row(Engine *engine, const Place *place, int64_t cls, PyObject *ref)
{
    int64_t found = row_at(engine, place);
    if (found != NONE)
        return found;
    PyObject *number = PyIter_Next(engine->module_numbers);
    ModuleRow *row = number == NULL ? NULL : PyObject_New(ModuleRow, &ModuleRowType);
    if (row != NULL) {
        PyObject *other = PyDict_GetItemWithError(engine->modules_met, place->id); /* borrowed, made our own */
        found = PyLong_AsLongLong(number);
        row->number = found;
        row->cls = cls;
        row->root = place->root;
        row->module = Py_NewRef(ref);
        row->path = Py_NewRef(place->path);
        row->other = Py_XNewRef(other);
        row->parameters = PyUnicode_New(0, 127);
        row->below = NULL;
        row->described = 0;
        if (write_row(engine, found, cls, place) < 0 || PyDict_SetItem(engine->module_table, number, (PyObject *)row) < 0
            || PyDict_SetItem(engine->modules_met, place->id, (PyObject *)row) < 0)
            found = FAILED;
    } else
        found = FAILED;
    Py_XDECREF((PyObject *)row);
    Py_XDECREF(number);
    return found;
}

static int64_t add_row_locked(Engine *engine, const Place *place, int64_t cls, PyObject *ref)
{
    PyObject *taken = PyObject_CallNoArgs(engine->take_lock);
    if (taken == NULL)
        return FAILED;
    Py_DECREF(taken);
    int64_t row = add_row(engine, place, cls, ref);
    PyObject *error = take_error(), *left = PyObject_CallNoArgs(engine->leave_lock);
    Py_XDECREF(left);
    if (error != NULL) {
        PyErr_Clear();
        put_error(error);
    }
    return left == NULL ? FAILED : row;
}

/* Another thread may meet the same: it cannot while Python's own lock is ours, which it is where nothing calls Python.
 * So the class and the reference come first, and the journal's lock is taken where room must be made for the row. */
static int64_t add_new_row(Engine *engine, Place *place)
{
    place->is_short = is_plain_text(place->path) && PyUnicode_GET_LENGTH(place->path) < LONGEST_PATH;
    int64_t cls = class_row(engine, (PyObject *)Py_TYPE(place->module)), row = FAILED;
    PyObject *ref = cls == FAILED ? NULL : PyWeakref_NewRef(place->module, NULL);
    if (ref != NULL)
        row = has_room((RowFields *)engine->rows, 2 * LONGEST_PATH) && place->is_short
                  ? add_row(engine, place, cls, ref) : add_row_locked(engine, place, cls, ref);
    Py_XDECREF(ref);
    return row;
}

int64_t meet_module(Engine *engine, int64_t caller, PyObject *module)
{
    ModuleRow *above = (ModuleRow *)Py_XNewRef((PyObject *)module_row(engine, caller));
    PyObject *path = above == NULL ? NULL : path_of(engine, above, module);
    PyObject *id = path == NULL ? NULL : PyLong_FromVoidPtr(module);
    int64_t row = NONE;
    if (id != NULL) {
        Place place = {above->root == NONE ? caller : above->root, path, id, module, 0}; /* or the caller is the root */
        row = row_at(engine, &place);
        if (row == NONE)
            row = add_new_row(engine, &place);
    }
    Py_XDECREF(id);
    Py_XDECREF(path);
    Py_XDECREF((PyObject *)above);
    return PyErr_Occurred() ? FAILED : row;
}

/* ---------------------------------------------------------------- those that were not met */

/* Whether this very module was met below a root. */
static int was_met(Engine *engine, PyObject *module, int64_t root)
{
    PyObject *id = PyLong_FromVoidPtr(module);
    const ModuleRow *row = id == NULL ? NULL : as_row(PyDict_GetItemWithError(engine->modules_met, id));
    Py_XDECREF(id);
    while (row != NULL && !(row->root == root && refers_to(row->module, module)))
        row = as_row(row->other);
    return PyErr_Occurred() ? -1 : row != NULL;
}

/* Whether a module below has parameters and was not met: 1, 0, -1 error, 2 Python looks. Runs no code of the program. */
static int look_below(Engine *engine, PyObject *children, int64_t root, int depth, int *visits)
{
    PyObject *name, *child;
    Py_ssize_t at = 0;
    int found = depth > DEEPEST_MODEL || ++*visits > MOST_VISITS ? 2 : 0;
    while (found == 0 && PyDict_Next(children, &at, &name, &child)) {
        if (child == Py_None)
            continue;
        PyObject *own = PyObject_GenericGetDict(child, NULL); /* what is in it is borrowed, while nothing runs */
        PyObject *below = own == NULL ? NULL : PyDict_GetItemWithError(own, modules_name);
        PyObject *parameters = below == NULL ? NULL : PyDict_GetItemWithError(own, parameters_name);
        if (parameters == NULL || !PyDict_CheckExact(below) || !PyDict_CheckExact(parameters))
            found = 2;
        else if (PyDict_GET_SIZE(parameters)) {
            int met = was_met(engine, child, root);
            found = met < 0 ? -1 : !met;
        }
        if (found == 0 && PyDict_GET_SIZE(below))
            found = look_below(engine, below, root, depth + 1, visits);
        Py_XDECREF(own);
    }
    if (found == 2)
        PyErr_Clear();
    return found;
}

/* has_uncalled(root's module, its number) → whether paths need to be worked out, to find out or to describe them */
PyObject *engine_has_uncalled(Engine *engine, PyObject *args)
{
    PyObject *owner;
    long long root;
    if (!PyArg_ParseTuple(args, "OL", &owner, &root))
        return NULL;
    PyObject *children = engine->modules_met == NULL ? NULL : held(owner, modules_name);
    int visits = 0, found = children == NULL ? 2 : look_below(engine, children, root, 0, &visits);
    Py_XDECREF(children);
    return found < 0 ? NULL : PyBool_FromLong(found);
}
