/* Start reading here: what the files of the compiled engine share, and the order to read them in.
 *
 * The engine does what the Python files in the folder above do (edges.py, value_table.py, forms.py,
 * stack.py), and writes the same bytes. Those files are the definition. The comment at the top of
 * each C file names the Python file that it replaces.
 *
 * Follow one torch function from its call into the journal:
 *
 *   1. engine.c      the module, the object Engine, and the Python functions that C calls
 *   2. functions.c   what torch calls for each function (a torch function mode)
 *   3. events.c      opens and closes an event, which fills the twelve words of its record
 *   4. forms.c       the form of its arguments (all but the tensors), and the ids of its tensors
 *   5. values.c      the table of known tensors
 *      metas.c       the metadata of one tensor
 *   6. stacks.c      where the function was called from
 *   7. log.c         writes the record
 *      rows.c        writes a row; checksum.c computes its checksum
 *
 * The other files can be read one by one:
 *
 *   ops.c            the dispatch mode: ops below the torch functions
 *   modules.c        calls of nn.Module
 *   calls.c          calls of the program's own functions
 *   table.c          a hash table
 *   errors.c         small helpers for exceptions, references and answers of Python
 *
 *   measuring.c      statistics: which values are measured, and when
 *   tally.c          counts, minimum, maximum, mean and deviation; floats.c converts short floats
 *   sketch.c         content fingerprints; sums.c, sums_avx2.c and hash.c compute their parts
 *   saved.c          copies of the bytes of values
 *   device.c         values on a GPU
 *
 *   tracing.c        follows variables with sys.settrace, up to Python 3.11
 *   monitoring.c     follows variables with sys.monitoring, from Python 3.12 on
 *   beginning.c      begins and ends a call whose variables are followed
 *   following.c      finds the variables that a line or an instruction has changed
 *   looking.c        finds containers that were changed in place; signing.c makes their signatures
 *   shared.c         the objects of a followed call that C and Python share
 *   variables.c      writes the change of a variable as a record
 *
 * Words:
 *
 *   event    something that happened, such as a call
 *   record   the twelve integers ("words") that describe one event
 *   row      a description that many records refer to by its number: a form, a stack, a module
 *   log      the records of one thread
 *   chunk    a piece of the journal's memory
 *
 * Rules:
 *
 *   - C asks Python about everything that it meets for the first time, and caches the answer.
 *   - A call into Python may run any code. Do not use a pointer into a table after such a call.
 *   - A comment says `borrowed` where we hold no reference, and why the object stays alive.
 *   - A function that fails returns -1, NULL or FAILED, with an exception set.
 */
#ifndef TORCHGLASS_FAST_H
#define TORCHGLASS_FAST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "saved.h"

/* The words of a record, in their order (journal/layout.py says more of each). */
enum {
    WHAT,      /* the row of the function, module, ... */
    PARENT,    /* the surrounding event */
    STACK,     /* the row of the stack */
    ARGS,      /* the form of the arguments */
    INPUTS,    /* the first id of the tensors in them */
    CALL,      /* which call it belongs to */
    RESULT,    /* the form of the result */
    OUTPUTS,   /* the first id of the tensors in it */
    ERROR_ROW, /* the row of the exception */
    NODES,     /* numbers of autograd nodes */
    END,       /* times in nanoseconds */
    START,
    RECORD_WORDS
};
#define RECORD_BYTES (RECORD_WORDS * 8)
#define VALUE_BYTES  32
#define NUMBER_BITS  40
#define NUMBER_MASK  ((((int64_t)1) << NUMBER_BITS) - 1)
#define NODE_BITS    16
#define NODE_MASK    ((((int64_t)1) << NODE_BITS) - 1)
#define MOST_NODES   (((int64_t)1) << 44)

/* Returned in place of a number. */
#define NONE   ((int64_t)-1) /* there is none */
#define FAILED INT64_MIN     /* there was an error: an exception is set */

/* ---------------------------------------------------------------- log.c */

/* Memory of the journal, which Python lends as a buffer. A call into Python may replace it. */
typedef struct {
    char *start; /* NULL: nothing is lent */
    Py_buffer view;
} Memory;

