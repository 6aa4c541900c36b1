/* The object Engine, which holds what C knows of one session; the callbacks by which C asks Python;
 * and the module itself. */
#include "fast.h"
#include "following.h"
#include "structmember.h"

Torch torch;

static int engine_traverse(Engine *engine, visitproc visit, void *arg)
{
    Py_VISIT(engine->session);
    Py_VISIT(engine->measurer);
    Py_VISIT((PyObject *)engine->measured);
    Py_VISIT((PyObject *)engine->sketched);
    Py_VISIT((PyObject *)engine->saved);
    Py_VISIT((PyObject *)engine->kept_places);
    Py_VISIT((PyObject *)engine->values);
    Py_VISIT(engine->kept);
    Py_VISIT(engine->tracers);
    Py_VISIT(engine->module_refs);
#define VISIT(name) Py_VISIT(engine->name);
    CALLBACKS(VISIT)
    return 0;
}

static int engine_clear(Engine *engine)
{
    living_clear(engine);
    table_clear(&engine->metas);
    table_clear(&engine->forms);
    table_clear(&engine->opaque);
    table_clear(&engine->stacks);
    table_clear(&engine->module_places);
    PyMem_Free(engine->module_rows);
    PyMem_Free(engine->described);
    engine->module_rows = NULL;
    engine->described = NULL;
    engine->module_room = engine->described_room = 0;
    Py_CLEAR(engine->session);
    Py_CLEAR(engine->measurer);
    Py_CLEAR(engine->measured);
    Py_CLEAR(engine->sketched);
    Py_CLEAR(engine->saved);
    Py_CLEAR(engine->kept_places);
    measuring_clear(engine);
    Py_CLEAR(engine->values);
    Py_CLEAR(engine->kept);
    Py_CLEAR(engine->tracers);
    Py_CLEAR(engine->module_refs);
#define CLEAR(name) Py_CLEAR(engine->name);
    CALLBACKS(CLEAR)
    return 0;
}

static void engine_dealloc(Engine *engine)
{
    PyObject_GC_UnTrack(engine);
    engine_clear(engine);
    Py_TYPE(engine)->tp_free((PyObject *)engine);
}

#define PLACE(name) {#name, offsetof(Engine, name), NULL},
static struct {
    const char *name;
    size_t place;
    PyObject *key; /* the same name, interned */
} callbacks[] = {CALLBACKS(PLACE)};
#define CALLBACK_COUNT (sizeof callbacks / sizeof *callbacks)

/* The field of a callback; NULL: no callback has this name. Names in a program are interned, so
 * addresses are compared. */
static PyObject **callback_place(Engine *engine, PyObject *key)
{
    for (size_t at = 0; at < CALLBACK_COUNT; at++)
        if (callbacks[at].key == key)
            return (PyObject **)((char *)engine + callbacks[at].place);
    return NULL;
}

static int callbacks_ready(void)
{
    for (size_t at = 0; at < CALLBACK_COUNT; at++)
        if ((callbacks[at].key = PyUnicode_InternFromString(callbacks[at].name)) == NULL)
            return -1;
    return 0;
}

/* ask({name: object}): set some of the callbacks and shared tables (fast.h: CALLBACKS). */
static PyObject *engine_ask(Engine *engine, PyObject *objects)
{
    if (!PyDict_Check(objects)) {
        PyErr_SetString(PyExc_TypeError, "a dict is wanted");
        return NULL;
    }
    PyObject *key, *object;
    for (Py_ssize_t at = 0; PyDict_Next(objects, &at, &key, &object);) {
        PyObject **place = callback_place(engine, key);
        if (place == NULL)
            return PyErr_Format(PyExc_TypeError, "%R is not asked for", key);
        Py_XSETREF(*place, Py_NewRef(object));
    }
    Py_RETURN_NONE;
}

/* Engine(session, values, tracers) */
static int engine_init(Engine *engine, PyObject *args, PyObject *kwargs)
{
    PyObject *session, *values, *tracers;
    if (!PyArg_ParseTuple(args, "OO!O!", &session, &ValueFieldsType, &values, &PyDict_Type,
                          &tracers))
        return -1;
    engine->running = 1;
    Py_XSETREF(engine->session, Py_NewRef(session));
    Py_XSETREF(engine->values, (ValueFields *)Py_NewRef(values));
    Py_XSETREF(engine->tracers, Py_NewRef(tracers));
    Py_XSETREF(engine->kept, PyList_New(0));
    Py_XSETREF(engine->module_refs, PyList_New(0));
    return engine->kept == NULL || engine->module_refs == NULL ? -1 : 0;
}

