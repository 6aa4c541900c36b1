/* Inspects the variables of a followed call after a line or an instruction
 * (capture/variables/activation.py).
 *
 * An Action (plan.py) says what the line may have stored. Each store is compared with the entry of
 * its variable (Known), and a change is reported. Handled here is what most lines do: nothing,
 * storing the same object again, or storing a number, text, tensor, object or container in a plain
 * local. All else is left to the methods of Activation: arrays, whose content is compared;
 * containers that have changed; variables of closures and modules; attributes; deletions.
 */
#include "following.h"

/* plan.py: Target */
enum { STORE, TARGET_SCOPE, KEY, FACTS, TARGET_FIELDS };
/* bytecode.py: Store */
enum {
    S_OFFSET,
    S_LINE,
    S_NAME,
    S_KIND,
    S_SLOT,
    S_DELETES,
    S_INNER,
    S_HIDDEN,
    S_ENDED,
    STORE_FIELDS
};
/* Where CPython 3.11 to 3.13 keeps the locals of a frame, in bytes. slots.py tries these on frames
 * that it knows; if they do not hold, is_readable is 0 and C reads no locals. */
#define TO_INNER_FRAME 24
#define TO_SLOTS       72

/* Names of attributes. */
static struct {
    PyObject *always, *depth, *done, *forget_inner, *in_place, *kind, *kinds, *look;
    PyObject *recall, *slot_of, *snapshots, *stored, *tell;
} names;

/* ---------------------------------------------------------------- reading */

PyObject **first_slot(PyFrameObject *frame)
{
    char *inner = *(char **)((char *)frame + TO_INNER_FRAME);
    return (PyObject **)(inner + TO_SLOTS);
}

PyObject *read_slot(PyFrameObject *frame, Py_ssize_t at)
{
    PyObject *value = first_slot(frame)[at];
    return Py_NewRef(value == NULL ? unbound : value);
}

Known *entry_of(Call *call, PyObject *key)
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
    for (int at = 0; at < BUILTIN_KINDS; at++)
        if (Py_TYPE(value) == builtin_kinds[at].cls && builtin_kinds[at].kind != NULL)
            return Py_NewRef(builtin_kinds[at].kind);
    PyObject *kinds = PyObject_GetAttr(snapshots, names.kinds);
    PyObject *key = NULL;
    PyObject *kind = NULL;
    if (kinds != NULL && (key = PyLong_FromVoidPtr(Py_TYPE(value))) != NULL) {
        kind = Py_XNewRef(PyDict_GetItemWithError(kinds, key));
        /* borrowed from the kind */
        PyObject *ref = kind == NULL ? NULL : PyTuple_GET_ITEM(kind, 2);
        if (ref != NULL && ref != Py_None && !refers_to(ref, (PyObject *)Py_TYPE(value)))
            Py_CLEAR(kind); /* another type had that address */
        if (kind == NULL && !PyErr_Occurred())
            kind = PyObject_CallMethodOneArg(snapshots, names.kind, value);
    }
    Py_XDECREF(key);
    Py_XDECREF(kinds);
    return kind;
}

PyObject *kind_for(Call *call, PyObject *value)
{
    PyObject *snapshots = PyObject_GetAttr(call->engine, names.snapshots);
    PyObject *kind = snapshots == NULL ? NULL : kept_as(snapshots, value);
    Py_XDECREF(snapshots);
    return kind;
}

long role_of(PyObject *kind)
{
    return PyLong_AsLong(PyTuple_GET_ITEM(kind, 0));
}

int is_taken_here(long role)
{
    return role == ATOM || role == OBJECT || role == OPAQUE || role == TEXT || role == CONTAINER;
}

/* Return the signature of a container (signing.c), owned; None: it cannot change in place, or such
 * changes are not followed. */