/* The log of one thread: its records and ids, and which events are open.
 *
 * It is the base of ThreadWriter (journal/writer.py) and ThreadLog (engine/log.py). Their
 * docstrings say more of each field. */
typedef struct {
    PyObject_HEAD
    Memory records, ids;     /* the newest chunk of each */
    long long at;            /* number of the next record */
    long long first, end;    /* `records` has room for the numbers first to end - 1 */
    long long shift;         /* record n begins at n * RECORD_BYTES + shift */
    long long id_at, id_end; /* index of the next id in `ids`; how many ids it has room for */
    long long id_base;       /* number of the first id in `ids` */
    long long parent;        /* the innermost open record */
    long long stack;         /* the stack of the record that was opened last */
    long long anchor;        /* a walk up the stack ends at the frame with this address ... */
    long long base;          /* ... and this is the stack of that frame */
    long long module;        /* the row of the innermost running module */
    uint64_t heads;          /* what the heads of outer loops had assigned (stacks.c); 0: unknown */
    long long looked_at;     /* the newest record at which that was so */
    char on;                 /* calls in this thread are recorded */
    char listening;          /* a live view wants to hear of each event */
    char branched;           /* an op ran whose backward formula would see our dispatch mode */
    PyObject *steps;         /* a list: open optimizer steps */
    PyObject *engine;        /* the engine of its session */
    /* While the result of an op is read: the first argument of the op. Borrowed from the caller. */
    PyObject *made_from;
} Log;

/* A table in the journal with one entry per value: metadata, statistics, sketches or copies. It is
 * the base of ValueWriter. */
typedef struct {
    PyObject_HEAD
    Memory memory;
    long long first, end; /* the memory has room for the values first to end - 1 */
    long long shift;      /* the entry of value n begins at n * (bytes of an entry) + shift */
} ValueFields;

/* Return the entry of a value. NULL: its memory is not lent now, so Python writes the entry. */
static inline char *entry_at(const ValueFields *fields, int64_t number, int64_t bytes)
{
    const int64_t place = number * bytes + fields->shift;
    if (fields->memory.start == NULL || number < fields->first || number >= fields->end)
        return NULL;
    if (place < 0 || place + bytes > fields->memory.view.len)
        return NULL;
    return fields->memory.start + place;
}

extern PyTypeObject LogType, ValueFieldsType;

/* Replace lent memory by that of a buffer. */
int take_memory(Memory *memory, PyObject *buffer, int flags);
void release_memory(Memory *memory);

/* Return the log of this thread, borrowed from the dictionary of all logs. NULL: nothing is
 * recorded in this thread. */
Log *current_log(void);

/* Make room for one record, or for `count` ids side by side. 1: there is room; 0: there is none;
 * -1: error. */
int make_room(Log *log);
int make_id_room(Log *log, Py_ssize_t count);

/* Append ids, and return the number of the first. NONE: there was no room. */
int64_t add_ids(Log *log, const int64_t *ids, Py_ssize_t count);

/* Return where a record is. NULL: it is not in the newest chunk. */
int64_t *record_at(Log *log, int64_t at);
/* Write a whole record. 1: done; 0: its chunk is gone. */
int write_record(Log *log, int64_t at, const int64_t words[RECORD_WORDS]);
/* Write the words from RESULT to END of a record. */
int close_record(Log *log, int64_t at, const int64_t closing[5]);
/* Read one word of a record. */
int64_t word_of(Log *log, int64_t at, int word);

/* Return whether this is a forked child, where nothing is recorded. The first call in a child ends
 * the recordings there. */
