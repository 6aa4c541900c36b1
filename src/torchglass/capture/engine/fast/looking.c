/* Whether what a line may have changed in place is what it was (capture/variables/activation.py: look).
 *
 * Mostly it is: then nothing is to be done. Where a container has changed, or is held by others than before, and where
 * there are arrays or what other calls see too, Python looks, at all of it.
 */
#include "following.h"

enum { M_OFFSET, M_LINE, M_MENTIONS, M_SHADOWED, M_INTO }; /* bytecode.py: Mutator */
#define REFERENCES_OF_ONE_LOCAL 2 /* the slot and we */

static struct { PyObject *always, *depth, *is_closed, *slot_of, *snapshots; } names; /* of attributes, interned */

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
    PyObject *role = PyLong_FromLong(CONTAINER);
    PyObject *answer = role == NULL ? NULL : PyObject_CallMethodObjArgs(look->snapshots, names.is_closed, value, role, NULL);
    Py_XDECREF(role);
    int closed = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
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

int nothing_changed(Call *call, PyObject *action, PyObject *fresh, PyFrameObject *frame)
{
    PyObject *shadowed = PyTuple_GET_ITEM(PyTuple_GET_ITEM(action, MUTATOR), M_SHADOWED); /* borrowed from the action */
    int always = is_true_attribute(call->plan, names.always);
    if (always != 0 || !is_readable || !is_set(call->slots) || !PyAnySet_Check(shadowed) || PySet_GET_SIZE(shadowed))
        return always < 0 ? -1 : 0;
    Look look = {call, frame, PyTuple_GET_ITEM(action, MENTIONED), fresh, PyObject_GetAttr(call->engine, names.snapshots),
                 PyObject_GetAttr(call->plan, names.slot_of), 0};
    PyObject *depth = look.snapshots == NULL ? NULL : PyObject_GetAttr(look.snapshots, names.depth);
    int same = depth == NULL || look.slot_of == NULL ? -1 : 1;
    if (same > 0 && (look.depth = PyLong_AsLong(depth)) > 1) /* else what is inside is not known */
        same = are_unchanged(&look, call->alone, 1);
    else if (same > 0)
        same = 0;
    if (same > 0)
        same = are_unchanged(&look, call->open, 0);
    Py_XDECREF(depth);
    Py_XDECREF(look.snapshots);
    Py_XDECREF(look.slot_of);
    return PyErr_Occurred() ? -1 : same;
}

int looking_ready(void)
{
    struct { PyObject **place; const char *text; } all[] = {
        {&names.always, "always"}, {&names.depth, "depth"}, {&names.is_closed, "is_closed"}, {&names.slot_of, "slot_of"},
        {&names.snapshots, "snapshots"},
    };
    for (size_t at = 0; at < sizeof all / sizeof all[0]; at++)
        if ((*all[at].place = PyUnicode_InternFromString(all[at].text)) == NULL)
            return -1;
    return 0;
}