static PyObject *signature_of(Call *call, PyObject *value)
{
    PyObject *snapshots = PyObject_GetAttr(call->engine, names.snapshots);
    PyObject *signature = NULL;
    long depth, is_sealed = 0,
                in_place = snapshots == NULL ? -1 : is_true_attribute(snapshots, names.in_place);
    if (in_place > 0 && PyTuple_CheckExact(value))
        is_sealed = is_closed(snapshots, value, CONTAINER);
    if (in_place == 0 || is_sealed > 0)
        signature = Py_NewRef(Py_None);
    else if (in_place > 0 && is_sealed == 0
             && attribute_as_long(snapshots, names.depth, &depth) == 0)
        signature = sign(snapshots, value, depth);
    Py_XDECREF(snapshots);
    return signature;
}

int take(Call *call, Known *entry, PyObject *value, PyObject *kind, long role)
{
    PyObject *kept = unbound;
    PyObject *signature = NULL;
    if (role == OBJECT) {
        if ((kept = PyWeakref_NewRef(value, NULL)) == NULL)
            return -1;
    } else {
        if (role == ATOM || (role == TEXT && PyObject_Size(value) <= LONGEST_TEXT))
            kept = value;
        Py_INCREF(kept);
    }
    /* Not earlier: making a weak reference may start a garbage collection, which may run any code.
     */
    PyObject *old_kept = entry->kept;
    PyObject *old_kind = entry->kind;
    PyObject *old_signature = entry->signature;
    entry->id = (unsigned long long)(uintptr_t)value;
    entry->kept = kept;
    entry->kind = Py_NewRef(kind);
    entry->signature = NULL;
    Py_XDECREF(old_kept); /* after the fields are set, because this may run code */
    Py_XDECREF(old_kind);
    Py_XDECREF(old_signature);
    if (role == CONTAINER) {
        if ((signature = signature_of(call, value)) == NULL)
            return -1;
        Py_XSETREF(entry->signature, signature);
    }
    return 0;
}

/* Return whether two numbers or short texts are the same (snapshots.py: same_atom). -0.0 and 0.0
 * differ. */
static int is_same_atom(PyObject *old, PyObject *new)
{
    PyTypeObject *cls = Py_TYPE(new);
    if (Py_TYPE(old) != cls
        || !(cls == &PyLong_Type || cls == &PyUnicode_Type || cls == &PyFloat_Type
             || cls == &PyBool_Type || new == Py_None || cls == &PyBytes_Type
             || cls == &PyComplex_Type))
        return 0;
    if (cls == &PyFloat_Type) {
        double one = PyFloat_AS_DOUBLE(old);
        double other = PyFloat_AS_DOUBLE(new);
        return one == other && (other != 0 || !__builtin_signbit(one) == !__builtin_signbit(other));
    }
    return PyObject_RichCompareBool(old, new, Py_EQ);
}

/* ---------------------------------------------------------------- reporting a change */

int tell(Call *call, Known *entry, PyObject *fields, PyFrameObject *frame)
{
    PyObject *tell = fields == NULL ? NULL : PyObject_GetAttr(call->engine, names.tell);
    PyObject *answer =
        tell == NULL ? NULL : PyObject_CallFunctionObjArgs(tell, fields, frame, NULL);
    Py_XDECREF(tell);
    int was_reported = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (was_reported >= 0)
        entry->is_reported = (char)was_reported;
    return was_reported < 0 ? -1 : 0;
}

/* Return the fields of a change: its first fields, the values before and after, and the number of
 * the call. Takes over `old`. */
PyObject *fields_of(PyObject *facts, PyObject *old, PyObject *new, PyObject *serial)
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

