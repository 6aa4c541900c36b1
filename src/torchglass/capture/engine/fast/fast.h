/* What the files of the compiled engine share. Start reading here.
 *
 * The engine writes the same journal as the Python files in the folder above (edges.py, value_table.py, forms.py, stack.py),
 * which are the definition; the comment at the top of each C file names the Python that it stands for. To follow one
 * torch function from its call into the journal, read in this order:
 *
 *   1. engine.c     the module, the object Engine, and the callbacks by which C asks Python
 *   2. functions.c  the function mode: what torch calls for each function; how modes are off while we read tensors
 *   3. events.c     opens and closes an event, and so fills the twelve words of its record
 *   4. forms.c      the form of its arguments (everything but the tensors), and the ids of its tensors
 *   5. values.c     the table of known tensors; metas.c reads the metadata of a tensor
 *   6. stacks.c     where it was called from
 *   7. log.c        writes the record; rows.c and checksum.c write rows
 *
 * The rest can be read one by one:
 *
 *   ops.c                               the dispatch mode
 *   modules.c                           a module's call
 *   calls.c                             calls of the program's own functions
 *   measuring.c                         statistics of values: which are measured, and when
 *     tally.c, floats.c                   counts, minimum, maximum, mean and deviation
 *     sketch.c, sums.c, sums_avx2.c, hash.c   content fingerprints, called sketches
 *     saved.c, device.c                   copies of the bytes; values on a GPU
 *   variables.c                         writes the change of a variable as a record
 *     tracing.c, monitoring.c             call the next ones: sys.settrace up to Python 3.11, sys.monitoring from 3.12 on
 *     known.c, beginning.c, following.c   the objects that Python shares; a call begins and ends; after a line or instruction
 *     signing.c, looking.c                signatures of containers; checks for changes in place
 *   table.c, errors.c                   tools
 *
 * Words. An *event* is what happened, such as a call; its *record* has twelve words (integers). A *row* describes something that
 * many records refer to by number: a form, a stack, metadata, a module. The *log* of a thread holds its records. A *chunk* is
 * a piece of the journal's memory.
 *
 * Rules. C asks Python about everything that it meets for the first time, and remembers the answer. A call into Python may run
 * any code, so no pointer into a table is used after one. A comment says `borrowed` where a reference is not owned, and why
 * the object lives. A function that fails returns -1, NULL or FAILED with an exception set.
 */
#ifndef TORCHGLASS_FAST_H
#define TORCHGLASS_FAST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "saved.h"

/* The words of a record (journal/layout.py). */
enum { WHAT, PARENT, STACK, ARGS, INPUTS, CALL, RESULT, OUTPUTS, ERROR_ROW, NODES, END, START, RECORD_WORDS };
#define RECORD_BYTES (RECORD_WORDS * 8)
#define VALUE_BYTES 32
#define NONE ((int64_t)-1) /* in place of a number: there is none */
#define NUMBER_BITS 40
#define NUMBER_MASK ((((int64_t)1) << NUMBER_BITS) - 1)
#define NODE_BITS 16
#define NODE_MASK ((((int64_t)1) << NODE_BITS) - 1)
#define MOST_NODES (((int64_t)1) << 44)
#define FAILED INT64_MIN   /* in place of a number: an exception is set */

/* ---------------------------------------------------------------- log.c */

/* Memory of the journal, which Python lends as a buffer. Any call into Python may replace it by other memory. */
typedef struct {
    char *start; /* NULL: nothing is lent */
    Py_buffer view;
} Memory;

/* The records and ids of one thread, and where its open events stand; the base of ThreadWriter and ThreadLog, whose docstrings
 * (journal/writer.py, engine/log.py) say more of each field. */
typedef struct {
    PyObject_HEAD
    Memory records, ids;     /* the newest chunk of each */
    long long at;            /* number of the next record */
    long long first, end;    /* numbers for which `records` has room */
    long long shift;         /* record n lies at n * RECORD_BYTES + shift */
    long long id_at, id_end; /* index of the next id in `ids`, and for how many ids it has room */
    long long id_base;       /* number of the first id in `ids` */
    long long parent;        /* the innermost open record */
    long long stack;         /* the stack of the record that was opened last */
    long long anchor, base;  /* the address of the frame at which a walk up the stack ends, and the stack of that frame */
    long long module;        /* the row of the innermost running module */
    char on;                 /* calls in this thread are recorded */
    char listening;          /* a live view is told of each event */
    char branched;           /* an op ran whose backward formula would see our dispatch mode */
    PyObject *steps;         /* a list: open optimizer steps */
    PyObject *engine;        /* of its session */
    PyObject *made_from;     /* while the result of an op is read: the first argument of the op; borrowed from the caller */
} Log;

