/* Functions, code objects and classes that the process has met in earlier blocks.
 *
 * A fresh block meets them anew, and to ask Python for each took longer than all that C does there. What a row says of
 * one is kept for the process by those who make it (torch/functions.py, codes.py); while it holds, the row is written here:
 * the same, with the next number, in the same tables. Whatever is not there, or no longer the same, is Python's affair.
 */
#include "fast.h"

enum { CODE_ROW = 6, WHAT_ROW = 10, CLASS_ROW = 11, SOURCE_ROW = 18 }; /* kinds of rows (journal/layout.py) */

/* Write a row with the next of these numbers, owned. */
static PyObject *add_numbered(Engine *engine, uint32_t kind, PyObject *numbers, PyObject *payload)
{
    PyObject *number = PyIter_Next(numbers);
    if (number != NULL
        && add_journal_row((RowFields *)engine->rows, kind, PyLong_AsLongLong(number), PyBytes_AS_STRING(payload),
                           PyBytes_GET_SIZE(payload)) < 0)
        Py_CLEAR(number);
    return number;
}

/* table[key] = (first, number), which is let go of; the number. */
static int64_t keep(PyObject *table, PyObject *key, PyObject *first, PyObject *number)
{
    PyObject *entry = number == NULL ? NULL : PyTuple_Pack(2, first, number);
    int64_t answer = entry == NULL || PyDict_SetItem(table, key, entry) < 0 ? FAILED : PyLong_AsLongLong(number);
    Py_XDECREF(entry);
    Py_XDECREF(number);
    return answer;
}

/* ---------------------------------------------------------------- code (codes.py: CodeTable.add) */

