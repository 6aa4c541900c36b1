/* How a call that is followed begins and ends (capture/variables/engine.py: begin and left; activation.py: Activation.begin).
 *
 * Calls of plain functions are begun here, whose arguments are plain locals: those of generators, module bodies and functions
 * that share variables with others are Python's.
 */
#include "following.h"

static struct { PyObject *alert, *calls, *easy, *serials, *tell_left; } names; /* of attributes, interned */

/* ---------------------------------------------------------------- slots
 *
 * The locals of a frame where they are, for Python to read: valid until the call returns (frames.py: slots_of). */

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
        PyErr_SetString(at < 0 || at >= slots->count ? PyExc_IndexError : PyExc_ValueError, "there is nothing in this slot");
        return NULL;
    }
    return Py_NewRef(slots->first[at]);
}

static PySequenceMethods slots_as_sequence = {.sq_length = (lenfunc)slots_length, .sq_item = (ssizeargfunc)slots_item};

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

/* What a change of an argument begins with: its name, and what all arguments of the call have in common. Owned. */
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

/* Let the entry know an argument. */
static int take_argument(Call *call, Known *entry, PyObject *name, PyObject *value)
{
    PyObject *kind = kind_for(call, value);
    long role = kind == NULL ? -1 : role_of(kind);
    int done = kind == NULL ? -1 : 0;
    if (kind != NULL && is_taken_here(role))
        done = take(call, entry, value, kind, role);
    else if (kind != NULL) {
        PyObject *snapshots = PyObject_GetAttrString(call->engine, "snapshots");
        done = snapshots == NULL ? -1 : ask(PyObject_CallMethod(snapshots, "take", "OOO", entry, value, Py_True));
        Py_XDECREF(snapshots);
    }
    Py_XDECREF(kind);
    return done == 0 && is_set(entry->signature) ? settle(call, name, value, entry) : done;
}

/* One argument of a call that begins. */
static int look_at_argument(Call *call, PyObject *variable, PyObject *opening, PyFrameObject *frame)
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
    PyObject *fields = facts == NULL ? NULL : fields_of(facts, Py_NewRef(unbound), value, call->serial);
    if (done == 0)
        done = tell(call, entry, fields, frame);
    Py_XDECREF(fields);
    Py_XDECREF(facts);
    Py_XDECREF(entry);
    Py_DECREF(value);
    return done;
}

static int look_at_arguments(Call *call, PyObject *arguments, PyObject *opening, PyFrameObject *frame)
{
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(arguments); at++)
        if (look_at_argument(call, PyTuple_GET_ITEM(arguments, at), opening, frame) < 0)
            return -1;
    return 0;
}

/* begin(call, arguments, opening, frame): all arguments are plain locals */
static PyObject *begin_by_c(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || !is_ready(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2])
        || PyTuple_GET_SIZE(args[2]) != 5 || !PyFrame_Check(args[3]) || !is_readable) {
        PyErr_SetString(PyExc_TypeError, "a call, its arguments, how it opens and a frame are wanted");
        return NULL;
    }
    if (look_at_arguments((Call *)args[0], args[1], args[2], (PyFrameObject *)args[3]) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the call */

enum { ARGUMENTS, OPENING, SLOT_COUNT, EASY_FIELDS }; /* plan.py: Easy */

/* What Activation.__init__ makes of a plain call, owned. */
static Call *new_call(PyObject *engine, PyObject *plan, PyFrameObject *frame, Py_ssize_t slots)
{
    PyObject *serials = PyObject_GetAttr(engine, names.serials);
    Call *call = serials == NULL ? NULL : (Call *)((PyTypeObject *)call_type)->tp_alloc((PyTypeObject *)call_type, 0);
    if (call != NULL) {
        call->engine = Py_NewRef(engine);
        call->plan = Py_NewRef(plan);
        call->serial = PyIter_Next(serials);
        call->slots = slots ? slots_of(frame, slots) : Py_NewRef(Py_None);
        call->known = PyDict_New();
        call->open = PyDict_New();
        call->alone = PyDict_New();
        if (call->serial == NULL || call->slots == NULL || call->known == NULL || call->open == NULL || call->alone == NULL)
            Py_CLEAR(call);
    }
    Py_XDECREF(serials);
    return call;
}

PyObject *begin_followed(PyObject *engine, PyObject *running, PyObject *plan, PyFrameObject *frame)
{
    PyObject *easy = PyObject_GetAttr(plan, names.easy), *calls = easy == NULL ? NULL : PyObject_GetAttr(engine, names.calls);
    Call *call = NULL;
    if (calls != NULL && (calls != Py_None || !PyTuple_Check(easy) || call_type == NULL || !is_readable))
        call = (Call *)Py_NewRef(Py_None); /* somebody is told of calls, or they are not so easy */
    else if (calls != NULL && (call = new_call(engine, plan, frame, PyLong_AsSsize_t(PyTuple_GET_ITEM(easy, SLOT_COUNT)))) != NULL) {
        PyObject *key = PyLong_FromVoidPtr(frame);
        if (key == NULL || PyDict_SetItem(running, key, (PyObject *)call) < 0
            || look_at_arguments(call, PyTuple_GET_ITEM(easy, ARGUMENTS), PyTuple_GET_ITEM(easy, OPENING), frame) < 0)
            Py_CLEAR(call);
        Py_XDECREF(key);
    }
    Py_XDECREF(calls);
    Py_XDECREF(easy);
    return (PyObject *)call;
}

int end_followed(Call *call, PyObject *error)
{
    PyObject *alert = PyObject_GetAttr(call->plan, names.alert);
    int done = alert == NULL ? -1 : PySet_GET_SIZE(alert) ? PySet_Discard(alert, call->serial) : 0;
    Py_XDECREF(alert);
    PyObject *tell = done < 0 ? NULL : PyObject_GetAttr(call->engine, names.tell_left);
    if (tell == NULL)
        return -1;
    done = tell == Py_None ? 0 : ask(PyObject_CallFunctionObjArgs(tell, call->serial, error, NULL));
    Py_DECREF(tell);
    return done;
}

/* begin_followed(engine, its running calls, plan, frame) → the call; None: Python has to begin it */
static PyObject *begin_followed_by_c(PyObject *module, PyObject *args)
{
    PyObject *engine, *running, *plan, *frame;
    if (!PyArg_ParseTuple(args, "OO!OO!", &engine, &PyDict_Type, &running, &plan, &PyFrame_Type, &frame))
        return NULL;
    return begin_followed(engine, running, plan, (PyFrameObject *)frame);
}

/* ---------------------------------------------------------------- the module's part */

static PyMethodDef functions[] = {
    {"begin", (PyCFunction)(void (*)(void))begin_by_c, METH_FASTCALL, "Tell of the arguments of a call."},
    {"begin_followed", begin_followed_by_c, METH_VARARGS, "A call of known code begins."},
    {"slots_of", slots_by_c, METH_VARARGS, "The locals of a frame where they are; None where they cannot be read."},
    {NULL},
};

int beginning_ready(PyObject *module)
{
    struct { PyObject **place; const char *text; } all[] = {
        {&names.alert, "alert"}, {&names.calls, "calls"}, {&names.easy, "easy"}, {&names.serials, "serials"},
        {&names.tell_left, "tell_left"},
    };
    for (size_t at = 0; at < sizeof all / sizeof all[0]; at++)
        if ((*all[at].place = PyUnicode_InternFromString(all[at].text)) == NULL)
            return -1;
    return PyType_Ready(&SlotsType) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
