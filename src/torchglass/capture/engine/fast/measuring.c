/* Measures values (statistics/measurer.py): each value once, when an event first takes or returns it.
 *
 * Tensors in this machine's memory are measured here. device.c launches kernels for those on a GPU.
 * Python measures all others.
 *
 * A view often shows the same numbers as another tensor. So the last results are remembered by
 * address (Measured). If the memory was not written since, the view gets the same statistics without
 * another pass.
 *
 * The entry points are at the end: measure_taken and measure_given.
 */
#include "fast.h"
#include "sketch.h"

/* The entries of a value in the journal (journal/layout.py). */
#define ENTRY_BYTES  88
#define SKETCH_BYTES 216
#define KEPT_BYTES   32
#define BY_COMPILED  2 /* how the statistics were made */
#define SKETCHED_NOW 2 /* how the sketch was made: the version of its hash */

#define MOST_REPEATED (1 << 27) /* elements of an expanded tensor for which a sketch is made */
#define PLACE_BITS    12
#define PLACES        (1 << PLACE_BITS) /* results that are remembered, in buckets … */
#define BUCKET        4                 /* … of so many places, by the hash of their address */
#define DEEPEST       8
#define MOST_PACKED   256

/* How the tensors of one row of metadata lie in memory. */
typedef struct {
    /* where they are measured; NOT_ASKED: Python has not said it yet */
    enum { NOT_ASKED, BY_PYTHON, HERE, ON_DEVICE } where;
    int item; /* bytes of an element */
    /* on a GPU: which one, the kernel for the dtype, and how the runs lie (cuda.py) */
    long long device, function, run, pitch;
    /* least numbers for a block of the kernel, and most blocks */
    long long share, most;
    int has_device_order; /* the kernel makes a sketch, too */
    /* the logical order for the kernel (statistics/axes.py) */
    char device_order[MOST_PACKED];
    Layout layout;
    Order order;
} Plan;

/* The result for the tensor that was measured last at some address. */
typedef struct {
    uintptr_t address;    /* 0: this place was never used */
    int64_t count;        /* numbers that the tensor shows; 0: the tensor is gone */
    int64_t version, row; /* of the tensor, and of its metadata */
    int kind, is_dense;
    PyObject *ref; /* a weak reference to the tensor */
    Tally tally;
    Sketch sketch;
    Order order; /* of the sketch */
    int is_sketched;
    PyObject *batch;   /* on a GPU: the batch that holds its numbers … */
    int64_t batch_row; /* … and the row there; else NULL */
} Measured;

struct Measuring {
    char *is_done; /* by value: whether it was measured */
    Py_ssize_t done_room;
    Plan *plans; /* by row of metadata */
    Py_ssize_t plan_room;
    /* indices of the places that were used: the others are not touched, so they take no memory */
    int16_t used[PLACES];
    int used_count;
    Measured places[PLACES];
};

void measuring_forget(Engine *engine)
{
    struct Measuring *state = engine->measuring;
    for (int at = 0; state != NULL && at < state->used_count; at++) {
        Py_CLEAR(state->places[state->used[at]].ref);
        Py_CLEAR(state->places[state->used[at]].batch);
    }
}

void measuring_clear(Engine *engine)
{
    struct Measuring *state = engine->measuring;
    if (state == NULL)
        return;
    measuring_forget(engine);
    engine->measuring = NULL;
    PyMem_Free(state->is_done);
    PyMem_Free(state->plans);
    PyMem_Free(state);
}

