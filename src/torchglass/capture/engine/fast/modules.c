/* Records the call of a module (torch/modules.py): while recordings run, nn.Module.__call__ calls
 * module_call.
 *
 * A module has a *row* for each place where it is called: its row depends on the row of the calling
 * module. Python makes new rows (identify), and after the first call it writes the module's
 * settings (describe).
 */
#include "fast.h"
#include "structmember.h"

static PyObject *compiled_call, *plain_call; /* names of attributes */

/* Call the module as torch's own __call__ does. */
static PyObject *call_plainly(PyObject *module, PyObject *args, PyObject *kwargs)
{
    if (compiled_call == NULL) {
        compiled_call = PyUnicode_InternFromString("_compiled_call_impl");
        plain_call = PyUnicode_InternFromString("_call_impl");
        if (compiled_call == NULL || plain_call == NULL)
            return NULL;
    }
    PyObject *call = PyObject_GetAttr(module, compiled_call);
    if (call == Py_None)
        Py_SETREF(call, PyObject_GetAttr(module, plain_call));
    PyObject *result = call == NULL ? NULL : PyObject_Call(call, args, kwargs);
    Py_XDECREF(call);
    return result;
}

/* ---------------------------------------------------------------- rows */

static int64_t known_row(const Engine *engine, const int64_t place[2], uint64_t *hash,
                         int64_t *index)
{
    *index = table_find(&engine->module_places, place, 2, hash);
    if (*index == NONE)
        return NONE;
    PyObject *ref = PyList_GET_ITEM(engine->module_refs, *index); /* borrowed from the list */
    return refers_to(ref, (PyObject *)(intptr_t)place[1]) ? engine->module_rows[*index] : NONE;
}

static int remember_row(Engine *engine, const int64_t place[2], uint64_t hash, int64_t index,
                        PyObject *module, int64_t row)
{
    PyObject *ref = PyWeakref_NewRef(module, NULL);
    if (ref == NULL)
        return -1;
    if (index != NONE) { /* the address was that of another module */
        engine->module_rows[index] = row;
        return PyList_SetItem(engine->module_refs, index, ref);
    }
    index = PyList_GET_SIZE(engine->module_refs);
    if (index >= engine->module_room) {
        Py_ssize_t room = 2 * engine->module_room + 256;
        int64_t *rows = PyMem_Realloc(engine->module_rows, (size_t)room * 8);
        if (rows == NULL) {
            Py_DECREF(ref);
            PyErr_NoMemory();
            return -1;
        }
        engine->module_rows = rows;
        engine->module_room = room;
    }
    engine->module_rows[index] = row;
    int done = PyList_Append(engine->module_refs, ref);
    Py_DECREF(ref);
    return done < 0 ? -1 : table_add(&engine->module_places, place, 2, hash, index);
}

/* Ask Python for a new row, with all modes off. */
static int64_t new_row_of(Engine *engine, int64_t caller, PyObject *module)
{
    Unseen unseen;
    if (enter_unseen(&unseen) < 0)
        return FAILED;
    int64_t row = as_number(PyObject_CallFunction(engine->identify, "LO", caller, module));
    return leave_unseen(&unseen) < 0 ? FAILED : row;
}

/* Return the row of a module that the innermost running module calls. */
static int64_t row_of(Engine *engine, Log *log, PyObject *module)
{
    const int64_t place[2] = {log->module, (int64_t)(intptr_t)module};
    uint64_t hash;
    int64_t index, row = known_row(engine, place, &hash, &index);
    if (row != NONE)
        return row;
    row = new_row_of(engine, log->module, module);
    if (row == FAILED)
        return FAILED;
    known_row(engine, place, &hash, &index); /* looked for again: Python may have come back here */
    return remember_row(engine, place, hash, index, module, row) < 0 ? FAILED : row;
}

static int is_described(Engine *engine, int64_t row)
{
    if (row >= engine->described_room) {
        Py_ssize_t room = 2 * row + 256;
        char *described = PyMem_Realloc(engine->described, (size_t)room);
        if (described == NULL)
            return 1; /* out of memory: do without its settings */
        memset(described + engine->described_room, 0, (size_t)(room - engine->described_room));
        engine->described = described;
        engine->described_room = room;
    }
    return engine->described[row];
}

/* Have Python write the settings of a module, with all modes off. */
static int describe(Engine *engine, Log *log, int64_t row, PyObject *module)
{
    Unseen unseen;
    if (enter_unseen(&unseen) < 0)
        return -1;
    PyObject *answer = PyObject_CallFunction(engine->describe, "OLO", log, (long long)row, module);
    if (answer != NULL && row < engine->described_room)
        engine->described[row] = 1;
    Py_XDECREF(answer);
    return leave_unseen(&unseen) < 0 || answer == NULL ? -1 : 0;
}

static int read_settings(Engine *engine, Log *log)
{
    Unseen unseen;
    if (enter_unseen(&unseen) < 0)
        return -1;
    PyObject *answer = PyObject_CallOneArg(engine->settings, (PyObject *)log);
    Py_XDECREF(answer);
    return leave_unseen(&unseen) < 0 || answer == NULL ? -1 : 0;
}

