/* Signatures of containers (capture/variables/snapshots.py: _sign).
 *
 * A signature is a tuple of numbers and texts that differs once the container was changed in place:
 *
 *     [1, "a", 2.5]  ->  (id(list), 3, (1, "a", (id(float), "2.5")))
 *
 * Numbers and texts are in it by value, containers and arrays by identity and content, all other
 * members by identity. Lists, tuples and dicts with few members are signed here; Python signs sets,
 * long containers, the containers of the standard library, and the arrays and tensors in a
 * container.
 */
#include "following.h"

#define MOST_MEMBERS 64 /* twice ENDS of snapshots.py */

static PyObject *python_sign; /* _sign, as long as the process lives; NULL before it is given */
static PyObject *depth_name;  /* of an attribute, interned */

static PyObject *id_of(const void *object)
{
    return PyLong_FromVoidPtr((void *)object);
}

/* Return the signature of a number, a truth value or None: (id of its type, its text). */
static PyObject *sign_atom(PyObject *value)
{
    PyObject *text = PyObject_Repr(value);
    if (text == NULL)
        return NULL;
    return Py_BuildValue("NN", id_of(Py_TYPE(value)), text);
}

/* Return the signature of a text or bytes: itself if it is short, else (id of its type, length,
 * hash). */
static PyObject *sign_text(PyObject *value)
{
    if (PyUnicode_CheckExact(value) && PyUnicode_GET_LENGTH(value) <= LONGEST_TEXT)
        return Py_NewRef(value);
    Py_ssize_t length = PyObject_Size(value);
    if (length < 0)
        return NULL;
    Py_hash_t hash = PyObject_Hash(value);
    if (hash == -1)
        return NULL;
    return Py_BuildValue("Nnn", id_of(Py_TYPE(value)), length, (Py_ssize_t)hash);
}

/* Return the signature of a member that is neither a number nor a text: its identity and, if `depth`
 * allows, its content. */
static PyObject *sign_object(PyObject *snapshots, PyObject *value, long depth)
{
    if (depth <= 1)
        return id_of(value);
    PyObject *kind = kept_as(snapshots, value);
    if (kind == NULL)
        return NULL;
    const long role = role_of(kind);
    PyObject *content = NULL;
    if (role == CONTAINER)
        content = sign(snapshots, value, depth - 1);
    else if (role == ARRAY || role == STAMPED)
        content =
            PyObject_CallMethod(snapshots, "signature", "OO", value, PyTuple_GET_ITEM(kind, 0));
    Py_DECREF(kind);
    if (content != NULL)
        return Py_BuildValue("NN", id_of(value), content);
    return PyErr_Occurred() ? NULL : id_of(value);
}

static PyObject *sign_member(PyObject *snapshots, PyObject *value, long depth)
{
    PyTypeObject *cls = Py_TYPE(value);
    if (cls == &PyLong_Type)
        return Py_NewRef(value);
    if (cls == &PyUnicode_Type || cls == &PyBytes_Type)
        return sign_text(value);
    if (value == Py_None || cls == &PyBool_Type || cls == &PyFloat_Type || cls == &PyComplex_Type)
        return sign_atom(value);
    return sign_object(snapshots, value, depth);
}

/* `member` is borrowed from a container that others may change while it is signed. */
static int add_member(PyObject *snapshots, PyObject *signatures, PyObject *member, long depth)
{
    Py_INCREF(member);
    PyObject *signature = sign_member(snapshots, member, depth);
    Py_DECREF(member);
    if (signature == NULL)
        return -1;
    int done = PyList_Append(signatures, signature);
    Py_DECREF(signature);
    return done;
}

/* WAS_CHANGED: another thread has changed the container meanwhile */
enum Added { ADD_FAILED = -1, WAS_CHANGED, ADDED };

static enum Added add_items(PyObject *snapshots, PyObject *signatures, PyObject *dict, long depth)
{
    Py_ssize_t at = 0;
    Py_ssize_t length = PyDict_GET_SIZE(dict);
    PyObject *key, *value;
    while (PyDict_Next(dict, &at, &key, &value)) {
        Py_INCREF(value);
        int done = add_member(snapshots, signatures, key, depth);
        if (done == 0)
            done = add_member(snapshots, signatures, value, depth);
        Py_DECREF(value);
        if (done < 0)
            return ADD_FAILED;
        if (PyDict_GET_SIZE(dict) != length)
            return WAS_CHANGED;
    }
    return ADDED;
}

static PyObject *member_at(PyObject *value, Py_ssize_t at)
{
    return PyList_CheckExact(value) ? PyList_GET_ITEM(value, at) : PyTuple_GET_ITEM(value, at);
}