/* Make an array long enough for the entry `at`; new entries are zeros. */
static int reach(void **entries, Py_ssize_t *room, Py_ssize_t at, size_t size)
{
    if (at < *room)
        return 0;
    Py_ssize_t more = 2 * at + 1024;
    char *fresh = PyMem_Realloc(*entries, (size_t)more * size);
    if (fresh == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(fresh + (size_t)*room * size, 0, (size_t)(more - *room) * size);
    *entries = fresh;
    *room = more;
    return 0;
}

/* Note that a value is measured. 1: it was before; 0: it was not; -1: error. */
static int note_done(Engine *engine, int64_t number)
{
    if (engine->measuring == NULL)
        engine->measuring = PyMem_Calloc(1, sizeof(struct Measuring));
    if (engine->measuring == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    struct Measuring *state = engine->measuring;
    if (reach((void **)&state->is_done, &state->done_room, number, 1) < 0)
        return -1;
    int before = state->is_done[number];
    state->is_done[number] = 1;
    return before;
}

/* Read the plan that Python made (statistics/measurer.py: plan); None: Python measures such
 * tensors. */
static int read_plan(PyObject *described, Plan *plan)
{
    *plan = (Plan){.where = BY_PYTHON};
    if (described == Py_None)
        return 0;
    PyObject *layout, *order;
    const char *packed = NULL;
    Py_ssize_t packed_size = 0;
    plan->where = PyTuple_Check(described) && PyTuple_GET_SIZE(described) > 3 ? ON_DEVICE : HERE;
    if (!PyArg_ParseTuple(described, "iO!O!|LLLLLLy#", &plan->item, &PyTuple_Type, &layout,
                          &PyTuple_Type, &order, &plan->device, &plan->function, &plan->run,
                          &plan->pitch, &plan->share, &plan->most, &packed, &packed_size)
        || read_layout(layout, &plan->layout) < 0 || read_order(order, &plan->order) < 0)
        return -1;
    if (packed_size > MOST_PACKED
        || (plan->where == ON_DEVICE && (plan->share < 1 || plan->most < 1))) {
        PyErr_SetString(PyExc_ValueError, "a plan that is not known");
        return -1;
    }
    plan->has_device_order = packed_size > 0;
    if (plan->has_device_order)
        memcpy(plan->device_order, packed, (size_t)packed_size);
    return 0;
}

/* Return how tensors of this row are measured; Python is asked once. */
static int plan_of(Engine *engine, PyObject *tensor, int64_t row, Plan *plan)
{
    struct Measuring *state = engine->measuring;
    if (row < state->plan_room && state->plans[row].where != NOT_ASKED) {
        *plan = state->plans[row];
        return 0;
    }
    PyObject *described = PyObject_CallMethod(engine->measurer, "plan", "O", tensor);
    if (described == NULL)
        return -1;
    if (read_plan(described, plan) < 0) {
        Py_DECREF(described);
        return -1;
    }
    Py_DECREF(described);
    state = engine->measuring;
    if (state == NULL || reach((void **)&state->plans, &state->plan_room, row, sizeof(Plan)) < 0)
        return -1;
    state->plans[row] = *plan;
    return 0;
}

static int64_t ask(PyObject *method, PyObject *tensor)
{
    return as_number(PyObject_CallOneArg(method, tensor));
}

/* Return whether a method of the tensor, such as is_neg, returns True; -1: error. */
static int is_true(PyObject *method, PyObject *tensor)
{
    PyObject *answer = PyObject_CallOneArg(method, tensor);
    Py_XDECREF(answer); /* True and False live for ever */
    return answer == NULL ? -1 : answer == Py_True;
}

/* Return whether the storage has all the memory that the layout reads; -1: error. A tensor may
 * live on without its memory, and a wrapper of functionalize has a storage of the right size but
 * no memory: its address is only the offset. */
static int is_there(PyObject *tensor, const Plan *plan, uintptr_t address)
{
    PyObject *storage = PyObject_CallOneArg(torch.untyped_storage, tensor);
    int64_t bytes = storage == NULL ? FAILED : ask(torch.storage_bytes, storage);
    Py_XDECREF(storage);
    int64_t offset = bytes == FAILED ? FAILED : ask(torch.storage_offset, tensor);
    if (offset == FAILED)
        return -1;
    return address != (uintptr_t)(offset * plan->item)
           && (offset + plan->layout.span) * plan->item <= bytes;
}

static int64_t shown_count(const Plan *plan)
{
    return plan->layout.count * plan->layout.parts * plan->layout.repeats;
}

/* Return the bucket in which a result is kept. */
static Measured *bucket_of(struct Measuring *state, uintptr_t address, int64_t count, int kind)
{
    uint64_t hash =
        ((uint64_t)address ^ (uint64_t)count * 31 ^ (uint64_t)kind) * 0x9E3779B97F4A7C15u;
    return &state->places[(hash >> (64 - PLACE_BITS)) & -(uint64_t)BUCKET];
}

/* Return the result for as many numbers at this address; NULL: there is none. */
static Measured *find_measured(struct Measuring *state, uintptr_t address, const Plan *plan)
{
    const int64_t count = shown_count(plan);
    Measured *bucket = bucket_of(state, address, count, plan->layout.kind);
    for (int at = 0; at < BUCKET; at++)
        if (bucket[at].address == address && bucket[at].count == count
            && bucket[at].kind == plan->layout.kind)
            return &bucket[at];
    return NULL;
}

/* Return the place for a new result: that of an older one for the same numbers, else of a tensor
 * that is gone, else the smallest. */
static Measured *place_for(struct Measuring *state, const Measured *measured)
{
    Measured *bucket = bucket_of(state, measured->address, measured->count, measured->kind);
    Measured *best = bucket;
    for (int at = 0; at < BUCKET; at++) {
        Measured *each = &bucket[at];
        if (each->address == measured->address && each->count == measured->count
            && each->kind == measured->kind)
            return each;
        PyObject *alive = each->ref == NULL ? NULL : referent(each->ref);
        if (alive == NULL)
            each->count = 0;
        Py_XDECREF(alive);
        if (each->count < best->count)
            best = each;
    }
    if (best->address == 0)
        state->used[state->used_count++] = (int16_t)(best - state->places);
    return best;
}

/* Return whether the tensor of a result is alive and shows the same numbers: neither leaves a
 * number in between out, or both have the same metadata; and nothing was written since. */
static int shows_the_same(const Measured *known, uintptr_t address, const Plan *plan,
                          int64_t version, int64_t row)
{
    if (known->ref == NULL || known->version != version
        || !(known->row == row
             || (known->is_dense && plan->layout.is_dense && plan->layout.repeats == 1)))
        return 0;
    PyObject *other = referent(known->ref);
    if (other == NULL)
        return 0;
    int64_t there = ask(torch.data_ptr, other), its_version;
    const int is_same_memory = there != FAILED && (uintptr_t)there == address;
    const int same =
        is_same_memory && version_of(other, &its_version) == 0 && its_version == version;
    Py_DECREF(other);
    PyErr_Clear();
    return same;
}

int write_measured(Engine *engine, int64_t number, const int64_t counts[5], const double numbers[5],
                   int64_t how)
{
    ValueFields *fields = engine->measured;
    char *entry = entry_at(fields, number, ENTRY_BYTES);
    if (entry != NULL) {
        memcpy(entry, counts, 40);
        memcpy(entry + 40, numbers, 40);
        *(volatile int64_t *)(entry + 80) = how; /* last: it says that the others are there */
        return 0;
    }
    return as_done(PyObject_CallMethod(
        (PyObject *)fields, "write", "L(LLLLLddddd)i", (long long)number, (long long)counts[0],
        (long long)counts[1], (long long)counts[2], (long long)counts[3], (long long)counts[4],
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], (int)how));
}

int write_sketch(ValueFields *fields, int64_t number, const Sketch *sketch)
{
    char *entry = entry_at(fields, number, SKETCH_BYTES);
    if (entry != NULL) {
        memcpy(entry, sketch, sizeof *sketch);
        /* last: it says that the rest is there */
        *(volatile int64_t *)(entry + sizeof *sketch) = SKETCHED_NOW;
        return 0;
    }
    return as_done(PyObject_CallMethod((PyObject *)fields, "write", "Ly#", (long long)number,
                                       (const char *)sketch, (Py_ssize_t)sizeof *sketch));
}

/* Write the result for a value into the journal. */
static int write_result(Engine *engine, int64_t number, const Measured *result)
{
    int64_t counts[5];
    double numbers[5];
    tally_numbers(&result->tally, counts, numbers);
    if (is_alarming(counts))
        engine->is_alarmed = 2;
    if (write_measured(engine, number, counts, numbers, BY_COMPILED) < 0)
        return -1;
    if (engine->sketched == NULL || !result->is_sketched)
        return 0;
    return write_sketch(engine->sketched, number, &result->sketch);
}

static int may_sketch(const Engine *engine, const Plan *plan)
{
    return engine->sketched != NULL
           && (plan->layout.repeats == 1 || plan->order.count <= MOST_REPEATED);
}

/* Make the sketch for a tensor that shows the same numbers as `result`, but maybe in another order.
 */
static void add_sketch(Engine *engine, const Plan *plan, uintptr_t address, Measured *result)
{
    const int was_sketched = result->is_sketched;
    const int is_flat = result->order.is_contiguous && plan->order.is_contiguous;
    result->is_sketched = may_sketch(engine, plan);
    if (!result->is_sketched || (was_sketched && is_same_order(&result->order, &plan->order)))
        return;
    if (was_sketched && is_flat)
        sketch_axes(&plan->order, (const char *)address, &result->tally, &result->sketch);
    else
        sketch_memory(&plan->order, (const char *)address, &result->tally, &result->sketch);
    result->order = plan->order;
}

/* Read the memory. 0: its numbers are too large for double precision. */
static int read_memory(Engine *engine, const Plan *plan, const char *memory, Measured *result)
{
    result->is_sketched = may_sketch(engine, plan);
    result->order = plan->order;
    if (result->is_sketched)
        return tally_and_sketch(&plan->layout, &plan->order, memory, &result->tally,
                                &result->sketch);
    return tally_memory(&plan->layout, memory, &result->tally);
}

enum Way { MEASURED_HERE, LEFT_TO_PYTHON, ERROR };

static Measured measured_at(uintptr_t address, const Plan *plan, int64_t version, int64_t row)
{
    return (Measured){
        .address = address,
        .count = shown_count(plan),
        .version = version,
        .row = row,
        .kind = plan->layout.kind,
        .is_dense = plan->layout.is_dense && plan->layout.repeats == 1,
    };
}

/* Remember the result for a tensor; the reference to its `batch` is taken over. */
static void remember(Engine *engine, PyObject *tensor, Measured result)
{
    result.ref = PyWeakref_NewRef(tensor, NULL);
    PyObject *old_ref = result.ref;
    PyObject *old_batch = result.batch;
    /* another thread may have ended the recording while the memory was read */
    if (engine->measuring != NULL) {
        Measured *place = place_for(engine->measuring, &result);
        old_ref = place->ref;
        old_batch = place->batch;
        *place = result;
    }
    Py_XDECREF(old_ref);
    Py_XDECREF(old_batch);
}

static enum Way measure_memory(Engine *engine, PyObject *tensor, int64_t number, const Plan *plan,
                               uintptr_t address, int64_t version, int64_t row)
{
    Measured result = measured_at(address, plan, version, row);
    if (!read_memory(engine, plan, (const char *)address, &result))
        return LEFT_TO_PYTHON;
    remember(engine, tensor, result);
    return write_result(engine, number, &result) < 0 ? ERROR : MEASURED_HERE;
}

/* Which sums the kernel has to make if the same numbers were measured in another order (sketch.cu).
 */
static uint32_t wanted_of(const Order *known, const Order *order)
{
    enum { ALL, ONLY_AXES, ONLY_FLAT };
    if (known->is_contiguous && order->is_contiguous)
        return ONLY_AXES;
    int has_same_axes = known->dimensions == order->dimensions;
    unsigned taken = 0; /* bits: axes of `known` that are the same as one of `order` */
    for (int axis = 0; has_same_axes && axis < order->dimensions; axis++) {
        has_same_axes = 0;
        for (int other = 0; !has_same_axes && other < known->dimensions; other++) {
            if (taken >> other & 1)
                continue;
            if (known->sizes[other] == order->sizes[axis]
                && known->steps[other] == order->steps[axis]) {
                taken |= 1u << other;
                has_same_axes = 1;
            }
        }
    }
    return has_same_axes ? ONLY_FLAT : ALL;
}

/* `known`: the result for the same numbers in another order, or NULL. */
static enum Way launch_kernel(Engine *engine, PyObject *tensor, int64_t number, const Plan *plan,
                              uintptr_t address, int64_t version, int64_t row,
                              const Measured *known)
{
    DeviceRun run = {
        .device = plan->device,
        .function = plan->function,
        .address = (int64_t)address,
        .count = plan->layout.count,
        .run = plan->run,
        .pitch = plan->pitch,
        .share = plan->share,
        .most = plan->most,
        .order = plan->has_device_order ? plan->device_order : NULL,
    };
    if (known != NULL && known->is_sketched
        && (run.wanted = wanted_of(&known->order, &plan->order)) != 0) {
        run.known = known->batch;
        run.known_row = known->batch_row;
    }
    Measured result = measured_at(address, plan, version, row);
    result.is_sketched = plan->has_device_order;
    result.order = plan->order;
    if (engine->asks || plan->layout.repeats != 1 || (plan->pitch && address % 16))
        return LEFT_TO_PYTHON; /* Python waits for the kernel */
    if ((engine->sketched != NULL) != plan->has_device_order)
        return LEFT_TO_PYTHON; /* sketches were asked for, or no longer, since the plan was made */
    Py_XINCREF(run.known);     /* other threads may run meanwhile */
    int done = measure_on_device(engine, &run, number, &result.batch, &result.batch_row);
    Py_XDECREF(run.known);
    if (done <= 0)
        return done < 0 ? ERROR : LEFT_TO_PYTHON;
    remember(engine, tensor, result);
    return MEASURED_HERE;
}

enum Reuse { REUSE_FAILED = -1, NOT_REUSED, REUSED, IN_OTHER_ORDER };

/* Give a value the result for the same numbers, if there is one. IN_OTHER_ORDER: there is one on a
 * GPU, but its sketch is that of another order. */
static enum Reuse reuse_result(Engine *engine, int64_t number, const Plan *plan, uintptr_t address,
                               int64_t version, int64_t row)
{
    const Measured *known = find_measured(engine->measuring, address, plan);
    if (known == NULL || !shows_the_same(known, address, plan, version, row))
        return NOT_REUSED;
    const int is_on_device = plan->where == ON_DEVICE;
    if (is_on_device != (known->batch != NULL))
        return NOT_REUSED;
    if (!is_on_device) {
        Measured result = *known; /* its references are not used */
        add_sketch(engine, plan, address, &result);
        return write_result(engine, number, &result) < 0 ? REUSE_FAILED : REUSED;
    }
    if (engine->sketched != NULL
        && !(known->is_sketched && is_same_order(&known->order, &plan->order)))
        return IN_OTHER_ORDER;
    const int done = measured_with(known->batch, number, known->batch_row);
    if (done < 0)
        return REUSE_FAILED;
    return done ? REUSED : NOT_REUSED;
}

static int write_kept(Engine *engine, int64_t number, const int64_t words[4])
{
    ValueFields *fields = engine->kept_places;
    volatile int64_t *entry = (volatile int64_t *)entry_at(fields, number, KEPT_BYTES);
    if (entry != NULL) {
        for (int at = 0; at < 4; at++)
            entry[at] = words[at]; /* the last one says that the others are there */
        return 0;
    }
    return as_done(PyObject_CallMethod((PyObject *)fields, "write", "LLLLL", (long long)number,
                                       (long long)words[0], (long long)words[1],
                                       (long long)words[2], (long long)words[3]));
}

/* Have Python copy the bytes of a value. */
static int copy_by_python(Engine *engine, PyObject *tensor, int64_t value)
{
    return as_done(PyObject_CallMethod(engine->measurer, "keep", "OL", tensor, (long long)value));
}

/* Copy the bytes of a tensor in this machine's memory. */
static int keep_memory(Engine *engine, PyObject *tensor, int64_t value, const Plan *plan,
                       uintptr_t address)
{
    int64_t words[4], offset = ask(torch.storage_offset, tensor);
    if (offset == FAILED)
        return -1;
    const Layout *layout = &plan->layout;
    const Shown shown = {
        .number = value & NUMBER_MASK,
        .storage = address - (uintptr_t)(offset * plan->item),
        .memory = (const char *)address,
        .length = layout->span * plan->item,
        .item = plan->item,
        .has_gaps = layout->span > 2 * layout->count,
    };
    /* other threads may run meanwhile, and end the recording */
    PyObject *saved = Py_NewRef(engine->saved);
    const int done = save_bytes((SavedBytes *)saved, &shown, words);
    Py_DECREF(saved);
    if (done < 0 || engine->saved == NULL)
        return done < 0 ? -1 : 0;
    if (done == KEPT)
        return write_kept(engine, value & NUMBER_MASK, words);
    return done == LEFT_TO_SAVER ? copy_by_python(engine, tensor, value) : 0;
}

/* Return the version of a tensor once autograd has returned: until then the result of an op does
 * not have the version of the tensor of which it is a view. */
static int version_to_be(PyObject *tensor, uintptr_t address, PyObject *made_from, int64_t *version)
{
    if (version_of(tensor, version) < 0)
        return -1;
    if (*version || made_from == NULL || !is_plain_tensor(made_from))
        return 0;
    const int64_t there = ask(torch.data_ptr, made_from);
    return there == FAILED || ((uintptr_t)there == address && version_of(made_from, version) < 0)
               ? -1
               : 0;
}

static enum Way measure_here(Engine *engine, PyObject *tensor, int64_t value, int changed,
                             PyObject *made_from)
{
    const int64_t number = value & NUMBER_MASK;
    const int64_t row = value >> NUMBER_BITS;
    Plan plan;
    int64_t version;
    if (plan_of(engine, tensor, row, &plan) < 0 || plan.where == BY_PYTHON)
        return PyErr_Occurred() ? ERROR : LEFT_TO_PYTHON;
    /* its memory holds the negated or conjugated numbers */
    int is_lazy = is_true(torch.is_neg, tensor);
    if (is_lazy == 0 && plan.layout.parts > 1)
        is_lazy = is_true(torch.is_conj, tensor);
    if (is_lazy)
        return LEFT_TO_PYTHON;
    const int64_t address = ask(torch.data_ptr, tensor);
    if (address == FAILED || address == 0
        || version_to_be(tensor, (uintptr_t)address, made_from, &version) < 0)
        return LEFT_TO_PYTHON;
    enum Reuse reuse = NOT_REUSED;
    if (!changed && engine->measuring != NULL)
        reuse = reuse_result(engine, number, &plan, (uintptr_t)address, version, row);
    if (reuse == REUSE_FAILED)
        return ERROR;
    enum Way way = MEASURED_HERE;
    if (reuse != REUSED) {
        if (is_there(tensor, &plan, (uintptr_t)address) <= 0)
            return LEFT_TO_PYTHON;
        const Measured *known = NULL;
        if (reuse == IN_OTHER_ORDER)
            known = find_measured(engine->measuring, (uintptr_t)address, &plan);
        way = plan.where == ON_DEVICE
                  ? launch_kernel(engine, tensor, number, &plan, (uintptr_t)address, version, row,
                                  known)
                  : measure_memory(engine, tensor, number, &plan, (uintptr_t)address, version, row);
    }
    if (way != MEASURED_HERE || engine->saved == NULL)
        return way;
    const int kept = plan.where == HERE
                         ? keep_memory(engine, tensor, value, &plan, (uintptr_t)address)
                         : copy_by_python(engine, tensor, value);
    return kept < 0 ? ERROR : MEASURED_HERE;
}

/* Measure a value that an event takes or returns; `made_from`: the first argument of the op that
 * returned it, or NULL. */
static int measure_value(Engine *engine, PyObject *tensor, int64_t value, PyObject *made_from)
{
    int64_t number = value & NUMBER_MASK;
    int was_done = note_done(engine, number);
    if (was_done != 0)
        return was_done < 0 ? -1 : 0;
    const int changed = mark_measured(engine, tensor, number);
    enum Way way = LEFT_TO_PYTHON;
    if (is_plain_tensor(tensor))
        way = measure_here(engine, tensor, value, changed, made_from);
    if (way != LEFT_TO_PYTHON)
        return way == ERROR ? -1 : 0;
    if (PyErr_Occurred()
        && drop_own_error(engine) < 0) /* torch refused something for this tensor */
        return -1;
    engine->is_alarmed |= engine->asks;
    PyObject *answer = PyObject_CallMethod(engine->measurer, "measure", "OLO", tensor,
                                           (long long)number, changed ? Py_True : Py_False);
    Py_XDECREF(answer);
    if (answer == NULL)
        return -1;
    return engine->saved == NULL ? 0 : copy_by_python(engine, tensor, value);
}

/* Measure all tensors in an argument or a result. Python walks through all containers but lists and
 * tuples. */
static int measure_all(Engine *engine, PyObject *item, int from_op, PyObject *made_from, int depth)
{
    PyTypeObject *cls = Py_TYPE(item);
    if (is_plain_tensor(item)) {
        int64_t value = from_op ? value_after_op(engine, item) : plain_value_of(engine, item);
        return value == FAILED ? -1 : measure_value(engine, item, value, made_from);
    }
    if (cls == &PyLong_Type || cls == &PyFloat_Type || cls == &PyBool_Type || cls == &PyUnicode_Type
        || item == Py_None || (PyObject *)cls == torch.size_type)
        return 0;
    if ((cls == &PyTuple_Type || cls == &PyList_Type) && depth < DEEPEST) {
        /* a list may be changed meanwhile */
        for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(item); at++) {
            PyObject *each = Py_NewRef(PySequence_Fast_GET_ITEM(item, at));
            int done = measure_all(engine, each, from_op, made_from, depth + 1);
            Py_DECREF(each);
            if (done < 0)
                return -1;
        }
        return 0;
    }
    return as_done(
        PyObject_CallMethod(engine->measurer, "walk", "OO", item, from_op ? Py_True : Py_False));
}

