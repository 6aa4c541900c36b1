/* The object Engine, which holds what C knows of one session, and the extension module itself.
 *
 * Most methods of Engine only convert arguments and call another file. Python sets an Engine up in
 * this order (fast/__init__.py, session.py):
 *
 *   set_torch   once per process: the names of torch that C calls
 *   Engine()    once per session
 *   ask         the Python functions that C may call, and the tables that both share
 *   measure     what to measure; keep: where to copy the bytes of values
 *   end         stop recording
 */
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

/* Return the field of a callback; NULL: there is no callback with this name. Names in a program are
 * interned, so compare addresses. */
static PyObject **callback_place(Engine *engine, PyObject *key)
{
    for (size_t at = 0; at < CALLBACK_COUNT; at++)
        if (callbacks[at].key == key)
            return (PyObject **)((char *)engine + callbacks[at].place);
    return NULL;
}

static int callbacks_ready(void)
{
    for (size_t at = 0; at < CALLBACK_COUNT; at++) {
        callbacks[at].key = PyUnicode_InternFromString(callbacks[at].name);
        if (callbacks[at].key == NULL)
            return -1;
    }
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
            return PyErr_Format(PyExc_TypeError, "the engine has no callback %R", key);
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
    if (engine->kept == NULL || engine->module_refs == NULL)
        return -1;
    return 0;
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
    if (sketched == Py_None)
        sketched = NULL;
    if (sketched != NULL && !PyObject_TypeCheck(sketched, &ValueFieldsType)) {
        PyErr_SetString(PyExc_TypeError, "a writer of sketches is wanted");
        return NULL;
    }
    const int stops = measurer == Py_None;
    Py_XSETREF(engine->sketched, (ValueFields *)Py_XNewRef(sketched));
    Py_XSETREF(engine->measured, (ValueFields *)Py_NewRef(measured));
    Py_XSETREF(engine->measurer, stops ? NULL : Py_NewRef(measurer));
    engine->measures = (char)here;
    engine->chooses = (char)chooses;
    engine->asks = (char)asks;
    if (stops)
        measuring_clear(engine);
    Py_RETURN_NONE;
}

/* keep(saved, places): copy the bytes of all values that are measured from now on. (None, None):
 * stop. A value that was measured before is measured and copied when an event takes it again. */
static PyObject *engine_keep(Engine *engine, PyObject *args)
{
    PyObject *saved, *places;
    if (!PyArg_ParseTuple(args, "OO", &saved, &places))
        return NULL;
    if (saved == Py_None) {
        Py_CLEAR(engine->saved);
        Py_CLEAR(engine->kept_places);
        Py_RETURN_NONE;
    }
    if (!PyObject_TypeCheck(saved, &SavedBytesType)
        || !PyObject_TypeCheck(places, &ValueFieldsType)) {
        PyErr_SetString(PyExc_TypeError, "saved bytes and a writer are wanted");
        return NULL;
    }
    if ((PyObject *)engine->saved != saved)
        measuring_clear(engine);
    Py_XSETREF(engine->saved, (SavedBytes *)Py_NewRef(saved));
    Py_XSETREF(engine->kept_places, (ValueFields *)Py_NewRef(places));
    Py_RETURN_NONE;
}

/* Return the frame that called torch, owned; NULL: none. If `frame` is torch's own handler, it was
 * called by a torch function, and that by the frame that we want. */
static PyFrameObject *past_torchs_handler(PyObject *frame)
{
    if (!PyFrame_Check(frame))
        return NULL;
    PyFrameObject *found = (PyFrameObject *)Py_NewRef(frame);
    PyCodeObject *code = PyFrame_GetCode(found);
    const int skipped = code == torch.handler_code ? 2 : 0;
    Py_DECREF(code);
    for (int at = 0; at < skipped && found != NULL; at++) {
        PyFrameObject *above = PyFrame_GetBack(found);
        Py_DECREF(found);
        found = above;
    }
    return found;
}

