/* Looking at the variables of a call that is followed (capture/variables/activation.py and settrace.py).
 *
 * What most lines do is done here: nothing; a name that holds the same object as before; a plain local that got another
 * number, text, tensor or object. All else is Python's, by the methods of the same names: containers and arrays, whose
 * content is compared; closures, namespaces and attributes; deletions; instructions.
 */
#include "fast.h"
#include "structmember.h"

enum { FAST, TARGETS, MUTATOR, MENTIONED, ROOTS, EXACT, HANDLES, IS_QUIET, IS_SHARED, ACTION_FIELDS }; /* plan.py: Action */
enum { STORE, TARGET_SCOPE, KEY, FACTS, TARGET_FIELDS };                                               /* Target */
enum { S_OFFSET, S_LINE, S_NAME, S_KIND, S_SLOT, S_DELETES, S_INNER, S_HIDDEN, S_ENDED, STORE_FIELDS }; /* bytecode.py: Store */
enum { ATOM, TEXT, CONTAINER, ARRAY, STAMPED, OBJECT, OPAQUE };                                        /* snapshots.py */
#define LONGEST_TEXT 200
#define TO_INNER_FRAME 24 /* frames.py tries these on frames that it knows; where they do not hold, C does not read */
#define TO_SLOTS 72

static PyObject *unbound, *told_mark, *no_kind, *known_type;
static int is_readable;
static struct {
    PyObject *line, *closed, *done, *stored, *settle, *look, *forget_inner, *recall, *kind, *kinds, *snapshots, *tell, *fault;
    PyObject *release_thread, *slot_of, *always, *returns, *running, *left, *before, *after;
} names; /* of attributes, interned */

/* ---------------------------------------------------------------- what is known of a variable (snapshots.py: Known) */

typedef struct {
    PyObject_HEAD
    unsigned long long id; /* the address of what it held: it may be gone */
    char is_told, is_loose;
    PyObject *kept, *kind, *signature;
} Known;

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
static PyTypeObject KnownType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Known",
    .tp_doc = "What is known of one variable.",
    .tp_basicsize = sizeof(Known),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = known_new,
    .tp_dealloc = (destructor)known_dealloc,
    .tp_traverse = (traverseproc)known_traverse,
    .tp_clear = (inquiry)known_clear,
    .tp_members = known_members,
};

/* ---------------------------------------------------------------- one call (activation.py: Activation) */

typedef struct {
    PyObject_HEAD
    PyObject *engine, *plan, *serial, *slots, *known, *open, *alone, *pending, *error, *local;
    char is_exact, opcodes_before;
} Call;