/* end(session, raises): record nothing more. The session is replaced by one that has ended and each
 * callback by a function that raises, so that the session can be freed, and a caller that comes
 * later gets an exception. */
static PyObject *engine_end(Engine *engine, PyObject *args)
{
    PyObject *session, *raises;
    if (!PyArg_ParseTuple(args, "OO", &session, &raises))
        return NULL;
    engine->running = engine->records_modules = engine->records_ops = engine->in_backward = 0;
    Py_XSETREF(engine->session, Py_NewRef(session));
#define REPLACE(name)                                                                              \
    if (engine->name != NULL && PyCallable_Check(engine->name))                                    \
        Py_SETREF(engine->name, Py_NewRef(raises));
    CALLBACKS(REPLACE)
    Py_RETURN_NONE;
}

static PyObject *engine_clear_forms(Engine *engine, PyObject *unused)
{
    engine->form_generation++;
    table_clear(&engine->forms);
    return PyObject_CallMethod(engine->kept, "clear", NULL);
}

static PyObject *engine_clear_living(Engine *engine, PyObject *unused)
{
    living_clear(engine);
    Py_RETURN_NONE;
}

/* measure(measurer, statistics, sketches, here, chooses, asks): measure values from now on.
 *
 *   measurer     an object of statistics/measurer.py; None: stop measuring
 *   statistics   writes the statistics
 *   sketches     writes the sketches; None: make none
 *   here         C measures what it can; otherwise Python measures everything
 *   chooses      ask the measurer which events to measure
 *   asks         tell the measurer about values that are not finite
 */
static PyObject *engine_measure(Engine *engine, PyObject *args)
{
    PyObject *measurer, *measured, *sketched;
    int here, chooses, asks;
    if (!PyArg_ParseTuple(args, "OO!Oppp", &measurer, &ValueFieldsType, &measured, &sketched, &here,
                          &chooses, &asks))
        return NULL;
    if (sketched != Py_None && !PyObject_TypeCheck(sketched, &ValueFieldsType))
        return PyErr_SetString(PyExc_TypeError, "a writer of sketches is wanted"), NULL;
    Py_XSETREF(engine->sketched, sketched == Py_None ? NULL : (ValueFields *)Py_NewRef(sketched));
    Py_XSETREF(engine->measured, (ValueFields *)Py_NewRef(measured));
    Py_XSETREF(engine->measurer, measurer == Py_None ? NULL : Py_NewRef(measurer));
    engine->measures = (char)here;
    engine->chooses = (char)chooses;
    engine->asks = (char)asks;
    if (measurer == Py_None)
        measuring_clear(engine);
    Py_RETURN_NONE;
}

/* keep(saved, writer): copy the bytes of all values that are measured from now on; (None, None):
 * stop. Values that were measured before are measured and copied when an event takes them again. */
static PyObject *engine_keep(Engine *engine, PyObject *args)
{
    PyObject *saved, *places;
    if (!PyArg_ParseTuple(args, "OO", &saved, &places))
        return NULL;
    if (saved != Py_None
        && (!PyObject_TypeCheck(saved, &SavedBytesType)
            || !PyObject_TypeCheck(places, &ValueFieldsType)))
        return PyErr_SetString(PyExc_TypeError, "saved bytes and a writer are wanted"), NULL;
    if (saved != Py_None && (PyObject *)engine->saved != saved)
        measuring_clear(engine);
    Py_XSETREF(engine->saved, saved == Py_None ? NULL : (SavedBytes *)Py_NewRef(saved));
    Py_XSETREF(engine->kept_places, saved == Py_None ? NULL : (ValueFields *)Py_NewRef(places));
    Py_RETURN_NONE;
}