int is_forked_child(void);
PyObject *watch_forks(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------- rows.c, checksum.c */

/* Where rows are written; the base of RowWriter. */
typedef struct {
    PyObject_HEAD
    Memory memory;
    long long at, end; /* offset of the next row, and of the end of the memory */
} RowFields;

extern PyTypeObject RowFieldsType;

/* Write a row. The payload must outlive a call into Python. */
int add_journal_row(RowFields *fields, uint32_t kind, int64_t number, const char *payload,
                    Py_ssize_t length);
/* Return whether there is room for a row of so many bytes. */
int has_room(const RowFields *fields, Py_ssize_t length);

/* Write a number in decimal digits, and return the place after them. */
#define LONGEST_NUMBER 20
char *put_number(char *place, int64_t number);

/* Continue a checksum with further bytes. */
uint32_t checksum_of(uint32_t sum, const unsigned char *bytes, Py_ssize_t count);
void checksum_ready(void);
int rows_ready(PyObject *module);

/* ---------------------------------------------------------------- table.c */

/* A hash table from a sequence of words to a number. It caches forms, stacks and metadata. */
typedef struct {
    int64_t *keys;         /* all keys one after the other, each as its length and its words */
    Py_ssize_t used, room; /* words of `keys` */
    struct slot {
        uint64_t hash;  /* 0: the slot is empty */
        Py_ssize_t key; /* where the key begins in `keys` */
        int64_t number;
    } *slots;
    Py_ssize_t mask;  /* number of slots - 1 */
    Py_ssize_t count; /* slots that are filled */
} Table;

/* Return the number of a key, or NONE, and set its hash. */
int64_t table_find(const Table *table, const int64_t *words, Py_ssize_t length, uint64_t *hash);
int table_add(Table *table, const int64_t *words, Py_ssize_t length, uint64_t hash, int64_t number);
void table_clear(Table *table);

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

/* The Python functions that an engine calls, and the tables that C and Python share. Each name is a
 * field of Engine, which Engine.ask sets. They come from fast/__init__.py, session.py,
 * torch/listeners.py and statistics/cuda.py. */
/* clang-format off */
#define CALLBACKS(each)                                                                           \
    /* values */              each(meta_id) each(value_of_unusual) each(write_value)              \
    /* forms */               each(make_call_form) each(make_result_form) each(intern_call)       \
                              each(intern_result) each(is_opaque) each(form_bytes) each(form_ids) \
                              each(form_numbers)                                                  \
    /* stacks */              each(find_stack) each(code_number) each(stack_ids)                  \
                              each(stack_numbers) each(codes_kept) each(watched_stacks)           \
                              each(meet_stack) each(look_at_rounds)                               \
    /* modules */             each(identify) each(describe) each(settings) each(fail_module)      \
    /* ops */                 each(finish_pops)                                                   \
    /* rows of the journal */ each(rows) each(passing)                                            \
    /* values on a GPU */     each(device_streams) each(is_capturing) each(current_device)        \
                              each(current_raw_stream) each(send_batch)
/* clang-format on */

/* What C knows of one session. */
typedef struct Engine {
    PyObject_HEAD
    PyObject *session;
    char running, records_modules, records_ops, in_backward; /* as in the session */

    /* measuring.c */
    PyObject *measurer;    /* of statistics/measurer.py; NULL: values are not measured */
    char measures;         /* 1: C measures the values that it can; 0: Python measures all */
    char chooses;          /* only some events are measured, and Python decides which */
    char asks;             /* Python wants to hear of values that are not finite */
    char is_alarmed;       /* 2: a value was not finite; 1: it may have been, and Python knows */
    ValueFields *measured; /* statistics are written here */
    ValueFields *sketched; /* sketches are written here; NULL: none are made */
    struct Measuring *measuring;
    SavedBytes *saved; /* copies the bytes of values; NULL: no copies, or Python makes them */
    ValueFields *kept_places; /* the places of the copies are written here */

    /* values.c */
    ValueFields *values;
    Living *living;
    Py_ssize_t living_mask, living_count;
    int64_t next_value;
    Table metas;

    /* forms.c */
    Table forms;             /* key of a call, result or variable → number of its form */
    Table opaque;            /* address of a class → 1 if only its name is shown, else 0 */
    PyObject *kept;          /* a list of the objects whose addresses are in the keys of `forms` */
    int64_t form_generation; /* grows each time forms are numbered anew (../forms.py: carry) */

    /* stacks.c */
    Table stacks;
    PyObject *tracers; /* a dict: our trace functions, which are paused while an event is written */

    /* modules.c */
    Table module_places;   /* (row of the caller, address of the module) → index in the next two */
    PyObject *module_refs; /* a list of weak references */
    int64_t *module_rows;
    Py_ssize_t module_room;
    char *described; /* by row: whether Python has written its settings and parameters */
    Py_ssize_t described_room;

#define FIELD(name) PyObject *name;
    CALLBACKS(FIELD)
#undef FIELD
} Engine;

extern PyTypeObject EngineType;

#define MOST_CONSTANT_TYPES 8

/* Names and objects of torch and Python, set once per process (names.py, private.py). */
typedef struct {
    PyTypeObject *Tensor, *Parameter;
    PyObject *size_type, *device_type;             /* torch.Size, torch.device */
    PyObject *constant_types[MOST_CONSTANT_TYPES]; /* types of immortal objects: torch.dtype, ... */
    int constant_type_count;
    PyObject *plain_types; /* (Tensor,): the `types` that torch passes for plain tensors */

    /* attributes and methods of Tensor; the first six are called by their C pointer */
    PyGetSetDef *version, *shape, *dtype, *device, *requires_grad;
    PyMethodDef *stride;
    PyObject *data_ptr, *is_neg, *is_conj, *untyped_storage, *storage_offset, *storage_bytes;
    PyObject *storage_address;

    /* function modes */
    PyObject *count_modes, *push_mode, *pop_mode, *mode_at, *no_functions;
    PyObject *handle_torch_function;
    PyCodeObject *handler_code; /* of the Python function handle_torch_function */

    PyObject *detach, *call_boxed;                   /* ops */
    PyObject *next_node;                             /* the number of the next autograd node */
    PyObject *current_node;                          /* the autograd node that is being run */
    PyObject *get_tracing_state, *set_tracing_state; /* of torch.jit.trace */

    PyObject *warn;       /* warnings.warn */
    PyObject *own_folder; /* the path of torchglass, to recognise our own frames */
    PyObject *logs;       /* a dict: identifier of a thread → its log */
    PyObject *leaving;    /* a list that is not empty once Python ends */
} Torch;

extern Torch torch;

/* Return a number that differs after each change of a dictionary, and between dictionaries. 0: this
 * Python (3.13 and later) has no such number. */
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

/* ---------------------------------------------------------------- values.c */

/* Return the packed value that a tensor holds. */
int64_t value_of(Engine *engine, PyObject *tensor);       /* any tensor or array */
int64_t plain_value_of(Engine *engine, PyObject *tensor); /* a Tensor or Parameter, no subclass */
int64_t value_after_op(Engine *engine, PyObject *tensor); /* a result that autograd has not seen */

static inline int is_plain_tensor(const PyObject *object)
{
    return Py_TYPE(object) == torch.Tensor || Py_TYPE(object) == torch.Parameter;
}

/* Remember that this value of the tensor is measured. Return 1 if its memory must be read, because
 * the tensor was measured as another value or is not known. Versions cannot decide this: an op may
 * have written before torch counted a version. */
int mark_measured(Engine *engine, PyObject *tensor, int64_t number);

/* Allow an earlier measurement of the same memory to be used again. Setting an attribute such as
 * `grad` marks a tensor as changed but keeps its numbers. (If they change, the version says so.) */
void forget_measurement(Engine *engine, PyObject *object);

void living_clear(Engine *engine);

/* Methods of Engine. */
PyObject *engine_value_of(Engine *engine, PyObject *tensor);
PyObject *engine_plain_value_of(Engine *engine, PyObject *tensor);
PyObject *engine_value_after_op(Engine *engine, PyObject *tensor);
PyObject *engine_known(Engine *engine, PyObject *object);
PyObject *engine_forget(Engine *engine, PyObject *object);
PyObject *engine_mark_changed(Engine *engine, PyObject *object);
PyObject *engine_begin_pending(Engine *engine, PyObject *tensor);
PyObject *engine_pending(Engine *engine, PyObject *unused);
PyObject *engine_living_objects(Engine *engine, PyObject *unused);
PyObject *engine_remember(Engine *engine, PyObject *args);
PyObject *engine_next_value(Engine *engine, PyObject *unused);

/* ---------------------------------------------------------------- metas.c */

/* Read the version of a tensor. -1: it has none. */
int version_of(PyObject *tensor, int64_t *version);
/* Return whether a tensor requires gradients; -1 error. */
int grad_of(PyObject *tensor);
/* Return the row of a plain tensor's metadata, and the address of its memory. FAILED: torch refused
 * to give some of it, and no row was made. */
int64_t read_meta(Engine *engine, PyObject *tensor, int64_t *address);

/* ---------------------------------------------------------------- forms.c */

/* Return arguments as a tuple, owned. */
PyObject *pack(PyObject *const *args, Py_ssize_t count);

/* Return the number of the form of a call or of a result. `first` is set to the number of the first
 * id of the tensors in it. */
int64_t form_number_of_call(Engine *engine, Log *log, PyObject *const *args, Py_ssize_t count,
                            PyObject *kwargs, int64_t *first);
int64_t form_number_of_result(Engine *engine, Log *log, PyObject *result, int from_op,
                              int64_t *first);

/* Return the number of the form of a variable's value, the ids of its tensors, and the form, owned.
 * NONE: it is left to Python. */
#define MOST_HELD 64 /* tensors in one variable; a variable with more is left to Python */
int64_t form_number_of_variable(Engine *engine, PyObject *value, int64_t *ids, Py_ssize_t *count,
                                PyObject **form);

/* Return the number of a form that Python has made. */
int64_t number_of_form(Engine *engine, PyObject *form);

/* ---------------------------------------------------------------- stacks.c */

/* Return the number of the stack of a call, from this frame upwards. */
int64_t stack_of(Engine *engine, Log *log, PyFrameObject *frame);
/* Look whether an outer loop began a new round, if the stack is in one (rounds.py); -1: error. */
int look_at_rounds(Engine *engine, Log *log, PyFrameObject *frame, int64_t stack, int64_t at);
/* Return the number of the stack (base, code, offset, ...). NONE: it has too many frames. */
int64_t stack_of_words(Engine *engine, PyFrameObject *frame, const int64_t *words,
                       Py_ssize_t length);

/* ---------------------------------------------------------------- events.c */

/* Open an event, and return the number of its record. NONE: there is no room. */
int64_t open_event(Engine *engine, Log *log, int64_t what, PyFrameObject *frame,
                   PyObject *const *args, Py_ssize_t count, PyObject *kwargs);
int close_event(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op);

/* Report to live views that an event has opened or closed (Session.tell). */
int tell_listeners(Engine *engine, Log *log, int64_t at, const char *edge);

/* Pause this thread's torch.jit.trace, and return its state, owned. NULL with no exception: none is
 * running. */
PyObject *pause_trace(void);
void resume_trace(PyObject *state);
PyObject *pause_traces(PyObject *module, PyObject *wanted);

/* ---------------------------------------------------------------- errors.c */

/* Clear the exception that is set, and return it, owned. */
PyObject *take_error(void);
/* Set an exception. Takes over the reference. */
void put_error(PyObject *error);
/* Pass the exception that is set to session.forgive. 0: it is forgiven; -1: it stays set. */
int forgive(Engine *engine);
/* Drop the exception that is set if it is ours. 0: done; -1: it is the program's, and stays set. */
int drop_own_error(Engine *engine);

/* Convert what Python has returned, and drop the reference. If Python raised, `answer` is NULL:
 * then return FAILED or -1. */
int64_t as_number(PyObject *answer); /* an int */
int as_truth(PyObject *answer);      /* 1 or 0 */
int as_done(PyObject *answer);       /* 0: the value does not matter */

/* Return the object of a weak reference, owned. NULL with no exception: it is gone. */
PyObject *referent(PyObject *ref);
/* Return whether a weak reference is to this very object. */
int refers_to(PyObject *ref, const PyObject *object);

int64_t now_ns(void);

/* The name of an attribute, interned once, so that looking it up compares addresses. */
typedef struct {
    PyObject **place;
    const char *text;
} AttributeName;
int intern_names(const AttributeName *names, size_t count);
#define INTERN_NAMES(all) intern_names(all, sizeof all / sizeof all[0])

/* --------------------------------------------- functions.c, for ops.c and modules.c as well */

/* Return how many function modes are on this thread's stack; -1 error. */
long count_modes(void);
/* Return the frame of the Python code that called us, owned. NULL: there is none. */
PyFrameObject *caller_frame(void);
PyObject *call_python(PyObject *handler, PyObject *self, PyObject *const *args, Py_ssize_t count);
/* End the optimizer steps that an exception has left. Call it before reading log->parent. */
int heal_steps(Engine *engine, Log *log, PyFrameObject *frame);
/* Close an event with the exception that is set, which stays set. Return NULL. */
PyObject *fail_event(Engine *engine, Log *log, int64_t at);

/* Count the threads inside a handler, because Python must not end them there (threads.py). */
void enter_handler(void);
void leave_handler(void);
PyObject *stay_aside(PyObject *module, PyObject *unused);    /* the calling thread never goes on */
PyObject *others_inside(PyObject *module, PyObject *unused); /* how many other threads are inside */
PyObject *after_fork(PyObject *module, PyObject *unused);

/* Hide from function modes and tensor subclasses that we read tensors: all modes are off between
 * enter_unseen and leave_unseen. An Unseen is torch's context manager for this; NULL: no mode was
 * on. enter_unseen returns how many modes were on; -1 error. */
typedef PyObject *Unseen;
int enter_unseen(Unseen *unseen);
int leave_unseen(Unseen *unseen);
/* Do the same around a whole event. Inside it, each enter_unseen costs nothing. */
int enter_reading(Unseen *unseen);
int leave_reading(Unseen *unseen);
PyObject *call_unseen(PyObject *callable, PyObject *first, PyObject *second);

extern PyTypeObject FunctionModeType;
PyObject *handle_torch_function(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *names);
PyObject *warn_past_copies(PyObject *self, PyObject *args, PyObject *kwargs);

/* ---------------------------------------------------------------- calls.c */

/* The profile function that reports calls of the program's own functions. */
extern PyTypeObject CallFilterType;

/* ---------------------------------------------------------------- measuring.c, tally.c, sketch.c
 */

/* Measure the tensors that an event has taken or given. */
int measure_taken(Engine *engine, Log *log, int64_t at, PyObject *const *args, Py_ssize_t count,
                  PyObject *kwargs);
int measure_given(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op);
int write_measured(Engine *engine, int64_t number, const int64_t counts[5], const double numbers[5],
                   int64_t how);
void measuring_forget(Engine *engine); /* forget all known tensors */
void measuring_clear(Engine *engine);
PyObject *engine_see(Engine *engine, PyObject *args);

/* Return whether a value is not finite by the rule of measurer.py: it has a NaN or a +Inf, or it is
 * a scalar and -Inf. */
static inline int is_alarming(const int64_t counts[5])
{
    return counts[1] || counts[2] || (counts[3] && counts[0] == 1);
}

PyObject *tally_at(PyObject *module, PyObject *args);
PyObject *sketch_at(PyObject *module, PyObject *args);
PyObject *use_processor(PyObject *module, PyObject *wanted);

extern PyTypeObject SavedBytesType, BlockType; /* saved.c */

/* ---------------------------------------------------------------- device.c */

/* Numbers on a GPU to measure, and the kernel for their dtype (statistics/cuda.py). */
typedef struct {
    int64_t device, function, address, count;
    int64_t run, pitch;  /* see cuda.py: _runs */
    int64_t share, most; /* the fewest numbers per block; the most blocks */
    const char *order;   /* the logical order; NULL: no sketch is wanted */
    PyObject *known;     /* a batch with a row of the same numbers in another order; or NULL */
    int64_t known_row;   /* that row */
    uint32_t wanted;     /* which sums that row lacks (sketch.cu) */
} DeviceRun;

/* Launch a kernel for a value. 1: done, with its batch (owned) and row; 0: left to Python; -1:
 * error. */
int measure_on_device(Engine *engine, const DeviceRun *run, int64_t number, PyObject **batch,
                      int64_t *row);
/* Give a value the numbers of a row that another value has. 1: done; 0: the batch has arrived; -1:
 * error. */
int measured_with(PyObject *batch, int64_t number, int64_t row);
PyObject *engine_take_rows(Engine *engine, PyObject *args);

/* ---------------------------------------------------------------- the parts of the module */

int device_ready(PyObject *module);
int functions_ready(PyObject *module);
int ops_ready(PyObject *module);
int modules_ready(PyObject *module);
int variables_ready(PyObject *module);

#endif
