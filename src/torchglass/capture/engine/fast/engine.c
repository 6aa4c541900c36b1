/* What one session knows, in front of Python's own tables; and the module itself. */
#include "fast.h"
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
    for (int at = 0; at < CLASS_ROWS; at++)
        Py_VISIT(engine->class_rows[at].ref);
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
    table_clear(&engine->child_places);
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
    for (int at = 0; at < CLASS_ROWS; at++)
        Py_CLEAR(engine->class_rows[at].ref);
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
    PyObject *key; /* the name as Python has it, made once */
} callbacks_known[] = {CALLBACKS(PLACE)};
#define CALLBACK_COUNT (sizeof callbacks_known / sizeof *callbacks_known)

/* Where a callback goes; NULL for a name that is none. Python has each name that stands in a program once. */
static PyObject **callback_place(Engine *engine, PyObject *key)
{
    for (size_t at = 0; at < CALLBACK_COUNT; at++)
        if (callbacks_known[at].key == key)
            return (PyObject **)((char *)engine + callbacks_known[at].place);
    return NULL;
}

static int callbacks_ready(void)
{
    for (size_t at = 0; at < CALLBACK_COUNT; at++)
        if ((callbacks_known[at].key = PyUnicode_InternFromString(callbacks_known[at].name)) == NULL)
            return -1;
    return 0;
}

/* ask({name: callable}): what is asked of Python, some or all of it. */
static PyObject *engine_ask(Engine *engine, PyObject *callbacks)
{
    if (!PyDict_Check(callbacks)) {
        PyErr_SetString(PyExc_TypeError, "a dict is wanted");
        return NULL;
    }
    PyObject *key, *found;
    for (Py_ssize_t at = 0; PyDict_Next(callbacks, &at, &key, &found);) {
        PyObject **place = callback_place(engine, key);
        if (place == NULL)
            return PyErr_Format(PyExc_TypeError, "%R is not asked for", key);
        Py_XSETREF(*place, Py_NewRef(found));
    }
    Py_RETURN_NONE;
}

/* Engine(session, values, tracers) */
static int engine_init(Engine *engine, PyObject *args, PyObject *kwargs)
{
    PyObject *session, *values, *tracers;
    if (!PyArg_ParseTuple(args, "OO!O!", &session, &ValueFieldsType, &values, &PyDict_Type, &tracers))
        return -1;
    engine->running = 1;
    Py_XSETREF(engine->session, Py_NewRef(session));
    Py_XSETREF(engine->values, (ValueFields *)Py_NewRef(values));
    Py_XSETREF(engine->tracers, Py_NewRef(tracers));
    Py_XSETREF(engine->kept, PyList_New(0));
    Py_XSETREF(engine->module_refs, PyList_New(0));
    return engine->kept == NULL || engine->module_refs == NULL ? -1 : 0;
}

/* end(session, raises): nothing is recorded any more. What leads back to the session is replaced: by one that has ended,
 * and by a function that raises, so that whoever still asks is refused and nothing is ever missing. */
