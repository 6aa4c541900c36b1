/* The begin and the end of a followed call (capture/variables/activation.py: begin; engine.py:
 * left), and the object Slots.
 *
 * Python begins the call. If all its arguments are plain locals, they are read and reported here.
 */
#include "following.h"

static struct {
    PyObject *alert, *tell_left;
} names; /* of attributes, interned */

/* ---------------------------------------------------------------- slots
 *
 * A sequence by which Python reads the locals of a frame in their place; valid until the call
 * returns (capture/slots.py: slots_of). */

typedef struct {
    PyObject_HEAD
    PyObject **first;
    Py_ssize_t count;
} Slots;

static Py_ssize_t slots_length(const Slots *slots)
{
    return slots->count;
}

static PyObject *slots_item(const Slots *slots, Py_ssize_t at)
{
    if (at < 0 || at >= slots->count || slots->first[at] == NULL) {
        PyErr_SetString(at < 0 || at >= slots->count ? PyExc_IndexError : PyExc_ValueError,
                        "there is nothing in this slot");
        return NULL;
    }
    return Py_NewRef(slots->first[at]);
}

static PySequenceMethods slots_as_sequence = {.sq_length = (lenfunc)slots_length,
                                              .sq_item = (ssizeargfunc)slots_item};

static PyTypeObject SlotsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Slots",
    .tp_doc = "The locals of a frame where they are.",
    .tp_basicsize = sizeof(Slots),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_as_sequence = &slots_as_sequence,
};

static PyObject *slots_of(PyFrameObject *frame, Py_ssize_t count)
{
    Slots *slots = PyObject_New(Slots, &SlotsType);
    if (slots != NULL) {
        slots->first = first_slot(frame);
        slots->count = count;
    }
    return (PyObject *)slots;
}

/* slots_of(frame, count) */
static PyObject *slots_by_c(PyObject *module, PyObject *args)
{
    PyObject *frame;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "O!n", &PyFrame_Type, &frame, &count))
        return NULL;
    if (!is_readable)
        Py_RETURN_NONE;
    return slots_of((PyFrameObject *)frame, count);
}

/* ---------------------------------------------------------------- arguments */

/* Return the first fields of an argument's change: its name, and those that all arguments of the
 * call share. Owned. */
static PyObject *facts_of(PyObject *name, PyObject *opening)
{
    Py_ssize_t count = PyTuple_GET_SIZE(opening);
    PyObject *facts = PyTuple_New(count + 1);
    if (facts != NULL)
        PyTuple_SET_ITEM(facts, 0, Py_NewRef(name));
    for (Py_ssize_t at = 0; facts != NULL && at < count; at++)
        PyTuple_SET_ITEM(facts, at + 1, Py_NewRef(PyTuple_GET_ITEM(opening, at)));
    return facts;
}

/* Let Python remember the value of an argument (Snapshots.take). */
static int take_by_python(Call *call, Known *entry, PyObject *value)
{
    PyObject *snapshots = PyObject_GetAttrString(call->engine, "snapshots");
    if (snapshots == NULL)
        return -1;
    const int status =
        as_done(PyObject_CallMethod(snapshots, "take", "OOO", entry, value, Py_True));
    Py_DECREF(snapshots);
    return status;
}

/* Remember the value of an argument in its entry. */
static int take_argument(Call *call, Known *entry, PyObject *name, PyObject *value)
{
    PyObject *kind = kind_for(call, value);
    if (kind == NULL)
        return -1;
    const long role = role_of(kind);
    int status;
    if (is_taken_here(role))
        status = take(call, entry, value, kind, role);
    else
        status = take_by_python(call, entry, value);
    Py_DECREF(kind);
    if (status == 0 && is_set(entry->signature))
        return sort_by_access(call, name, value, entry);
    return status;
}

/* Report the value of an argument. */
static int report_argument(Call *call, Known *entry, PyObject *name, PyObject *value,
                           PyObject *opening, PyFrameObject *frame)
{
    PyObject *facts = facts_of(name, opening);
    if (facts == NULL)
        return -1;
    PyObject *fields = fields_of(facts, Py_NewRef(unbound), value, call->serial);
    const int status = tell(call, entry, fields, frame);
    Py_XDECREF(fields);
    Py_DECREF(facts);
    return status;
}

/* Read and report one argument. */
static int begin_argument(Call *call, PyObject *variable, PyObject *opening, PyFrameObject *frame)
{
    PyObject *name = PyTuple_GET_ITEM(variable, 0); /* borrowed from the plan, as is the variable */
    PyObject *value = read_slot(frame, PyLong_AsSsize_t(PyTuple_GET_ITEM(variable, 1)));
    int status = 0;
    if (value != unbound) {
        Known *entry = entry_of(call, name);
        status = entry == NULL ? -1 : take_argument(call, entry, name, value);
        if (status == 0)
            status = report_argument(call, entry, name, value, opening, frame);
        Py_XDECREF(entry);
    }
    Py_DECREF(value);
    return status;
}

static int begin_arguments(Call *call, PyObject *arguments, PyObject *opening, PyFrameObject *frame)
{
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(arguments); at++)
        if (begin_argument(call, PyTuple_GET_ITEM(arguments, at), opening, frame) < 0)
            return -1;
    return 0;
}

/* begin(call, arguments, opening, frame): read and report the arguments, which are plain locals
 * (plan.py: opening) */
static PyObject *begin_by_c(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || !is_ready(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2])
        || PyTuple_GET_SIZE(args[2]) != 5 || !PyFrame_Check(args[3]) || !is_readable) {
        PyErr_SetString(PyExc_TypeError,
                        "a call, its arguments, the fields that they share and a frame are wanted");
        return NULL;
    }
    if (begin_arguments((Call *)args[0], args[1], args[2], (PyFrameObject *)args[3]) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the end of a call */

int end_followed(Call *call, PyObject *error)
{
    PyObject *alert = PyObject_GetAttr(call->plan, names.alert);
    if (alert == NULL)
        return -1;
    int status = 0;
    if (PySet_GET_SIZE(alert) && PySet_Discard(alert, call->serial) < 0)
        status = -1;
    Py_DECREF(alert);
    if (status < 0)
        return -1;
    PyObject *tell_left = PyObject_GetAttr(call->engine, names.tell_left);
    if (tell_left == NULL)
        return -1;
    if (tell_left != Py_None)
        status = as_done(PyObject_CallFunctionObjArgs(tell_left, call->serial, error, NULL));
    Py_DECREF(tell_left);
    return status;
}

/* ---------------------------------------------------------------- the module's part */

static PyMethodDef functions[] = {
    {"begin", (PyCFunction)(void (*)(void))begin_by_c, METH_FASTCALL,
     "Report the arguments of a call."},
    {"slots_of", slots_by_c, METH_VARARGS,
     "The locals of a frame where they are; None where they cannot be read."},
    {NULL},
};

int beginning_ready(PyObject *module)
{
    const AttributeName all[] = {
        {&names.alert, "alert"},
        {&names.tell_left, "tell_left"},
    };
    if (INTERN_NAMES(all) < 0)
        return -1;
    return PyType_Ready(&SlotsType) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
