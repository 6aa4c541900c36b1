/* What the pages about following variables share: what is known of a variable and of a call (known.c), looking behind a line
 * (following.c), how a call begins and ends (beginning.c), the trace function of a call (tracing.c), the callbacks of sys.monitoring (monitoring.c),
 * what a container holds (signing.c) and whether that has changed (looking.c). The Python beside capture/variables/ is the definition. */
#ifndef TORCHGLASS_FOLLOWING_H
#define TORCHGLASS_FOLLOWING_H

#include "fast.h"

enum { FAST, TARGETS, MUTATOR, MENTIONED, ROOTS, EXACT, HANDLES, IS_QUIET, IS_SHARED, ACTION_FIELDS }; /* plan.py: Action */

enum { ATOM, TEXT, CONTAINER, ARRAY, STAMPED, OBJECT, OPAQUE }; /* how values are kept (snapshots.py) */
#define LONGEST_TEXT 200

/* What is known of one variable (snapshots.py: Known). */
typedef struct {
    PyObject_HEAD
    unsigned long long id; /* the address of what it held: it may be gone */
    char is_told, is_loose;
    PyObject *kept, *kind, *signature;
} Known;

/* One call whose variables are followed (activation.py: Activation). */
typedef struct {
    PyObject_HEAD
    PyObject *engine, *plan, *serial, *slots, *known, *open, *alone, *pending, *error, *local;
    char is_exact, opcodes_before;
    int skipped_line;
} Call;

/* What is known of a call of which something was told (events.py: ToldCall). */
typedef struct {
    PyObject_HEAD
    long long above;         /* the stack of its callers */
    PyObject *told, *starts; /* dicts */
} ToldCall;

extern PyTypeObject KnownType, CallType, ToldCallType;
/* Marks for nothing and for what the sink was told, the kind of nothing, and the classes Known and Activation; NULL before
 * they are given. */
extern PyObject *unbound, *told_mark, *no_kind, *known_type, *call_type;
#define BUILTIN_KINDS 8
typedef struct { PyTypeObject *cls; PyObject *kind; } BuiltinKind;
extern BuiltinKind builtin_kinds[BUILTIN_KINDS]; /* the kinds of the commonest types, the same for all engines; or NULL */
extern int is_readable; /* whether the slots of frames can be read (frames.py) */

static inline int is_set(const PyObject *object)
{
    return object != NULL && object != Py_None;
}

static inline int is_filled(const PyObject *dict)
{
    return dict != NULL && PyDict_GET_SIZE((PyObject *)dict) > 0;
}

int is_ready(PyObject *call);                                       /* whether it is a call that Python has made whole */
int look_behind(Call *call, PyObject *action, PyFrameObject *frame); /* at what a line or an instruction may have done */
long stored_line(PyObject *action);                                 /* of its first store; 0 where it has none */
PyObject *kept_as(PyObject *snapshots, PyObject *value);            /* how its type is kept, owned; Python says it of a new one */
PyObject **first_slot(PyFrameObject *frame);                        /* where its locals are, until the call returns */
PyObject *read_slot(PyFrameObject *frame, Py_ssize_t at);           /* what it holds, owned; the mark for nothing where it is empty */
PyObject *sign(PyObject *snapshots, PyObject *value, long depth);   /* of what a container holds */
int is_closed(PyObject *snapshots, PyObject *value, long role);     /* Snapshots.is_closed; -1 error */
int attribute_as_long(PyObject *object, PyObject *name, long *found); /* 0, or -1 error */
Known *entry_of(Call *call, PyObject *key);                         /* of a variable, owned; made if there is none */
PyObject *kind_for(Call *call, PyObject *value);                    /* kept_as, of the engine that follows the call */
long role_of(PyObject *kind);
int is_taken_here(long role);                                       /* whether `take` knows what to keep of such a value */
int take(Call *call, Known *entry, PyObject *value, PyObject *kind, long role); /* let the entry know it (Snapshots.take) */
int settle(Call *call, PyObject *key, PyObject *value, Known *entry); /* what can change it (Activation._settle) */
int forget_open(Call *call, PyObject *key);                         /* nothing inside of it can change any more */
int tell(Call *call, Known *entry, PyObject *fields, PyFrameObject *frame);
PyObject *fields_of(PyObject *facts, PyObject *old, PyObject *new, PyObject *serial); /* of a change; takes over `old` */
/* A call of known code begins, owned; None: it is not one that begins here. NULL error. */
PyObject *begin_followed(PyObject *engine, PyObject *running, PyObject *plan, PyFrameObject *frame);
int end_followed(Call *call, PyObject *error);                      /* Engine.left */
int is_over(Call *call, PyFrameObject *frame);                      /* whether a last look would find nothing; -1 error */
/* At what the line's calls may have changed: 1 done; 0: Python has to look. -1 error. */
int look_in_place(Call *call, PyObject *action, PyObject *fresh, PyFrameObject *frame);
int ask(PyObject *answer);                                          /* of Python, which is let go of: 0, or -1 error */
int is_true_attribute(PyObject *object, PyObject *name);            /* -1 error */

int known_ready(PyObject *module);
int following_ready(PyObject *module);
int beginning_ready(PyObject *module);
int tracing_ready(PyObject *module);
int monitoring_ready(PyObject *module);
int signing_ready(PyObject *module);
int looking_ready(void);

#endif
