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

/* Remember the value of an argument in its entry. */
static int take_argument(Call *call, Known *entry, PyObject *name, PyObject *value)
{
    PyObject *kind = kind_for(call, value);
    long role = kind == NULL ? -1 : role_of(kind);
    int done = kind == NULL ? -1 : 0;
    if (kind != NULL && is_taken_here(role))
        done = take(call, entry, value, kind, role);
    else if (kind != NULL) {
        PyObject *snapshots = PyObject_GetAttrString(call->engine, "snapshots");
        done = snapshots == NULL
                   ? -1
                   : as_done(PyObject_CallMethod(snapshots, "take", "OOO", entry, value, Py_True));
        Py_XDECREF(snapshots);
    }
    Py_XDECREF(kind);
    return done == 0 && is_set(entry->signature) ? sort_by_access(call, name, value, entry) : done;
}

/* Read and report one argument. */
static int begin_argument(Call *call, PyObject *variable, PyObject *opening, PyFrameObject *frame)
{
    PyObject *name = PyTuple_GET_ITEM(variable, 0); /* borrowed from the plan, as is the variable */
    PyObject *value = read_slot(frame, PyLong_AsSsize_t(PyTuple_GET_ITEM(variable, 1)));
    if (value == unbound) {
        Py_DECREF(value);
        return 0;
    }
    Known *entry = entry_of(call, name);
    int done = entry == NULL ? -1 : take_argument(call, entry, name, value);
    PyObject *facts = done < 0 ? NULL : facts_of(name, opening);
    PyObject *fields =
        facts == NULL ? NULL : fields_of(facts, Py_NewRef(unbound), value, call->serial);
    if (done == 0)
        done = tell(call, entry, fields, frame);
    Py_XDECREF(fields);
    Py_XDECREF(facts);
    Py_XDECREF(entry);
    Py_DECREF(value);
    return done;
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
    int done = alert == NULL ? -1 : PySet_GET_SIZE(alert) ? PySet_Discard(alert, call->serial) : 0;
    Py_XDECREF(alert);
    PyObject *tell = done < 0 ? NULL : PyObject_GetAttr(call->engine, names.tell_left);
    if (tell == NULL)
        return -1;
    done = tell == Py_None ? 0
                           : as_done(PyObject_CallFunctionObjArgs(tell, call->serial, error, NULL));
    Py_DECREF(tell);
    return done;
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
