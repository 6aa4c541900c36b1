/* Finds containers that a line has changed in place (capture/variables/activation.py: look).
 *
 * The containers of a followed call are in one of two dicts, by who can change them:
 *
 *   alone    only code that names the variable, because nothing else refers to the container
 *   open     any code that runs meanwhile, because something else refers to it as well
 *
 * So after a line only all of `open` and those `alone` variables that the line names are checked.
 * The plan, which all calls of one code object share, has two more fields:
 *
 *   always   whether the code has variables that other calls share: those of closures and of the
 *            module, and watched attributes
 *   alert    the calls to check wherever any value may change, because their `open` is not empty or
 *            their plan is `always`
 *
 * Usually the signature of a container (signing.c) is the same as before, and there is nothing to
 * do. If it differs, Python reports the change (Activation._changed). These functions cannot check
 * everything, such as an array or a closure: then they return ASK_PYTHON, and Python repeats the
 * whole check (Activation.look). The second half of the file decides whether a variable is alone or
 * open.
 */
#include "following.h"

enum { M_OFFSET, M_LINE, M_MENTIONS, M_SHADOWED, M_INTO }; /* bytecode.py: Mutator */
#define REFERENCES_OF_ONE_LOCAL 2 /* the variable's slot, and this function */

/* Names of attributes. */
static struct {
    PyObject *alert, *aliased, *always, *cells, *changed, *depth;
    PyObject *is_muted, *namespace, *paths, *slot_of, *snapshots, *unmute;
} names;

/* One check of a call's containers. */
typedef struct {
    Call *call;
    PyFrameObject *frame;
    /* borrowed; the code that may have changed something. NULL: compare only, report nothing */
    PyObject *mutator;
    PyObject *mentioned; /* borrowed; a tuple of the names in that code. None: it may name any */
    /* borrowed; a list of the variables that the line has stored, which need no check; or NULL */
    PyObject *fresh;
    PyObject *snapshots; /* owned, as is the next one; end_check drops both */
    PyObject *slot_of;   /* a dict: name -> slot of the frame */
    long depth;          /* how many levels of a container its signature describes */
} Check;

/* Compare a container with its signature, and have Python report a change (Activation._compare). */
static enum Checked compare(const Check *state, PyObject *name, Known *entry, PyObject *value)
{
    int is_container =
        PyList_CheckExact(value) || PyTuple_CheckExact(value) || PyDict_CheckExact(value);
    if (entry->id != (unsigned long long)(uintptr_t)value || !is_container
        || !is_set(entry->signature))
        return ASK_PYTHON;
    PyObject *before = Py_NewRef(entry->signature);
    PyObject *now = sign(state->snapshots, value, state->depth);
    int is_same = now == NULL ? -1 : PyObject_RichCompareBool(before, now, Py_EQ);
    enum Checked result = is_same < 0 ? CHECK_FAILED : is_same ? CHECKED : ASK_PYTHON;
    if (is_same == 0 && state->mutator != NULL) {
        PyObject *what = PyTuple_Pack(3, value, state->mutator, state->frame);
        PyObject *done = NULL;
        if (what != NULL)
            done = PyObject_CallMethodObjArgs((PyObject *)state->call, names.changed, name, entry,
                                              now, what, NULL);
        result = done == NULL ? CHECK_FAILED : CHECKED;
        Py_XDECREF(done);
        Py_XDECREF(what);
    }
    Py_XDECREF(now);
    Py_DECREF(before);
    return result;
}

/* Check one variable; `sorts_again`: it may have to move between `alone` and `open`. */
static enum Checked check_variable(const Check *state, PyObject *name, PyObject *entry,
                                   int sorts_again)
{
    /* borrowed from the plan's table */
    PyObject *slot = PyDict_GetItemWithError(state->slot_of, name);
    if (slot == NULL || !PyObject_TypeCheck(entry, &KnownType))
        return PyErr_Occurred() ? CHECK_FAILED : ASK_PYTHON;
    PyObject *value = read_slot(state->frame, PyLong_AsSsize_t(slot));
    enum Checked result = compare(state, name, (Known *)entry, value);
    if (result == CHECKED && sorts_again
        && sort_by_access(state->call, name, value, (Known *)entry) < 0)
        result = CHECK_FAILED;
    Py_DECREF(value);
    return result;
}