/* (log, what, frame, args, kwargs or None) → the number of the record */
static PyObject *engine_open(Engine *engine, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5 || !PyObject_TypeCheck(args[0], &LogType) || !PyTuple_Check(args[3])
        || (args[4] != Py_None && !PyDict_Check(args[4]))) {
        PyErr_SetString(PyExc_TypeError,
                        "a log, what, a frame, a tuple, and a dict or None are wanted");
        return NULL;
    }
    long long what = PyLong_AsLongLong(args[1]);
    if (what == -1 && PyErr_Occurred())
        return NULL;
    PyFrameObject *frame = PyFrame_Check(args[2]) ? (PyFrameObject *)Py_NewRef(args[2]) : NULL;
    /* torch's own handler was called by the function, and that by the place we look for */
    if (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        const int skipped = code == torch.handler_code ? 2 : 0;
        for (int at = 0; at < skipped && frame != NULL; at++) {
            PyFrameObject *above = PyFrame_GetBack(frame);
            Py_DECREF(frame);
            frame = above;
        }
        Py_DECREF(code);
    }
    PyObject *kwargs = args[4] != Py_None && PyDict_GET_SIZE(args[4]) ? args[4] : NULL;
    int64_t at = open_event(engine, (Log *)args[0], what, frame, &PyTuple_GET_ITEM(args[3], 0),
                            PyTuple_GET_SIZE(args[3]), kwargs);
    Py_XDECREF(frame);
    return at == FAILED ? NULL : PyLong_FromLongLong(at);
}

static PyObject *close_with(Engine *engine, PyObject *const *args, Py_ssize_t count, int from_op)
{
    if (count != 3 || !PyObject_TypeCheck(args[0], &LogType)) {
        PyErr_SetString(PyExc_TypeError, "a log, a number and a result are wanted");
        return NULL;
    }
    long long at = PyLong_AsLongLong(args[1]);
    if ((at == -1 && PyErr_Occurred())
        || close_event(engine, (Log *)args[0], at, args[2], from_op) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *engine_close(Engine *engine, PyObject *const *args, Py_ssize_t count)
{
    return close_with(engine, args, count, 0);
}

static PyObject *engine_close_op(Engine *engine, PyObject *const *args, Py_ssize_t count)
{
    return close_with(engine, args, count, 1);
}

#define FAST(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL
static PyObject *engine_count(Engine *engine, PyObject *unused)
{
    return Py_BuildValue("nnn", engine->forms.count, engine->stacks.count, engine->living_count);
}

static PyMethodDef engine_methods[] = {
    {"ask", (PyCFunction)engine_ask, METH_O, NULL},
    {"end", (PyCFunction)engine_end, METH_VARARGS, NULL},
    {"count", (PyCFunction)engine_count, METH_NOARGS, NULL},
    {"measure", (PyCFunction)engine_measure, METH_VARARGS, NULL},
    {"keep", (PyCFunction)engine_keep, METH_VARARGS, NULL},
    {"see", (PyCFunction)engine_see, METH_VARARGS, NULL},
    {"take_rows", (PyCFunction)engine_take_rows, METH_VARARGS, NULL},
    {"open_event", FAST(engine_open), NULL},
    {"close_event", FAST(engine_close), NULL},
    {"close_op", FAST(engine_close_op), NULL},
    {"value_of", (PyCFunction)engine_value_of, METH_O, NULL},
    {"plain_value_of", (PyCFunction)engine_plain_value_of, METH_O, NULL},
    {"value_after_op", (PyCFunction)engine_value_after_op, METH_O, NULL},
    {"known", (PyCFunction)engine_known, METH_O, NULL},
    {"forget", (PyCFunction)engine_forget, METH_O, NULL},
    {"mark_changed", (PyCFunction)engine_mark_changed, METH_O, NULL},
    {"begin_pending", (PyCFunction)engine_begin_pending, METH_O, NULL},
    {"pending", (PyCFunction)engine_pending, METH_NOARGS, NULL},
    {"living_objects", (PyCFunction)engine_living_objects, METH_NOARGS, NULL},
    {"remember", (PyCFunction)engine_remember, METH_VARARGS, NULL},
    {"next_value", (PyCFunction)engine_next_value, METH_NOARGS, NULL},
    {"clear_forms", (PyCFunction)engine_clear_forms, METH_NOARGS, NULL},
    {"clear_living", (PyCFunction)engine_clear_living, METH_NOARGS, NULL},
    {NULL},
};
static PyMemberDef engine_members[] = {
    {"running", T_BOOL, offsetof(Engine, running), 0, NULL},
    {"records_modules", T_BOOL, offsetof(Engine, records_modules), 0, NULL},
    {"records_ops", T_BOOL, offsetof(Engine, records_ops), 0, NULL},
    {"in_backward", T_BOOL, offsetof(Engine, in_backward), 0, NULL},
    {NULL},
};
PyTypeObject EngineType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Engine",
    .tp_doc = "What C knows of one session.",
    .tp_basicsize = sizeof(Engine),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)engine_init,
    .tp_dealloc = (destructor)engine_dealloc,
    .tp_traverse = (traverseproc)engine_traverse,
    .tp_clear = (inquiry)engine_clear,
    .tp_methods = engine_methods,
    .tp_members = engine_members,
};

