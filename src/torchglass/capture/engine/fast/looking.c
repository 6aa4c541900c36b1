/* Whether what a line may have changed in place is what it was (capture/variables/activation.py: look), and who can change it.
 *
 * Mostly it is: then nothing is to be done. A container that has changed is told by Python; where there are arrays, or
 * what other calls see too and can change, Python looks, at all of it.
 */
#include "following.h"

enum { M_OFFSET, M_LINE, M_MENTIONS, M_SHADOWED, M_INTO }; /* bytecode.py: Mutator */
#define REFERENCES_OF_ONE_LOCAL 2 /* the slot and we */

static struct { PyObject *alert, *aliased, *always, *cells, *changed, *depth, *is_muted, *namespace, *paths, *slot_of, *snapshots, *unmute; } names; /* of attributes, interned */

/* What a look is at: all borrowed from who looks. */
typedef struct {
    Call *call;
    PyFrameObject *frame;
    PyObject *mutator, *mentioned, *fresh, *snapshots, *slot_of; /* mutator: NULL where changes are not told */
    long depth;
} Look;

/* Look at a container (Activation._compare): 1 done, and a change is told; 0: Python has to look. -1 error. */
static int compare(const Look *look, PyObject *name, Known *entry, PyObject *value)
{
    int is_container = PyList_CheckExact(value) || PyTuple_CheckExact(value) || PyDict_CheckExact(value);
    if (entry->id != (unsigned long long)(uintptr_t)value || !is_container || !is_set(entry->signature))
        return 0;
    PyObject *before = Py_NewRef(entry->signature), *now = sign(look->snapshots, value, look->depth);
    int same = now == NULL ? -1 : PyObject_RichCompareBool(before, now, Py_EQ);
    if (same == 0 && look->mutator != NULL) {
        PyObject *what = PyTuple_Pack(3, value, look->mutator, look->frame);
        same = what == NULL ? -1 : 1;
        if (what != NULL
            && ask(PyObject_CallMethodObjArgs((PyObject *)look->call, names.changed, name, entry, now, what, NULL)) < 0)
            same = -1;
        Py_XDECREF(what);
    }
    Py_XDECREF(now);
    Py_DECREF(before);
    return same;
}

/* Look at one variable; `settles`: who can change it may be another by now. */
static int look_at(const Look *look, PyObject *name, PyObject *entry, int settles)
{
    PyObject *slot = PyDict_GetItemWithError(look->slot_of, name); /* borrowed from the plan's table */
    if (slot == NULL || !PyObject_TypeCheck(entry, &KnownType))
        return PyErr_Occurred() ? -1 : 0;
    PyObject *value = read_slot(look->frame, PyLong_AsSsize_t(slot));
    int done = compare(look, name, (Known *)entry, value);
    if (done > 0 && settles && settle(look->call, name, value, (Known *)entry) < 0)
        done = -1;
    Py_DECREF(value);
    return done;
}

/* Look at those that only code can change which names them: the line's own. */
static int look_at_alone(const Look *look)
{
    PyObject *names_of_line = PyTuple_Check(look->mentioned) ? Py_NewRef(look->mentioned) : PySequence_Tuple(look->call->alone);
    int done = names_of_line == NULL ? -1 : 1;
    for (Py_ssize_t at = 0; done > 0 && at < PyTuple_GET_SIZE(names_of_line); at++) {
        PyObject *name = PyTuple_GET_ITEM(names_of_line, at);
        PyObject *entry = Py_XNewRef(PyDict_GetItemWithError(look->call->alone, name)); /* settling may take it out */
        if (entry != NULL)
            done = look_at(look, name, entry, 1);
        Py_XDECREF(entry);
    }
    Py_XDECREF(names_of_line);
    return PyErr_Occurred() ? -1 : done;
}

/* Look at those that any call may change. */
static int look_at_open(const Look *look)
{
    PyObject *items = PyDict_Items(look->call->open); /* ours: who can change a variable may become another */
    int done = items == NULL ? -1 : 1;
    for (Py_ssize_t at = 0; done > 0 && at < PyList_GET_SIZE(items); at++) {
        PyObject *name = PyTuple_GET_ITEM(PyList_GET_ITEM(items, at), 0), *entry = PyTuple_GET_ITEM(PyList_GET_ITEM(items, at), 1);
        int settles = PyTuple_Check(look->mentioned) ? PySequence_Contains(look->mentioned, name) : 1;
        int skipped = look->fresh == NULL ? 0 : PySequence_Contains(look->fresh, name);
        if (settles < 0 || skipped < 0)
            done = -1;
        else if (!skipped)
            done = look_at(look, name, entry, settles);
    }
    Py_XDECREF(items);
    return done;
}

/* Whether of what other calls see too there is nothing that can change in place: 1, 0, -1 error. */
static int shares_nothing(Call *call)
{
    int always = is_true_attribute(call->plan, names.always), other;
    if (always <= 0)
        return always < 0 ? -1 : 1;
    if ((other = is_true_attribute(call->plan, names.namespace)) != 0 || (other = is_true_attribute(call->plan, names.paths)) != 0)
        return other < 0 ? -1 : 0;
    PyObject *cells = PyObject_GetAttr((PyObject *)call, names.cells);
    int nothing = cells == NULL ? -1 : PyList_Check(cells);
    for (Py_ssize_t at = 0; nothing > 0 && at < PyList_GET_SIZE(cells); at++) {
        PyObject *entry = PyTuple_GET_ITEM(PyList_GET_ITEM(cells, at), 1); /* borrowed from the list, which is not changed */
        nothing = PyObject_TypeCheck(entry, &KnownType) && !is_set(((Known *)entry)->signature);
    }
    Py_XDECREF(cells);
    return nothing;
}

/* Begin a look: 1; 0 where Python has to. -1 error. `end` it in any case. */
static int begin_look(Look *look, Call *call, PyFrameObject *frame)
{
    *look = (Look){call, frame, NULL, Py_None, NULL, NULL, NULL, 0};
    int nothing = shares_nothing(call);
    if (nothing <= 0 || !is_readable || !is_set(call->slots))
        return nothing < 0 ? -1 : 0;
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

int look_in_place(Call *call, PyObject *action, PyObject *fresh, PyFrameObject *frame)
{
    PyObject *shadowed = PyTuple_GET_ITEM(PyTuple_GET_ITEM(action, MUTATOR), M_SHADOWED); /* borrowed from the action */
    if (!PyAnySet_Check(shadowed) || PySet_GET_SIZE(shadowed))
        return 0;
    Look look;
    int same = begin_look(&look, call, frame);
    look.mutator = PyTuple_GET_ITEM(action, MUTATOR);
    look.mentioned = PyTuple_GET_ITEM(action, MENTIONED);
    look.fresh = fresh;
    if (same > 0)
        same = look_at_alone(&look);
    if (same > 0)
        same = look_at_open(&look);
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
        same = look_at_open(&look);
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
        {&names.alert, "alert"}, {&names.aliased, "aliased"}, {&names.always, "always"}, {&names.cells, "cells"},
        {&names.changed, "_changed"}, {&names.depth, "depth"}, {&names.is_muted, "is_muted"}, {&names.namespace, "namespace"},
        {&names.paths, "paths"}, {&names.slot_of, "slot_of"}, {&names.snapshots, "snapshots"}, {&names.unmute, "unmute"},
    };
    for (size_t at = 0; at < sizeof all / sizeof all[0]; at++)
        if ((*all[at].place = PyUnicode_InternFromString(all[at].text)) == NULL)
            return -1;
    return 0;
}
