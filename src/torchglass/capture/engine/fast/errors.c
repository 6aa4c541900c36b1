/* Exceptions that are on their way, and numbers that Python answers with. */
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

/* What is the program's own (Ctrl-C, a timeout) goes on; a fault of ours is counted, and costs the event. */
int forgive(Engine *engine)
{
    PyObject *error = take_error();
    if (error == NULL)
        return 0;
    PyObject *done = PyObject_CallMethod(engine->session, "forgive", "O", error);
    Py_DECREF(error);
    if (done == NULL)
        return -1;
    Py_DECREF(done);
    return 0;
}

/* Forget an exception, unless it is the program's own: one of torch's has no traceback, since C raised it. */
int let_go(Engine *engine)
{
    PyObject *error = take_error();
    if (error == NULL)
        return 0;
    PyObject *trace = PyException_GetTraceback(error);
    if (trace != NULL || !PyErr_GivenExceptionMatches(error, PyExc_Exception)) {
        PyObject *answer = PyObject_CallMethod(engine->session, "is_theirs", "O", error);
        int theirs = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
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

/* The clock of time.perf_counter_ns. */
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
