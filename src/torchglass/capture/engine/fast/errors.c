/* Tools that most files use: exceptions that are set, answers of Python, weak references, the
 * clock, names of attributes. */
#include "fast.h"
#include <time.h>

PyObject *take_error(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (type == NULL)
        return NULL;
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
#endif
}

void put_error(PyObject *error)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(error);
#else
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(error)), error, PyException_GetTraceback(error));
#endif
}

/* Count an error of ours, which costs only the event. An exception of the program
 * (Ctrl-C, a timeout) goes on: then -1. */
int forgive(Engine *engine)
{
    PyObject *error = take_error();
    if (error == NULL)
        return 0;
    const int done = as_done(PyObject_CallMethod(engine->session, "forgive", "O", error));
    Py_DECREF(error);
    return done;
}

/* Drop the exception that is set, unless it is the program's own. One of torch's has no traceback,
 * since C raised it. */
int drop_own_error(Engine *engine)
{
    PyObject *error = take_error();
    if (error == NULL)
        return 0;
    PyObject *trace = PyException_GetTraceback(error);
    if (trace != NULL || !PyErr_GivenExceptionMatches(error, PyExc_Exception)) {
        int theirs = as_truth(PyObject_CallMethod(engine->session, "is_theirs", "O", error));
        Py_XDECREF(trace);
        if (theirs < 0)
            PyErr_Clear();
        if (theirs != 0) {
            put_error(error);
            return -1;
        }
    }
    Py_DECREF(error);
    return 0;
}

int64_t as_number(PyObject *answer)
{
    if (answer == NULL)
        return FAILED;
    int64_t number = PyLong_AsLongLong(answer);
    Py_DECREF(answer);
    return number == -1 && PyErr_Occurred() ? FAILED : number;
}

int as_truth(PyObject *answer)
{
    if (answer == NULL)
        return -1;
    const int is_true = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return is_true;
}

int as_done(PyObject *answer)
{
    if (answer == NULL)
        return -1;
    Py_DECREF(answer);
    return 0;
}

/* Return the clock of time.perf_counter_ns. */
int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

PyObject *referent(PyObject *ref)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found = NULL;
    if (PyWeakref_GetRef(ref, &found) < 0)
        PyErr_Clear();
    return found;
#else
    PyObject *found = PyWeakref_GET_OBJECT(ref); /* borrowed, made our own */
    return found == Py_None ? NULL : Py_NewRef(found);
#endif
}

int refers_to(PyObject *ref, const PyObject *object)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *found;
    if (PyWeakref_GetRef(ref, &found) != 1) {
        PyErr_Clear();
        return 0;
    }
    Py_DECREF(found); /* `object` is alive then, or is not the one: only the address is compared */
    return found == object;
#else
    return PyWeakref_GET_OBJECT(ref) == object;
#endif
}

int intern_names(const AttributeName *names, size_t count)
{
    for (size_t at = 0; at < count; at++)
        if ((*names[at].place = PyUnicode_InternFromString(names[at].text)) == NULL)
            return -1;
    return 0;
}