#define CALL_OBJECTS(each)                                                                                             \
    each(engine) each(plan) each(serial) each(slots) each(known) each(open) each(alone) each(pending) each(error) each(local)

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
    CALL_OBJECTS(OBJECT_MEMBER)
    {"is_exact", T_BOOL, offsetof(Call, is_exact), 0, NULL},
    {"opcodes_before", T_BOOL, offsetof(Call, opcodes_before), 0, NULL},
    {NULL},
};
static PyTypeObject CallType = {
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

/* ---------------------------------------------------------------- reading */

/* What a slot of the frame holds, owned; the mark for nothing where it holds nothing. */
static PyObject *read_slot(PyFrameObject *frame, Py_ssize_t at)
{
    char *inner = *(char **)((char *)frame + TO_INNER_FRAME);
    PyObject *value = ((PyObject **)(inner + TO_SLOTS))[at];
    return Py_NewRef(value == NULL ? unbound : value);
}

static int is_set(const PyObject *object)
{
    return object != NULL && object != Py_None;
}

static int is_filled(const PyObject *dict)
{
    return dict != NULL && PyDict_GET_SIZE((PyObject *)dict) > 0;
}

/* The entry of a variable, owned; made if there is none. */
static Known *entry_of(Call *call, PyObject *key)
{
    PyObject *entry = PyDict_GetItemWithError(call->known, key); /* borrowed, made our own */
    if (entry != NULL || PyErr_Occurred())
        return (Known *)Py_XNewRef(entry);
    entry = PyObject_CallNoArgs(known_type);
    if (entry != NULL && PyDict_SetItem(call->known, key, entry) < 0)
        Py_CLEAR(entry);
    return (Known *)entry;
}

/* How values of this type are kept, owned; asked of Python where the type is new. */
static PyObject *kind_of(Call *call, PyObject *value)
{
    PyObject *snapshots = PyObject_GetAttr(call->engine, names.snapshots), *kinds = NULL, *key = NULL, *kind = NULL;
    if (snapshots != NULL && (kinds = PyObject_GetAttr(snapshots, names.kinds)) != NULL
        && (key = PyLong_FromVoidPtr(Py_TYPE(value))) != NULL) {
        kind = Py_XNewRef(PyDict_GetItemWithError(kinds, key));
        PyObject *ref = kind == NULL ? NULL : PyTuple_GET_ITEM(kind, 2); /* borrowed from the kind */
        if (ref != NULL && ref != Py_None && !refers_to(ref, (PyObject *)Py_TYPE(value)))
            Py_CLEAR(kind); /* another type had that address */
        if (kind == NULL && !PyErr_Occurred())
            kind = PyObject_CallMethodOneArg(snapshots, names.kind, value);
    }
    Py_XDECREF(key);
    Py_XDECREF(kinds);
    Py_XDECREF(snapshots);
    return kind;
}

static long role_of(PyObject *kind)
{
    return PyLong_AsLong(PyTuple_GET_ITEM(kind, 0));
}

/* Whether values of this role are known without looking into them. */
static int is_simple(long role, PyObject *value)
{
    return role == ATOM || role == OBJECT || role == OPAQUE || role == TEXT;
}

/* Let an entry know a value of a simple kind (Snapshots.take). */
static int take(Known *entry, PyObject *value, PyObject *kind, long role)
{
    PyObject *kept = unbound, *old_kept = entry->kept, *old_kind = entry->kind, *old_signature = entry->signature;
    if (role == OBJECT) {
        if ((kept = PyWeakref_NewRef(value, NULL)) == NULL)
            return -1;
    } else {
        if (role == ATOM || (role == TEXT && PyObject_Size(value) <= LONGEST_TEXT))
            kept = value;
        Py_INCREF(kept);
    }
    entry->id = (unsigned long long)(uintptr_t)value;
    entry->kept = kept;
    entry->kind = Py_NewRef(kind);
    entry->signature = NULL;
    Py_XDECREF(old_kept); /* last: that may run code */
    Py_XDECREF(old_kind);
    Py_XDECREF(old_signature);
    return 0;
}

/* Whether two numbers or short texts are the same (same_atom): -0.0 is not 0.0. */
static int is_same_atom(PyObject *old, PyObject *new)
{
    PyTypeObject *cls = Py_TYPE(new);
    if (Py_TYPE(old) != cls
        || !(cls == &PyLong_Type || cls == &PyUnicode_Type || cls == &PyFloat_Type || cls == &PyBool_Type || new == Py_None
             || cls == &PyBytes_Type || cls == &PyComplex_Type))
        return 0;
    if (cls == &PyFloat_Type) {
        double one = PyFloat_AS_DOUBLE(old), other = PyFloat_AS_DOUBLE(new);
        return one == other && (other != 0 || !__builtin_signbit(one) == !__builtin_signbit(other));
    }
    return PyObject_RichCompareBool(old, new, Py_EQ);
}

/* ---------------------------------------------------------------- telling */

static int tell(Call *call, Known *entry, PyObject *fields, PyFrameObject *frame)
{
    PyObject *tell = fields == NULL ? NULL : PyObject_GetAttr(call->engine, names.tell);
    PyObject *answer = tell == NULL ? NULL : PyObject_CallFunctionObjArgs(tell, fields, frame, NULL);
    Py_XDECREF(tell);
    int was_told = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (was_told >= 0)
        entry->is_told = (char)was_told;
    return was_told < 0 ? -1 : 0;
}

/* What a change begins with, then the values before and after, and the call's number. Takes over `old`. */
static PyObject *fields_of(PyObject *facts, PyObject *old, PyObject *new, PyObject *serial)
{
    Py_ssize_t count = PyTuple_GET_SIZE(facts);
    PyObject *fields = PyTuple_New(count + 3);
    if (fields == NULL) {
        Py_DECREF(old);
        return NULL;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        PyTuple_SET_ITEM(fields, at, Py_NewRef(PyTuple_GET_ITEM(facts, at)));
    PyTuple_SET_ITEM(fields, count, old);
    PyTuple_SET_ITEM(fields, count + 1, Py_NewRef(new));
    PyTuple_SET_ITEM(fields, count + 2, Py_NewRef(serial));
    return fields;
}

/* A plain local has another value (Activation._stored): 1 done, 0 Python's affair, -1 error. */
static int store_simple(Call *call, PyObject *target, Known *entry, PyObject *value, PyFrameObject *frame)
{
    PyObject *store = PyTuple_GET_ITEM(target, STORE); /* borrowed from the target */
    if (value == unbound || PyTuple_GET_ITEM(store, S_HIDDEN) != Py_False || is_set(entry->signature))
        return 0;
    if (entry->id && entry->kept != unbound && role_of(entry->kind) <= TEXT) {
        PyObject *kept = Py_NewRef(entry->kept);
        int same = is_same_atom(kept, value);
        Py_DECREF(kept);
        if (same != 0) {
            entry->id = (unsigned long long)(uintptr_t)value;
            return same;
        }
    }
    PyObject *kind = kind_of(call, value);
    if (kind == NULL)
        return -1;
    long role = role_of(kind);
    int done = 0;
    if (is_simple(role, value)) {
        PyObject *old = entry->is_told ? Py_NewRef(told_mark)
                        : !entry->id   ? Py_NewRef(unbound)
                                       : PyObject_CallMethodNoArgs((PyObject *)entry, names.recall);
        done = old == NULL ? -1 : 1;
        if (done > 0 && take(entry, value, kind, role) < 0) {
            Py_DECREF(old);
            done = -1;
        } else if (done > 0) {
            PyObject *fields = fields_of(PyTuple_GET_ITEM(target, FACTS), old, value, call->serial);
            done = tell(call, entry, fields, frame) < 0 ? -1 : 1;
            Py_XDECREF(fields);
        }
    }
    Py_DECREF(kind);
    return done;
}

static int ask(PyObject *answer)
{
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* Python decides whether a value can be changed by code that does not name the variable; `fresh`: it was looked at. */
static int settle(Call *call, PyObject *key, PyObject *value, PyObject **fresh)
{
    PyObject *slot_of = PyObject_GetAttr(call->plan, names.slot_of);
    int has_slot = slot_of == NULL ? -1 : PyDict_Contains(slot_of, key);
    Py_XDECREF(slot_of);
    if (has_slot <= 0)
        return has_slot;
    /* The slot and we refer to it: in Python a third reference is counted, that of the argument of getrefcount. */
    PyObject *references = PyLong_FromSsize_t(Py_REFCNT(value) + 1);
    if (references == NULL)
        return -1;
    int done = ask(PyObject_CallMethodObjArgs((PyObject *)call, names.settle, key, value, references, NULL));
    Py_DECREF(references);
    if (done == 0 && fresh != NULL && (*fresh != NULL || (*fresh = PyList_New(0)) != NULL))
        done = PyList_Append(*fresh, key);
    return PyErr_Occurred() ? -1 : done;
}

/* A store may have been done. */
static int look_at_store(Call *call, PyObject *fast, PyFrameObject *frame, PyObject **fresh)
{
    PyObject *key = PyTuple_GET_ITEM(fast, 1), *target = PyTuple_GET_ITEM(fast, 2); /* borrowed from the action */
    PyObject *value = read_slot(frame, PyLong_AsSsize_t(PyTuple_GET_ITEM(fast, 0)));
    Known *entry = entry_of(call, key);
    int done = entry == NULL ? -1 : 0;
    if (entry != NULL && entry->id != (unsigned long long)(uintptr_t)value) {
        done = store_simple(call, target, entry, value, frame);
        if (done == 0)
            done = ask(PyObject_CallMethodObjArgs((PyObject *)call, names.stored, target, entry, value, frame, NULL));
        if (done >= 0 && is_set(entry->signature))
            done = settle(call, key, value, fresh);
    } else if (entry != NULL) {
        PyObject *store = PyTuple_GET_ITEM(target, STORE); /* borrowed from the target */
        if (PyTuple_GET_ITEM(store, S_ENDED) != Py_None)
            done = ask(PyObject_CallMethodOneArg((PyObject *)call, names.forget_inner, store));
    }
    Py_XDECREF(entry);
    Py_DECREF(value);
    return done < 0 ? -1 : 0;
}

static int is_true_attribute(PyObject *object, PyObject *name)
{
    PyObject *found = PyObject_GetAttr(object, name);
    int answer = found == NULL ? -1 : PyObject_IsTrue(found);
    Py_XDECREF(found);
    return answer;
}

/* Whether a variable is mentioned whose value only code that names it can change; any may be where it is not known. */
static int is_any_alone(const Call *call, PyObject *mentioned)
{
    if (!PyTuple_Check(mentioned))
        return 1;
    int found = 0;
    for (Py_ssize_t at = 0; found == 0 && at < PyTuple_GET_SIZE(mentioned); at++)
        found = PyDict_Contains(call->alone, PyTuple_GET_ITEM(mentioned, at));
    return found;
}

/* Whether there is something that the line's calls may have changed in place; -1 error. */
static int may_have_changed(Call *call, PyObject *action)
{
    if (PyTuple_GET_ITEM(action, MUTATOR) == Py_None)
        return 0;
    if (is_filled(call->open))
        return 1;
    int alone = is_filled(call->alone) ? is_any_alone(call, PyTuple_GET_ITEM(action, MENTIONED)) : 0;
    return alone != 0 ? alone : is_true_attribute(call->plan, names.always);
}

/* Look at what a line or an instruction may have done, and tell (Activation.done). */
static int look_behind(Call *call, PyObject *action, PyFrameObject *frame)
{
    if (!is_readable || !is_set(call->slots) || PyTuple_GET_SIZE(PyTuple_GET_ITEM(action, TARGETS))
        || PyTuple_GET_SIZE(PyTuple_GET_ITEM(action, ROOTS)))
        return ask(PyObject_CallMethodObjArgs((PyObject *)call, names.done, action, frame, NULL));
    PyObject *all = PyTuple_GET_ITEM(action, FAST), *fresh = NULL; /* borrowed from the action, which the caller holds */
    int done = 0;
    for (Py_ssize_t at = 0; done == 0 && at < PyTuple_GET_SIZE(all); at++)
        done = look_at_store(call, PyTuple_GET_ITEM(all, at), frame, &fresh);
    int look = done < 0 ? 0 : may_have_changed(call, action);
    if (look > 0) {
        PyObject *looked_at = fresh == NULL ? PyTuple_New(0) : PyList_AsTuple(fresh);
        done = looked_at == NULL ? -1
                                 : ask(PyObject_CallMethodObjArgs((PyObject *)call, names.look, PyTuple_GET_ITEM(action, MUTATOR),
                                                                  PyTuple_GET_ITEM(action, MENTIONED), frame, looked_at, NULL));
        Py_XDECREF(looked_at);
    }
    Py_XDECREF(fresh);
    return look < 0 ? -1 : done;
}

/* Whether Activation.__init__ has been through: only Python could make one without. */
static int is_ready(PyObject *call)
{
    return PyObject_TypeCheck(call, &CallType) && ((Call *)call)->known != NULL && PyDict_Check(((Call *)call)->known)
           && ((Call *)call)->serial != NULL && ((Call *)call)->engine != NULL && ((Call *)call)->plan != NULL;
}

static int is_action(PyObject *action)
{
    return PyTuple_Check(action) && PyTuple_GET_SIZE(action) == ACTION_FIELDS;
}

/* done(call, action, frame) */
static PyObject *done_by_c(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !is_ready(args[0]) || !is_action(args[1]) || !PyFrame_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "a call, an action and a frame are wanted");
        return NULL;
    }
    if (look_behind((Call *)args[0], args[1], (PyFrameObject *)args[2]) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- arguments */

/* One argument of a call that begins (Activation.begin). */
static int look_at_argument(Call *call, PyObject *variable, PyObject *opening, PyFrameObject *frame)
{
    PyObject *name = PyTuple_GET_ITEM(variable, 0); /* borrowed from the plan, as is the variable */
    PyObject *value = read_slot(frame, PyLong_AsSsize_t(PyTuple_GET_ITEM(variable, 1)));
    if (value == unbound) {
        Py_DECREF(value);
        return 0;
    }
    Known *entry = entry_of(call, name);
    PyObject *kind = entry == NULL ? NULL : kind_of(call, value), *facts = NULL, *fields = NULL;
    int done = kind == NULL ? -1 : 0;
    if (kind != NULL && is_simple(role_of(kind), value))
        done = take(entry, value, kind, role_of(kind));
    else if (kind != NULL) {
        PyObject *snapshots = PyObject_GetAttr(call->engine, names.snapshots);
        done = snapshots == NULL ? -1 : ask(PyObject_CallMethod(snapshots, "take", "OOO", entry, value, Py_True));
        Py_XDECREF(snapshots);
        if (done == 0 && is_set(entry->signature))
            done = settle(call, name, value, NULL);
    }
    if (done == 0) {
        facts = PyTuple_New(6);
        if (facts != NULL) {
            PyTuple_SET_ITEM(facts, 0, Py_NewRef(name));
            for (Py_ssize_t at = 0; at < 5; at++)
                PyTuple_SET_ITEM(facts, at + 1, Py_NewRef(PyTuple_GET_ITEM(opening, at)));
            fields = fields_of(facts, Py_NewRef(unbound), value, call->serial);
        }
        done = tell(call, entry, fields, frame);
    }
    Py_XDECREF(fields);
    Py_XDECREF(facts);
    Py_XDECREF(kind);
    Py_XDECREF(entry);
    Py_DECREF(value);
    return done;
}

/* begin(call, arguments, opening, frame): all arguments are plain locals */
static PyObject *begin_by_c(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || !is_ready(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2])
        || PyTuple_GET_SIZE(args[2]) != 5 || !PyFrame_Check(args[3]) || !is_readable) {
        PyErr_SetString(PyExc_TypeError, "a call, its arguments, how it opens and a frame are wanted");
        return NULL;
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(args[1]); at++)
        if (look_at_argument((Call *)args[0], PyTuple_GET_ITEM(args[1], at), args[2], (PyFrameObject *)args[3]) < 0)
            return NULL;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the local trace function (settrace.py: _make_local)
 *
 * Set by frame.f_trace as one written in Python is, so that sys.settrace, debuggers and other threads see no difference. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *core, *lines, *on_other, *follow;
    Call *call;
    char always, suspends;
} Local;

/* A fault of ours costs an event; what a signal handler has raised meanwhile goes on. */
static PyObject *faulted(Local *local)
{
    PyObject *error = take_error();
    if (error == NULL || !is_set(local->call->engine))
        Py_RETURN_NONE;
    PyObject *done = PyObject_CallMethodOneArg(local->call->engine, names.fault, error);
    Py_DECREF(error);
    return done;
}

/* A line was done, with something to look at behind it. */
static int after_line(Local *local, PyObject *todo, int exact, PyFrameObject *frame)
{
    Call *call = local->call;
    int closed = is_true_attribute(call->engine, names.closed);
    if (closed != 0)
        return closed < 0 ? -1 : ask(PyObject_CallMethodNoArgs(local->core, names.release_thread));
    if (is_set(todo) && look_behind(call, todo, frame) < 0)
        return -1;
    if (exact == call->is_exact && !is_set(call->error))
        return 0;
    return ask(PyObject_CallFunctionObjArgs(local->follow, call, frame, exact ? Py_True : Py_False, NULL));
}

static PyObject *on_line(Local *local, PyFrameObject *frame)
{
    Call *call = local->call;
    PyObject *line = PyLong_FromLong(PyFrame_GetLineNumber(frame));
    PyObject *now = line == NULL ? NULL : PyDict_GetItemWithError(local->lines, line); /* borrowed from the plan's table */
    Py_XDECREF(line);
    if (now == NULL && PyErr_Occurred())
        return faulted(local);
    PyObject *todo = call->pending; /* its reference is ours now */
    call->pending = Py_XNewRef(now);
    int exact = now != NULL && PyTuple_GET_ITEM(now, EXACT) == Py_True, done = 0;
    int is_idle = !is_set(todo)
                  || (PyTuple_GET_ITEM(todo, IS_QUIET) == Py_True && !is_filled(call->open) && !is_filled(call->alone)
                      && !local->always);
    if (!is_idle || exact)
        done = after_line(local, todo, exact, frame);
    Py_XDECREF(todo);
    if (done < 0)
        return faulted(local);
    Py_RETURN_NONE;
}

static PyObject *ask_other(Local *local, PyFrameObject *frame, PyObject *event, PyObject *argument)
{
    PyObject *what = PyTuple_Pack(2, event, argument);
    PyObject *result = what == NULL ? NULL
                                    : PyObject_CallFunctionObjArgs(local->on_other, local->core, local->call, frame, what, NULL);
    Py_XDECREF(what);
    return result;
}

/* The call is no longer one of those that run; by id of the frame. */
static int forget_running(const Call *call, PyFrameObject *frame)
{
    PyObject *running = PyObject_GetAttr(call->engine, names.running), *key = PyLong_FromVoidPtr(frame);
    int done = running == NULL || key == NULL || !PyDict_Check(running) ? -1 : 0;
    if (done == 0 && PyDict_GetItemWithError(running, key) == (const PyObject *)call)
        done = PyDict_DelItem(running, key);
    Py_XDECREF(running);
    Py_XDECREF(key);
    return PyErr_Occurred() ? -1 : done;
}

/* The call has returned, or an exception leaves it: then the last instruction is none that returns. */
static int leave(Local *local, PyFrameObject *frame)
{
    Call *call = local->call;
    PyObject *offset = PyLong_FromLong(PyFrame_GetLasti(frame)), *returns = PyObject_GetAttr(call->plan, names.returns);
    int returned = offset == NULL || returns == NULL ? -1 : PySet_Contains(returns, offset);
    Py_XDECREF(offset);
    Py_XDECREF(returns);
    if (returned < 0)
        return -1;
    PyObject *error = call->error, *own = call->local; /* their references are ours now */
    call->error = call->local = NULL;
    int done = forget_running(call, frame);
    if (done == 0)
        done = ask(PyObject_CallMethodObjArgs(call->engine, names.left, call, !returned && error != NULL ? error : Py_None, NULL));
    Py_XDECREF(error);
    Py_XDECREF(own);
    return done;
}

/* settrace.py: _on_return, of a call that cannot be suspended and has nothing more to be looked at when it ends. */
static PyObject *on_return(Local *local, PyFrameObject *frame, PyObject *event, PyObject *argument)
{
    Call *call = local->call;
    if (local->always || local->suspends || is_filled(call->open))
        return ask_other(local, frame, event, argument);
    int closed = is_true_attribute(call->engine, names.closed);
    if (closed != 0)
        return closed < 0 ? faulted(local) : ask_other(local, frame, event, argument);
    PyObject *last = call->pending; /* its reference is ours now */
    call->pending = NULL;
    int done = is_set(last) ? look_behind(call, last, frame) : 0;
    Py_XDECREF(last);
    if (done == 0 && is_filled(call->open))
        return ask_other(local, frame, event, argument); /* what was stored last wants a thorough look */
    if (done < 0 || leave(local, frame) < 0)
        return faulted(local);
    Py_RETURN_NONE;
}

/* An instruction is about to be done, in a line that is followed by them: most do nothing to variables. */
static PyObject *on_opcode(Local *local, PyFrameObject *frame, PyObject *event, PyObject *argument)
{
    PyObject *offset = PyLong_FromLong(PyFrame_GetLasti(frame)), *before = PyObject_GetAttr(local->call->plan, names.before);
    PyObject *after = PyObject_GetAttr(local->call->plan, names.after);
    int is_there = offset == NULL || before == NULL || after == NULL ? -1 : PyDict_Contains(before, offset);
    if (is_there == 0)
        is_there = PyDict_Contains(after, offset);
    Py_XDECREF(offset);
    Py_XDECREF(before);
    Py_XDECREF(after);
    if (is_there < 0)
        return faulted(local);
    if (is_there > 0)
        return ask_other(local, frame, event, argument);
    Py_RETURN_NONE;
}

/* Compared as text: Python's own string for an event need not be the interned one. */
static int is_event(PyObject *event, const char *name)
{
    return PyUnicode_Check(event) && PyUnicode_CompareWithASCIIString(event, name) == 0;
}

static PyObject *local_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *kwnames)
{
    Local *local = (Local *)self;
    if (PyVectorcall_NARGS(flags) != 3 || !PyFrame_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a frame, an event and its argument are wanted");
        return NULL;
    }
    if (local->call == NULL || !is_ready((PyObject *)local->call))
        Py_RETURN_NONE; /* the collector is taking it apart */
    Py_INCREF(local); /* the frame may let go of it meanwhile */
    PyObject *result;
    if (args[1] == names.line || is_event(args[1], "line"))
        result = on_line(local, (PyFrameObject *)args[0]);
    else if (is_event(args[1], "opcode"))
        result = on_opcode(local, (PyFrameObject *)args[0], args[1], args[2]);
    else if (is_event(args[1], "return"))
        result = on_return(local, (PyFrameObject *)args[0], args[1], args[2]);
    else
        result = ask_other(local, (PyFrameObject *)args[0], args[1], args[2]);
    Py_DECREF(local);
    return result;
}

