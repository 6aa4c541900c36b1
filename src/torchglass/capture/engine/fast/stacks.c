/* Turns the stack of a call into a number (stack.py). A stack has the key
 *
 *     (number of the stack at the anchor, code, instruction, code, instruction, …)
 *
 * with the frames from the caller up to the anchor, the frame of the nearest open event.
 */
#include "fast.h"

#define STACK_ROW 7  /* a kind of row (journal/layout.py) */
#define NEAR      16 /* frames; Python does longer walks, and sets milestones (milestones.py) */

static int64_t ask_python(Engine *engine, Log *log, PyFrameObject *frame)
{
    PyObject *caller = frame == NULL ? Py_None : (PyObject *)frame;
    return as_number(
        PyObject_CallFunction(engine->find_stack, "LLO", log->anchor, log->base, caller));
}

/* Return the frame `count` frames above another, owned. */
static PyFrameObject *frame_above(PyFrameObject *frame, Py_ssize_t count)
{
    PyFrameObject *each = (PyFrameObject *)Py_NewRef((PyObject *)frame);
    for (; count > 0 && each != NULL; count--) {
        PyFrameObject *above = PyFrame_GetBack(each);
        Py_DECREF(each);
        each = above;
    }
    return each;
}

/* Return the number of a code object. Python writes a row for a new one, and needs its frame for
 * that. */
static int64_t number_of_code(Engine *engine, PyObject *address, PyFrameObject *frame,
                              Py_ssize_t above)
{
    /* borrowed: (code, number) */
    PyObject *known = PyDict_GetItemWithError(engine->codes_kept, address);
    if (known != NULL)
        return PyLong_AsLongLong(PyTuple_GET_ITEM(known, 1));
    PyFrameObject *its_frame = PyErr_Occurred() ? NULL : frame_above(frame, above);
    if (its_frame == NULL)
        return FAILED;
    const int64_t number =
        as_number(PyObject_CallOneArg(engine->code_number, (PyObject *)its_frame));
    Py_DECREF(its_frame);
    return number;
}

/* Return what the row of a stack has for a word of its key. The words at odd places are addresses of
 * code objects (Python calls them `id`): the row has their numbers. */
static int64_t word_in_row(Engine *engine, PyFrameObject *frame, const int64_t *words,
                           Py_ssize_t at, PyObject *word)
{
    if (at % 2 == 0)
        return words[at];
    return number_of_code(engine, word, frame, at / 2);
}

/* Write the row of a stack, and return its number as a Python int, owned. */
static PyObject *write_stack(Engine *engine, PyObject *key, const char *row, Py_ssize_t length)
{
    PyObject *number = PyIter_Next(engine->stack_numbers);
    if (number == NULL)
        return NULL;
    if (add_journal_row((RowFields *)engine->rows, STACK_ROW, PyLong_AsLongLong(number), row,
                        length)
            < 0
        || PyDict_SetItem(engine->stack_ids, key, number) < 0)
        Py_CLEAR(number);
    return number;
}

/* Give a new stack a number (stack.py: _add). Its key becomes a tuple, its row a list in JSON. */
static int64_t add_stack(Engine *engine, PyFrameObject *frame, const int64_t *words,
                         Py_ssize_t length)
{
    char row[(2 * NEAR + 1) * (LONGEST_NUMBER + 2) + 2];
    char *end = row;
    PyObject *key = PyTuple_New(length);
    if (key == NULL)
        return FAILED;
    for (Py_ssize_t at = 0; at < length; at++) {
        PyObject *word = PyLong_FromLongLong(words[at]);
        int64_t shown = FAILED;
        if (word != NULL)
            shown = word_in_row(engine, frame, words, at, word);
        if (shown == FAILED) {
            Py_XDECREF(word);
            Py_DECREF(key);
            return FAILED;
        }
        PyTuple_SET_ITEM(key, at, word);
        if (at == 0) {
            *end++ = '[';
        } else {
            *end++ = ',';
            *end++ = ' ';
        }
        end = put_number(end, shown);
    }
    *end++ = ']';
    PyObject *number = Py_XNewRef(PyDict_GetItemWithError(engine->stack_ids, key));
    if (number == NULL && !PyErr_Occurred())
        number = write_stack(engine, key, row, end - row);
    Py_DECREF(key);
    return as_number(number);
}

int64_t stack_of_words(Engine *engine, PyFrameObject *frame, const int64_t *words,
                       Py_ssize_t length)
{
    uint64_t hash;
    int64_t number = table_find(&engine->stacks, words, length, &hash);
    if (number != NONE || length > 2 * NEAR + 1)
        return number;
    number = add_stack(engine, frame, words, length);
    if (number != FAILED && table_add(&engine->stacks, words, length, hash, number) < 0)
        return FAILED;
    return number;
}

/* Return the number of a stack that was walked to its end, and cache it. */
static int64_t walked_stack(Engine *engine, Log *log, PyFrameObject *frame, const int64_t *words,
                            Py_ssize_t length)
{
    uint64_t hash;
    int64_t number = table_find(&engine->stacks, words, length, &hash);
    if (number != NONE)
        return number;
    if (frame == NULL)
        number = ask_python(engine, log, frame);
    else
        number = add_stack(engine, frame, words, length);
    if (number != FAILED && table_add(&engine->stacks, words, length, hash, number) < 0)
        return FAILED;
    return number;
}

int64_t stack_of(Engine *engine, Log *log, PyFrameObject *frame)
{
    if ((long long)(intptr_t)frame == log->anchor && (frame != NULL || log->base != NONE))
        return log->base; /* an op that a function made: the function's own place */
    int64_t words[2 * NEAR + 1];
    Py_ssize_t length = 0;
    words[length++] = log->base;
    PyFrameObject *each = (PyFrameObject *)Py_XNewRef((PyObject *)frame);
    for (int count = 0; count < NEAR; count++) {
        if (each == NULL) {
            words[0] = NONE; /* there is no anchor: a whole stack, or a foreign one */
            return walked_stack(engine, log, frame, words, length);
        }
        if ((long long)(intptr_t)each == log->anchor) {
            Py_DECREF(each);
            return walked_stack(engine, log, frame, words, length);
        }
        PyCodeObject *code = PyFrame_GetCode(each);
        words[length++] = (int64_t)(intptr_t)code;
        words[length++] = PyFrame_GetLasti(each);
        Py_DECREF(code); /* the frame keeps it now, and codes.py once it is in a known stack */
        PyFrameObject *above = PyFrame_GetBack(each);
        Py_DECREF(each);
        each = above;
    }
    Py_XDECREF(each);
    return ask_python(engine, log, frame);
}
