/* A profile function that reports the calls of the program's own Python functions, and of no
 * others.
 *
 * Python calls it for each call and return, so it must be fast: whether the calls of a code object
 * are recorded is asked once (capture/calls/probe.py keeps the code, so its address stays its own).
 */
#include "fast.h"
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    Table codes; /* address of a code object -> 1: its calls are recorded, 0: they are not */
    /* functions of Python: (frame), (frame), (frame, result, has failed) */
    PyObject *is_meant, *begin, *end;
    /* 0: the recording has ended, and each thread removes its profile function at the next call */
    char on;
} CallFilter;

/* Out of memory costs only the event. Any other exception is the program's (of a signal handler),
 * and goes on. */
static int failed(void)
{
    if (!PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyErr_Clear();
    return 0;
}

static int is_meant(CallFilter *filter, PyFrameObject *frame, PyCodeObject *code)
{
    int64_t word = (int64_t)(intptr_t)code;
    uint64_t hash;
    int64_t known = table_find(&filter->codes, &word, 1, &hash);
    if (known != NONE)
        return (int)known;
    PyObject *answer = PyObject_CallOneArg(filter->is_meant, (PyObject *)frame);
    if (answer == NULL)
        return failed();
    known = answer == Py_True;
    Py_DECREF(answer);
    return table_add(&filter->codes, &word, 1, hash, known) < 0 ? failed() : (int)known;
}

static int on_call(PyObject *self, PyFrameObject *frame, int event, PyObject *argument)
{
    if (event != PyTrace_CALL && event != PyTrace_RETURN)
        return 0;
    CallFilter *filter = (CallFilter *)self;
    if (!filter->on) {
        Py_INCREF(self); /* the thread drops its reference */
        PyEval_SetProfile(NULL, NULL);
        Py_DECREF(self);
        return 0;
    }
    PyCodeObject *code = PyFrame_GetCode(frame);
    int meant = is_meant(filter, frame, code);
    Py_DECREF(code);
    if (meant <= 0)
        return meant;
    PyObject *done;
    if (event == PyTrace_CALL)
        done = PyObject_CallOneArg(filter->begin, (PyObject *)frame);
    else /* without a result, an exception leaves the call */
        done =
            PyObject_CallFunctionObjArgs(filter->end, frame, argument == NULL ? Py_None : argument,
                                         argument == NULL ? Py_True : Py_False, NULL);
    Py_XDECREF(done);
    return done == NULL ? failed() : 0;
}

static PyObject *filter_set(CallFilter *self, PyObject *unused)
{
    PyEval_SetProfile(on_call, (PyObject *)self);
    Py_RETURN_NONE;
}

/* sys.getprofile() returns this object; when a program sets it again and it is called, the C
 * function is set again. */
static PyObject *filter_call(CallFilter *self, PyObject *args, PyObject *named)
{
    return filter_set(self, NULL);
}

static PyObject *filter_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    PyObject *meant, *begin, *end;
    if (!PyArg_ParseTuple(args, "OOO", &meant, &begin, &end))
        return NULL;
    CallFilter *self = (CallFilter *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->is_meant = Py_NewRef(meant);
    self->begin = Py_NewRef(begin);
    self->end = Py_NewRef(end);
    self->on = 1;
    return (PyObject *)self;
}

static int filter_traverse(CallFilter *self, visitproc visit, void *arg)
{
    Py_VISIT(self->is_meant);
    Py_VISIT(self->begin);
    Py_VISIT(self->end);
    return 0;
}

static int filter_clear(CallFilter *self)
{
    Py_CLEAR(self->is_meant);
    Py_CLEAR(self->begin);
    Py_CLEAR(self->end);
    return 0;
}

static void filter_dealloc(CallFilter *self)
{
    PyObject_GC_UnTrack(self);
    filter_clear(self);
    table_clear(&self->codes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef filter_methods[] = {
    {"set", (PyCFunction)filter_set, METH_NOARGS,
     "Become the profile function of the calling thread."},
    {NULL},
};
static PyMemberDef filter_members[] = {
    {"on", T_BOOL, offsetof(CallFilter, on), 0, "Whether calls are recorded."},
    {NULL},
};
PyTypeObject CallFilterType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.CallFilter",
    .tp_basicsize = sizeof(CallFilter),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = filter_new,
    .tp_dealloc = (destructor)filter_dealloc,
    .tp_traverse = (traverseproc)filter_traverse,
    .tp_clear = (inquiry)filter_clear,
    .tp_call = (ternaryfunc)filter_call,
    .tp_methods = filter_methods,
    .tp_members = filter_members,
};