static int local_traverse(Local *local, visitproc visit, void *arg)
{
    Py_VISIT(local->core);
    Py_VISIT(local->lines);
    Py_VISIT(local->on_other);
    Py_VISIT(local->follow);
    Py_VISIT((PyObject *)local->call);
    return 0;
}

static int local_clear(Local *local)
{
    Py_CLEAR(local->core);
    Py_CLEAR(local->lines);
    Py_CLEAR(local->on_other);
    Py_CLEAR(local->follow);
    Py_CLEAR(local->call);
    return 0;
}

static void local_dealloc(Local *local)
{
    PyObject_GC_UnTrack(local);
    local_clear(local);
    Py_TYPE(local)->tp_free((PyObject *)local);
}

/* Local(core, call, lines, always, suspends, on_other, follow) */
static PyObject *local_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *core, *call, *lines, *on_other, *follow;
    int always, suspends;
    if (!PyArg_ParseTuple(args, "OO!O!ppOO", &core, &CallType, &call, &PyDict_Type, &lines, &always, &suspends, &on_other,
                          &follow))
        return NULL;
    Local *local = (Local *)type->tp_alloc(type, 0);
    if (local == NULL)
        return NULL;
    local->vectorcall = local_call;
    local->core = Py_NewRef(core);
    local->call = (Call *)Py_NewRef(call);
    local->lines = Py_NewRef(lines);
    local->on_other = Py_NewRef(on_other);
    local->follow = Py_NewRef(follow);
    local->always = (char)always;
    local->suspends = (char)suspends;
    return (PyObject *)local;
}

