/* Shared by the files that follow variables. capture/variables/ is the definition in Python.
 *
 *   shared.c      the objects that Python and C share
 *   beginning.c   the arguments of a call that begins; the end of a call
 *   following.c   finds what a line or an instruction has stored
 *   signing.c     signatures of containers, by which a change in place is found
 *   looking.c     compares signatures after code that may have changed a container in place
 *   tracing.c     the trace functions, up to Python 3.11
 *   monitoring.c  the callbacks of sys.monitoring, from Python 3.12 on
 *   variables.c   writes the record of a change (the "sink")
 *
 * Words. To *follow* a call is to report the changes of its variables. The *entry* of a variable
 * (Known) holds its last value, or a summary of it. The *role* of a value says what its entry keeps:
 * see the enum. A value is *reported* once the sink has recorded it.
 */
#ifndef TORCHGLASS_FOLLOWING_H
#define TORCHGLASS_FOLLOWING_H

#include "fast.h"

/* plan.py: Action */
enum {
    FAST,
    TARGETS,
    MUTATOR,
    MENTIONED,
    ROOTS,
    EXACT,
    HANDLES,
    IS_QUIET,
    IS_SHARED,
    ACTION_FIELDS
};

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
    char is_reported, is_loose;
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

/* What was recorded of the variables of one running call (events.py: ReportedCall). */
typedef struct {
    PyObject_HEAD
    long long above; /* the stack of its callers */
    PyObject *last;  /* a dict: name → LastReport */
    PyObject *starts;
} ReportedCall;

/* What was recorded last of one variable (events.py: LastReport). */
typedef struct {
    PyObject_HEAD
    long long form;               /* the number of its form */
    PyObject *values;             /* a tuple: the ids of the tensors in it */
    unsigned long long tensor_id; /* the address of the tensor, or 0 */
    long long generation;         /* the engine's form_generation when `form` was valid */
    PyObject *described;          /* the form */
} LastReport;

/* Return a new LastReport. */
LastReport *new_report(int64_t form, PyObject *values, const void *tensor, int64_t generation,
                       PyObject *described);

extern PyTypeObject KnownType, CallType, ReportedCallType, LastReportType;

/* Set by follow_with; NULL before. */
extern PyObject *unbound;                /* UNBOUND: replaces a value that does not exist */
extern PyObject *reported_mark;          /* REPORTED: replaces a value that was recorded last */
extern PyObject *no_kind;                /* the kind of no value */
extern PyObject *known_type, *call_type; /* the Python classes Known and Activation */

#define BUILTIN_KINDS 8
typedef struct {
    PyTypeObject *cls;
    PyObject *kind;
} BuiltinKind;
/* the kinds of the commonest types, the same for all engines; or NULL */
extern BuiltinKind builtin_kinds[BUILTIN_KINDS];
extern int is_readable; /* whether the slots of frames can be read (capture/slots.py) */

static inline int is_set(const PyObject *object)
{
    return object != NULL && object != Py_None;
}

static inline int is_filled(const PyObject *dict)
{
    return dict != NULL && PyDict_GET_SIZE((PyObject *)dict) > 0;
}

/* ---------------------------------------------------------------- shared.c */

/* Return whether Activation.__init__ has set all fields of a call. */
int is_ready(PyObject *call);
/* Read an attribute as a truth value (-1 error), or as a long (0, or -1 error). */
int is_true_attribute(PyObject *object, PyObject *name);
int attribute_as_long(PyObject *object, PyObject *name, long *found);

/* ---------------------------------------------------------------- following.c */

/* Report what a line or an instruction has stored (Activation.done). */
int inspect_stores(Call *call, PyObject *action, PyFrameObject *frame);
/* Return the line of an action's first store; 0: it has none. */
long stored_line(PyObject *action);
/* Return how a value of this type is kept, owned. Python decides this for a new type. */
PyObject *kept_as(PyObject *snapshots, PyObject *value);
PyObject *kind_for(Call *call, PyObject *value); /* the same, by the engine of a call */
long role_of(PyObject *kind);
/* Return the address of a frame's locals, which is valid until the call returns. */
PyObject **first_slot(PyFrameObject *frame);
/* Return what a slot holds, owned; UNBOUND if it is empty. */
PyObject *read_slot(PyFrameObject *frame, Py_ssize_t at);
/* Return the entry of a variable, owned; make one if there is none. */
Known *entry_of(Call *call, PyObject *key);
/* Return whether `take` can keep a value of this role. */
int is_taken_here(long role);
/* Store a value in an entry (Snapshots.take). */
int take(Call *call, Known *entry, PyObject *value, PyObject *kind, long role);
/* Report a change to the sink, and set is_reported. */
int tell(Call *call, Known *entry, PyObject *fields, PyFrameObject *frame);
/* Return the fields of a change. Takes over `old`. */
PyObject *fields_of(PyObject *facts, PyObject *old, PyObject *new, PyObject *serial);
/* End a call (Engine.left). */
int end_followed(Call *call, PyObject *error);

/* ---------------------------------------------------------------- signing.c, looking.c */

/* Return the signature of a container. */
PyObject *sign(PyObject *snapshots, PyObject *value, long depth);
/* Return whether a value can change only through itself, not through what it holds; -1 error. */
int is_closed(PyObject *snapshots, PyObject *value, long role);
/* Put a variable into `open` or `alone` (Activation._sort_by_access). */
int sort_by_access(Call *call, PyObject *key, PyObject *value, Known *entry);
/* Stop checking a variable, because its value cannot change in place any more. */
int forget_variable(Call *call, PyObject *key);

enum Checked {
    CHECK_FAILED = -1, /* an exception is set */
    ASK_PYTHON,        /* Python has to make the whole check */
    CHECKED            /* nothing has changed in place, or the change was reported */
};
enum Checked check_at_end(Call *call, PyFrameObject *frame);
/* Check what a line may have changed in place. `fresh` is a list of the variables that the line has
 * stored, or NULL. */
enum Checked check_in_place(Call *call, PyObject *action, PyObject *fresh, PyFrameObject *frame);

/* ---------------------------------------------------------------- the parts of the module */

int shared_ready(PyObject *module);
int following_ready(PyObject *module);
int beginning_ready(PyObject *module);
int tracing_ready(PyObject *module);
int monitoring_ready(PyObject *module);
int signing_ready(PyObject *module);
int looking_ready(void);

#endif