/* ---------------------------------------------------------------- the module */

/* The names of torch that C calls (names.py): a C getter of Tensor, called by pointer … */
static const struct {
    const char *name;
    PyGetSetDef **place;
} getters[] = {
    {"_version", &torch.version},
    {"shape", &torch.shape},
    {"dtype", &torch.dtype},
    {"device", &torch.device},
    {"requires_grad", &torch.requires_grad},
};

/* … or any object. */
static const struct {
    const char *name;
    void *place;
} objects[] = {
    {"Tensor", &torch.Tensor},
    {"Parameter", &torch.Parameter},
    {"Size", &torch.size_type},
    {"device_type", &torch.device_type},
    {"logs", &torch.logs},
    {"leaving", &torch.leaving},
    {"storage_address", &torch.storage_address},
    {"count_modes", &torch.count_modes},
    {"push_mode", &torch.push_mode},
    {"pop_mode", &torch.pop_mode},
    {"mode_at", &torch.mode_at},
    {"no_functions", &torch.no_functions},
    {"detach", &torch.detach},
    {"call_boxed", &torch.call_boxed},
    {"handle_torch_function", &torch.handle_torch_function},
    {"own_folder", &torch.own_folder},
    {"warn", &torch.warn},
    {"next_node", &torch.next_node},
    {"current_node", &torch.current_node},
    {"get_tracing_state", &torch.get_tracing_state},
    {"set_tracing_state", &torch.set_tracing_state},
    {"data_ptr", &torch.data_ptr},
    {"is_neg", &torch.is_neg},
    {"is_conj", &torch.is_conj},
    {"untyped_storage", &torch.untyped_storage},
    {"storage_offset", &torch.storage_offset},
    {"storage_bytes", &torch.storage_bytes},
    {"handler_code", &torch.handler_code},
};

static int take_getters(PyObject *names)
{
    for (size_t at = 0; at < sizeof getters / sizeof getters[0]; at++) {
        /* borrowed; torch keeps it for ever */
        PyObject *getter = PyDict_GetItemString(names, getters[at].name);
        if (getter == NULL || Py_TYPE(getter) != &PyGetSetDescr_Type
            || ((PyGetSetDescrObject *)getter)->d_getset->get == NULL) {
            PyErr_Format(PyExc_TypeError, "Tensor.%s is not what was expected", getters[at].name);
            return -1;
        }
        *getters[at].place = ((PyGetSetDescrObject *)getter)->d_getset;
    }
    return 0;
}

static int take_objects(PyObject *names)
{
    for (size_t at = 0; at < sizeof objects / sizeof objects[0]; at++) {
        /* borrowed, made our own for ever */
        PyObject *object = PyDict_GetItemString(names, objects[at].name);
        if (object == NULL) {
            PyErr_Format(PyExc_TypeError, "%s is not there", objects[at].name);
            return -1;
        }
        *(PyObject **)objects[at].place = Py_NewRef(object);
    }
    return 0;
}

/* set_torch(names): take the names of torch; an error says why this torch cannot be used by C. */
static PyObject *set_torch(PyObject *module, PyObject *names)
{
    if (!PyDict_Check(names)) {
        PyErr_SetString(PyExc_TypeError, "a dict is wanted");
        return NULL;
    }
    PyObject *stride = PyDict_GetItemString(names, "stride");
    PyObject *constant_types = PyDict_GetItemString(names, "constant_types");
    if (stride == NULL || Py_TYPE(stride) != &PyMethodDescr_Type
        || ((PyMethodDescrObject *)stride)->d_method->ml_flags != (METH_VARARGS | METH_KEYWORDS)) {
        PyErr_SetString(PyExc_TypeError, "Tensor.stride is not what was expected");
        return NULL;
    }
    if (take_getters(names) < 0 || take_objects(names) < 0)
        return NULL;
    torch.stride = ((PyMethodDescrObject *)stride)->d_method;
    if ((torch.plain_types = PyTuple_Pack(1, (PyObject *)torch.Tensor)) == NULL)
        return NULL;
    torch.constant_type_count = 0;
    for (Py_ssize_t at = 0; constant_types != NULL && at < PyTuple_GET_SIZE(constant_types)
                            && at < MOST_CONSTANT_TYPES;
         at++)
        torch.constant_types[torch.constant_type_count++] =
            Py_NewRef(PyTuple_GET_ITEM(constant_types, at));
    Py_RETURN_NONE;
}

