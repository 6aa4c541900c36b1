/* What a container holds, as something that differs after a change (capture/variables/snapshots.py: _sign).
 *
 * Lists, tuples and dicts of few members are signed here, their members by value or by identity; sets, long ones and the
 * containers of the standard library by Python, as are arrays and tensors inside of one.
 */
#include "following.h"

#define MOST_MEMBERS 64 /* twice ENDS */

static PyObject *python_sign; /* _sign, for ever; NULL before it is given */
static PyObject *depth_name;  /* of an attribute, interned */

/* (id of its type, text), which is taken over */
static PyObject *of_type(PyObject *value, PyObject *text)
{
    return text == NULL ? NULL : Py_BuildValue("NN", PyLong_FromVoidPtr(Py_TYPE(value)), text);
}

static PyObject *sign_text(PyObject *value)
{
    if (PyUnicode_CheckExact(value) && PyUnicode_GET_LENGTH(value) <= LONGEST_TEXT)
        return Py_NewRef(value);
    Py_ssize_t length = PyObject_Size(value);
    Py_hash_t hash = length < 0 ? -1 : PyObject_Hash(value);
    return hash == -1 ? NULL : Py_BuildValue("Nnn", PyLong_FromVoidPtr(Py_TYPE(value)), length, (Py_ssize_t)hash);
}

/* A member that may itself hold something: with what it holds where that is looked at, else by identity. */
static PyObject *sign_inside(PyObject *snapshots, PyObject *value, long depth)
{
    PyObject *kind = depth > 1 ? kept_as(snapshots, value) : NULL, *inside;
    if (kind == NULL)
        return PyErr_Occurred() ? NULL : PyLong_FromVoidPtr(value);
    PyObject *role = Py_NewRef(PyTuple_GET_ITEM(kind, 0));
    long which = PyLong_AsLong(role);
    Py_DECREF(kind);
    if (which == CONTAINER)
        inside = sign(snapshots, value, depth - 1);
    else if (which == ARRAY || which == STAMPED)
        inside = PyObject_CallMethod(snapshots, "signature", "OO", value, role);
    else {
        Py_DECREF(role);
        return PyLong_FromVoidPtr(value);
    }
    Py_DECREF(role);
    return inside == NULL ? NULL : Py_BuildValue("NN", PyLong_FromVoidPtr(value), inside);
}

static PyObject *sign_member(PyObject *snapshots, PyObject *value, long depth)
{
    PyTypeObject *cls = Py_TYPE(value);
    if (cls == &PyLong_Type)
        return Py_NewRef(value);
    if (cls == &PyUnicode_Type || cls == &PyBytes_Type)
        return sign_text(value);
    if (value == Py_None || cls == &PyBool_Type || cls == &PyFloat_Type || cls == &PyComplex_Type)
        return of_type(value, PyObject_Repr(value));
    return sign_inside(snapshots, value, depth);
}

/* `member` is borrowed from a container that others may change while it is signed. */
static int add_member(PyObject *snapshots, PyObject *signs, PyObject *member, long depth)
{
    Py_INCREF(member);
    PyObject *sign = sign_member(snapshots, member, depth);
    Py_DECREF(member);
    int done = sign == NULL ? -1 : PyList_Append(signs, sign);
    Py_XDECREF(sign);
    return done;
}

/* 1 done, 0 another thread has changed it meanwhile, -1 error. */
static int add_items(PyObject *snapshots, PyObject *signs, PyObject *dict, long depth)
{
    Py_ssize_t at = 0, length = PyDict_GET_SIZE(dict);
    PyObject *key, *value;
    while (PyDict_Next(dict, &at, &key, &value)) {
        Py_INCREF(value);
        int done = add_member(snapshots, signs, key, depth);
        if (done == 0)
            done = add_member(snapshots, signs, value, depth);
        Py_DECREF(value);
        if (done < 0)
            return -1;
        if (PyDict_GET_SIZE(dict) != length)
            return 0;
    }
    return 1;
}

static int add_members(PyObject *snapshots, PyObject *signs, PyObject *value, long depth)
{
    if (PyDict_CheckExact(value))
        return add_items(snapshots, signs, value, depth);
    for (Py_ssize_t at = 0; at < Py_SIZE(value); at++) {
        PyObject *member = PyList_CheckExact(value) ? PyList_GET_ITEM(value, at) : PyTuple_GET_ITEM(value, at);
        if (add_member(snapshots, signs, member, depth) < 0)
            return -1;
    }
    return 1;
}