/* ---------------------------------------------------------------- one call */

static int64_t open_call(Engine *engine, Log *log, PyObject *module, PyFrameObject *frame,
                         PyObject *args, PyObject *kwargs, int64_t *row)
{
    Unseen unseen;
    if (enter_reading(&unseen) < 0)
        return FAILED;
    int64_t at = FAILED;
    *row = row_of(engine, log, module);
    if (*row != FAILED)
        at = open_event(engine, log, -2 - *row, frame, &PyTuple_GET_ITEM(args, 0),
                        PyTuple_GET_SIZE(args), kwargs);
    if (leave_reading(&unseen) < 0)
        return FAILED;
    return at;
}

/* Before its record is closed: what it shows of itself, and with the outermost call the settings of
 * all that were met. */
static int finish_call(Engine *engine, Log *log, int64_t row, PyObject *module)
{
    if (!is_described(engine, row) && describe(engine, log, row, module) < 0)
        return -1;
    return log->module == NONE ? read_settings(engine, log) : 0;
}

static int close_call(Engine *engine, Log *log, int64_t at, int64_t row, PyObject *module,
                      PyObject *result)
{
    Unseen unseen;
    if (enter_reading(&unseen) < 0)
        return -1;
    int done = finish_call(engine, log, row, module);
    if (done == 0)
        done = close_event(engine, log, at, result, 0);
    return leave_reading(&unseen) < 0 ? -1 : done;
}

static PyObject *record_call(Engine *engine, Log *log, PyObject *module, PyObject *args,
                             PyObject *kwargs)
{
    /* that of nn.Module.__call__, below which children stand */
    PyFrameObject *own = caller_frame();
    PyFrameObject *frame = own == NULL ? NULL : PyFrame_GetBack(own);
    if (heal_steps(engine, log, frame) < 0) {
        Py_XDECREF(frame);
        Py_XDECREF(own);
        return NULL;
    }
    const long long parent = log->parent, anchor = log->anchor, base = log->base,
                    above = log->module;
    int64_t row = NONE;
    int64_t at = open_call(engine, log, module, frame, args, kwargs, &row);
    Py_XDECREF(frame);
    if (at == FAILED || at == NONE) {
        log->parent = parent;
        log->anchor = anchor;
        log->base = base;
        log->module = above;
        Py_XDECREF(own);
        return at == FAILED && forgive(engine) < 0 ? NULL : call_plainly(module, args, kwargs);
    }
    log->module = row;
    log->anchor = (long long)(intptr_t)own;
    log->base = log->at == at + 1 ? log->stack : word_of(log, at, STACK);
    PyObject *result = call_plainly(module, args, kwargs);
    log->module = above;
    log->parent = parent;
    log->anchor = anchor;
    log->base = base;
    if (result == NULL) {
        PyObject *error = take_error();
        PyObject *done = PyObject_CallFunction(engine->fail_module, "OLLOO", log, (long long)at,
                                               (long long)row, module, error);
        if (done == NULL)
            /* the program's own, raised meanwhile by a signal handler: it goes on instead */
            Py_DECREF(error);
        else
            put_error(error);
        Py_XDECREF(done);
    } else if (close_call(engine, log, at, row, module, result) < 0 && forgive(engine) < 0)
        Py_CLEAR(result);
    Py_XDECREF(own);
    return result;
}

/* module_call(module, args, kwargs) */
static PyObject *module_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (PyVectorcall_NARGS(flags) != 3 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "a module, a tuple and a dict are wanted");
        return NULL;
    }
    PyObject *kwargs = PyDict_GET_SIZE(args[2]) ? args[2] : NULL;
    Log *log = current_log();
    Engine *engine = log == NULL ? NULL : (Engine *)log->engine;
    if (engine == NULL || !log->on || !engine->records_modules || engine->identify == NULL)
        return call_plainly(args[0], args[1], kwargs);
    Py_INCREF(log);
    Py_INCREF(engine);
    PyObject *result = record_call(engine, log, args[0], args[1], kwargs);
    Py_DECREF(engine);
    Py_DECREF(log);
    return result;
}

/* ---------------------------------------------------------------- a callable
 *
 * Of a type of its own: Python counts a call of its built-in functions as a level of recursion, and
 * recursion must end where it would without us. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
} Callable;

static PyTypeObject CallableType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.ModuleCall",
    .tp_doc = "nn.Module.__call__, recorded.",
    .tp_basicsize = sizeof(Callable),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Callable, call),
    .tp_call = PyVectorcall_Call,
};

int modules_ready(PyObject *module)
{
    if (PyType_Ready(&CallableType) < 0)
        return -1;
    Callable *callable = PyObject_New(Callable, &CallableType);
    if (callable == NULL)
        return -1;
    callable->call = module_call;
    int done = PyModule_AddObjectRef(module, "module_call", (PyObject *)callable);
    Py_DECREF(callable);
    return done;
}