static PyObject *is_main_interpreter(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(PyInterpreterState_Get() == PyInterpreterState_Main());
}

/* Our replacement of warnings.warn has the signature, the docstring and the module of the original.
 */
static char warn_text[2048];
static PyMethodDef warn_method = {
    "warn",
    (PyCFunction)(void (*)(void))warn_past_copies,
    METH_VARARGS | METH_KEYWORDS,
    warn_text,
};

static int add_warn(PyObject *module)
{
    PyObject *name = PyUnicode_FromString("warnings");
    PyObject *warnings = name == NULL ? NULL : PyImport_Import(name);
    PyObject *original = warnings == NULL ? NULL : PyObject_GetAttrString(warnings, "warn");
    PyObject *signature =
        original == NULL ? NULL : PyObject_GetAttrString(original, "__text_signature__");
    PyObject *text = signature == NULL ? NULL : PyObject_GetAttrString(original, "__doc__");
    if (text != NULL && PyUnicode_Check(signature) && PyUnicode_Check(text))
        snprintf(warn_text, sizeof warn_text, "warn%s\n--\n\n%s", PyUnicode_AsUTF8(signature),
                 PyUnicode_AsUTF8(text));
    PyErr_Clear(); /* the program has replaced warnings.warn: then ours has no docstring */
    PyObject *made = name == NULL ? NULL : PyCFunction_NewEx(&warn_method, module, name);
    const int done = made == NULL ? -1 : PyModule_AddObjectRef(module, "warn", made);
    Py_XDECREF(made);
    Py_XDECREF(text);
    Py_XDECREF(signature);
    Py_XDECREF(original);
    Py_XDECREF(warnings);
    Py_XDECREF(name);
    return done;
}

static PyMethodDef module_methods[] = {
    {"set_torch", set_torch, METH_O, "Take the names of torch that C calls."},
    {"is_main_interpreter", is_main_interpreter, METH_NOARGS,
     "Whether this is the interpreter that began the process."},
    {"watch_forks", watch_forks, METH_VARARGS, "Set what is called in a forked child."},
    {"pause_traces", pause_traces, METH_O,
     "Set whether torch.jit.trace is paused while an event is written."},
    {"tally", tally_at, METH_VARARGS,
     "Return counts and sums of the numbers in a piece of memory."},
    {"sketch", sketch_at, METH_VARARGS,
     "Return the content fingerprint of the numbers in a piece of memory."},
    {"use_processor", use_processor, METH_O,
     "Measure as on a processor with fewer instructions, for tests."},
    {"stay_aside", stay_aside, METH_NOARGS,
     "Note that the calling thread never leaves the handler that it is in."},
    {"others_inside", others_inside, METH_NOARGS,
     "Return how many other threads are inside a handler."},
    {"after_fork", after_fork, METH_NOARGS, "Note that only the calling thread is left."},
    {"handle_torch_function", (PyCFunction)(void (*)(void))handle_torch_function,
     METH_FASTCALL | METH_KEYWORDS,
     "handle_torch_function(public_api, relevant_args, /, *args, **kwargs)\n--\n\n"
     "torch.overrides.handle_torch_function, where our mode is the one to be asked."},
    {NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "torchglass._fast",
    .m_doc = "The hot path of torchglass, compiled.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    PyTypeObject *types[] = {&LogType,        &ValueFieldsType, &EngineType,
                             &CallFilterType, &SavedBytesType,  &BlockType};
    const char *names[] = {"Log", "ValueFields", "Engine", "CallFilter", "SavedBytes", "Block"};
    PyObject *module = PyModule_Create(&definition);
    for (size_t at = 0; module != NULL && at < sizeof types / sizeof types[0]; at++)
        if (PyType_Ready(types[at]) < 0
            || PyModule_AddObjectRef(module, names[at], (PyObject *)types[at]) < 0)
            Py_CLEAR(module);
    if (module != NULL
        && (callbacks_ready() < 0 || add_warn(module) < 0 || rows_ready(module) < 0
            || device_ready(module) < 0 || functions_ready(module) < 0 || ops_ready(module) < 0
            || modules_ready(module) < 0 || variables_ready(module) < 0 || known_ready(module) < 0
            || following_ready(module) < 0 || beginning_ready(module) < 0
            || tracing_ready(module) < 0 || monitoring_ready(module) < 0
            || signing_ready(module) < 0 || looking_ready() < 0))
        Py_CLEAR(module);
    return module;
}