static PyObject *engine_end(Engine *engine, PyObject *args)
{
    PyObject *session, *raises;
    if (!PyArg_ParseTuple(args, "OO", &session, &raises))
        return NULL;
    engine->running = engine->records_modules = engine->records_ops = engine->in_backward = 0;
    Py_XSETREF(engine->session, Py_NewRef(session));
#define REPLACE(name)                                                                                                  \
    if (engine->name != NULL && PyCallable_Check(engine->name))                                                        \
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

/* measure(measurer, where it is written, where sketches are (None: nobody asked), whether as much as can be is done here, how
 * it says which events are meant, whether it is to know of what is not finite); None: no longer. */
static PyObject *engine_measure(Engine *engine, PyObject *args)
{
    PyObject *measurer, *measured, *sketched;
    int here, chooses, asks;
    if (!PyArg_ParseTuple(args, "OO!Opip", &measurer, &ValueFieldsType, &measured, &sketched, &here, &chooses, &asks))
        return NULL;
    if (sketched != Py_None && !PyObject_TypeCheck(sketched, &ValueFieldsType))
        return PyErr_SetString(PyExc_TypeError, "a writer of sketches is wanted"), NULL;
    Py_XSETREF(engine->sketched, sketched == Py_None ? NULL : (ValueFields *)Py_NewRef(sketched));
    Py_XSETREF(engine->measured, (ValueFields *)Py_NewRef(measured));
    Py_XSETREF(engine->measurer, measurer == Py_None ? NULL : Py_NewRef(measurer));
    choices_clear(engine);
    engine->measures = (char)here, engine->chooses = (char)chooses, engine->asks = (char)asks;
    if (measurer == Py_None)
        measuring_clear(engine);
    Py_RETURN_NONE;
}

/* keep(saved, where it is written): all that is measured from now on is kept, too, what was measured before once it is met
 * again; (None, None): no longer. */
static PyObject *engine_keep(Engine *engine, PyObject *args)
{
    PyObject *saved, *places;
    if (!PyArg_ParseTuple(args, "OO", &saved, &places))
        return NULL;
    if (saved != Py_None && (!PyObject_TypeCheck(saved, &SavedBytesType) || !PyObject_TypeCheck(places, &ValueFieldsType)))
        return PyErr_SetString(PyExc_TypeError, "saved bytes and a writer are wanted"), NULL;
    if (saved != Py_None && (PyObject *)engine->saved != saved)
        measuring_clear(engine);
    Py_XSETREF(engine->saved, saved == Py_None ? NULL : (SavedBytes *)Py_NewRef(saved));
    Py_XSETREF(engine->kept_places, saved == Py_None ? NULL : (ValueFields *)Py_NewRef(places));
    Py_RETURN_NONE;
}

/* (log, what, frame, args, kwargs) → the number of the record */
static PyObject *engine_open(Engine *engine, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5 || !PyObject_TypeCheck(args[0], &LogType) || !PyTuple_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "a log, what, a frame, a tuple and a dict are wanted");
        return NULL;
    }
    long long what = PyLong_AsLongLong(args[1]);
    if (what == -1 && PyErr_Occurred())
        return NULL;
    PyFrameObject *frame = PyFrame_Check(args[2]) ? (PyFrameObject *)Py_NewRef(args[2]) : NULL;
    if (frame != NULL) { /* below torch's own way to a handler stands the function that was called, not its caller */
        PyCodeObject *code = PyFrame_GetCode(frame);
        for (int steps = code == torch.handler_code ? 2 : 0; steps > 0 && frame != NULL; steps--) {
            PyFrameObject *above = PyFrame_GetBack(frame);
            Py_DECREF(frame);
            frame = above;
        }
        Py_DECREF(code);
    }
    PyObject *kwargs = args[4] != Py_None && PyDict_GET_SIZE(args[4]) ? args[4] : NULL;
    int64_t at = open_event(engine, (Log *)args[0], what, frame, &PyTuple_GET_ITEM(args[3], 0), PyTuple_GET_SIZE(args[3]),
                            kwargs);
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
    if ((at == -1 && PyErr_Occurred()) || close_event(engine, (Log *)args[0], at, args[2], from_op) < 0)
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

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL
static PyObject *engine_count(Engine *engine, PyObject *unused)
{
    return Py_BuildValue("nnn", engine->forms.count, engine->stacks.count, engine->living_count);
}