PyObject *sign(PyObject *snapshots, PyObject *value, long depth)
{
    int is_dict = PyDict_CheckExact(value), is_short = is_dict || PyList_CheckExact(value) || PyTuple_CheckExact(value);
    Py_ssize_t length = !is_short ? 0 : is_dict ? PyDict_GET_SIZE(value) : Py_SIZE(value);
    if (!is_short || length > MOST_MEMBERS)
        return python_sign == NULL ? PyErr_Format(PyExc_RuntimeError, "no function signs this") : PyObject_CallFunction(python_sign, "OlO", value, depth, snapshots);
    PyObject *signs = PyList_New(0), *result = NULL;
    int done = signs == NULL ? -1 : add_members(snapshots, signs, value, depth);
    if (done > 0)
        result = Py_BuildValue("NnN", PyLong_FromVoidPtr(Py_TYPE(value)), length, PyList_AsTuple(signs));
    else if (done == 0)
        result = Py_BuildValue("Nn", PyLong_FromVoidPtr(Py_TYPE(value)), length);
    Py_XDECREF(signs);
    return result;
}

/* ---------------------------------------------------------------- whether others can change it */

/* Whether what a member holds is looked at, and can change: 1, 0, -1 error. */
static int is_mutable(PyObject *snapshots, PyObject *member)
{
    PyTypeObject *cls = Py_TYPE(member);
    if (cls == &PyLong_Type || cls == &PyUnicode_Type || cls == &PyBool_Type || cls == &PyFloat_Type || member == Py_None)
        return 0;
    Py_INCREF(member); /* the container may be changed by what is asked of Python */
    PyObject *kind = kept_as(snapshots, member);
    Py_DECREF(member);
    long role = kind == NULL ? -1 : role_of(kind);
    Py_XDECREF(kind);
    return kind == NULL ? -1 : role > TEXT && role < OBJECT;
}

static int has_mutable(PyObject *snapshots, PyObject *value)
{
    int found = 0;
    if (PyDict_CheckExact(value)) {
        Py_ssize_t at = 0, length = PyDict_GET_SIZE(value);
        PyObject *key, *member;
        while (found == 0 && PyDict_GET_SIZE(value) == length && PyDict_Next(value, &at, &key, &member))
            found = is_mutable(snapshots, member); /* what can change is no key */
        return found;
    }
    for (Py_ssize_t at = 0; found == 0 && at < Py_SIZE(value); at++)
        found = is_mutable(snapshots, PyList_CheckExact(value) ? PyList_GET_ITEM(value, at) : PyTuple_GET_ITEM(value, at));
    return found;
}

/* Whether only who holds the value itself can change what is looked at (Snapshots.is_closed). */
int is_closed(PyObject *snapshots, PyObject *value, long role)
{
    int is_dict = PyDict_CheckExact(value);
    if (role != CONTAINER || !(is_dict || PyList_CheckExact(value) || PyTuple_CheckExact(value))) {
        PyObject *answer = PyObject_CallMethod(snapshots, "is_closed", "Ol", value, role);
        int closed = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        return closed;
    }
    long depth;
    if ((is_dict ? PyDict_GET_SIZE(value) : Py_SIZE(value)) > MOST_MEMBERS)
        return 0;
    if (attribute_as_long(snapshots, depth_name, &depth) < 0)
        return -1;
    int found = depth <= 1 ? 0 : has_mutable(snapshots, value);
    return found < 0 ? -1 : !found;
}

/* ---------------------------------------------------------------- the module's part */

/* sign(value, depth, snapshots) */
static PyObject *sign_by_c(PyObject *module, PyObject *args)
{
    PyObject *value, *snapshots;
    long depth;
    if (!PyArg_ParseTuple(args, "OlO", &value, &depth, &snapshots))
        return NULL;
    return sign(snapshots, value, depth);
}

/* sign_with(_sign): from now on it is asked for what is not signed here */
static PyObject *sign_with(PyObject *module, PyObject *function)
{
    Py_XSETREF(python_sign, Py_NewRef(function));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"sign", sign_by_c, METH_VARARGS, "Type, length and members of a container."},
    {"sign_with", sign_with, METH_O, "Take over what signs all other containers."},
    {NULL},
};

int signing_ready(PyObject *module)
{
    if ((depth_name = PyUnicode_InternFromString("depth")) == NULL)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
