/* Shared by the files that follow variables. capture/variables/ is the definition in Python.
 *
 *   known.c       the objects that Python and C share: of a variable, and of a call
 *   beginning.c   the arguments of a call that begins; the end of a call
 *   following.c   inspects what a line or an instruction has stored
 *   signing.c     signatures of containers, by which a change in place is found
 *   looking.c     compares signatures after code that may have changed a container in place
 *   tracing.c     the trace functions, up to Python 3.11
 *   monitoring.c  the callbacks of sys.monitoring, from Python 3.12 on
 *
 * Words. To *follow* a call is to report the changes of its variables. The *entry* of a variable (Known) holds its last value,
 * or a summary of it. The *role* of a value says how it is kept: see the enum. A value is *told* when the sink has recorded it.
 */
#ifndef TORCHGLASS_FOLLOWING_H
#define TORCHGLASS_FOLLOWING_H

#include "fast.h"

enum { FAST, TARGETS, MUTATOR, MENTIONED, ROOTS, EXACT, HANDLES, IS_QUIET, IS_SHARED, ACTION_FIELDS }; /* plan.py: Action */

/* The role of a value (snapshots.py): what its entry keeps of it. */
enum {
    ATOM,      /* a number, a truth value, None: itself */
    TEXT,      /* text or bytes: itself if it is short */
    CONTAINER, /* a signature */
    ARRAY,     /* an array: a fingerprint of its memory */
    STAMPED,   /* a tensor: the stamp of the watch, such as its version */
    OBJECT,    /* a weak reference */
    OPAQUE     /* only its identity */
};
#define LONGEST_TEXT 200

/* The last value of one variable (snapshots.py: Known). */
typedef struct {
    PyObject_HEAD
    unsigned long long id; /* the address of the value, which may be gone by now */
    char is_told, is_loose;
    PyObject *kept, *kind, *signature;
} Known;

/* One call whose variables are followed (activation.py: Activation). */
typedef struct {
    PyObject_HEAD
    PyObject *engine, *plan, *serial, *slots;
    PyObject *known;   /* a dict: name -> Known */
    PyObject *open;    /* those of `known` whose containers any code may change (looking.c) */
    PyObject *alone;   /* those whose containers only code that names the variable can change */
    PyObject *pending; /* the Action of the running line, to be inspected when it is done */
    PyObject *error, *local;
    char is_exact, opcodes_before;
    int skipped_line;
} Call;

/* What was recorded of a call (events.py: ToldCall). */
typedef struct {
    PyObject_HEAD
    long long above;         /* the stack of its callers */
    PyObject *told, *starts; /* dicts */
} ToldCall;

extern PyTypeObject KnownType, CallType, ToldCallType;
/* Marks in place of a value (UNBOUND: there is none; TOLD: it is as recorded last), the kind of no value, and the classes Known
 * and Activation. NULL before follow_with. */
extern PyObject *unbound, *told_mark, *no_kind, *known_type, *call_type;
#define BUILTIN_KINDS 8
typedef struct { PyTypeObject *cls; PyObject *kind; } BuiltinKind;
extern BuiltinKind builtin_kinds[BUILTIN_KINDS]; /* the kinds of the commonest types, the same for all engines; or NULL */
extern int is_readable; /* whether the slots of frames can be read (slots.py) */

static inline int is_set(const PyObject *object)
{
    return object != NULL && object != Py_None;
}

static inline int is_filled(const PyObject *dict)
{
    return dict != NULL && PyDict_GET_SIZE((PyObject *)dict) > 0;
}

int is_ready(PyObject *call);                                       /* whether it is a call that Python has made whole */
int inspect_stores(Call *call, PyObject *action, PyFrameObject *frame); /* after a line or an instruction (Activation.done) */
long stored_line(PyObject *action);                                 /* of its first store; 0 where it has none */
PyObject *kept_as(PyObject *snapshots, PyObject *value);            /* how its type is kept, owned; Python says it of a new one */
PyObject **first_slot(PyFrameObject *frame);                        /* where its locals are, until the call returns */
PyObject *read_slot(PyFrameObject *frame, Py_ssize_t at);           /* what it holds, owned; the mark for nothing where it is empty */
PyObject *sign(PyObject *snapshots, PyObject *value, long depth);   /* the signature of a container (signing.c) */
int is_closed(PyObject *snapshots, PyObject *value, long role);     /* whether it can change only through itself; -1 error */
int attribute_as_long(PyObject *object, PyObject *name, long *found); /* 0, or -1 error */
Known *entry_of(Call *call, PyObject *key);                         /* of a variable, owned; made if there is none */
PyObject *kind_for(Call *call, PyObject *value);                    /* kept_as, of the engine that follows the call */
long role_of(PyObject *kind);
int is_taken_here(long role);                                       /* whether `take` knows what to keep of such a value */
int take(Call *call, Known *entry, PyObject *value, PyObject *kind, long role); /* let the entry know it (Snapshots.take) */
int sort_by_access(Call *call, PyObject *key, PyObject *value, Known *entry); /* `open` or `alone` (Activation._sort_by_access) */
int forget_variable(Call *call, PyObject *key);                     /* no longer check it: it cannot change in place any more */
int tell(Call *call, Known *entry, PyObject *fields, PyFrameObject *frame);
PyObject *fields_of(PyObject *facts, PyObject *old, PyObject *new, PyObject *serial); /* of a change; takes over `old` */
int end_followed(Call *call, PyObject *error);                      /* Engine.left */
enum Checked { CHECK_FAILED = -1, ASK_PYTHON, CHECKED }; /* ASK_PYTHON: Python has to make the whole check */
enum Checked check_at_end(Call *call, PyFrameObject *frame); /* CHECKED: nothing has changed since the last check */
/* Check what a line may have changed in place; `fresh`: a list of the variables that it has stored, or NULL. */
enum Checked check_in_place(Call *call, PyObject *action, PyObject *fresh, PyFrameObject *frame);
int is_true_attribute(PyObject *object, PyObject *name);            /* -1 error */

int known_ready(PyObject *module);
int following_ready(PyObject *module);
int beginning_ready(PyObject *module);
int tracing_ready(PyObject *module);
int monitoring_ready(PyObject *module);
int signing_ready(PyObject *module);
int looking_ready(void);

#endif
