/* Turns the stack of a call into a number (stack.py). A stack has the key
 *
 *     (number of the stack at the anchor, code, instruction, code, instruction, …)
 *
 * with the frames from the caller up to the anchor, the frame of the nearest open event.
 */
#include "following.h"

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

/* Find the outer loops of a new stack (rounds.py). */
static int meet_stack(Engine *engine, PyObject *number, PyObject *key)
{
    PyObject *done = PyObject_CallFunctionObjArgs(engine->meet_stack, number, key, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
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
        || meet_stack(engine, number, key) < 0
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

/* ---------------------------------------------------------------- rounds of outer loops */

/* Fields of the loops that Python finds around a stack, and of their heads (rounds.py). */
enum { DISTANCE, HEAD };
enum { HEAD_LINE, HEAD_COLUMN, HEAD_NAMES, HEAD_SLOTS };

static uint64_t mixed_with(uint64_t mixed, const void *pointer)
{
    return (mixed ^ (uintptr_t)pointer) * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

/* Mix in the objects that the names of a head refer to. Return 0 if they cannot be read here. */
static uint64_t mixed_with_names(uint64_t mixed, PyFrameObject *frame, PyObject *head)
{
    PyObject *names = PyTuple_GET_ITEM(head, HEAD_NAMES);
    PyObject *slots = PyTuple_GET_ITEM(head, HEAD_SLOTS);
    if (PyTuple_GET_SIZE(slots) > 0) {
        if (!is_readable)
            return 0;
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(slots); at++) {
            Py_ssize_t slot = PyLong_AsSsize_t(PyTuple_GET_ITEM(slots, at));
            mixed = mixed_with(mixed, first_slot(frame)[slot]);
        }
        return mixed;
    }
    PyObject *globals = PyFrame_GetGlobals(frame);
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(names); at++)
        mixed = mixed_with(mixed, PyDict_GetItem(globals, PyTuple_GET_ITEM(names, at)));
    Py_DECREF(globals);
    return mixed;
}

/* Return a number that changes when a head of one of these loops has assigned other objects. 0: it
 * cannot be read here. */
static uint64_t objects_of_heads(PyFrameObject *innermost, PyObject *loops)
{
    uint64_t mixed = 1;
    Py_ssize_t above = 0;
    PyFrameObject *frame = frame_above(innermost, 0);
    for (Py_ssize_t at = 0; mixed != 0 && at < PyTuple_GET_SIZE(loops); at++) {
        PyObject *loop = PyTuple_GET_ITEM(loops, at);
        Py_ssize_t distance = PyLong_AsSsize_t(PyTuple_GET_ITEM(loop, DISTANCE));
        PyFrameObject *with_loop = frame_above(frame, distance - above);
        Py_DECREF(frame);
        frame = with_loop;
        if (frame == NULL)
            return 0;
        above = distance;
        PyObject *head = PyTuple_GET_ITEM(loop, HEAD);
        /* Another event may be in other loops, whose names refer to the same objects. */
        mixed = mixed_with(mixed_with(mixed, frame), head);
        mixed = mixed_with_names(mixed, frame, head);
    }
    Py_DECREF(frame);
    return mixed;
}

/* Most events are in the same rounds as the event before, which C finds out by itself. */
int look_at_rounds(Engine *engine, Log *log, PyFrameObject *frame, int64_t stack, int64_t at)
{
    /* An op that a function made has the function's frame, which was looked at for the function. */
    if (frame == NULL || (long long)(intptr_t)frame == log->anchor
        || PyDict_GET_SIZE(engine->watched_stacks) == 0)
        return 0;
    PyObject *number = PyLong_FromLongLong(stack);
    if (number == NULL)
        return -1;
    int status = 0;
    /* borrowed */
    PyObject *loops = PyDict_GetItemWithError(engine->watched_stacks, number);
    if (loops != NULL) {
        uint64_t heads = objects_of_heads(frame, loops);
        if (heads == 0 || heads != log->heads) {
            long long last = log->heads == 0 ? NONE : log->looked_at;
            PyObject *done = PyObject_CallFunction(engine->look_at_rounds, "OOOLL", log, frame, number,
                                                   (long long)at, last);
            status = done == NULL ? -1 : 0;
            Py_XDECREF(done);
        }
        log->heads = heads;
        log->looked_at = at;
    }
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : status;
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