/* A table in the journal with one entry for each value: metadata, statistics, sketches or copies. The base of ValueWriter. */
typedef struct {
    PyObject_HEAD
    Memory memory;
    long long first, end; /* values for which there is room */
    long long shift;      /* the entry of value n lies at n * (bytes of an entry) + shift */
} ValueFields;

/* The entry of a value; NULL: its place is not lent now, and Python writes the entry. */
static inline char *entry_at(const ValueFields *fields, int64_t number, int64_t bytes)
{
    const int64_t place = number * bytes + fields->shift;
    if (fields->memory.start == NULL || number < fields->first || number >= fields->end || place < 0
        || place + bytes > fields->memory.view.len)
        return NULL;
    return fields->memory.start + place;
}

/* Where rows go; the base of RowWriter. */
typedef struct {
    PyObject_HEAD
    Memory memory;
    long long at, end; /* offset of the next row, and of the end of the memory */
} RowFields;

int take_memory(Memory *memory, PyObject *buffer, int flags); /* from a buffer; instead of what was lent before */
void release_memory(Memory *memory);
extern PyTypeObject LogType, ValueFieldsType, RowFieldsType;
#define LONGEST_NUMBER 20
char *put_number(char *place, int64_t number);
/* Write a row. The payload must outlive a call into Python. */
int add_journal_row(RowFields *fields, uint32_t kind, int64_t number, const char *payload, Py_ssize_t length);
int has_room(const RowFields *fields, Py_ssize_t length); /* for a row with so many bytes */
int rows_ready(PyObject *module);
uint32_t checksum_of(uint32_t sum, const unsigned char *bytes, Py_ssize_t count); /* checksum.c: further bytes, after others */
void checksum_ready(void);
Log *current_log(void); /* borrowed from the dictionary of all logs; NULL where this thread is not recorded */
int make_room(Log *log);                      /* for one record: 1 yes, 0 no, -1 error */
int make_id_room(Log *log, Py_ssize_t count); /* the same for `count` ids side by side */
int64_t add_ids(Log *log, const int64_t *ids, Py_ssize_t count);         /* the number of the first; NONE: no room; FAILED */
int write_record(Log *log, int64_t at, const int64_t words[RECORD_WORDS]); /* 0: its chunk is not there any more */
int close_record(Log *log, int64_t at, const int64_t closing[5]);        /* write the words from RESULT to END */
int64_t word_of(Log *log, int64_t at, int word);                         /* one word of a record; FAILED */
int64_t *record_at(Log *log, int64_t at); /* NULL: it is not in the newest chunk */
/* Whether this is a forked child, where nothing is recorded. The first call in a child ends the recordings there. */
int is_forked_child(void);
PyObject *watch_forks(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------- table.c */

/* A hash table: sequence of words -> number. It holds the forms, stacks and metadata that were met. */
typedef struct {
    int64_t *keys;         /* all keys one after the other, each as its length and its words */
    Py_ssize_t used, room; /* words of `keys` */
    struct slot {
        uint64_t hash;  /* 0: the slot is empty */
        Py_ssize_t key; /* where it begins in `keys` */
        int64_t number;
    } *slots;
    Py_ssize_t mask, count; /* number of slots - 1; slots that are filled */
} Table;

int64_t table_find(const Table *table, const int64_t *words, Py_ssize_t length, uint64_t *hash); /* NONE: not there */
int table_add(Table *table, const int64_t *words, Py_ssize_t length, uint64_t hash, int64_t number);
void table_clear(Table *table);

/* ---------------------------------------------------------------- calls.c */

extern PyTypeObject CallFilterType; /* the profile function that reports calls of the program's own functions */

/* ---------------------------------------------------------------- engine.c */

/* One known tensor; values.c explains its states. */
typedef struct {
    PyObject *tensor; /* only its address: it may be dead, and another tensor may live there */
    PyObject *ref;    /* a weak reference, which says whether it is this one */
    int64_t value, version;
    char had_grad;    /* while pending: requires_grad as the op left it */
    int64_t before;   /* while pending: the number of the value that the op overwrote, or NONE */
    int64_t measured; /* 1 + the number of the value that was measured last; 0: none */
} Living;

/* All functions of Python that an engine calls, and all tables that C and Python share. Each name is a field of Engine, which
 * Engine.ask sets. They come from fast/__init__.py, session.py, torch/listeners.py and statistics/cuda.py. */
#define CALLBACKS(each)                                                                                                \
    /* values */ each(meta_id) each(value_of_unusual) each(write_value)                                                       \
    /* forms */ each(make_call_form) each(make_result_form) each(intern_call) each(intern_result) each(is_opaque)        \
    each(form_bytes) each(form_ids) each(form_numbers)                                                                 \
    /* stacks */ each(find_stack) each(code_number) each(stack_ids) each(stack_numbers) each(codes_kept)               \
    each(watched_stacks) each(meet_stack) each(look_at_rounds)                                                         \
    /* modules */ each(identify) each(describe) each(settings) each(fail_module)                                  \
    /* ops */ each(finish_pops)                                                                                        \
    /* rows of the journal */ each(rows) each(passing)                                                                 \
    /* values on a GPU */ each(device_streams) each(is_capturing) each(current_device) each(current_raw_stream)        \
    each(send_batch)

typedef struct Engine {
    PyObject_HEAD
    PyObject *session;
    char running, records_modules, records_ops, in_backward; /* as the session has them */
    /* measuring.c */
    PyObject *measurer;  /* statistics/measurer.py; NULL: the recording does not measure values */
    char measures;       /* C measures the values that it can; 0: Python measures all */
    char chooses;        /* only some events are measured, and Python decides which */
    char asks;           /* Python must be told of values that are not finite */
    char is_alarmed;     /* 2: a value was not finite; 1: it may have been, Python knows */
    ValueFields *measured, *sketched; /* where statistics and sketches are written; `sketched` is NULL if there are none */
    struct Measuring *measuring;
    SavedBytes *saved;        /* copies the bytes of values; NULL: no copies are wanted, or Python makes them */
    ValueFields *kept_places; /* where the places of the copies are written */
    /* values.c */
    ValueFields *values;
    Living *living;
    Py_ssize_t living_mask, living_count;
    int64_t next_value;
    Table metas;
    /* forms.c */
    Table forms;
    Table opaque;             /* the address of a class → 1: its objects are shown as its name alone, 0: they are not */
    PyObject *kept;           /* a list of the objects whose addresses stand in keys of `forms` */
    int64_t form_generation;  /* grows each time the numbers of forms begin anew (../forms.py: carry) */
    /* stacks.c */
    Table stacks;
    PyObject *tracers; /* a dict: our trace functions, which are paused while an event is written */
    /* modules.c */
    Table module_places;          /* (row of the caller, address of the module) → a place in the two below */
    PyObject *module_refs;        /* a list of weak references */
    int64_t *module_rows;
    Py_ssize_t module_room;
    char *described;              /* by row: whether Python has written its settings and parameters */
    Py_ssize_t described_room;
#define FIELD(name) PyObject *name;
    CALLBACKS(FIELD)
#undef FIELD
} Engine;

extern PyTypeObject EngineType;

#define MOST_CONSTANT_TYPES 8

/* Names and objects of torch, handed over once (private.py). */
typedef struct {
    PyTypeObject *Tensor, *Parameter;
    PyObject *size_type, *device_type;                            /* torch.Size, torch.device */
    PyObject *logs;                                               /* a dict: the logs of all threads, by identifier */
    PyObject *leaving;                                            /* a list that is not empty once Python ends */
    PyObject *constant_types[MOST_CONSTANT_TYPES];                 /* types whose objects live for ever: torch.dtype … */
    int constant_type_count;
    PyGetSetDef *version, *shape, *dtype, *device, *requires_grad; /* plain descriptors, called by pointer */
    PyMethodDef *stride;
    PyObject *storage_address, *count_modes, *push_mode, *pop_mode, *mode_at, *no_functions;
    PyObject *detach, *call_boxed, *handle_torch_function, *warn, *own_folder;
    PyObject *data_ptr, *is_neg, *is_conj, *untyped_storage, *storage_offset, *storage_bytes; /* methods */
    PyObject *get_tracing_state, *set_tracing_state; /* of torch.jit.trace */
    PyObject *next_node, *current_node; /* numbers of autograd nodes; the node that is being run */
    PyObject *plain_types; /* (Tensor,): what a function written in Python says of its arguments */
    PyCodeObject *handler_code;
} Torch;

extern Torch torch;

int64_t value_of(Engine *engine, PyObject *tensor);       /* of any tensor or array */
int64_t plain_value_of(Engine *engine, PyObject *tensor); /* whose class is Tensor or Parameter */
int64_t value_after_op(Engine *engine, PyObject *tensor); /* of a result of an op, before autograd has returned */
void living_clear(Engine *engine);
/* Remember that this value of the tensor is measured. Return 1 if its memory must be read: the tensor was measured as another
 * value, or is not known. The version does not tell, as an op may have written without counting one yet. */
int mark_measured(Engine *engine, PyObject *tensor, int64_t number);

/* Whether its class is Tensor or Parameter, and no subclass. */
static inline int is_plain_tensor(const PyObject *object)
{
    return Py_TYPE(object) == torch.Tensor || Py_TYPE(object) == torch.Parameter;
}

PyObject *engine_value_of(Engine *engine, PyObject *tensor);
PyObject *engine_plain_value_of(Engine *engine, PyObject *tensor);
PyObject *engine_value_after_op(Engine *engine, PyObject *tensor);
PyObject *engine_known(Engine *engine, PyObject *object);
PyObject *engine_forget(Engine *engine, PyObject *object);
PyObject *engine_mark_changed(Engine *engine, PyObject *object);
/* After an attribute such as `grad` was set, which marks a tensor as changed but keeps its numbers: an earlier measurement of the
 * same memory may be used again. (If the numbers change, the version says so.) */
void forget_measurement(Engine *engine, PyObject *object);
PyObject *engine_begin_pending(Engine *engine, PyObject *tensor);
PyObject *engine_pending(Engine *engine, PyObject *unused);
PyObject *engine_living_objects(Engine *engine, PyObject *unused);
PyObject *engine_remember(Engine *engine, PyObject *args);
PyObject *engine_next_value(Engine *engine, PyObject *unused);

PyObject *pack(PyObject *const *args, Py_ssize_t count); /* arguments as a tuple, owned */
int64_t form_number_of_call(Engine *engine, Log *log, PyObject *const *args, Py_ssize_t count, PyObject *kwargs, int64_t *first);
int64_t form_number_of_result(Engine *engine, Log *log, PyObject *result, int from_op, int64_t *first);
int64_t stack_of(Engine *engine, Log *log, PyFrameObject *frame);
/* Look whether an outer loop began a new round, if the stack is in one (rounds.py); -1: error. */
int look_at_rounds(Engine *engine, Log *log, PyFrameObject *frame, int64_t stack, int64_t at);
/* The number of the stack (base, code, offset …), from the frame upwards; NONE: it has too many frames. */
int64_t stack_of_words(Engine *engine, PyFrameObject *frame, const int64_t *words, Py_ssize_t length);
#define MOST_HELD 64 /* tensors in one variable; a variable with more is left to Python */
int64_t number_of_form(Engine *engine, PyObject *form); /* of a form that Python has made */
int64_t form_number_of_variable(Engine *engine, PyObject *value, int64_t *ids, Py_ssize_t *count, PyObject **form); /* NONE: left to Python */

int64_t open_event(Engine *engine, Log *log, int64_t what, PyFrameObject *frame, PyObject *const *args, Py_ssize_t count,
                   PyObject *kwargs); /* the number of the record; NONE when there is no room; FAILED */
int close_event(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op);
int tell_listeners(Engine *engine, Log *log, int64_t at, const char *edge); /* live views: an event has begun or ended (Session.tell) */
PyObject *pause_traces(PyObject *module, PyObject *wanted);
PyObject *pause_trace(void); /* returns the state of this thread's torch.jit.trace, owned; NULL with no exception: it has none */
void resume_trace(PyObject *state);

/* A number that changes with each change of a dictionary, and that no two dictionaries share; 0: Python 3.13 has none. */
static inline uint64_t version_of_dict(const PyObject *dict)
{
#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return ((const PyDictObject *)dict)->ma_version_tag;
#pragma GCC diagnostic pop
#else
    return 0;
#endif
}

/* ---------------------------------------------------------------- metas.c */

int version_of(PyObject *tensor, int64_t *version); /* -1: it has none */
int grad_of(PyObject *tensor);                      /* whether it takes gradients; -1 error */
/* The row of a plain tensor's metadata, and the address of its memory. FAILED: torch refused to give some of it; no row was made. */
int64_t read_meta(Engine *engine, PyObject *tensor, int64_t *address);

/* ---------------------------------------------------------------- errors.c */

PyObject *take_error(void);          /* clear the exception that is set, and return it, owned */
void put_error(PyObject *error);     /* set an exception; takes the reference */
int forgive(Engine *engine);         /* hand the exception that is set to session.forgive: 0 forgiven, -1 it goes on */
int drop_own_error(Engine *engine);  /* drop the exception that is set: 0; -1: it is the program's, and stays set */
/* What Python has returned, in C; these drop the reference. `answer` is NULL if it raised: then they return FAILED or -1. */
int64_t as_number(PyObject *answer); /* of an int */
int as_truth(PyObject *answer);      /* 1 or 0 */
int as_done(PyObject *answer);       /* 0: only that it returned matters */
int64_t now_ns(void);
PyObject *referent(PyObject *ref);   /* of a weak reference, owned; NULL with no exception where it is gone */
int refers_to(PyObject *ref, const PyObject *object); /* whether a weak reference is to this very object */

/* A name of an attribute, interned once so that looking it up compares addresses. */
typedef struct {
    PyObject **place;
    const char *text;
} AttributeName;
int intern_names(const AttributeName *names, size_t count);
#define INTERN_NAMES(all) intern_names(all, sizeof all / sizeof all[0])

/* ---------------------------------------------------------------- functions.c, ops.c, modules.c */

long count_modes(void); /* function modes on this thread's stack; -1 error */
PyFrameObject *caller_frame(void); /* owned; NULL where no Python code is below us */
PyObject *call_python(PyObject *handler, PyObject *self, PyObject *const *args, Py_ssize_t count);
/* End the optimizer steps that an exception has left. Call it before log->parent is read. */
int heal_steps(Engine *engine, Log *log, PyFrameObject *frame);
PyObject *fail_event(Engine *engine, Log *log, int64_t at); /* close it with the exception that is set, which stays set */

/* ---------------------------------------------------------------- functions.c */

/* Count the threads that are inside a handler, because Python must not end them there (threads.py). */
void enter_handler(void);
void leave_handler(void);
PyObject *stay_aside(PyObject *module, PyObject *unused);     /* the calling thread never goes on */
PyObject *others_inside(PyObject *module, PyObject *unused);  /* how many other threads are inside */
PyObject *after_fork(PyObject *module, PyObject *unused);

/* Hide from function modes and tensor subclasses that we read tensors: between enter_unseen and leave_unseen all modes are off. An
 * Unseen is the context manager of torch that does this; NULL: no mode is on. */
typedef PyObject *Unseen;
int enter_unseen(Unseen *unseen); /* how many modes were on; -1 error */
int leave_unseen(Unseen *unseen);
/* The same around a whole event. Each enter_unseen inside it is free then. */
int enter_reading(Unseen *unseen), leave_reading(Unseen *unseen);
PyObject *call_unseen(PyObject *callable, PyObject *first, PyObject *second);

/* ---------------------------------------------------------------- tally.c, measuring.c */

PyObject *tally_at(PyObject *module, PyObject *args);
PyObject *sketch_at(PyObject *module, PyObject *args);
PyObject *use_processor(PyObject *module, PyObject *wanted);
int measure_taken(Engine *engine, Log *log, int64_t at, PyObject *const *args, Py_ssize_t count, PyObject *kwargs);
int measure_given(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op);
void measuring_forget(Engine *engine); /* the tensors that it knows */
void measuring_clear(Engine *engine);
PyObject *engine_see(Engine *engine, PyObject *args);
/* Whether a value has numbers that are not finite, by the rule of measurer.py: a NaN, an +Inf, or a scalar that is -Inf. */
static inline int is_alarming(const int64_t counts[5])
{
    return counts[1] || counts[2] || (counts[3] && counts[0] == 1);
}
int write_measured(Engine *engine, int64_t number, const int64_t counts[5], const double numbers[5], int64_t how);

extern PyTypeObject SavedBytesType, BlockType; /* saved.c */

/* ---------------------------------------------------------------- device.c */

/* Numbers on a GPU that are to be measured, and the kernel for their dtype (statistics/cuda.py). */
typedef struct {
    int64_t device, function, address, count, run, pitch; /* run, pitch: see cuda.py, _runs */
    int64_t share, most;  /* least numbers for a block, and most blocks */
    const char *order;    /* the logical order, if a sketch is wanted; else NULL */
    PyObject *known;      /* the batch that has a row of the same numbers in another order; or NULL … */
    int64_t known_row;    /* … and that row … */
    uint32_t wanted;      /* … and which sums are still missing then (sketch.cu) */
} DeviceRun;
int measure_on_device(Engine *engine, const DeviceRun *run, int64_t number, PyObject **where, int64_t *row);
int measured_with(PyObject *batch, int64_t number, int64_t row); /* a value whose numbers are in that row already: 1; 0: the batch is gone */
PyObject *engine_take_rows(Engine *engine, PyObject *args);
int device_ready(PyObject *module);

extern PyTypeObject FunctionModeType;
int functions_ready(PyObject *module);
int ops_ready(PyObject *module);
int modules_ready(PyObject *module);
int variables_ready(PyObject *module); /* variables.c */
PyObject *handle_torch_function(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *warn_past_copies(PyObject *self, PyObject *args, PyObject *kwargs);

#endif
