/* The objects that C and Python share while variables are followed, and a few helpers.
 *
 *   Known          the last value of one variable, to see whether it has changed
 *   Call           a running call whose variables are followed
 *   ReportedCall   what was recorded of a call's variables
 *   LastReport     what was recorded last of one variable
 */
#include "following.h"
#include "structmember.h"

PyObject *unbound, *reported_mark, *no_kind, *known_type, *call_type;
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
    {"is_reported", T_BOOL, offsetof(Known, is_reported), 0, NULL},
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

/* Return whether Activation.__init__ has set all fields. */
int is_ready(PyObject *call)
{
    return PyObject_TypeCheck(call, &CallType) && ((Call *)call)->known != NULL
           && PyDict_Check(((Call *)call)->known) && ((Call *)call)->serial != NULL
           && ((Call *)call)->engine != NULL && ((Call *)call)->plan != NULL;
}

/* ------------------------------------------------------ what was recorded of a call (events.py) */

static PyObject *reported_call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    ReportedCall *call = (ReportedCall *)type->tp_alloc(type, 0);
    if (call == NULL)
        return NULL;
    call->above = -2; /* events.py: CHANGES */
    call->last = PyDict_New();
    call->starts = PyDict_New();
    if (call->last == NULL || call->starts == NULL)
        Py_CLEAR(call);
    return (PyObject *)call;
}

static int reported_call_traverse(ReportedCall *call, visitproc visit, void *arg)
{
    Py_VISIT(call->last);
    Py_VISIT(call->starts);
    return 0;
}

static int reported_call_clear(ReportedCall *call)
{
    Py_CLEAR(call->last);
    Py_CLEAR(call->starts);
    return 0;
}

static void reported_call_dealloc(ReportedCall *call)
{
    PyObject_GC_UnTrack(call);
    reported_call_clear(call);
    Py_TYPE(call)->tp_free((PyObject *)call);
}

static PyMemberDef reported_call_members[] = {
    {"above", T_LONGLONG, offsetof(ReportedCall, above), 0, NULL},
    {"last", T_OBJECT, offsetof(ReportedCall, last), 0, NULL},
    {"starts", T_OBJECT, offsetof(ReportedCall, starts), 0, NULL},
    {NULL},
};
PyTypeObject ReportedCallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.ReportedCall",
    .tp_doc = "What was recorded of one call.",
    .tp_basicsize = sizeof(ReportedCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = reported_call_new,
    .tp_dealloc = (destructor)reported_call_dealloc,
    .tp_traverse = (traverseproc)reported_call_traverse,
    .tp_clear = (inquiry)reported_call_clear,
    .tp_members = reported_call_members,
};

/* ---------------------------------------------- what was recorded last of a variable (events.py) */

LastReport *new_report(int64_t form, PyObject *values, const void *tensor, int64_t generation,
                       PyObject *described)
{
    LastReport *report = (LastReport *)LastReportType.tp_alloc(&LastReportType, 0);
    if (report == NULL)
        return NULL;
    report->form = form;
    report->values = Py_NewRef(values);
    report->tensor_id = (unsigned long long)(uintptr_t)tensor;
    report->generation = generation;
    report->described = Py_NewRef(described);
    return report;
}

/* LastReport(form, values, tensor_id, generation, described) */
static PyObject *last_report_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *values, *described;
    long long form, generation;
    unsigned long long tensor_id;
    if (!PyArg_ParseTuple(args, "LO!KLO!", &form, &PyTuple_Type, &values, &tensor_id, &generation,
                          &PyTuple_Type, &described))
        return NULL;
    const void *tensor = (const void *)(uintptr_t)tensor_id;
    return (PyObject *)new_report(form, values, tensor, generation, described);
}

/* It needs no garbage collection: ids and forms refer to nothing that could refer back to it. */
static void last_report_dealloc(LastReport *report)
{
    Py_XDECREF(report->values);
    Py_XDECREF(report->described);
    Py_TYPE(report)->tp_free((PyObject *)report);
}

static PyMemberDef last_report_members[] = {
    {"form", T_LONGLONG, offsetof(LastReport, form), READONLY, NULL},
    {"values", T_OBJECT, offsetof(LastReport, values), READONLY, NULL},
    {"tensor_id", T_ULONGLONG, offsetof(LastReport, tensor_id), READONLY, NULL},
    {"generation", T_LONGLONG, offsetof(LastReport, generation), READONLY, NULL},
    {"described", T_OBJECT, offsetof(LastReport, described), READONLY, NULL},
    {NULL},
};
PyTypeObject LastReportType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.LastReport",
    .tp_doc = "What was recorded last of one variable.",
    .tp_basicsize = sizeof(LastReport),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = last_report_new,
    .tp_dealloc = (destructor)last_report_dealloc,
    .tp_members = last_report_members,
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

/* follow_with(UNBOUND, REPORTED, NO_KIND, BUILTINS, Known, Activation, SLOTS_ARE_READABLE): set what
 * activation.py defines */
static PyObject *follow_with(PyObject *module, PyObject *args)
{
    PyObject *nothing, *reported, *kind, *kinds, *known, *call;
    int readable;
    if (!PyArg_ParseTuple(args, "OOO!O!OO!p", &nothing, &reported, &PyTuple_Type, &kind,
                          &PyDict_Type, &kinds, &known, &PyType_Type, &call, &readable))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)call, &CallType)) {
        PyErr_SetString(PyExc_TypeError, "a subclass of Call is wanted");
        return NULL;
    }
    Py_XSETREF(unbound, Py_NewRef(nothing)); /* all of them for ever */
    Py_XSETREF(reported_mark, Py_NewRef(reported));
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

int shared_ready(PyObject *module)
{
    static const struct {
        const char *name;
        PyTypeObject *type;
    } types[] = {
        {"Known", &KnownType},
        {"Call", &CallType},
        {"ReportedCall", &ReportedCallType},
        {"LastReport", &LastReportType},
    };
    for (size_t at = 0; at < sizeof types / sizeof types[0]; at++) {
        if (PyType_Ready(types[at].type) < 0)
            return -1;
        if (PyModule_AddObjectRef(module, types[at].name, (PyObject *)types[at].type) < 0)
            return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
