/* Where a call stands (stack.py): the frames from the caller up to the nearest open event, as a number. */
#include "fast.h"

#define NEAR 16 /* frames; a longer walk leaves milestones, which is Python's affair (milestones.py) */

static int64_t ask_python(Engine *engine, Log *log, PyFrameObject *frame)
{
    PyObject *caller = frame == NULL ? Py_None : (PyObject *)frame;
    return as_number(PyObject_CallFunction(engine->find_stack, "LLO", log->anchor, log->base, caller));
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