static PyObject *engine_read_settings(Engine *engine, PyObject *log)
{
    if (!PyObject_TypeCheck(log, &LogType))
        return PyErr_SetString(PyExc_TypeError, "a log is wanted"), NULL;
    if (((Log *)log)->unread != NULL && engine->settings != NULL && read_settings(engine, (Log *)log) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef engine_methods[] = {
    {"has_uncalled", (PyCFunction)engine_has_uncalled, METH_VARARGS, NULL},
    {"read_settings", (PyCFunction)engine_read_settings, METH_O, NULL},
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
    {"made", (PyCFunction)engine_made, METH_O, NULL},
    {"known", (PyCFunction)engine_known, METH_O, NULL},
    {"forget", (PyCFunction)engine_forget, METH_O, NULL},
    {"touch", (PyCFunction)engine_touch, METH_O, NULL},
    {"begin", (PyCFunction)engine_begin, METH_O, NULL},
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
    .tp_doc = "What one session knows.",
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

/* A plain attribute of torch's, to be called by pointer; an error where it is of another kind. */
static int take_getter(PyObject *names, const char *name, PyGetSetDef **place)
{
    PyObject *found = PyDict_GetItemString(names, name); /* borrowed; kept by torch for ever */
    if (found == NULL || Py_TYPE(found) != &PyGetSetDescr_Type || ((PyGetSetDescrObject *)found)->d_getset->get == NULL) {
        PyErr_Format(PyExc_TypeError, "Tensor.%s is not what was expected", name);
        return -1;
    }
    *place = ((PyGetSetDescrObject *)found)->d_getset;
    return 0;
}

static int take_object(PyObject *names, const char *name, PyObject **place)
{
    PyObject *found = PyDict_GetItemString(names, name); /* borrowed, made our own for ever */
    if (found == NULL) {
        PyErr_Format(PyExc_TypeError, "%s is not there", name);
        return -1;
    }
    *place = Py_NewRef(found);
    return 0;
}

/* Take over the names of torch; an error says why this torch cannot be read so. */
static PyObject *set_torch(PyObject *module, PyObject *names)
{
    if (!PyDict_Check(names)) {
        PyErr_SetString(PyExc_TypeError, "a dict is wanted");
        return NULL;
    }
    PyObject *stride = PyDict_GetItemString(names, "stride"), *words = PyDict_GetItemString(names, "words");
    if (stride == NULL || Py_TYPE(stride) != &PyMethodDescr_Type
        || ((PyMethodDescrObject *)stride)->d_method->ml_flags != (METH_VARARGS | METH_KEYWORDS)) {
        PyErr_SetString(PyExc_TypeError, "Tensor.stride is not what was expected");
        return NULL;
    }
    if (take_getter(names, "_version", &torch.version) < 0 || take_getter(names, "shape", &torch.shape) < 0
        || take_getter(names, "dtype", &torch.dtype) < 0 || take_getter(names, "device", &torch.device) < 0
        || take_getter(names, "requires_grad", &torch.requires_grad) < 0
        || take_object(names, "Tensor", (PyObject **)&torch.Tensor) < 0
        || take_object(names, "Parameter", (PyObject **)&torch.Parameter) < 0
        || take_object(names, "Size", &torch.size_type) < 0 || take_object(names, "device_type", &torch.device_type) < 0
        || take_object(names, "logs", &torch.logs) < 0 || take_object(names, "leaving", &torch.leaving) < 0
        || take_object(names, "storage_address", &torch.storage_address) < 0
        || take_object(names, "count_modes", &torch.count_modes) < 0 || take_object(names, "push_mode", &torch.push_mode) < 0
        || take_object(names, "pop_mode", &torch.pop_mode) < 0 || take_object(names, "mode_at", &torch.mode_at) < 0
        || take_object(names, "no_functions", &torch.no_functions) < 0 || take_object(names, "detach", &torch.detach) < 0
        || take_object(names, "call_boxed", &torch.call_boxed) < 0 || take_object(names, "functions", &torch.functions) < 0
        || take_object(names, "handle_torch_function", &torch.handle_torch_function) < 0
        || take_object(names, "warn", &torch.warn) < 0 || take_object(names, "next_node", &torch.next_node) < 0
        || take_object(names, "current_node", &torch.current_node) < 0
        || take_object(names, "data_ptr", &torch.data_ptr) < 0 || take_object(names, "is_neg", &torch.is_neg) < 0
        || take_object(names, "is_conj", &torch.is_conj) < 0
        || take_object(names, "untyped_storage", &torch.untyped_storage) < 0
        || take_object(names, "storage_offset", &torch.storage_offset) < 0
        || take_object(names, "storage_bytes", &torch.storage_bytes) < 0
        || take_object(names, "handler_code", (PyObject **)&torch.handler_code) < 0)
        return NULL;
    torch.stride = ((PyMethodDescrObject *)stride)->d_method;
    if ((torch.plain_types = PyTuple_Pack(1, (PyObject *)torch.Tensor)) == NULL)
        return NULL;
    torch.word_count = 0;
    for (Py_ssize_t at = 0; words != NULL && at < PyTuple_GET_SIZE(words) && at < 8; at++)
        torch.words[torch.word_count++] = Py_NewRef(PyTuple_GET_ITEM(words, at));
    Py_RETURN_NONE;
}

static PyObject *is_main_interpreter(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(PyInterpreterState_Get() == PyInterpreterState_Main());
}

static PyMethodDef module_methods[] = {
    {"set_torch", set_torch, METH_O, "Take over the names of torch."},
    {"is_main_interpreter", is_main_interpreter, METH_NOARGS, "Whether this is the interpreter that began the process."},
    {"read_directly", read_directly, METH_O, "Read tensors and torch's state where they are, by these offsets."},
    {"read_tensor", words_of_tensor, METH_O, "What is read of a tensor so."},
    {"read_state", words_of_torch, METH_NOARGS, "What is read of torch's state so."},
    {"left_open", left_open, METH_VARARGS, "Which records have no end."},
    {"zeros", zeros, METH_O, "Memory for a chunk."},
    {"tally", tally_at, METH_VARARGS, "Counts and sums of the numbers in a piece of memory."},
    {"sketch", sketch_at, METH_VARARGS, "By what the numbers in a piece of memory are known again."},
    {"use_processor", use_processor, METH_O, "Measure as on a lesser processor, for tests."},
    {"stay_aside", stay_aside, METH_NOARGS, "The calling thread never leaves the handler that it is in."},
    {"others_inside", others_inside, METH_NOARGS, "How many other threads are inside of a handler."},
    {"after_fork", after_fork, METH_NOARGS, "Only the calling thread is left."},
    {"answer_torch", answer_torch, METH_O, "Answer torch's look-ups of its own functions by letters, or no longer."},
    {"handle_torch_function", (PyCFunction)(void (*)(void))handle_torch_function, METH_FASTCALL | METH_KEYWORDS,
     "torch.overrides.handle_torch_function, where our mode is the one to be asked."},
    {"warn", (PyCFunction)(void (*)(void))warn_past_copies, METH_VARARGS | METH_KEYWORDS,
     "warnings.warn, which passes over the frames of functions that were called again."},
    {NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "torchglass._fast", .m_doc = "The hot path of torchglass, compiled.", .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    PyTypeObject *types[] = {&LogType, &ValueFieldsType, &EngineType, &CallFilterType, &SavedBytesType, &BlockType};
    const char *names[] = {"Log", "ValueFields", "Engine", "CallFilter", "SavedBytes", "Block"};
    PyObject *module = PyModule_Create(&definition);
    for (int at = 0; module != NULL && at < 6; at++)
        if (PyType_Ready(types[at]) < 0 || PyModule_AddObjectRef(module, names[at], (PyObject *)types[at]) < 0)
            Py_CLEAR(module);
    if (module != NULL
        && (callbacks_ready() < 0 || rows_ready(module) < 0 || meeting_ready(module) < 0 || described_ready() < 0
            || device_ready(module) < 0 || asking_ready() < 0 || functions_ready(module) < 0 || ops_ready(module) < 0
            || modules_ready(module) < 0 || variables_ready(module) < 0
            || known_ready(module) < 0 || following_ready(module) < 0 || beginning_ready(module) < 0
            || tracing_ready(module) < 0 || monitoring_ready(module) < 0 || signing_ready(module) < 0 || looking_ready() < 0))
        Py_CLEAR(module);
    return module;
}