static PyTypeObject LocalType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Local",
    .tp_doc = "The trace function of one call.",
    .tp_basicsize = sizeof(Local),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Local, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = local_new,
    .tp_dealloc = (destructor)local_dealloc,
    .tp_traverse = (traverseproc)local_traverse,
    .tp_clear = (inquiry)local_clear,
};

/* ---------------------------------------------------------------- the module's part */

/* follow_with(the mark for nothing, the mark for what was told, no kind, Known, whether slots can be read) */
static PyObject *follow_with(PyObject *module, PyObject *args)
{
    PyObject *nothing, *told, *kind, *known;
    int readable;
    if (!PyArg_ParseTuple(args, "OOO!Op", &nothing, &told, &PyTuple_Type, &kind, &known, &readable))
        return NULL;
    Py_XSETREF(unbound, Py_NewRef(nothing)); /* all of them for ever */
    Py_XSETREF(told_mark, Py_NewRef(told));
    Py_XSETREF(no_kind, Py_NewRef(kind));
    Py_XSETREF(known_type, Py_NewRef(known));
    is_readable = readable;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"follow_with", follow_with, METH_VARARGS, "Take over what the following of variables is defined with."},
    {"done", (PyCFunction)(void (*)(void))done_by_c, METH_FASTCALL, "Look at what a line or an instruction may have done."},
    {"begin", (PyCFunction)(void (*)(void))begin_by_c, METH_FASTCALL, "Tell of the arguments of a call."},
    {NULL},
};

