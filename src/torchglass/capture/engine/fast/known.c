/* The objects of a followed call whose fields Python and C share: Known (one variable), Call, and
 * ToldCall (what was recorded of a call). Also small functions that read Python objects. */
#include "following.h"
#include "structmember.h"

PyObject *unbound, *told_mark, *no_kind, *known_type, *call_type;
int is_readable;
BuiltinKind builtin_kinds[BUILTIN_KINDS];

/* ----------------------------------------------------------- one variable (snapshots.py: Known) */

static PyObject *known_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Known *known = (Known *)type->tp_alloc(type, 0);
    if (known != NULL) {
        known->kept = Py_XNewRef(unbound);
        known->kind = Py_XNewRef(no_kind);
    }
    return (PyObject *)known;
}

static int known_traverse(Known *known, visitproc visit, void *arg)
{
    Py_VISIT(known->kept);
    Py_VISIT(known->kind);
    Py_VISIT(known->signature);
    return 0;
}

static int known_clear(Known *known)
{
    Py_CLEAR(known->kept);
    Py_CLEAR(known->kind);
    Py_CLEAR(known->signature);
    return 0;
}

static void known_dealloc(Known *known)
{
    PyObject_GC_UnTrack(known);
    known_clear(known);
    Py_TYPE(known)->tp_free((PyObject *)known);
}

static PyMemberDef known_members[] = {
    {"id", T_ULONGLONG, offsetof(Known, id), 0, NULL},
    {"is_told", T_BOOL, offsetof(Known, is_told), 0, NULL},
    {"is_loose", T_BOOL, offsetof(Known, is_loose), 0, NULL},
    {"kept", T_OBJECT, offsetof(Known, kept), 0, NULL},
    {"kind", T_OBJECT, offsetof(Known, kind), 0, NULL},
    {"signature", T_OBJECT, offsetof(Known, signature), 0, NULL},
    {NULL},
};
PyTypeObject KnownType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Known",
    .tp_doc = "The last value of one variable.",
    .tp_basicsize = sizeof(Known),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = known_new,
    .tp_dealloc = (destructor)known_dealloc,
    .tp_traverse = (traverseproc)known_traverse,
    .tp_clear = (inquiry)known_clear,
    .tp_members = known_members,
};

/* --------------------------------------------------------- one call (activation.py: Activation) */

#define CALL_OBJECTS(each)                                                                         \
    each(engine) each(plan) each(serial) each(slots) each(known) each(open) each(alone)            \
        each(pending) each(error) each(local)

static int call_traverse(Call *call, visitproc visit, void *arg)
{
#define VISIT(name) Py_VISIT(call->name);
    CALL_OBJECTS(VISIT)
    return 0;
}

static int call_clear(Call *call)
{
#define CLEAR(name) Py_CLEAR(call->name);
    CALL_OBJECTS(CLEAR)
    return 0;
}

static void call_dealloc(Call *call)
{
    PyObject_GC_UnTrack(call);
    call_clear(call);
    Py_TYPE(call)->tp_free((PyObject *)call);
}

#define OBJECT_MEMBER(name) {#name, T_OBJECT, offsetof(Call, name), 0, NULL},
static PyMemberDef call_members[] = {
    CALL_OBJECTS(OBJECT_MEMBER){"is_exact", T_BOOL, offsetof(Call, is_exact), 0, NULL},
    {"opcodes_before", T_BOOL, offsetof(Call, opcodes_before), 0, NULL},
    {"skipped_line", T_INT, offsetof(Call, skipped_line), 0, NULL},
    {NULL},
};
PyTypeObject CallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Call",
    .tp_doc = "One call whose variables are followed.",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)call_dealloc,
    .tp_traverse = (traverseproc)call_traverse,
    .tp_clear = (inquiry)call_clear,
    .tp_members = call_members,
};

/* Whether Activation.__init__ has set all fields. */
int is_ready(PyObject *call)
{
    return PyObject_TypeCheck(call, &CallType) && ((Call *)call)->known != NULL
           && PyDict_Check(((Call *)call)->known) && ((Call *)call)->serial != NULL
           && ((Call *)call)->engine != NULL && ((Call *)call)->plan != NULL;
}

/* -------------------------------------------- what was recorded of a call (events.py: ToldCall) */