/* Report that a variable has a new value, and remember that in its entry. */
static int take_and_tell(Call *call, PyObject *target, Known *entry, PyObject *value,
                         PyObject *kind, PyFrameObject *frame)
{
    const int could_change = is_set(entry->signature);
    PyObject *old = entry->is_reported ? Py_NewRef(reported_mark)
                    : !entry->id       ? Py_NewRef(unbound)
                                       : PyObject_CallMethodNoArgs((PyObject *)entry, names.recall);
    if (old == NULL)
        return -1;
    if (take(call, entry, value, kind, role_of(kind)) < 0
        || (could_change && !is_set(entry->signature)
            && forget_variable(call, PyTuple_GET_ITEM(target, KEY)) < 0)) {
        Py_DECREF(old);
        return -1;
    }
    PyObject *fields = fields_of(PyTuple_GET_ITEM(target, FACTS), old, value, call->serial);
    int done = tell(call, entry, fields, frame);
    Py_XDECREF(fields);
    return done;
}

/* Take and report the new value of a plain local (Activation._stored). 1: done; 0: left to Python;
 * -1: error. */
static int store_here(Call *call, PyObject *target, Known *entry, PyObject *value,
                      PyFrameObject *frame)
{
    PyObject *store = PyTuple_GET_ITEM(target, STORE); /* borrowed from the target */
    if (value == unbound) /* mostly it was not stored yet: a statement of several lines comes back
                             to its first one */
        return !entry->id && PyTuple_GET_ITEM(store, S_ENDED) == Py_None;
    if (PyTuple_GET_ITEM(store, S_HIDDEN) != Py_False)
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
    int done = !is_taken_here(role_of(kind))                                ? 0
               : take_and_tell(call, target, entry, value, kind, frame) < 0 ? -1
                                                                            : 1;
    Py_DECREF(kind);
    return done;
}

/* The new value can change in place: decide which code could do that, and note that this line need
 * not check it. */
static int settle_stored(Call *call, PyObject *key, PyObject *value, Known *entry, PyObject **fresh)
{
    PyObject *slot_of = PyObject_GetAttr(call->plan, names.slot_of);
    int has_slot = slot_of == NULL ? -1 : PyDict_Contains(slot_of, key);
    Py_XDECREF(slot_of);
    if (has_slot <= 0)
        return has_slot;
    if (sort_by_access(call, key, value, entry) < 0
        || (*fresh == NULL && (*fresh = PyList_New(0)) == NULL))
        return -1;
    return PyList_Append(*fresh, key);
}

/* Handle one store that the line may have done. */
static int inspect_store(Call *call, PyObject *fast, PyFrameObject *frame, PyObject **fresh)
{
    /* borrowed from the action */
    PyObject *key = PyTuple_GET_ITEM(fast, 1);
    PyObject *target = PyTuple_GET_ITEM(fast, 2);
    PyObject *value = read_slot(frame, PyLong_AsSsize_t(PyTuple_GET_ITEM(fast, 0)));
    Known *entry = entry_of(call, key);
    int done = entry == NULL ? -1 : 0;
    if (entry != NULL && entry->id != (unsigned long long)(uintptr_t)value) {
        done = store_here(call, target, entry, value, frame);
        if (done == 0)
            done = as_done(PyObject_CallMethodObjArgs((PyObject *)call, names.stored, target, entry,
                                                      value, frame, NULL));
        if (done >= 0 && is_set(entry->signature))
            done = settle_stored(call, key, value, entry, fresh);
    } else if (entry != NULL) {
        PyObject *store = PyTuple_GET_ITEM(target, STORE); /* borrowed from the target */
        if (PyTuple_GET_ITEM(store, S_ENDED) != Py_None)
            done = as_done(PyObject_CallMethodOneArg((PyObject *)call, names.forget_inner, store));
    }
    Py_XDECREF(entry);
    Py_DECREF(value);
    return done < 0 ? -1 : 0;
}

/* Return whether the line names a variable that is alone (looking.c); `mentioned` is None if the
 * names are not known. */
static int is_any_alone(const Call *call, PyObject *mentioned)
{
    if (!PyTuple_Check(mentioned))
        return 1;
    int found = 0;
    for (Py_ssize_t at = 0; found == 0 && at < PyTuple_GET_SIZE(mentioned); at++)
        found = PyDict_Contains(call->alone, PyTuple_GET_ITEM(mentioned, at));
    return found;
}

