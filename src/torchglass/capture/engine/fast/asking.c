/* What torch asks Python for on its way to a mode: names, which it makes anew for each call.
 *
 * For each call torch looks up, by letters, the function that is called (in Tensor, or among its functions), the mode's
 * handler, twice, and whose handler that is: 2,500 instructions, more than what is recorded takes. Python lets a type answer
 * such questions itself (`tp_getattr`), and asks that before all else; questions of Python code go another way (`tp_getattro`),
 * where nothing is different.
 */
#include "fast.h"
#include "structmember.h"

/* ---------------------------------------------------------------- a mode's handler */

/* The bound method `__torch_function__` or `__torch_dispatch__` of a mode, the same for each call. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *mode; /* borrowed: the mode owns us, and is taken away from here before it goes */
    const PyMethodDef *method;
} Handler;

static PyTypeObject HandlerType;

static PyObject *handler_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    const Handler *handler = (Handler *)self;
    if (handler->mode == NULL || (names != NULL && PyTuple_GET_SIZE(names) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a mode that is there, and no names, are wanted");
        return NULL;
    }
    PyObject *mode = Py_NewRef(handler->mode), *result = NULL; /* the call may take the mode off, which would end it */
    if (Py_EnterRecursiveCall(" while calling a Python object") == 0) {
        result = ((_PyCFunctionFast)(void (*)(void))handler->method->ml_meth)(mode, args, PyVectorcall_NARGS(count));
        Py_LeaveRecursiveCall();
    }
    Py_DECREF(mode);
    return result;
}

static PyObject *by_name(PyObject *object, const char *name)
{
    PyObject *text = PyUnicode_FromString(name);
    PyObject *found = text == NULL ? NULL : Py_TYPE(object)->tp_getattro(object, text);
    Py_XDECREF(text);
    return found;
}

/* Torch asks whose method it is, to refuse those of a class. */
static PyObject *handler_attribute(PyObject *self, char *name)
{
    PyObject *mode = ((Handler *)self)->mode;
    return mode != NULL && strcmp(name, "__self__") == 0 ? Py_NewRef(mode) : by_name(self, name);
}

static PyMemberDef handler_members[] = {
    {"__self__", T_OBJECT_EX, offsetof(Handler, mode), READONLY, NULL},
    {NULL},
};

static PyTypeObject HandlerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Handler",
    .tp_doc = "What a mode does about a call.",
    .tp_basicsize = sizeof(Handler),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Handler, call),
    .tp_call = PyVectorcall_Call,
    .tp_getattr = handler_attribute,
    .tp_getattro = PyObject_GenericGetAttr,
    .tp_members = handler_members,
    .tp_dealloc = (destructor)PyObject_Free,
};

int bind_handler(PyObject *mode, const PyMethodDef *method, getattrfunc attribute, PyObject **place)
{
    PyTypeObject *cls = Py_TYPE(mode);
    Handler *handler = PyObject_New(Handler, &HandlerType);
    if (handler == NULL)
        return -1;
    handler->call = handler_call;
    handler->mode = mode;
    handler->method = method;
    unbind_handler(place);
    *place = (PyObject *)handler;
    if (cls->tp_getattr == NULL && cls->tp_flags & Py_TPFLAGS_HEAPTYPE)
        cls->tp_getattr = attribute; /* a class that is made in Python does not inherit that from one of C's */
    return 0;
}

void unbind_handler(PyObject **place)
{
    if (*place != NULL)
        ((Handler *)*place)->mode = NULL;
    Py_CLEAR(*place);
}

PyObject *handler_or_attribute(PyObject *mode, const char *name, PyObject *handler)
{
    if (handler != NULL && strcmp(name, ((Handler *)handler)->method->ml_name) == 0)
        return Py_NewRef(handler);
    return by_name(mode, name);
}

/* ---------------------------------------------------------------- torch's own functions */

#define MOST_LETTERS 40
#define PLACES 1024 /* a power of two; of Tensor's methods a model calls some fifty */

/* What an attribute was, as long as the class that was looked in has not changed. */
struct answer { PyObject *object; unsigned version; PyObject *found; char letters[MOST_LETTERS]; };
static struct answer answers[PLACES];

/* The class in which an object's attributes stand; NULL: of this one we know nothing. */
static PyTypeObject *looked_in(PyObject *object)
{
    if (object == (PyObject *)torch.Tensor)
        return torch.Tensor;
    return object == torch.functions ? Py_TYPE(object) : NULL;
}

/* Torch's own, which are there for ever and the same each time; what the program has put there is not kept. */
static int is_lasting(const PyObject *found)
{
    const PyTypeObject *cls = Py_TYPE(found);
    return cls == &PyMethodDescr_Type || cls == &PyGetSetDescr_Type || cls == &PyWrapperDescr_Type || cls == &PyCFunction_Type;
}

static PyObject *attribute_by_letters(PyObject *object, char *name)
{
    const PyTypeObject *cls = looked_in(object);
    if (cls == NULL)
        return by_name(object, name);
    uint32_t hash = (uint32_t)((uintptr_t)object >> 4);
    size_t length = 0;
    for (; name[length] != 0 && length < MOST_LETTERS; length++)
        hash = (hash ^ (unsigned char)name[length]) * 16777619u;
    struct answer *answer = &answers[(hash ^ hash >> 15) & (PLACES - 1)];
    if (answer->object == object && answer->version == cls->tp_version_tag && answer->version != 0
        && strcmp(answer->letters, name) == 0)
        return Py_NewRef(answer->found);
    PyObject *found = by_name(object, name); /* which gives the class a version, if it has none */
    if (found == NULL || length == MOST_LETTERS || !is_lasting(found))
        return found;
    PyObject *before = answer->found;
    *answer = (struct answer){object, cls->tp_version_tag, Py_NewRef(found)};
    memcpy(answer->letters, name, length + 1);
    Py_XDECREF(before);
    return found;
}

/* answer_torch(True): torch's look-ups of its own functions are answered here; False: by Python, as ever. */
PyObject *answer_torch(PyObject *module, PyObject *wanted)
{
    PyTypeObject *types[] = {Py_TYPE(torch.Tensor), Py_TYPE(torch.functions)};
    const int on = PyObject_IsTrue(wanted);
    for (int at = 0; at < 2 && on >= 0; at++) {
        if (types[at]->tp_getattro == NULL || types[at]->tp_flags & Py_TPFLAGS_HEAPTYPE || types[at] == Py_TYPE(Py_None)
            || types[at] == &PyType_Type)
            continue; /* not a type of torch's own */
        if (on && types[at]->tp_getattr == NULL)
            types[at]->tp_getattr = attribute_by_letters;
        else if (!on && types[at]->tp_getattr == attribute_by_letters)
            types[at]->tp_getattr = NULL;
    }
    if (on < 0)
        return NULL;
    Py_RETURN_NONE;
}

int asking_ready(void)
{
    return PyType_Ready(&HandlerType);
}