/* Forgive an error of ours, which costs only this measurement; -1: the error is the program's. */
static int forgiven(Engine *engine, int done)
{
    return done < 0 ? forgive(engine) : 0;
}

/* Return whether the values of this event are measured; -1: error. */
static int is_chosen(Engine *engine, Log *log, int64_t record)
{
    if (!engine->chooses)
        return 1;
    return as_truth(PyObject_CallMethod(engine->measurer, "means", "OL", log, (long long)record));
}

/* Tell Python of a value that is not finite; it may stop the program. */
static int raise_alarm(Engine *engine)
{
    if (!engine->asks || !engine->is_alarmed)
        return 0;
    PyObject *is_sure = engine->is_alarmed > 1 ? Py_True : Py_False;
    engine->is_alarmed = 0;
    return as_done(PyObject_CallMethod(engine->measurer, "raise_alarm", "O", is_sure));
}

int measure_taken(Engine *engine, Log *log, int64_t record, PyObject *const *args, Py_ssize_t count,
                  PyObject *kwargs)
{
    if (!engine->measures) {
        PyObject *packed = pack(args, count);
        int done = packed == NULL ? -1
                                  : as_done(PyObject_CallMethod(engine->measurer, "took", "OLOO",
                                                                log, (long long)record, packed,
                                                                kwargs == NULL ? Py_None : kwargs));
        Py_XDECREF(packed);
        return done;
    }
    const int chosen = is_chosen(engine, log, record);
    if (chosen <= 0)
        return forgiven(engine, chosen);
    int done = 0;
    for (Py_ssize_t at = 0; done == 0 && at < count && engine->measurer != NULL; at++)
        done = measure_all(engine, args[at], 0, NULL, 0);
    PyObject *name, *item;
    Py_ssize_t at = 0;
    while (done == 0 && kwargs != NULL && engine->measurer != NULL
           && PyDict_Next(kwargs, &at, &name, &item)) {
        Py_INCREF(item);
        done = measure_all(engine, item, 0, NULL, 0);
        Py_DECREF(item);
    }
    return forgiven(engine, done);
}