static enum Added add_members(PyObject *snapshots, PyObject *signatures, PyObject *value,
                              long depth)
{
    if (PyDict_CheckExact(value))
        return add_items(snapshots, signatures, value, depth);
    for (Py_ssize_t at = 0; at < Py_SIZE(value); at++)
        if (add_member(snapshots, signatures, member_at(value, at), depth) < 0)
            return ADD_FAILED;
    return ADDED;
}

/* How many members a list, tuple or dict has; -1: it is none of these, or it is too long to be
 * signed here. */
static Py_ssize_t short_length(PyObject *value)
{
    Py_ssize_t length = -1;
    if (PyDict_CheckExact(value))
        length = PyDict_GET_SIZE(value);
    else if (PyList_CheckExact(value) || PyTuple_CheckExact(value))
        length = Py_SIZE(value);
    return length > MOST_MEMBERS ? -1 : length;
}

PyObject *sign(PyObject *snapshots, PyObject *value, long depth)
{
    const Py_ssize_t length = short_length(value);
    if (length < 0) {
        if (python_sign == NULL)
            return PyErr_Format(PyExc_RuntimeError, "no function signs this");
        return PyObject_CallFunction(python_sign, "OlO", value, depth, snapshots);
    }
    PyObject *signatures = PyList_New(0);
    if (signatures == NULL)
        return NULL;
    PyObject *result = NULL;
    const enum Added added = add_members(snapshots, signatures, value, depth);
    if (added == ADDED)
        result = Py_BuildValue("NnN", id_of(Py_TYPE(value)), length, PyList_AsTuple(signatures));
    else if (added == WAS_CHANGED)
        result = Py_BuildValue("Nn", id_of(Py_TYPE(value)), length);
    Py_DECREF(signatures);
    return result;
}

/* ---------------------------------------------------------------- whether others can change it */

/* Return whether objects of this role can change in place. */
static int role_is_mutable(long role)
{
    return role == CONTAINER || role == ARRAY || role == STAMPED;
}

/* Return whether a member can change in place, and its signature would tell; -1: error. */
static int is_mutable(PyObject *snapshots, PyObject *member)
{
    PyTypeObject *cls = Py_TYPE(member);
    if (cls == &PyLong_Type || cls == &PyUnicode_Type || cls == &PyBool_Type || cls == &PyFloat_Type
        || member == Py_None)
        return 0;
    Py_INCREF(member); /* the container may be changed by what is asked of Python */
    PyObject *kind = kept_as(snapshots, member);
    Py_DECREF(member);
    if (kind == NULL)
        return -1;
    const long role = role_of(kind);
    Py_DECREF(kind);
    return role_is_mutable(role);
}

/* Return whether a list, tuple or dict has a member that can change in place; -1: error. */
static int has_mutable(PyObject *snapshots, PyObject *value)
{
    int found = 0;
    if (PyDict_CheckExact(value)) { /* only the values: a key cannot change */
        Py_ssize_t at = 0;
        Py_ssize_t length = PyDict_GET_SIZE(value);
        PyObject *key, *member;
        while (found == 0 && PyDict_GET_SIZE(value) == length
               && PyDict_Next(value, &at, &key, &member))
            found = is_mutable(snapshots, member);
        return found;
    }
    for (Py_ssize_t at = 0; found == 0 && at < Py_SIZE(value); at++)
        found = is_mutable(snapshots, member_at(value, at));
    return found;
}

static int is_closed_by_python(PyObject *snapshots, PyObject *value, long role)
{
    PyObject *answer = PyObject_CallMethod(snapshots, "is_closed", "Ol", value, role);
    if (answer == NULL)
        return -1;
    const int closed = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return closed;
}

/* Return whether a value can change only through itself, and not through one of its members
 * (Snapshots.is_closed); -1: error. */
int is_closed(PyObject *snapshots, PyObject *value, long role)
{
    const int is_signed_here =
        PyDict_CheckExact(value) || PyList_CheckExact(value) || PyTuple_CheckExact(value);
    if (role != CONTAINER || !is_signed_here)
        return is_closed_by_python(snapshots, value, role);
    if (short_length(value) < 0)
        return 0;
    long depth;
    if (attribute_as_long(snapshots, depth_name, &depth) < 0)
        return -1;
    if (depth <= 1)
        return 1;
    const int found = has_mutable(snapshots, value);
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

/* sign_with(_sign): it signs the containers that are not signed here */
static PyObject *sign_with(PyObject *module, PyObject *function)
{
    Py_XSETREF(python_sign, Py_NewRef(function));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"sign", sign_by_c, METH_VARARGS, "Return the signature of a container."},
    {"sign_with", sign_with, METH_O, "Take the function that signs all other containers."},
    {NULL},
};

int signing_ready(PyObject *module)
{
    if ((depth_name = PyUnicode_InternFromString("depth")) == NULL)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
