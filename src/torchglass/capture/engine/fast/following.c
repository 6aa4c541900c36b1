/* Looking at the variables of a call that is followed (capture/variables/activation.py).
 *
 * What most lines do is done here: nothing; a name that holds the same object as before; a plain local that got another
 * number, text, tensor or object. All else is Python's, by the methods of the same names: containers and arrays, whose
 * content is compared; closures, namespaces and attributes; deletions.
 */
#include "following.h"

enum { STORE, TARGET_SCOPE, KEY, FACTS, TARGET_FIELDS };                                               /* plan.py: Target */
enum { S_OFFSET, S_LINE, S_NAME, S_KIND, S_SLOT, S_DELETES, S_INNER, S_HIDDEN, S_ENDED, STORE_FIELDS }; /* bytecode.py: Store */
#define TO_INNER_FRAME 24 /* frames.py tries these on frames that it knows; where they do not hold, C does not read */
#define TO_SLOTS 72

static struct { PyObject *always, *done, *forget_inner, *kind, *kinds, *look, *recall, *settle, *slot_of, *snapshots, *stored, *tell; } names; /* of attributes, interned */

/* ---------------------------------------------------------------- reading */

PyObject *read_slot(PyFrameObject *frame, Py_ssize_t at)
{
    char *inner = *(char **)((char *)frame + TO_INNER_FRAME);
    PyObject *value = ((PyObject **)(inner + TO_SLOTS))[at];
    return Py_NewRef(value == NULL ? unbound : value);
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

PyObject *kept_as(PyObject *snapshots, PyObject *value)
{
    PyObject *kinds = PyObject_GetAttr(snapshots, names.kinds), *key = NULL, *kind = NULL;
    if (kinds != NULL && (key = PyLong_FromVoidPtr(Py_TYPE(value))) != NULL) {
        kind = Py_XNewRef(PyDict_GetItemWithError(kinds, key));
        PyObject *ref = kind == NULL ? NULL : PyTuple_GET_ITEM(kind, 2); /* borrowed from the kind */
        if (ref != NULL && ref != Py_None && !refers_to(ref, (PyObject *)Py_TYPE(value)))
            Py_CLEAR(kind); /* another type had that address */
        if (kind == NULL && !PyErr_Occurred())
            kind = PyObject_CallMethodOneArg(snapshots, names.kind, value);
    }
    Py_XDECREF(key);
    Py_XDECREF(kinds);
    return kind;
}

/* The same, of the engine that follows a call. */
static PyObject *kind_for(Call *call, PyObject *value)
{
    PyObject *snapshots = PyObject_GetAttr(call->engine, names.snapshots);
    PyObject *kind = snapshots == NULL ? NULL : kept_as(snapshots, value);
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
    PyObject *kind = kind_for(call, value);
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
int look_behind(Call *call, PyObject *action, PyFrameObject *frame)
{
    if (!is_readable || !is_set(call->slots) || PyTuple_GET_SIZE(PyTuple_GET_ITEM(action, TARGETS))
        || PyTuple_GET_SIZE(PyTuple_GET_ITEM(action, ROOTS)))
        return ask(PyObject_CallMethodObjArgs((PyObject *)call, names.done, action, frame, NULL));
    PyObject *all = PyTuple_GET_ITEM(action, FAST), *fresh = NULL; /* borrowed from the action, which the caller holds */
    int done = 0;
    for (Py_ssize_t at = 0; done == 0 && at < PyTuple_GET_SIZE(all); at++)
        done = look_at_store(call, PyTuple_GET_ITEM(all, at), frame, &fresh);
    int look = done < 0 ? 0 : may_have_changed(call, action), same = look > 0 ? nothing_changed(call, action, fresh, frame) : 0;
    if (same < 0)
        done = -1;
    else if (look > 0 && !same) {
        PyObject *looked_at = fresh == NULL ? PyTuple_New(0) : PyList_AsTuple(fresh);
        done = looked_at == NULL ? -1
                                 : ask(PyObject_CallMethodObjArgs((PyObject *)call, names.look, PyTuple_GET_ITEM(action, MUTATOR),
                                                                  PyTuple_GET_ITEM(action, MENTIONED), frame, looked_at, NULL));
        Py_XDECREF(looked_at);
    }
    Py_XDECREF(fresh);
    return look < 0 ? -1 : done;
}

long stored_line(PyObject *action)
{
    PyObject *fast = PyTuple_GET_ITEM(action, FAST), *targets = PyTuple_GET_ITEM(action, TARGETS); /* borrowed, as all below */
    PyObject *target = PyTuple_GET_SIZE(fast)      ? PyTuple_GET_ITEM(PyTuple_GET_ITEM(fast, 0), 2)
                       : PyTuple_GET_SIZE(targets) ? PyTuple_GET_ITEM(targets, 0)
                                                   : NULL;
    return target == NULL ? 0 : PyLong_AsLong(PyTuple_GET_ITEM(PyTuple_GET_ITEM(target, STORE), S_LINE));
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
    PyObject *kind = entry == NULL ? NULL : kind_for(call, value), *facts = NULL, *fields = NULL;
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

/* ---------------------------------------------------------------- the module's part */

static PyMethodDef functions[] = {
    {"done", (PyCFunction)(void (*)(void))done_by_c, METH_FASTCALL, "Look at what a line or an instruction may have done."},
    {"begin", (PyCFunction)(void (*)(void))begin_by_c, METH_FASTCALL, "Tell of the arguments of a call."},
    {NULL},
};

int following_ready(PyObject *module)
{
    struct { PyObject **place; const char *text; } all[] = {
        {&names.always, "always"}, {&names.done, "done"}, {&names.forget_inner, "_forget_inner"}, {&names.kind, "kind"},
        {&names.kinds, "kinds"}, {&names.look, "look"}, {&names.recall, "recall"}, {&names.settle, "_settle"},
        {&names.slot_of, "slot_of"}, {&names.snapshots, "snapshots"}, {&names.stored, "_stored"}, {&names.tell, "tell"},
    };
    for (size_t at = 0; at < sizeof all / sizeof all[0]; at++)
        if ((*all[at].place = PyUnicode_InternFromString(all[at].text)) == NULL)
            return -1;
    return PyModule_AddFunctions(module, functions);
}