/* Return whether the line may have changed a container in place; -1: error. */
static int may_have_changed(Call *call, PyObject *action)
{
    if (PyTuple_GET_ITEM(action, MUTATOR) == Py_None)
        return 0;
    if (is_filled(call->open))
        return 1;
    int alone =
        is_filled(call->alone) ? is_any_alone(call, PyTuple_GET_ITEM(action, MENTIONED)) : 0;
    return alone != 0 ? alone : is_true_attribute(call->plan, names.always);
}

/* Inspect what a line or an instruction has stored, and report the changes (Activation.done). */
int inspect_stores(Call *call, PyObject *action, PyFrameObject *frame)
{
    if (!is_readable || !is_set(call->slots) || PyTuple_GET_SIZE(PyTuple_GET_ITEM(action, TARGETS))
        || PyTuple_GET_SIZE(PyTuple_GET_ITEM(action, ROOTS)))
        return as_done(
            PyObject_CallMethodObjArgs((PyObject *)call, names.done, action, frame, NULL));
    /* borrowed from the action, which the caller holds */
    PyObject *all = PyTuple_GET_ITEM(action, FAST);
    PyObject *fresh = NULL;
    int done = 0;
    for (Py_ssize_t at = 0; done == 0 && at < PyTuple_GET_SIZE(all); at++)
        done = inspect_store(call, PyTuple_GET_ITEM(all, at), frame, &fresh);
    int look = done < 0 ? 0 : may_have_changed(call, action);
    enum Checked checked = look > 0 ? check_in_place(call, action, fresh, frame) : CHECKED;
    if (checked == CHECK_FAILED)
        done = -1;
    else if (checked == ASK_PYTHON) {
        PyObject *looked_at = fresh == NULL ? PyTuple_New(0) : PyList_AsTuple(fresh);
        done = looked_at == NULL
                   ? -1
                   : as_done(PyObject_CallMethodObjArgs(
                         (PyObject *)call, names.look, PyTuple_GET_ITEM(action, MUTATOR),
                         PyTuple_GET_ITEM(action, MENTIONED), frame, looked_at, NULL));
        Py_XDECREF(looked_at);
    }
    Py_XDECREF(fresh);
    return look < 0 ? -1 : done;
}

long stored_line(PyObject *action)
{
    /* borrowed, as all below */
    PyObject *fast = PyTuple_GET_ITEM(action, FAST);
    PyObject *targets = PyTuple_GET_ITEM(action, TARGETS);
    PyObject *target = PyTuple_GET_SIZE(fast)      ? PyTuple_GET_ITEM(PyTuple_GET_ITEM(fast, 0), 2)
                       : PyTuple_GET_SIZE(targets) ? PyTuple_GET_ITEM(targets, 0)
                                                   : NULL;
    return target == NULL
               ? 0
               : PyLong_AsLong(PyTuple_GET_ITEM(PyTuple_GET_ITEM(target, STORE), S_LINE));
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
    if (inspect_stores((Call *)args[0], args[1], (PyFrameObject *)args[2]) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the module's part */

static PyMethodDef functions[] = {
    {"done", (PyCFunction)(void (*)(void))done_by_c, METH_FASTCALL,
     "Inspect what a line or an instruction has stored."},
    {NULL},
};

int following_ready(PyObject *module)
{
    const AttributeName all[] = {
        {&names.always, "always"},       {&names.depth, "depth"},
        {&names.done, "done"},           {&names.forget_inner, "_forget_inner"},
        {&names.in_place, "in_place"},   {&names.kind, "kind"},
        {&names.kinds, "kinds"},         {&names.look, "look"},
        {&names.recall, "recall"},       {&names.slot_of, "slot_of"},
        {&names.snapshots, "snapshots"}, {&names.stored, "_stored"},
        {&names.tell, "tell"},
    };
    if (INTERN_NAMES(all) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
