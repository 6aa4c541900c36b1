/* Whether what a line may have changed in place is what it was (capture/variables/activation.py: look), and who can change it.
 *
 * Mostly it is: then nothing is to be done. Where a container has changed, or is held by others than before, and where
 * there are arrays or what other calls see too, Python looks, at all of it.
 */
#include "following.h"

enum { M_OFFSET, M_LINE, M_MENTIONS, M_SHADOWED, M_INTO }; /* bytecode.py: Mutator */
#define REFERENCES_OF_ONE_LOCAL 2 /* the slot and we */

static struct { PyObject *alert, *aliased, *always, *depth, *is_muted, *slot_of, *snapshots, *unmute; } names; /* of attributes, interned */

/* What a look is at: all borrowed from who looks. */
typedef struct {
    Call *call;
    PyFrameObject *frame;
    PyObject *mentioned, *fresh, *snapshots, *slot_of;
    long depth;
} Look;

/* Whether it holds what it held: 1, 0, -1 error. */
static int is_as_signed(const Look *look, const Known *entry, PyObject *value)
{
    int is_container = PyList_CheckExact(value) || PyTuple_CheckExact(value) || PyDict_CheckExact(value);
    if (entry->id != (unsigned long long)(uintptr_t)value || !is_container || !is_set(entry->signature))
        return 0;
    PyObject *before = Py_NewRef(entry->signature), *now = sign(look->snapshots, value, look->depth);
    int same = now == NULL ? -1 : PyObject_RichCompareBool(before, now, Py_EQ);
    Py_XDECREF(now);
    Py_DECREF(before);
    return same;
}

/* Whether it stays among those that any call may change, or that only code can which names it (Activation._settle). What it
 * holds has not changed, so only references have to be counted where nothing else could refer to it before. */
static int stays(const Look *look, PyObject *value, int is_alone)
{
    int few = Py_REFCNT(value) <= REFERENCES_OF_ONE_LOCAL;
    if (is_alone || !few)
        return few == is_alone;
    int closed = is_closed(look->snapshots, value, CONTAINER);
    return closed < 0 ? -1 : !closed;
}

/* Whether there is nothing to do about one variable. */
static int is_unchanged(const Look *look, PyObject *name, PyObject *entry, int is_alone, int settles)
{
    PyObject *slot = PyDict_GetItemWithError(look->slot_of, name); /* borrowed from the plan's table */
    if (slot == NULL || !PyObject_TypeCheck(entry, &KnownType))
        return PyErr_Occurred() ? -1 : 0;
    PyObject *value = read_slot(look->frame, PyLong_AsSsize_t(slot));
    int same = is_as_signed(look, (Known *)entry, value);
    if (same > 0 && settles)
        same = stays(look, value, is_alone);
    Py_DECREF(value);
    return same;
}

static int is_mentioned(const Look *look, PyObject *name)
{
    return PyTuple_Check(look->mentioned) ? PySequence_Contains(look->mentioned, name) : 1;
}

/* Whether there is nothing to do about a table of variables; `is_alone`: only those that are mentioned are looked at. */
static int are_unchanged(const Look *look, PyObject *table, int is_alone)
{
    PyObject *items = PyDict_Items(table); /* ours: what is asked of Python may change the table */
    int same = items == NULL ? -1 : 1;
    for (Py_ssize_t at = 0; same > 0 && at < PyList_GET_SIZE(items); at++) {
        PyObject *name = PyTuple_GET_ITEM(PyList_GET_ITEM(items, at), 0), *entry = PyTuple_GET_ITEM(PyList_GET_ITEM(items, at), 1);
        int mentioned = is_mentioned(look, name);
        int skipped = is_alone ? mentioned == 0 : look->fresh == NULL ? 0 : PySequence_Contains(look->fresh, name);
        if (mentioned < 0 || skipped < 0)
            same = -1;
        else if (!skipped)
            same = is_unchanged(look, name, entry, is_alone, mentioned);
    }
    Py_XDECREF(items);
    return same;
}

/* Begin a look: 1; 0 where Python has to. -1 error. `end` it in any case. */
static int begin_look(Look *look, Call *call, PyFrameObject *frame)
{
    *look = (Look){call, frame, Py_None, NULL, NULL, NULL, 0};
    int always = is_true_attribute(call->plan, names.always);
    if (always != 0 || !is_readable || !is_set(call->slots))
        return always < 0 ? -1 : 0;
    look->snapshots = PyObject_GetAttr(call->engine, names.snapshots);
    look->slot_of = look->snapshots == NULL ? NULL : PyObject_GetAttr(call->plan, names.slot_of);
    if (look->slot_of == NULL || attribute_as_long(look->snapshots, names.depth, &look->depth) < 0)
        return -1;
    return look->depth > 1; /* else what is inside is not known */
}

static int end_look(const Look *look, int same)
{
    Py_XDECREF(look->snapshots);
    Py_XDECREF(look->slot_of);
    return PyErr_Occurred() ? -1 : same;
}