int following_ready(PyObject *module)
{
    struct { PyObject **place; const char *text; } all[] = {
        {&names.line, "line"}, {&names.closed, "closed"}, {&names.done, "done"}, {&names.stored, "_stored"},
        {&names.settle, "_settle"}, {&names.look, "look"}, {&names.forget_inner, "_forget_inner"},
        {&names.recall, "recall"}, {&names.kind, "kind"}, {&names.kinds, "kinds"}, {&names.snapshots, "snapshots"},
        {&names.tell, "tell"}, {&names.fault, "fault"}, {&names.release_thread, "release_thread"},
        {&names.slot_of, "slot_of"}, {&names.always, "always"}, {&names.returns, "returns"},
        {&names.running, "running"}, {&names.left, "left"}, {&names.before, "before"},
        {&names.after, "after"},
    };
    for (size_t at = 0; at < sizeof all / sizeof all[0]; at++)
        if ((*all[at].place = PyUnicode_InternFromString(all[at].text)) == NULL)
            return -1;
    if (PyType_Ready(&KnownType) < 0 || PyType_Ready(&CallType) < 0 || PyType_Ready(&LocalType) < 0
        || PyModule_AddFunctions(module, functions) < 0 || PyModule_AddObjectRef(module, "Known", (PyObject *)&KnownType) < 0
        || PyModule_AddObjectRef(module, "Call", (PyObject *)&CallType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Local", (PyObject *)&LocalType);
}