int measure_given(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op)
{
    if (engine->measures) {
        const int chosen = is_chosen(engine, log, at);
        const int done =
            chosen <= 0 ? chosen : measure_all(engine, result, from_op, log->made_from, 0);
        return forgiven(engine, done == 0 && engine->measurer != NULL ? raise_alarm(engine) : done);
    }
    if (Py_TYPE(result) == torch.Tensor) {
        int64_t value = from_op ? value_after_op(engine, result) : plain_value_of(engine, result);
        if (value == FAILED)
            return -1;
        return as_done(PyObject_CallMethod(engine->measurer, "gave", "OLOL", log, (long long)at,
                                           result, (long long)value));
    }
    return as_done(PyObject_CallMethod(engine->measurer, "gave_several", "OLOO", log, (long long)at,
                                       result, from_op ? Py_True : Py_False));
}

/* see(tensor, value) → value: measure a tensor that Python has found in another container. */
PyObject *engine_see(Engine *engine, PyObject *args)
{
    PyObject *tensor;
    long long value;
    if (!PyArg_ParseTuple(args, "OL", &tensor, &value))
        return NULL;
    if (engine->measurer != NULL && measure_value(engine, tensor, value, NULL) < 0)
        return NULL;
    return PyLong_FromLongLong(value);
}