static PyObject *told_call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    ToldCall *call = (ToldCall *)type->tp_alloc(type, 0);
    if (call == NULL)
        return NULL;
    call->above = -2; /* events.py: CHANGES */
    if ((call->told = PyDict_New()) == NULL || (call->starts = PyDict_New()) == NULL)
        Py_CLEAR(call);
    return (PyObject *)call;
}

static int told_call_traverse(ToldCall *call, visitproc visit, void *arg)
{
    Py_VISIT(call->told);
    Py_VISIT(call->starts);
    return 0;
}

static int told_call_clear(ToldCall *call)
{
    Py_CLEAR(call->told);
    Py_CLEAR(call->starts);
    return 0;
}

static void told_call_dealloc(ToldCall *call)
{
    PyObject_GC_UnTrack(call);
    told_call_clear(call);
    Py_TYPE(call)->tp_free((PyObject *)call);
}

static PyMemberDef told_call_members[] = {
    {"above", T_LONGLONG, offsetof(ToldCall, above), 0, NULL},
    {"told", T_OBJECT, offsetof(ToldCall, told), 0, NULL},
    {"starts", T_OBJECT, offsetof(ToldCall, starts), 0, NULL},
    {NULL},
};
PyTypeObject ToldCallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.ToldCall",
    .tp_doc = "What was recorded of one call.",
    .tp_basicsize = sizeof(ToldCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = told_call_new,
    .tp_dealloc = (destructor)told_call_dealloc,
    .tp_traverse = (traverseproc)told_call_traverse,
    .tp_clear = (inquiry)told_call_clear,
    .tp_members = told_call_members,
};

/* ---------------------------------------------------------------- reading Python objects */

int is_true_attribute(PyObject *object, PyObject *name)
{
    return as_truth(PyObject_GetAttr(object, name));
}

int attribute_as_long(PyObject *object, PyObject *name, long *found)
{
    PyObject *number = PyObject_GetAttr(object, name);
    *found = number == NULL ? -1 : PyLong_AsLong(number);
    Py_XDECREF(number);
    return *found == -1 && PyErr_Occurred() ? -1 : 0;
}

/* ---------------------------------------------------------------- the module's part */

/* follow_with(UNBOUND, TOLD, NO_KIND, BUILTINS, Known, Activation, SLOTS_ARE_READABLE): set what
 * activation.py defines */
static PyObject *follow_with(PyObject *module, PyObject *args)
{
    PyObject *nothing, *told, *kind, *kinds, *known, *call;
    int readable;
    if (!PyArg_ParseTuple(args, "OOO!O!OO!p", &nothing, &told, &PyTuple_Type, &kind, &PyDict_Type,
                          &kinds, &known, &PyType_Type, &call, &readable))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)call, &CallType)) {
        PyErr_SetString(PyExc_TypeError, "a class of calls is wanted");
        return NULL;
    }
    Py_XSETREF(unbound, Py_NewRef(nothing)); /* all of them for ever */
    Py_XSETREF(told_mark, Py_NewRef(told));
    Py_XSETREF(no_kind, Py_NewRef(kind));
    Py_XSETREF(known_type, Py_NewRef(known));
    Py_XSETREF(call_type, Py_NewRef(call));
    is_readable = readable;
    PyTypeObject *const types[BUILTIN_KINDS] = {
        &PyLong_Type,  Py_TYPE(Py_None), &PyBool_Type, &PyUnicode_Type,
        &PyTuple_Type, &PyDict_Type,     &PyList_Type, &PyFloat_Type,
    };
    for (int at = 0; at < BUILTIN_KINDS; at++) {
        PyObject *address = PyLong_FromVoidPtr(types[at]);
        /* borrowed, made our own */
        PyObject *found = address == NULL ? NULL : PyDict_GetItemWithError(kinds, address);
        builtin_kinds[at] = (BuiltinKind){types[at], Py_XNewRef(found)};
        Py_XDECREF(address);
    }
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"follow_with", follow_with, METH_VARARGS,
     "Set the constants and classes of the variables probe."},
    {NULL},
};

int known_ready(PyObject *module)
{
    if (PyType_Ready(&KnownType) < 0 || PyType_Ready(&CallType) < 0
        || PyType_Ready(&ToldCallType) < 0 || PyModule_AddFunctions(module, functions) < 0
        || PyModule_AddObjectRef(module, "Known", (PyObject *)&KnownType) < 0
        || PyModule_AddObjectRef(module, "ToldCall", (PyObject *)&ToldCallType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Call", (PyObject *)&CallType);
}