int nothing_changed(Call *call, PyObject *action, PyObject *fresh, PyFrameObject *frame)
{
    PyObject *shadowed = PyTuple_GET_ITEM(PyTuple_GET_ITEM(action, MUTATOR), M_SHADOWED); /* borrowed from the action */
    if (!PyAnySet_Check(shadowed) || PySet_GET_SIZE(shadowed))
        return 0;
    Look look;
    int same = begin_look(&look, call, frame);
    look.mentioned = PyTuple_GET_ITEM(action, MENTIONED);
    look.fresh = fresh;
    if (same > 0)
        same = are_unchanged(&look, call->alone, 1);
    if (same > 0)
        same = are_unchanged(&look, call->open, 0);
    return end_look(&look, same);
}

/* Python gives a call a last, thorough look (Activation.end): that differs from any other for arrays only. */
int is_over(Call *call, PyFrameObject *frame)
{
    Look look;
    int same = begin_look(&look, call, frame);
    PyObject *nothing = same > 0 ? PyTuple_New(0) : NULL; /* is mentioned: so nothing is settled, only compared */
    if (same > 0 && nothing != NULL) {
        look.mentioned = nothing;
        same = are_unchanged(&look, call->open, 0);
    }
    Py_XDECREF(nothing);
    return end_look(&look, same);
}

/* ---------------------------------------------------------------- who can change it */

/* Whether it must be looked at wherever a value may change (Activation._be_alert). */
static int be_alert(Call *call)
{
    PyObject *alert = PyObject_GetAttr(call->plan, names.alert);
    int wanted = alert == NULL ? -1 : is_filled(call->open) ? 1 : is_true_attribute(call->plan, names.always), done = -1;
    if (wanted > 0 && (done = PySet_Add(alert, call->serial)) == 0) {
        int muted = is_true_attribute(call->plan, names.is_muted);
        done = muted <= 0 ? muted : ask(PyObject_CallMethodOneArg(call->engine, names.unmute, call->plan));
    } else if (wanted == 0)
        done = PySet_Discard(alert, call->serial) < 0 ? -1 : 0;
    Py_XDECREF(alert);
    return done;
}

/* Let go of an entry of a table, if it is there: 1 it was, 0, -1 error. */
static int drop(PyObject *table, PyObject *key)
{
    int there = PyDict_Contains(table, key);
    return there <= 0 ? there : PyDict_DelItem(table, key) < 0 ? -1 : 1;
}

int forget_open(Call *call, PyObject *key)
{
    PyObject *slot_of = PyObject_GetAttr(call->plan, names.slot_of);
    int has_slot = slot_of == NULL ? -1 : PyDict_Contains(slot_of, key);
    Py_XDECREF(slot_of);
    if (has_slot <= 0)
        return has_slot;
    return drop(call->alone, key) < 0 || drop(call->open, key) < 0 ? -1 : be_alert(call);
}

/* Whether nothing but code that names the variable can change the value: 1, 0, -1 error. */
static int is_alone(Call *call, PyObject *key, PyObject *value, long role)
{
    if (Py_REFCNT(value) > REFERENCES_OF_ONE_LOCAL)
        return 0;
    PyObject *aliased = PyObject_GetAttr(call->plan, names.aliased), *snapshots = NULL;
    int is_aliased = aliased == NULL ? -1 : PySet_Contains(aliased, key), closed = -1;
    if (is_aliased == 0 && (snapshots = PyObject_GetAttr(call->engine, names.snapshots)) != NULL)
        closed = is_closed(snapshots, value, role);
    Py_XDECREF(snapshots);
    Py_XDECREF(aliased);
    return is_aliased > 0 ? 0 : closed;
}

int settle(Call *call, PyObject *key, PyObject *value, Known *entry)
{
    long role = role_of(entry->kind);
    int is_open = role == STAMPED ? PyDict_Contains(call->open, key) : 0;
    if (is_open != 0 || !is_set(entry->signature))
        return is_open < 0 ? -1 : 0;
    int alone = is_alone(call, key, value, role);
    PyObject *wanted = alone > 0 ? call->alone : call->open, *other = alone > 0 ? call->open : call->alone;
    int there = alone < 0 ? -1 : PyDict_Contains(wanted, key);
    if (there != 0)
        return there < 0 ? -1 : 0;
    return drop(other, key) < 0 || PyDict_SetItem(wanted, key, (PyObject *)entry) < 0 ? -1 : be_alert(call);
}

int looking_ready(void)
{
    struct { PyObject **place; const char *text; } all[] = {
        {&names.alert, "alert"}, {&names.aliased, "aliased"}, {&names.always, "always"}, {&names.depth, "depth"},
        {&names.is_muted, "is_muted"}, {&names.slot_of, "slot_of"}, {&names.snapshots, "snapshots"}, {&names.unmute, "unmute"},
    };
    for (size_t at = 0; at < sizeof all / sizeof all[0]; at++)
        if ((*all[at].place = PyUnicode_InternFromString(all[at].text)) == NULL)
            return -1;
    return 0;
}