/* Check the variables that are alone and named by the line. */
static enum Checked check_alone(const Check *state)
{
    PyObject *alone = state->call->alone;
    PyObject *named =
        PyTuple_Check(state->mentioned) ? Py_NewRef(state->mentioned) : PySequence_Tuple(alone);
    if (named == NULL)
        return CHECK_FAILED;
    enum Checked result = CHECKED;
    for (Py_ssize_t at = 0; result == CHECKED && at < PyTuple_GET_SIZE(named); at++) {
        PyObject *name = PyTuple_GET_ITEM(named, at);
        /* sorting may take it out */
        PyObject *entry = Py_XNewRef(PyDict_GetItemWithError(alone, name));
        if (entry != NULL)
            result = check_variable(state, name, entry, 1);
        Py_XDECREF(entry);
    }
    Py_DECREF(named);
    return PyErr_Occurred() ? CHECK_FAILED : result;
}

/* Check the open variables, but for those that the line has stored. */
static enum Checked check_open(const Check *state)
{
    PyObject *items = PyDict_Items(state->call->open); /* a copy, since sorting changes the dict */
    enum Checked result = items == NULL ? CHECK_FAILED : CHECKED;
    for (Py_ssize_t at = 0; result == CHECKED && at < PyList_GET_SIZE(items); at++) {
        PyObject *name = PyTuple_GET_ITEM(PyList_GET_ITEM(items, at), 0);
        PyObject *entry = PyTuple_GET_ITEM(PyList_GET_ITEM(items, at), 1);
        int sorts_again =
            PyTuple_Check(state->mentioned) ? PySequence_Contains(state->mentioned, name) : 1;
        int is_fresh = state->fresh == NULL ? 0 : PySequence_Contains(state->fresh, name);
        if (sorts_again < 0 || is_fresh < 0)
            result = CHECK_FAILED;
        else if (!is_fresh)
            result = check_variable(state, name, entry, sorts_again);
    }
    Py_XDECREF(items);
    return result;
}

/* Return whether the variables that other calls share (of closures, of the module, watched
 * attributes) hold no container; -1: error. */
static int shares_no_container(Call *call)
{
    int always = is_true_attribute(call->plan, names.always);
    if (always <= 0)
        return always < 0 ? -1 : 1;
    int has_namespace = is_true_attribute(call->plan, names.namespace);
    if (has_namespace != 0)
        return has_namespace < 0 ? -1 : 0;
    int has_paths = is_true_attribute(call->plan, names.paths);
    if (has_paths != 0)
        return has_paths < 0 ? -1 : 0;
    PyObject *cells = PyObject_GetAttr((PyObject *)call, names.cells);
    int shares_none = cells == NULL ? -1 : PyList_Check(cells);
    for (Py_ssize_t at = 0; shares_none > 0 && at < PyList_GET_SIZE(cells); at++) {
        /* borrowed from the list, which does not change */
        PyObject *entry = PyTuple_GET_ITEM(PyList_GET_ITEM(cells, at), 1);
        shares_none = PyObject_TypeCheck(entry, &KnownType) && !is_set(((Known *)entry)->signature);
    }
    Py_XDECREF(cells);
    return shares_none;
}

/* Fill in `state`. CHECKED means: go on. Call end_check in any case. */
static enum Checked begin_check(Check *state, Call *call, PyFrameObject *frame)
{
    *state = (Check){.call = call, .frame = frame, .mentioned = Py_None};
    int shares_none = shares_no_container(call);
    if (shares_none < 0)
        return CHECK_FAILED;
    if (!shares_none || !is_readable || !is_set(call->slots))
        return ASK_PYTHON;
    state->snapshots = PyObject_GetAttr(call->engine, names.snapshots);
    if (state->snapshots != NULL)
        state->slot_of = PyObject_GetAttr(call->plan, names.slot_of);
    if (state->slot_of == NULL
        || attribute_as_long(state->snapshots, names.depth, &state->depth) < 0)
        return CHECK_FAILED;
    /* with one level the signature does not describe the members */
    return state->depth > 1 ? CHECKED : ASK_PYTHON;
}

static enum Checked end_check(const Check *state, enum Checked result)
{
    Py_XDECREF(state->snapshots);
    Py_XDECREF(state->slot_of);
    return PyErr_Occurred() ? CHECK_FAILED : result;
}

enum Checked check_in_place(Call *call, PyObject *action, PyObject *fresh, PyFrameObject *frame)
{
    /* borrowed from the action, as is the next one */
    PyObject *mutator = PyTuple_GET_ITEM(action, MUTATOR);
    PyObject *shadowed = PyTuple_GET_ITEM(mutator, M_SHADOWED);
    if (!PyAnySet_Check(shadowed) || PySet_GET_SIZE(shadowed))
        return ASK_PYTHON;
    Check state;
    enum Checked result = begin_check(&state, call, frame);
    state.mutator = mutator;
    state.mentioned = PyTuple_GET_ITEM(action, MENTIONED);
    state.fresh = fresh;
    if (result == CHECKED)
        result = check_alone(&state);
    if (result == CHECKED)
        result = check_open(&state);
    return end_check(&state, result);
}