/* open_event(log, what, frame, args, kwargs or None) -> the number of the record */
static PyObject *engine_open(Engine *engine, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5 || !PyObject_TypeCheck(args[0], &LogType) || !PyTuple_Check(args[3])
        || (args[4] != Py_None && !PyDict_Check(args[4]))) {
        PyErr_SetString(PyExc_TypeError,
                        "a log, what, a frame, a tuple, and a dict or None are wanted");
        return NULL;
    }
    Log *log = (Log *)args[0];
    const long long what = PyLong_AsLongLong(args[1]);
    if (what == -1 && PyErr_Occurred())
        return NULL;
    PyObject *kwargs = args[4];
    if (kwargs == Py_None || PyDict_GET_SIZE(kwargs) == 0)
        kwargs = NULL;
    PyFrameObject *frame = past_torchs_handler(args[2]);
    const int64_t at = open_event(engine, log, what, frame, &PyTuple_GET_ITEM(args[3], 0),
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
    if (at == -1 && PyErr_Occurred())
        return NULL;
    if (close_event(engine, (Log *)args[0], at, args[2], from_op) < 0)
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

/* The names of torch that C calls (names.py). First those that are C getters of Tensor, called by
 * pointer. */
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

/* Then those that may be any object. */
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
            PyErr_Format(PyExc_TypeError, "%s is missing", objects[at].name);
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

/* Copy the signature and the docstring of the original into warn_text. */
static int copy_warn_text(PyObject *original)
{
    PyObject *signature = PyObject_GetAttrString(original, "__text_signature__");
    if (signature == NULL)
        return -1;
    PyObject *text = PyObject_GetAttrString(original, "__doc__");
    if (text != NULL && PyUnicode_Check(signature) && PyUnicode_Check(text))
        snprintf(warn_text, sizeof warn_text, "warn%s\n--\n\n%s", PyUnicode_AsUTF8(signature),
                 PyUnicode_AsUTF8(text));
    Py_DECREF(signature);
    Py_XDECREF(text);
    return text == NULL ? -1 : 0;
}

static int add_warn(PyObject *module)
{
    PyObject *warnings = PyImport_ImportModule("warnings");
    PyObject *original = warnings == NULL ? NULL : PyObject_GetAttrString(warnings, "warn");
    if (original == NULL || copy_warn_text(original) < 0)
        PyErr_Clear(); /* the program has replaced warnings.warn: then ours has no docstring */
    Py_XDECREF(original);
    Py_XDECREF(warnings);
    PyObject *name = PyUnicode_FromString("warnings");
    if (name == NULL)
        return -1;
    PyObject *made = PyCFunction_NewEx(&warn_method, module, name);
    Py_DECREF(name);
    if (made == NULL)
        return -1;
    const int status = PyModule_AddObjectRef(module, "warn", made);
    Py_DECREF(made);
    return status;
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

/* Each file adds its part. They return -1 on error. */
static int (*const parts[])(PyObject *module) = {
    add_warn,      rows_ready,       device_ready,  functions_ready, ops_ready,
    modules_ready, variables_ready,  shared_ready,  following_ready, beginning_ready,
    tracing_ready, monitoring_ready, signing_ready,
};

static int add_types(PyObject *module)
{
    static const struct {
        const char *name;
        PyTypeObject *type;
    } types[] = {
        {"Log", &LogType},
        {"ValueFields", &ValueFieldsType},
        {"Engine", &EngineType},
        {"CallFilter", &CallFilterType},
        {"SavedBytes", &SavedBytesType},
        {"Block", &BlockType},
    };
    for (size_t at = 0; at < sizeof types / sizeof types[0]; at++) {
        if (PyType_Ready(types[at].type) < 0)
            return -1;
        if (PyModule_AddObjectRef(module, types[at].name, (PyObject *)types[at].type) < 0)
            return -1;
    }
    return 0;
}

static int fill(PyObject *module)
{
    if (add_types(module) < 0 || callbacks_ready() < 0 || looking_ready() < 0)
        return -1;
    for (size_t at = 0; at < sizeof parts / sizeof parts[0]; at++)
        if (parts[at](module) < 0)
            return -1;
    return 0;
}

PyMODINIT_FUNC PyInit__fast(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && fill(module) < 0)
        Py_CLEAR(module);
    return module;
}
