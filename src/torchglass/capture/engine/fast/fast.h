/* What the pages of the compiled engine share.
 *
 * The Python files beside this folder (edges.py, values.py, forms.py, stack.py) are the definition; what is here writes
 * the same journal. A page has an idea: log.c where a thread's records go, rows.c where rows go, checksum.c their
 * checksum, values.c which tensor is which, metas.c what it is like, tensors.c what is read of one where it is, forms.c how
 * arguments stood, stacks.c where a call stands, events.c the open and the close, functions.c, ops.c and modules.c the three
 * that torch and the program call, asking.c torch's way to them, learned.c what earlier blocks
 * have met, meeting.c the first call of a module, described.c what it shows of itself; measuring.c
 * which values are measured, tally.c and floats.c what is in them, sketch.c, sums.c, sums_avx2.c and hash.c by what they are
 * known again, saved.c keeps them, device.c what is in values on a GPU; variables.c what is told of a variable, known.c,
 * beginning.c, following.c, tracing.c and monitoring.c when, signing.c what a container holds and looking.c whether that has
 * changed.
 *
 * Rules. Whatever is met for the first time goes to Python, which decides; its answer is remembered here. A call into
 * Python may run anything, so no pointer into a table is used behind one. `borrowed` is said where a reference is
 * not owned, and why it lives. A function that fails returns -1 or NULL with an exception set.
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
#define NONE ((int64_t)-1)
#define NUMBER_BITS 40
#define NUMBER_MASK ((((int64_t)1) << NUMBER_BITS) - 1)
#define NODE_BITS 16
#define NODE_MASK ((((int64_t)1) << NODE_BITS) - 1)
#define MOST_NODES (((int64_t)1) << 44)
#define CLASS_ROWS 256 /* classes of modules whose rows are remembered; a power of two … */
#define CLASS_STEPS 4  /* … and in how many places one is looked for */
#define FAILED INT64_MIN /* in place of a number: an exception is set */

/* ---------------------------------------------------------------- log.c */

/* Where one thread's records and ids go, and where its open events stand; the base of ThreadWriter. */
typedef struct {
    PyObject_HEAD
    Py_buffer record_view, id_view; /* hold the memory that `records` and `ids` point to */
    int has_records, has_ids;
    char *records;
    int64_t *ids;
    long long at, first, end, shift;
    long long id_at, id_base, id_end;
    long long parent, stack, anchor, base, module;
    char on, listening, branched;
    PyObject *steps;  /* a list: open optimizer steps */
    PyObject *unread; /* a list: modules whose settings are still to be read */
    PyObject *engine; /* of its session */
    PyObject *made_from; /* while what an op gave is looked at: its first argument; borrowed from who calls */
} Log;

/* Where values go; the base of ValueWriter. */
typedef struct {
    PyObject_HEAD
    Py_buffer view;
    int has_view;
    char *memory;
    long long first, end, shift;
} ValueFields;

/* Where rows go; the base of RowWriter. */
typedef struct {
    PyObject_HEAD
    Py_buffer view;
    int has_view;
    char *memory;
    long long at, end;
} RowFields;

