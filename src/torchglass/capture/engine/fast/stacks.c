/* Where a call stands (stack.py): the frames from the caller up to the nearest open event, as a number. */
#include "fast.h"

#define STACK_ROW 7 /* a kind of row (journal/layout.py) */
#define NEAR 16 /* frames; a longer walk leaves milestones, which is Python's affair (milestones.py) */

static int64_t ask_python(Engine *engine, Log *log, PyFrameObject *frame)
{
    PyObject *caller = frame == NULL ? Py_None : (PyObject *)frame;
    return as_number(PyObject_CallFunction(engine->find_stack, "LLO", log->anchor, log->base, caller));
}

/* Give a new stack a number, where all code in it is known (stack.py: _add); NONE: Python does that. */
static int64_t add_stack(Engine *engine, const int64_t *words, Py_ssize_t length)
{
    char row[(2 * NEAR + 1) * 24];
    int size = 0;
    PyObject *key = PyTuple_New(length), *number = NULL, *payload = NULL;
    for (Py_ssize_t at = 0; key != NULL && at < length; at++) {
        PyObject *word = PyLong_FromLongLong(words[at]), *code = NULL;
        int64_t shown = words[at];
        if (word != NULL && at % 2 == 1) { /* the address of a code object: `id`, for Python */
            code = PyDict_GetItemWithError(engine->codes_kept, word); /* borrowed: (code, number) */
            shown = code == NULL ? NONE : PyLong_AsLongLong(PyTuple_GET_ITEM(code, 1));
        }
        if (word == NULL || (at % 2 == 1 && code == NULL)) {
            Py_XDECREF(word);
            Py_DECREF(key);
            return PyErr_Occurred() ? FAILED : NONE;
        }
        PyTuple_SET_ITEM(key, at, word);
        size += snprintf(row + size, sizeof row - (size_t)size, at ? ", %lld" : "[%lld", (long long)shown);
    }
    if (key == NULL)
        return FAILED;
    row[size++] = ']';
    number = Py_XNewRef(PyDict_GetItemWithError(engine->stack_ids, key));
    if (number == NULL && !PyErr_Occurred() && (payload = PyBytes_FromStringAndSize(row, size)) != NULL
        && (number = PyIter_Next(engine->stack_numbers)) != NULL
        && (add_journal_row((RowFields *)engine->rows, STACK_ROW, PyLong_AsLongLong(number), payload) < 0
            || PyDict_SetItem(engine->stack_ids, key, number) < 0))
        Py_CLEAR(number);
    Py_XDECREF(payload);
    Py_DECREF(key);
    return as_number(number);
}

int64_t known_stack(Engine *engine, const int64_t *words, Py_ssize_t length)
{
    uint64_t hash;
    int64_t number = table_find(&engine->stacks, words, length, &hash);
    if (number != NONE || length > 2 * NEAR + 1)
        return number;
    number = add_stack(engine, words, length);
    if (number != NONE && number != FAILED && table_add(&engine->stacks, words, length, hash, number) < 0)
        return FAILED;
    return number;
}

int64_t stack_of(Engine *engine, Log *log, PyFrameObject *frame)
{
    if ((long long)(intptr_t)frame == log->anchor && (frame != NULL || log->base != NONE))
        return log->base; /* an op that a function made: the function's own place */
    int64_t words[2 * NEAR + 1], number;
    Py_ssize_t length = 0;
    uint64_t hash;
    words[length++] = log->base;
    PyFrameObject *each = (PyFrameObject *)Py_XNewRef((PyObject *)frame);
    for (int count = 0; count < NEAR; count++) {
        if (each == NULL || (long long)(intptr_t)each == log->anchor) {
            if (each == NULL)
                words[0] = NONE; /* no anchor above: a whole stack, or a foreign one */
            Py_XDECREF(each);
            number = table_find(&engine->stacks, words, length, &hash);
            if (number != NONE)
                return number;
            number = add_stack(engine, words, length);
            if (number == NONE)
                number = ask_python(engine, log, frame);
            if (number != FAILED && table_add(&engine->stacks, words, length, hash, number) < 0)
                return FAILED;
            return number;
        }
        PyCodeObject *code = PyFrame_GetCode(each);
        words[length++] = (int64_t)(intptr_t)code;
        words[length++] = PyFrame_GetLasti(each);
        Py_DECREF(code); /* its frame has it, and codes.py keeps all that stand in a known stack */
        PyFrameObject *above = PyFrame_GetBack(each);
        Py_DECREF(each);
        each = above;
    }
    Py_XDECREF(each);
    return ask_python(engine, log, frame);
}