/* Whether a file is met, and its text not in doubt: 1, 0, -1 error. One of torch's or Python's own need not be asked for. */
static int is_met(Engine *engine, PyObject *file)
{
    PyObject *in_doubt = PyDict_GetItemWithError(engine->files_met, file); /* borrowed: True, False */
    if (in_doubt != NULL || PyErr_Occurred())
        return in_doubt == NULL ? -1 : in_doubt == Py_False;
    PyObject *row = Py_XNewRef(PyDict_GetItemWithError(engine->own_files, file));
    if (row == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int done = add_journal_row((RowFields *)engine->rows, SOURCE_ROW, 0, PyBytes_AS_STRING(row), PyBytes_GET_SIZE(row));
    Py_DECREF(row);
    return done < 0 || PyDict_SetItem(engine->files_met, file, Py_False) < 0 ? -1 : 1;
}

int64_t learned_code(Engine *engine, PyObject *address, PyCodeObject *code)
{
    PyObject *known = PyDict_GetItemWithError(engine->code_rows, address); /* borrowed: (code, bytes), as are those in it */
    if (known == NULL || PyTuple_GET_ITEM(known, 0) != (PyObject *)code)
        return PyErr_Occurred() ? FAILED : NONE;
    PyObject *payload = Py_NewRef(PyTuple_GET_ITEM(known, 1));
    const int met = is_met(engine, code->co_filename);
    if (met <= 0) {
        Py_DECREF(payload);
        return met < 0 ? FAILED : NONE;
    }
    PyObject *number = add_numbered(engine, CODE_ROW, engine->code_numbers, payload);
    Py_DECREF(payload);
    return keep(engine->codes_kept, address, (PyObject *)code, number);
}

/* ---------------------------------------------------------------- classes (session.py: class_number) */

int64_t learned_class(Engine *engine, PyObject *cls)
{
    PyObject *address = PyLong_FromVoidPtr(cls), *known = NULL;
    int64_t answer = NONE;
    if (address != NULL)
        known = PyDict_GetItemWithError(engine->classes_met, address); /* borrowed: (weak reference, number) */
    if (known == NULL && !PyErr_Occurred()) {
        known = PyDict_GetItemWithError(engine->class_rows_known, address); /* borrowed: (weak reference, bytes) */
        if (known != NULL && refers_to(PyTuple_GET_ITEM(known, 0), cls)) {
            Py_INCREF(known);
            PyObject *number = add_numbered(engine, CLASS_ROW, engine->class_numbers, PyTuple_GET_ITEM(known, 1));
            answer = keep(engine->classes_met, address, PyTuple_GET_ITEM(known, 0), number);
            Py_DECREF(known);
        }
    }
    Py_XDECREF(address);
    return PyErr_Occurred() ? FAILED : answer;
}

/* ---------------------------------------------------------------- variables (variables/compiled.py: _what) */

int64_t learned_variable(Engine *engine, PyObject *name, PyObject *how)
{
    PyObject *key = PyTuple_Pack(2, name, how), *named = PyTuple_Pack(3, engine->variable_kind, name, how), *number = NULL;
    PyObject *payload = key == NULL || named == NULL ? NULL : PyDict_GetItemWithError(engine->variable_rows, key); /* borrowed */
    if (payload != NULL && PyDict_GetItemWithError(engine->named, named) == NULL && !PyErr_Occurred()) {
        Py_INCREF(payload);
        number = add_numbered(engine, WHAT_ROW, engine->what_numbers, payload);
        Py_DECREF(payload);
        if (number != NULL
            && (PyDict_SetItem(engine->kinds, number, engine->variable_kind) < 0
                || PyDict_SetItem(engine->named, named, number) < 0))
            Py_CLEAR(number);
    }
    Py_XDECREF(key);
    Py_XDECREF(named);
    if (PyErr_Occurred()) {
        Py_XDECREF(number);
        return FAILED;
    }
    return number == NULL ? NONE : as_number(number);
}

/* ---------------------------------------------------------------- functions (torch/functions.py: FunctionTable) */

enum { KIND, COPY, BARE, ROW, TRAITS };

/* Whether the copy that was made to look inside is still one: a program may give a function another code. */
static int is_copy_of(PyObject *copy, PyObject *func)
{
    return copy == Py_None
           || (PyFunction_Check(copy) && PyFunction_Check(func) && PyFunction_GET_CODE(copy) == PyFunction_GET_CODE(func)
               && PyFunction_GET_DEFAULTS(copy) == PyFunction_GET_DEFAULTS(func)
               && PyFunction_GET_KW_DEFAULTS(copy) == PyFunction_GET_KW_DEFAULTS(func));
}

/* The plan of a function that is recorded and of which nothing more is to be known. */
static PyObject *numbered_plan(Engine *engine, PyObject *traits)
{
    PyObject *number = add_numbered(engine, WHAT_ROW, engine->what_numbers, PyTuple_GET_ITEM(traits, ROW));
    PyObject *plan = NULL;
    if (number != NULL && PyDict_SetItem(engine->kinds, number, engine->function_kind) == 0)
        plan = PyTuple_Pack(4, number, PyTuple_GET_ITEM(traits, COPY), PyTuple_GET_ITEM(traits, BARE), Py_None);
    Py_XDECREF(number);
    return plan;
}

PyObject *learned_plan(Engine *engine, PyObject *table, PyObject *func)
{
    PyObject *learned = PyTuple_GET_ITEM(engine->functions_known, engine->records_ops ? 1 : 0); /* borrowed from the tuple */
    PyObject *traits = Py_XNewRef(PyDict_GetItemWithError(learned, func)), *plan = NULL;
    const long kind = traits == NULL ? 1 : PyLong_AsLong(PyTuple_GET_ITEM(traits, KIND));
    if (kind < 0)
        plan = PyTuple_Pack(4, PyTuple_GET_ITEM(traits, KIND), Py_None, Py_None, Py_None);
    else if (kind == 0 && is_copy_of(PyTuple_GET_ITEM(traits, COPY), func))
        plan = numbered_plan(engine, traits);
    if (plan != NULL && PyDict_SetItem(table, func, plan) < 0)
        Py_CLEAR(plan);
    Py_XDECREF(traits);
    return plan;
}