extern PyTypeObject LogType, ValueFieldsType, RowFieldsType;
#define LONGEST_NUMBER 20
char *put_number(char *place, int64_t number);
/* The row is there when it returns; the payload must outlive a call into Python. */
int add_journal_row(RowFields *fields, uint32_t kind, int64_t number, const char *payload, Py_ssize_t length);
int has_room(const RowFields *fields, Py_ssize_t length); /* for a row with so many bytes */
int rows_ready(PyObject *module);
uint32_t checksum_of(uint32_t sum, const unsigned char *bytes, Py_ssize_t count); /* checksum.c: further bytes, after others */
void checksum_ready(void);
Log *current_log(void); /* borrowed from the dictionary of all logs; NULL where this thread is not recorded */
int make_room(Log *log);                      /* for one record: 1 yes, 0 no, -1 error */
int make_id_room(Log *log, Py_ssize_t count); /* the same for so many ids in a row */
int64_t add_ids(Log *log, const int64_t *ids, Py_ssize_t count);         /* the number of the first; NONE: no room; FAILED */
int write_record(Log *log, int64_t at, const int64_t words[RECORD_WORDS]); /* 0: there is no room any more */
int close_record(Log *log, int64_t at, const int64_t closing[5]);        /* wherever it lies */
int64_t word_of(Log *log, int64_t at, int word);                         /* of a record that is kept; FAILED */
int64_t *record_at(Log *log, int64_t at); /* NULL: it is not here */
PyObject *left_open(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------- meeting.c */

/* One module under one path: session.py's ModuleAtPath. It holds nothing that could lead back to it. */
typedef struct {
    PyObject_HEAD
    long long number, cls, root;
    PyObject *module, *path, *other, *parameters, *below; /* NULL: None */
    char described;
} ModuleRow;

extern PyTypeObject ModuleRowType;

/* ---------------------------------------------------------------- table.c */

/* Sequences of words → a number: forms, stacks and metadata are all known so. */
typedef struct {
    int64_t *keys; /* all keys, one behind the other, each with its length before it */
    Py_ssize_t used, room;
    struct slot { uint64_t hash; Py_ssize_t key; int64_t number; } *slots;
    Py_ssize_t mask, count;
} Table;

int64_t table_find(const Table *table, const int64_t *words, Py_ssize_t length, uint64_t *hash); /* NONE: not there */
int table_add(Table *table, const int64_t *words, Py_ssize_t length, uint64_t hash, int64_t number);
void table_clear(Table *table);

/* ---------------------------------------------------------------- memory.c */

PyObject *zeros(PyObject *module, PyObject *size);

/* ---------------------------------------------------------------- calls.c */

extern PyTypeObject CallFilterType; /* passes on the calls of the program's own functions */

/* ---------------------------------------------------------------- engine.c */

/* One known tensor. */
typedef struct {
    PyObject *tensor; /* its address only: it may be gone, and another live there */
    PyObject *ref;    /* a weak reference, which tells */
    int64_t value, version;
    char had_grad;    /* of one that an op made, and autograd has not seen yet */
    int64_t before;
    int64_t measured; /* the number of the value, + 1, that it was when it was measured last */
} Living;

typedef struct Engine {
    PyObject_HEAD
    PyObject *session;
    char running, records_modules, records_ops, in_backward; /* as the session has them */
    /* measuring.c */
    PyObject *measurer; /* told of what events take and give; NULL: nobody asked for that */
    char measures;      /* whether that is done here, as far as it can be */
    char chooses, asks; /* how Python says which events are meant (measuring.c), whether it is to know of what is not finite */
    struct Choice *choices; /* what it has said */
    char is_alarmed;    /* 2: something was not finite; 1: it may have been, Python knows */
    ValueFields *measured, *sketched; /* the second is NULL where nobody asked for sketches */
    struct Measuring *measuring;
    SavedBytes *saved;              /* keeps what values hold; NULL: nobody asked for that, or Python sees to it */
    ValueFields *kept_places;  /* where it is written in the journal */
    /* values.c */
    ValueFields *values;
    Living *living;
    Py_ssize_t living_mask, living_count;
    int64_t next_value;
    Table metas;
    /* forms.c */
    Table forms;
    Table opaque;             /* the address of a class → 1: its objects are shown as its name alone, 0: they are not */
    PyObject *kept;           /* what keys of `forms` refer to, so that an address stays its object's */
    int64_t form_generation;  /* grows when all numbers of forms have lost their meaning */
    /* stacks.c */
    Table stacks;
    PyObject *tracers; /* a dict: trace functions of ours that a handler pauses */
    /* modules.c */
    Table module_places;          /* (row of the caller, address of the module) → a place in the two below */
    PyObject *module_refs;        /* a list of weak references */
    int64_t *module_rows;
    Py_ssize_t module_room;
    char *described;              /* by row: whether its settings and parameters were asked for */
    Py_ssize_t described_room;
    /* meeting.c */
    struct class_row { PyObject *ref; int64_t row; } class_rows[CLASS_ROWS]; /* the row of a class, by its address */
    Table child_places; /* (a dictionary of children, its length, a child) → its place there, and with 0: they are there */
    PyObject *module_table, *modules_met; /* dicts of the session's: rows by number, and by the id of the module */
    PyObject *module_numbers, *class_number, *encoded_module, *quoted, *settings, *rows, *take_lock, *leave_lock;
    PyObject *device_streams, *is_capturing, *current_device, *current_raw_stream, *send_batch; /* device.c */
    PyObject *stack_ids, *stack_numbers, *codes_kept; /* of the session's table of stacks */
    PyObject *code_rows, *own_files, *files_met, *code_numbers, *class_rows_known, *classes_met, *class_numbers; /* learned.c */
    PyObject *functions_known, *what_numbers, *kinds, *function_kind, *variable_rows, *named, *variable_kind;
    /* asked of Python */
    PyObject *meta_id, *meta_bytes, *meta_ids, *meta_numbers, *reluctant, *write_value, *form_of_call, *form_of_result, *describe_call, *describe_result;
    PyObject *form_bytes, *form_ids, *form_numbers, *passing, *is_opaque, *find_stack, *code_number, *finish_pops, *identify, *describe, *fail_module;
} Engine;

/* Which callbacks an engine has, by name. */
#define CALLBACKS(each)                                                                                                \
    each(meta_id) each(meta_bytes) each(meta_ids) each(meta_numbers) each(reluctant) each(write_value) each(form_of_call) each(form_of_result) each(describe_call)        \
    each(describe_result) each(find_stack) each(finish_pops) each(identify) each(describe) \
    each(fail_module) each(module_table) each(modules_met)  each(module_numbers) each(class_number)  \
    each(encoded_module) each(quoted) each(rows) each(settings) each(take_lock) each(leave_lock) each(stack_ids) each(stack_numbers) each(codes_kept)    \
    each(form_bytes) each(form_ids) each(form_numbers) each(passing) each(is_opaque) each(code_number) each(device_streams) each(is_capturing) each(current_device) each(current_raw_stream)             \
    each(send_batch) each(code_rows) each(own_files) each(files_met) each(code_numbers) each(class_rows_known) each(classes_met)       \
    each(class_numbers) each(functions_known) each(what_numbers) each(kinds) each(function_kind)   \
    each(variable_rows) each(named) each(variable_kind)

extern PyTypeObject EngineType;

/* Names and objects of torch, handed over once (private.py). */
typedef struct {
    PyTypeObject *Tensor, *Parameter;
    PyObject *size_type, *device_type;                            /* torch.Size, torch.device */
    PyObject *logs;                                               /* a dict: the logs of all threads, by identifier */
    PyObject *leaving;                                            /* a list that is not empty once Python ends */
    PyObject *words[8];                                           /* classes whose values live for ever: torch.dtype … */
    int word_count;
    PyGetSetDef *version, *shape, *dtype, *device, *requires_grad; /* plain descriptors, called by pointer */
    PyMethodDef *stride;
    PyObject *storage_address, *count_modes, *push_mode, *pop_mode, *mode_at, *no_functions;
    PyObject *functions; /* which holds those that are no methods */
    PyObject *detach, *call_boxed, *handle_torch_function, *warn;
    PyObject *data_ptr, *is_neg, *is_conj, *untyped_storage, *storage_offset, *storage_bytes; /* methods */
    PyObject *next_node, *current_node; /* numbers of autograd nodes; the node that is being run */
    PyObject *plain_types; /* (Tensor,): what a function written in Python says of its arguments */
    PyCodeObject *handler_code;
} Torch;

extern Torch torch;

int64_t value_of(Engine *engine, PyObject *tensor);       /* of any tensor or array */
int64_t plain_value_of(Engine *engine, PyObject *tensor); /* whose class is Tensor or Parameter */
int64_t made_value(Engine *engine, PyObject *tensor);     /* as an op leaves it */
void living_clear(Engine *engine);
int has_changed(Engine *engine, PyObject *tensor, int64_t number); /* it was another value when it was measured last */
int is_plain_tensor(const PyObject *object); /* its class is Tensor or Parameter */
PyObject *engine_value_of(Engine *engine, PyObject *tensor);
PyObject *engine_plain_value_of(Engine *engine, PyObject *tensor);
PyObject *engine_made(Engine *engine, PyObject *tensor);
PyObject *engine_known(Engine *engine, PyObject *object);
PyObject *engine_forget(Engine *engine, PyObject *object);
PyObject *engine_touch(Engine *engine, PyObject *object);
void same_numbers(Engine *engine, PyObject *object); /* of one that was touched: if it was written into, its version says so */
PyObject *engine_begin(Engine *engine, PyObject *tensor);
PyObject *engine_pending(Engine *engine, PyObject *unused);
PyObject *engine_living_objects(Engine *engine, PyObject *unused);
PyObject *engine_remember(Engine *engine, PyObject *args);
PyObject *engine_next_value(Engine *engine, PyObject *unused);

PyObject *pack(PyObject *const *args, Py_ssize_t count); /* arguments as a tuple, owned */
int64_t form_of_call(Engine *engine, Log *log, PyObject *const *args, Py_ssize_t count, PyObject *kwargs, int64_t *first);
int64_t form_of_result(Engine *engine, Log *log, PyObject *result, int from_op, int64_t *first);
int64_t stack_of(Engine *engine, Log *log, PyFrameObject *frame);
/* (base, code, offset …), from the frame upwards; NONE: there are too many. */
int64_t stack_of_words(Engine *engine, PyFrameObject *frame, const int64_t *words, Py_ssize_t length);
#define MOST_HELD 64 /* tensors in one variable, as far as that is told from here */
int64_t number_of_form(Engine *engine, PyObject *form); /* of one that Python made */
int64_t form_of_variable(Engine *engine, PyObject *value, int64_t *ids, Py_ssize_t *count, PyObject **form); /* NONE: Python's affair */

int64_t open_event(Engine *engine, Log *log, int64_t what, PyFrameObject *frame, PyObject *const *args, Py_ssize_t count,
                   PyObject *kwargs); /* the number of the record; NONE when there is no room; FAILED */
int close_event(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op);

/* Changes with each change of a dictionary, and is never given twice, to no other one either; 0: later Pythons have none. */
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
/* The row of a plain tensor's metadata, and where its memory is. FAILED: it refuses; what it refuses is asked before a row is
 * made. */
int64_t read_meta(Engine *engine, PyObject *tensor, int64_t *address);

/* ---------------------------------------------------------------- tensors.c */

enum { DIRECT_GRAD = 3, DIRECT_SIZES = 5, DIRECT_WORDS = DIRECT_SIZES + 10 }; /* places in a key, and its length */
extern int is_direct; /* whether plain tensors and torch's state are read where they are; else none of these is called */
int64_t direct_node(void);                                  /* the number that this thread gives to its next autograd node */
long direct_modes(void);                                    /* function modes on this thread's stack */
int direct_version(const PyObject *tensor, int64_t *version); /* 0: it has none */
int direct_grad(const PyObject *tensor);
Py_ssize_t direct_key(const PyObject *tensor, int64_t *words, int64_t *address); /* what tells its metadata; 0: not so simple */
PyObject *read_directly(PyObject *module, PyObject *found);
PyObject *words_of_tensor(PyObject *module, PyObject *tensor);
PyObject *words_of_torch(PyObject *module, PyObject *unused);

/* ---------------------------------------------------------------- errors.c */

PyObject *take_error(void);          /* the exception that is set, which is no longer */
void put_error(PyObject *error);     /* the other way round; takes the reference */
int forgive(Engine *engine);         /* hand the exception that is set to session.forgive: 0 forgiven, -1 it goes on */
int let_go(Engine *engine);
int64_t as_number(PyObject *answer); /* an int that Python gave, which is let go of; FAILED */
int64_t now_ns(void);
PyObject *referent(PyObject *ref);   /* of a weak reference, owned; NULL with no exception where it is gone */
int refers_to(PyObject *ref, const PyObject *object); /* whether a weak reference is to this very object */

/* ---------------------------------------------------------------- functions.c, ops.c, modules.c */

long count_modes(void); /* function modes on this thread's stack; -1 error */
PyFrameObject *caller_frame(void); /* owned; NULL where no Python code is below us */
PyObject *call_python(PyObject *handler, PyObject *self, PyObject *const *args, Py_ssize_t count);
int heal_steps(Engine *engine, Log *log, PyFrameObject *frame); /* before the state of the log is read */
PyObject *fail_event(Engine *engine, Log *log, int64_t at); /* closes it with the exception that is set, which goes on */

/* ---------------------------------------------------------------- learned.c */

/* The number of what an earlier block has met too; NONE: Python's affair; FAILED. */
int64_t learned_code(Engine *engine, PyObject *address, PyCodeObject *code);
int64_t learned_class(Engine *engine, PyObject *cls);
int64_t learned_variable(Engine *engine, PyObject *name, PyObject *how); /* where variables are followed */
PyObject *learned_plan(Engine *engine, PyObject *table, PyObject *func); /* owned; NULL with no exception: Python's affair */

/* ---------------------------------------------------------------- asking.c */

/* Make what torch calls for a mode, and have its class give that when torch asks by letters, through `attribute`. */
int bind_handler(PyObject *mode, const PyMethodDef *method, getattrfunc attribute, PyObject **place);
void unbind_handler(PyObject **place); /* the mode goes */
PyObject *handler_or_attribute(PyObject *mode, const char *name, PyObject *handler); /* owned */
PyObject *answer_torch(PyObject *module, PyObject *wanted);
int asking_ready(void);

/* Threads that are inside of a handler: Python must not end them there (threads.py). */
void enter_handler(void);
void leave_handler(void);
PyObject *stay_aside(PyObject *module, PyObject *unused);     /* the calling thread never goes on */
PyObject *others_inside(PyObject *module, PyObject *unused);  /* how many other threads are inside */
PyObject *after_fork(PyObject *module, PyObject *unused);

typedef struct { PyObject *mode, *context; } Unseen; /* what is off while we read tensors */
int enter_unseen(Unseen *unseen); /* -1 error, else how many modes were on */
int leave_unseen(Unseen *unseen);
/* The same around an event: not where tensors are read where they are, and whoever asks Python or a getter takes our mode
 * off for that while, or finds no mode but ours, which passes on what it is told while the log is off. */
int enter_reading(const Engine *engine, const Log *log, Unseen *unseen);
PyObject *call_unseen(PyObject *callable, PyObject *first, PyObject *second);

/* ---------------------------------------------------------------- tally.c, measuring.c */

PyObject *tally_at(PyObject *module, PyObject *args);
PyObject *sketch_at(PyObject *module, PyObject *args);
PyObject *use_processor(PyObject *module, PyObject *wanted);
int measure_taken(Engine *engine, Log *log, int64_t at, PyObject *const *args, Py_ssize_t count, PyObject *kwargs);
int measure_given(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op);
void measuring_forget(Engine *engine); /* the tensors that it knows */
void measuring_clear(Engine *engine), choices_clear(Engine *engine);
PyObject *engine_see(Engine *engine, PyObject *args);
int write_measured(Engine *engine, int64_t number, const int64_t counts[5], const double numbers[5], int64_t how);

extern PyTypeObject SavedBytesType, BlockType; /* saved.c */

/* ---------------------------------------------------------------- device.c */

/* Numbers on a GPU, and the kernel for their dtype. */
typedef struct {
    int64_t device, function, address, count, run, pitch; /* run, pitch: see cuda.py, _runs */
    int64_t share, most; /* numbers that a block is given at least, and blocks at most */
    const char *order; /* where a sketch is wanted, else NULL */
    PyObject *known; /* the batch in which the same numbers have a row, in another order, or NULL … */
    int64_t known_row;
    uint32_t wanted; /* … and what is to be found of them, then (sketch.cu) */
} DeviceRun;
int measure_on_device(Engine *engine, const DeviceRun *run, int64_t number, PyObject **where, int64_t *row);
int measured_with(PyObject *batch, int64_t number, int64_t row); /* its numbers are in that row: 1; 0: no longer to be had */
PyObject *engine_take_rows(Engine *engine, PyObject *args);
int device_ready(PyObject *module);

extern PyTypeObject FunctionModeType;
int functions_ready(PyObject *module);
int ops_ready(PyObject *module);
int modules_ready(PyObject *module);
int variables_ready(PyObject *module); /* variables.c */
/* following.h */
int known_ready(PyObject *module), following_ready(PyObject *module), beginning_ready(PyObject *module), tracing_ready(PyObject *module), monitoring_ready(PyObject *module), signing_ready(PyObject *module), looking_ready(void);
/* meeting.c */
int meeting_ready(PyObject *module);
int64_t meet_module(Engine *engine, int64_t caller, PyObject *module); /* its row; NONE: Python decides; FAILED */
PyObject *engine_has_uncalled(Engine *engine, PyObject *args);
int64_t class_row(Engine *engine, PyObject *cls);
ModuleRow *module_row(Engine *engine, int64_t number); /* borrowed from the session's table; NULL with or without an exception */
int is_plain_text(PyObject *text);                     /* stands in a row as it is, between quotes */
PyObject *held(PyObject *module, PyObject *name);      /* a plain dictionary of a module's, owned; NULL without an exception */
/* described.c */
int described_ready(void);
int read_settings(Engine *engine, Log *log); /* of the modules whose first call has ended */
int describe_module(Engine *engine, Log *log, int64_t number, PyObject *module); /* 1 done, 0 Python's affair, -1 error */
PyObject *handle_torch_function(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *warn_past_copies(PyObject *self, PyObject *args, PyObject *kwargs);

#endif