/* When a call ends Python checks its variables once more (Activation.end). Only arrays are checked
 * more thoroughly then, so Python need not do it if this finds nothing. */
enum Checked check_at_end(Call *call, PyFrameObject *frame)
{
    Check state;
    enum Checked result = begin_check(&state, call, frame);
    if (result == CHECKED) {
        PyObject *no_names = PyTuple_New(0); /* so no variable is sorted again */
        if (no_names == NULL)
            return end_check(&state, CHECK_FAILED);
        state.mentioned = no_names;
        result = check_open(&state);
        Py_DECREF(no_names);
    }
    return end_check(&state, result);
}

/* ---------------------------------------------------------------- alone or open */

/* Put the call into the plan's set of alert calls, or take it out (Activation._update_alertness).
 */
static int update_alertness(Call *call)
{
    int is_alert = is_filled(call->open) ? 1 : is_true_attribute(call->plan, names.always);
    if (is_alert < 0)
        return -1;
    PyObject *alert = PyObject_GetAttr(call->plan, names.alert);
    if (alert == NULL)
        return -1;
    int done;
    if (is_alert) {
        done = PySet_Add(alert, call->serial);
        int is_muted = done < 0 ? -1 : is_true_attribute(call->plan, names.is_muted);
        done = is_muted <= 0
                   ? is_muted
                   : as_done(PyObject_CallMethodOneArg(call->engine, names.unmute, call->plan));
    } else
        done = PySet_Discard(alert, call->serial) < 0 ? -1 : 0;
    Py_DECREF(alert);
    return done;
}

/* Remove a key from a dict, if it is there. */
static int drop(PyObject *dict, PyObject *key)
{
    int is_there = PyDict_Contains(dict, key);
    return is_there <= 0 ? is_there : PyDict_DelItem(dict, key);
}

int forget_variable(Call *call, PyObject *key)
{
    PyObject *slot_of = PyObject_GetAttr(call->plan, names.slot_of);
    int has_slot = slot_of == NULL ? -1 : PyDict_Contains(slot_of, key);
    Py_XDECREF(slot_of);
    if (has_slot <= 0)
        return has_slot;
    if (drop(call->alone, key) < 0 || drop(call->open, key) < 0)
        return -1;
    return update_alertness(call);
}

/* Return whether only code that names the variable can change the value; -1: error. */
static int is_alone(Call *call, PyObject *key, PyObject *value, long role)
{
    if (Py_REFCNT(value) > REFERENCES_OF_ONE_LOCAL)
        return 0;
    PyObject *aliased = PyObject_GetAttr(call->plan, names.aliased);
    int is_aliased = aliased == NULL ? -1 : PySet_Contains(aliased, key);
    Py_XDECREF(aliased);
    if (is_aliased != 0)
        return is_aliased < 0 ? -1 : 0;
    PyObject *snapshots = PyObject_GetAttr(call->engine, names.snapshots);
    int closed = snapshots == NULL ? -1 : is_closed(snapshots, value, role);
    Py_XDECREF(snapshots);
    return closed;
}

int sort_by_access(Call *call, PyObject *key, PyObject *value, Known *entry)
{
    if (!is_set(entry->signature))
        return 0;
    long role = role_of(entry->kind);
    if (role == STAMPED) {
        int is_open = PyDict_Contains(call->open, key);
        if (is_open != 0)
            return is_open < 0 ? -1 : 0;
    }
    int alone = is_alone(call, key, value, role);
    if (alone < 0)
        return -1;
    PyObject *to = alone ? call->alone : call->open;
    PyObject *from = alone ? call->open : call->alone;
    int is_there = PyDict_Contains(to, key);
    if (is_there != 0)
        return is_there < 0 ? -1 : 0;
    if (drop(from, key) < 0 || PyDict_SetItem(to, key, (PyObject *)entry) < 0)
        return -1;
    return update_alertness(call);
}

int looking_ready(void)
{
    const AttributeName all[] = {
        {&names.alert, "alert"},       {&names.aliased, "aliased"},     {&names.always, "always"},
        {&names.cells, "cells"},       {&names.changed, "_changed"},    {&names.depth, "depth"},
        {&names.is_muted, "is_muted"}, {&names.namespace, "namespace"}, {&names.paths, "paths"},
        {&names.slot_of, "slot_of"},   {&names.snapshots, "snapshots"}, {&names.unmute, "unmute"},
    };
    return INTERN_NAMES(all);
}
