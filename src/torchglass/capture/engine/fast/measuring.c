/* Which values are measured, and when (statistics/measurer.py): each once, as soon as an event takes or gives it.
 *
 * Plain tensors in this machine's memory are measured here; all else, and all of it where somebody wants to be asked or
 * to have the values themselves, is Python's.
 */
#include "fast.h"
#include "sketch.h"

#define ENTRY_BYTES 88
#define SKETCH_BYTES 216
#define SKETCHED_NOW 2 /* with this hash (journal/layout.py) */
#define KEPT_BYTES 32
#define MOST_REPEATED (1 << 27) /* elements of an expanded tensor that are gone through in their logical order */
#define BY_COMPILED 2
#define VIEW_BITS 12
#define VIEWS (1 << VIEW_BITS) /* places that are known to be measured … */
#define WAYS 4                 /* … and in how many of them one is looked for */
#define DEEPEST 8
#define MOST_PACKED 256

/* How Python says which events are meant (Measurer.choosing): of each anew; or by what was called, in which module and
 * where; or not by where. */
enum { ALL_ARE_MEANT, ASKED_OF_EACH, BY_PLACE, BY_NAME };
#define CHOICES 4096 /* answers that are kept; a power of two */

/* An answer: 0 none yet, 1 not meant, 2 meant. */
struct Choice { int64_t what, module, stack; char answer; };

/* How the tensors of one row of metadata lie in memory. */
typedef struct {
    enum { NOT_KNOWN, BY_PYTHON, HERE, ON_DEVICE } way;
    int item; /* bytes of an element */
    long long device, function, run, pitch; /* which GPU, the kernel for the dtype there, and how its runs lie */
    long long share, most; /* numbers that a block of it is given at least, and blocks at most */
    int has_device_order; /* the kernel makes a sketch, too */
    char device_order[MOST_PACKED]; /* as it takes the logical order (statistics/axes.py) */
    Layout layout;
    Order order;
} Plan;

/* The tensor that was measured last at some place, so that a view of the same numbers need not be. */
typedef struct {
    uintptr_t address;
    int64_t count, version, row;
    int kind, is_dense;
    PyObject *ref; /* weak */
    Tally tally;
    Sketch sketch;
    Order order; /* of the sketch */
    int is_sketched;
    PyObject *batch; /* of one on a GPU: where its numbers gather … */
    int64_t batch_row; /* … and in which row */
} Measured;

struct Measuring {
    char *done; /* by value: whether it was looked at */
    Py_ssize_t room;
    Plan *plans; /* by row of metadata */
    Py_ssize_t plan_room;
    int16_t used[VIEWS]; /* those of the places that are: memory that nobody wrote into is not touched */
    int used_count;
    Measured places[VIEWS];
};

void measuring_forget(Engine *engine)
{
    struct Measuring *state = engine->measuring;
    for (int at = 0; state != NULL && at < state->used_count; at++) {
        Py_CLEAR(state->places[state->used[at]].ref);
        Py_CLEAR(state->places[state->used[at]].batch);
    }
}

void choices_clear(Engine *engine)
{
    PyMem_Free(engine->choices);
    engine->choices = NULL;
}

void measuring_clear(Engine *engine)
{
    struct Measuring *state = engine->measuring;
    choices_clear(engine);
    if (state == NULL)
        return;
    measuring_forget(engine);
    engine->measuring = NULL;
    PyMem_Free(state->done);
    PyMem_Free(state->plans);
    PyMem_Free(state);
}

/* Room for the entry `at` of something that grows; zeros where nothing was yet. */
static int reach(void **entries, Py_ssize_t *room, Py_ssize_t at, size_t size)
{
    if (at < *room)
        return 0;
    Py_ssize_t more = 2 * at + 1024;
    char *fresh = PyMem_Realloc(*entries, (size_t)more * size);
    if (fresh == NULL)
        return PyErr_NoMemory(), -1;
    memset(fresh + (size_t)*room * size, 0, (size_t)(more - *room) * size);
    *entries = fresh;
    *room = more;
    return 0;
}

/* 1: it was looked at before, -1: error. From now on it was. */
static int is_done(Engine *engine, int64_t number)
{
    if (engine->measuring == NULL && (engine->measuring = PyMem_Calloc(1, sizeof(struct Measuring))) == NULL)
        return PyErr_NoMemory(), -1;
    struct Measuring *state = engine->measuring;
    if (reach((void **)&state->done, &state->room, number, 1) < 0)
        return -1;
    int before = state->done[number];
    state->done[number] = 1;
    return before;
}

/* How tensors of this row are measured; asked of Python once. */
static int plan_of(Engine *engine, PyObject *tensor, int64_t row, Plan *plan)
{
    struct Measuring *state = engine->measuring;
    if (row < state->plan_room && state->plans[row].way != NOT_KNOWN) {
        *plan = state->plans[row];
        return 0;
    }
    PyObject *described = PyObject_CallMethod(engine->measurer, "plan", "O", tensor);
    if (described == NULL)
        return -1;
    *plan = (Plan){.way = BY_PYTHON};
    if (described != Py_None) {
        PyObject *layout, *order;
        const char *packed = NULL;
        Py_ssize_t packed_size = 0;
        plan->way = PyTuple_Check(described) && PyTuple_GET_SIZE(described) > 3 ? ON_DEVICE : HERE;
        if (!PyArg_ParseTuple(described, "iO!O!|LLLLLLy#", &plan->item, &PyTuple_Type, &layout, &PyTuple_Type, &order,
                              &plan->device, &plan->function, &plan->run, &plan->pitch, &plan->share, &plan->most, &packed, &packed_size)
            || packed_size > MOST_PACKED || (plan->way == ON_DEVICE && (plan->share < 1 || plan->most < 1)) || read_layout(layout, &plan->layout) < 0 || read_order(order, &plan->order) < 0) {
            Py_DECREF(described);
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a plan that is not known");
            return -1;
        }
        if ((plan->has_device_order = packed_size > 0))
            memcpy(plan->device_order, packed, (size_t)packed_size);
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

static int is_set(PyObject *method, PyObject *tensor)
{
    PyObject *answer = PyObject_CallOneArg(method, tensor);
    int is_true = answer == NULL ? -1 : answer == Py_True;
    Py_XDECREF(answer);
    return is_true;
}

/* Whether all that the layout reads is in the storage: memory is given back while its tensor lives. */
static int is_there(PyObject *tensor, const Plan *plan)
{
    PyObject *storage = PyObject_CallOneArg(torch.untyped_storage, tensor);
    int64_t bytes = storage == NULL ? FAILED : ask(torch.storage_bytes, storage);
    Py_XDECREF(storage);
    int64_t offset = bytes == FAILED ? FAILED : ask(torch.storage_offset, tensor);
    if (offset == FAILED)
        return -1;
    return (offset + plan->layout.span) * plan->item <= bytes;
}

static int64_t shown_count(const Plan *plan)
{
    return plan->layout.count * plan->layout.parts * plan->layout.repeats;
}

/* The first of the places where something may stand. */
static Measured *places_for(struct Measuring *state, uintptr_t address, int64_t count, int kind)
{
    uint64_t hash = ((uint64_t)address ^ (uint64_t)count * 31 ^ (uint64_t)kind) * 0x9E3779B97F4A7C15u;
    return &state->places[(hash >> (64 - VIEW_BITS)) & -(uint64_t)WAYS];
}

/* What is known of as many numbers there; NULL: nothing. */
static Measured *place_at(struct Measuring *state, uintptr_t address, const Plan *plan)
{
    const int64_t count = shown_count(plan);
    Measured *several = places_for(state, address, count, plan->layout.kind);
    for (int way = 0; way < WAYS; way++)
        if (several[way].address == address && several[way].count == count && several[way].kind == plan->layout.kind)
            return &several[way];
    return NULL;
}

/* Where to remember it: over what was there, or in place of what is gone, or of the smallest. */
static Measured *place_for(struct Measuring *state, const Measured *found)
{
    Measured *several = places_for(state, found->address, found->count, found->kind), *best = several;
    for (int way = 0; way < WAYS; way++) {
        Measured *each = &several[way];
        if (each->address == found->address && each->count == found->count && each->kind == found->kind)
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

/* Whether a living tensor, already measured, shows the same numbers: both fill their memory, or lie alike. */
static int shows_the_same(const Measured *known, uintptr_t address, const Plan *plan, int64_t version, int64_t row)
{
    if (known->ref == NULL || known->version != version
        || !(known->row == row || (known->is_dense && plan->layout.is_dense && plan->layout.repeats == 1)))
        return 0;
    PyObject *other = referent(known->ref);
    if (other == NULL)
        return 0;
    int64_t there = ask(torch.data_ptr, other), its_version;
    int same = there != FAILED && (uintptr_t)there == address && version_of(other, &its_version) == 0 && its_version == version;
    Py_DECREF(other);
    PyErr_Clear();
    return same;
}

int write_measured(Engine *engine, int64_t number, const int64_t counts[5], const double numbers[5], int64_t how)
{
    ValueFields *fields = engine->measured;
    int64_t place = number * ENTRY_BYTES + fields->shift;
    if (fields->has_view && number >= fields->first && number < fields->end && place >= 0
        && place + ENTRY_BYTES <= fields->view.len) {
        char *entry = fields->memory + place;
        memcpy(entry, counts, 40);
        memcpy(entry + 40, numbers, 40);
        *(volatile int64_t *)(entry + 80) = how; /* last: it says that the others are there */
        return 0;
    }
    PyObject *done = PyObject_CallMethod(
        (PyObject *)fields, "write", "L(LLLLLddddd)i", (long long)number, (long long)counts[0], (long long)counts[1],
        (long long)counts[2], (long long)counts[3], (long long)counts[4], numbers[0], numbers[1], numbers[2], numbers[3],
        numbers[4], (int)how);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

int write_sketch(ValueFields *fields, int64_t number, const Sketch *sketch)
{
    int64_t place = number * SKETCH_BYTES + fields->shift;
    if (fields->has_view && number >= fields->first && number < fields->end && place >= 0
        && place + SKETCH_BYTES <= fields->view.len) {
        memcpy(fields->memory + place, sketch, sizeof *sketch);
        *(volatile int64_t *)(fields->memory + place + sizeof *sketch) = SKETCHED_NOW; /* last: it says that the rest is there */
        return 0;
    }
    PyObject *done = PyObject_CallMethod((PyObject *)fields, "write", "Ly#", (long long)number, (const char *)sketch,
                                         (Py_ssize_t)sizeof *sketch);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* What was found in a value goes into the journal. */
static int write_found(Engine *engine, int64_t number, const Measured *found)
{
    int64_t counts[5];
    double numbers[5];
    tally_numbers(&found->tally, counts, numbers);
    if (counts[1] || counts[2] || (counts[3] && counts[0] == 1)) /* the rule is that of measurer.py */
        engine->is_alarmed = 2;
    if (write_measured(engine, number, counts, numbers, BY_COMPILED) < 0)
        return -1;
    return engine->sketched != NULL && found->is_sketched ? write_sketch(engine->sketched, number, &found->sketch) : 0;
}

static int may_sketch(const Engine *engine, const Plan *plan)
{
    return engine->sketched != NULL && (plan->layout.repeats == 1 || plan->order.count <= MOST_REPEATED);
}

/* Of what was measured before in the same memory: the numbers are the same, and may stand in another order. */
static void add_sketch(Engine *engine, const Plan *plan, uintptr_t address, Measured *found)
{
    const int was_sketched = found->is_sketched, is_flat = found->order.is_contiguous && plan->order.is_contiguous;
    found->is_sketched = may_sketch(engine, plan);
    if (!found->is_sketched || (was_sketched && is_same_order(&found->order, &plan->order)))
        return;
    if (was_sketched && is_flat)
        sketch_axes(&plan->order, (const char *)address, &found->tally, &found->sketch);
    else
        sketch_memory(&plan->order, (const char *)address, &found->tally, &found->sketch);
    found->order = plan->order;
}

/* 0: its numbers are too large. */
static int look_at(Engine *engine, const Plan *plan, const char *memory, Measured *found)
{
    found->is_sketched = may_sketch(engine, plan);
    found->order = plan->order;
    if (found->is_sketched)
        return tally_and_sketch(&plan->layout, &plan->order, memory, &found->tally, &found->sketch);
    return tally_memory(&plan->layout, memory, &found->tally);
}

enum { MEASURED_HERE, LEFT_TO_PYTHON, ERROR };
enum { IN_OTHER_ORDER = 2 };

static Measured measured_at(uintptr_t address, const Plan *plan, int64_t version, int64_t row)
{
    return (Measured){
        address, shown_count(plan), version, row, plan->layout.kind,
        plan->layout.is_dense && plan->layout.repeats == 1,
    };
}

/* Remember what was found in a tensor; its `batch` is taken over. */
static void remember(Engine *engine, PyObject *tensor, Measured found)
{
    found.ref = PyWeakref_NewRef(tensor, NULL);
    PyObject *ref = found.ref, *batch = found.batch;
    if (engine->measuring != NULL) { /* other threads may have run: nothing from before is used */
        Measured *known = place_for(engine->measuring, &found);
        ref = known->ref;
        batch = known->batch;
        *known = found;
    }
    Py_XDECREF(ref);
    Py_XDECREF(batch);
}

static int measure_memory(Engine *engine, PyObject *tensor, int64_t number, const Plan *plan, uintptr_t address,
                          int64_t version, int64_t row)
{
    Measured found = measured_at(address, plan, version, row);
    if (!look_at(engine, plan, (const char *)address, &found))
        return LEFT_TO_PYTHON;
    remember(engine, tensor, found);
    return write_found(engine, number, &found) < 0 ? ERROR : MEASURED_HERE;
}

/* What the kernel has to find of numbers that are known in another order (sketch.cu): all where nothing helps. */
static uint32_t wanted_of(const Order *known, const Order *order)
{
    enum { ALL, ONLY_AXES, ONLY_FLAT };
    if (known->is_contiguous && order->is_contiguous)
        return ONLY_AXES;
    int found = known->dimensions == order->dimensions;
    unsigned taken = 0;
    for (int axis = 0; found && axis < order->dimensions; axis++) { /* the same axes, each once */
        found = 0;
        for (int other = 0; !found && other < known->dimensions; other++)
            if (!(taken >> other & 1) && known->sizes[other] == order->sizes[axis] && known->steps[other] == order->steps[axis]) {
                taken |= 1u << other;
                found = 1;
            }
    }
    return found ? ONLY_FLAT : ALL;
}

/* `known`: what was found in the same numbers before, or NULL. */
static int launch_kernel(Engine *engine, PyObject *tensor, int64_t number, const Plan *plan, uintptr_t address,
                         int64_t version, int64_t row, const Measured *known)
{
    DeviceRun run = {
        plan->device, plan->function, (int64_t)address, plan->layout.count, plan->run, plan->pitch, plan->share, plan->most,
        plan->has_device_order ? plan->device_order : NULL,
    };
    if (known != NULL && known->is_sketched && (run.wanted = wanted_of(&known->order, &plan->order)) != 0) {
        run.known = known->batch;
        run.known_row = known->batch_row;
    }
    Measured found = measured_at(address, plan, version, row);
    found.is_sketched = plan->has_device_order;
    found.order = plan->order;
    if (engine->asks || plan->layout.repeats != 1 || (plan->pitch && address % 16) || (engine->sketched != NULL) != plan->has_device_order)
        return LEFT_TO_PYTHON; /* which waits for it; or what is wanted has changed since the plan was made */
    Py_XINCREF(run.known); /* other threads may run meanwhile */
    int done = measure_on_device(engine, &run, number, &found.batch, &found.batch_row);
    Py_XDECREF(run.known);
    if (done <= 0)
        return done < 0 ? ERROR : LEFT_TO_PYTHON;
    remember(engine, tensor, found);
    return MEASURED_HERE;
}

/* What was measured at the same place shows the same numbers: 1 taken over, IN_OTHER_ORDER not, but it does; 0 no, -1
 * error. */
static int take_over(Engine *engine, int64_t number, const Plan *plan, uintptr_t address, int64_t version, int64_t row)
{
    const Measured *known = place_at(engine->measuring, address, plan);
    if (known == NULL || (plan->way == ON_DEVICE) != (known->batch != NULL) || !shows_the_same(known, address, plan, version, row))
        return 0;
    if (plan->way == ON_DEVICE && engine->sketched != NULL && !(known->is_sketched && is_same_order(&known->order, &plan->order)))
        return IN_OTHER_ORDER;
    if (plan->way == ON_DEVICE)
        return measured_with(known->batch, number, known->batch_row);
    Measured found = *known; /* references of it are not used */
    add_sketch(engine, plan, address, &found);
    return write_found(engine, number, &found) < 0 ? -1 : 1;
}

static int write_kept(Engine *engine, int64_t number, const int64_t words[4])
{
    ValueFields *fields = engine->kept_places;
    int64_t place = number * KEPT_BYTES + fields->shift;
    if (fields->has_view && number >= fields->first && number < fields->end && place >= 0
        && place + KEPT_BYTES <= fields->view.len) {
        volatile int64_t *entry = (volatile int64_t *)(fields->memory + place);
        for (int at = 0; at < 4; at++)
            entry[at] = words[at]; /* the last one says that the others are there */
        return 0;
    }
    PyObject *done = PyObject_CallMethod((PyObject *)fields, "write", "LLLLL", (long long)number, (long long)words[0],
                                         (long long)words[1], (long long)words[2], (long long)words[3]);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int left_to_saver(Engine *engine, PyObject *tensor, int64_t value)
{
    PyObject *done = PyObject_CallMethod(engine->measurer, "keep", "OL", tensor, (long long)value);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Keep what a tensor holds that was measured in this machine's memory. */
static int keep_memory(Engine *engine, PyObject *tensor, int64_t value, const Plan *plan, uintptr_t address)
{
    int64_t words[4], offset = ask(torch.storage_offset, tensor);
    if (offset == FAILED)
        return -1;
    const Layout *layout = &plan->layout;
    const Shown shown = {
        value & NUMBER_MASK, address - (uintptr_t)(offset * plan->item), (const char *)address, layout->span * plan->item,
        plan->item, layout->span > 2 * layout->count,
    };
    PyObject *saved = Py_NewRef(engine->saved); /* other threads may run meanwhile, and end the recording */
    const int done = save_bytes((SavedBytes *)saved, &shown, words);
    Py_DECREF(saved);
    if (done < 0 || engine->saved == NULL)
        return done < 0 ? -1 : 0;
    if (done == KEPT)
        return write_kept(engine, value & NUMBER_MASK, words);
    return done == KEPT_ELSEWHERE ? left_to_saver(engine, tensor, value) : 0;
}

/* The version that a tensor has, or will have: autograd has yet to say that what an op gave is a view of what it took. */
static int version_to_be(PyObject *tensor, uintptr_t address, PyObject *made_from, int64_t *version)
{
    if (version_of(tensor, version) < 0)
        return -1;
    if (*version || made_from == NULL || (Py_TYPE(made_from) != torch.Tensor && Py_TYPE(made_from) != torch.Parameter))
        return 0;
    const int64_t there = ask(torch.data_ptr, made_from);
    return there == FAILED || ((uintptr_t)there == address && version_of(made_from, version) < 0) ? -1 : 0;
}

static int measure_here(Engine *engine, PyObject *tensor, int64_t value, int changed, PyObject *made_from)
{
    const int64_t number = value & NUMBER_MASK, row = value >> NUMBER_BITS;
    Plan plan;
    int64_t version;
    if (plan_of(engine, tensor, row, &plan) < 0 || plan.way == BY_PYTHON)
        return PyErr_Occurred() ? ERROR : LEFT_TO_PYTHON;
    int is_negated = is_set(plan.layout.parts > 1 ? torch.is_conj : torch.is_neg, tensor);
    if (is_negated == 0 && plan.layout.parts > 1)
        is_negated = is_set(torch.is_neg, tensor);
    int64_t address = is_negated ? FAILED : ask(torch.data_ptr, tensor);
    if (is_negated || address == FAILED || address == 0 || version_to_be(tensor, (uintptr_t)address, made_from, &version) < 0)
        return LEFT_TO_PYTHON;
    int taken = changed || engine->measuring == NULL ? 0 : take_over(engine, number, &plan, (uintptr_t)address, version, row);
    if (taken < 0)
        return ERROR;
    int way = MEASURED_HERE;
    if (taken != 1) {
        if (is_there(tensor, &plan) <= 0)
            return LEFT_TO_PYTHON;
        const Measured *known = taken == IN_OTHER_ORDER ? place_at(engine->measuring, (uintptr_t)address, &plan) : NULL;
        way = plan.way == ON_DEVICE
                  ? launch_kernel(engine, tensor, number, &plan, (uintptr_t)address, version, row, known)
                  : measure_memory(engine, tensor, number, &plan, (uintptr_t)address, version, row);
    }
    if (way != MEASURED_HERE || engine->saved == NULL)
        return way;
    const int kept = plan.way == HERE ? keep_memory(engine, tensor, value, &plan, (uintptr_t)address)
                                      : left_to_saver(engine, tensor, value);
    return kept < 0 ? ERROR : MEASURED_HERE;
}

/* A value that an event takes or gives; `made_from`: what an op that gave it took first, or NULL. */
static int measure_value(Engine *engine, PyObject *tensor, int64_t value, PyObject *made_from)
{
    int64_t number = value & NUMBER_MASK;
    int done = is_done(engine, number);
    if (done != 0)
        return done < 0 ? -1 : 0;
    int changed = has_changed(engine, tensor, number), way = LEFT_TO_PYTHON;
    if (Py_TYPE(tensor) == torch.Tensor || Py_TYPE(tensor) == torch.Parameter)
        way = measure_here(engine, tensor, value, changed, made_from);
    if (way != LEFT_TO_PYTHON)
        return way == ERROR ? -1 : 0;
    if (PyErr_Occurred() && let_go(engine) < 0) /* this tensor refused something */
        return -1;
    engine->is_alarmed |= engine->asks;
    PyObject *answer =
        PyObject_CallMethod(engine->measurer, "measure", "OLO", tensor, (long long)number, changed ? Py_True : Py_False);
    Py_XDECREF(answer);
    if (answer == NULL)
        return -1;
    return engine->saved == NULL ? 0 : left_to_saver(engine, tensor, value);
}

/* All tensors in an argument or a result; Python knows of more containers. */
static int measure_all(Engine *engine, PyObject *item, int from_op, PyObject *made_from, int depth)
{
    PyTypeObject *cls = Py_TYPE(item);
    if (cls == torch.Tensor || cls == torch.Parameter) {
        int64_t value = from_op ? made_value(engine, item) : plain_value_of(engine, item);
        return value == FAILED ? -1 : measure_value(engine, item, value, made_from);
    }
    if (cls == &PyLong_Type || cls == &PyFloat_Type || cls == &PyBool_Type || cls == &PyUnicode_Type || item == Py_None
        || (PyObject *)cls == torch.size_type)
        return 0;
    if ((cls == &PyTuple_Type || cls == &PyList_Type) && depth < DEEPEST) {
        for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(item); at++) { /* a list may be changed meanwhile */
            PyObject *each = Py_NewRef(PySequence_Fast_GET_ITEM(item, at));
            int done = measure_all(engine, each, from_op, made_from, depth + 1);
            Py_DECREF(each);
            if (done < 0)
                return -1;
        }
        return 0;
    }
    PyObject *done = PyObject_CallMethod(engine->measurer, "walk", "OO", item, from_op ? Py_True : Py_False);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* A fault of ours costs what it was about; what is the program's own goes on. */
static int forgiven(Engine *engine, int done)
{
    return done < 0 ? forgive(engine) : 0;
}

static int answered(PyObject *answer)
{
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* Where the answer for a record is kept, or will be; NULL: it is to be asked for. */
static struct Choice *choice_of(Engine *engine, Log *log, int64_t record)
{
    const int64_t *words = engine->chooses < BY_PLACE ? NULL : record_at(log, record);
    if (words == NULL || (engine->choices == NULL && (engine->choices = PyMem_Calloc(CHOICES, sizeof *engine->choices)) == NULL))
        return NULL;
    struct Choice wanted = {words[WHAT], NONE, engine->chooses == BY_PLACE ? words[STACK] : 0, 0};
    while (words[WHAT] >= 0 && words[PARENT] != NONE)
        if ((words = record_at(log, words[PARENT])) == NULL)
            return NULL;
    if (words[WHAT] < 0)
        wanted.module = words[WHAT];
    const uint64_t mixed = ((uint64_t)wanted.what * 31 + (uint64_t)wanted.module * 131 + (uint64_t)wanted.stack) * 0x9E3779B97F4A7C15u;
    struct Choice *found = &engine->choices[mixed >> 52];
    if (found->what != wanted.what || found->module != wanted.module || found->stack != wanted.stack)
        *found = wanted;
    return found;
}

/* 0: nobody wants what this event takes and gives; -1: error. */
static int is_meant(Engine *engine, Log *log, int64_t record)
{
    if (engine->chooses == ALL_ARE_MEANT)
        return 1;
    struct Choice *known = choice_of(engine, log, record);
    if (known != NULL && known->answer)
        return known->answer > 1;
    PyObject *answer = PyObject_CallMethod(engine->measurer, "means", "OL", log, (long long)record);
    const int meant = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    known = meant < 0 ? NULL : choice_of(engine, log, record); /* others may have come meanwhile */
    if (known != NULL)
        known->answer = (char)(1 + meant);
    return meant;
}

/* Tell of what is not finite: then the program may be stopped. */
static int tell_alarm(Engine *engine)
{
    if (!engine->asks || !engine->is_alarmed)
        return 0;
    PyObject *is_sure = engine->is_alarmed > 1 ? Py_True : Py_False;
    engine->is_alarmed = 0;
    return answered(PyObject_CallMethod(engine->measurer, "raise_alarm", "O", is_sure));
}

int measure_taken(Engine *engine, Log *log, int64_t record, PyObject *const *args, Py_ssize_t count, PyObject *kwargs)
{
    if (!engine->measures) {
        PyObject *packed = pack(args, count);
        int done = packed == NULL ? -1
                                  : answered(PyObject_CallMethod(engine->measurer, "took", "OLOO", log, (long long)record,
                                                                 packed, kwargs == NULL ? Py_None : kwargs));
        Py_XDECREF(packed);
        return done;
    }
    const int meant = is_meant(engine, log, record);
    if (meant <= 0)
        return forgiven(engine, meant);
    int done = 0;
    for (Py_ssize_t at = 0; done == 0 && at < count && engine->measurer != NULL; at++)
        done = measure_all(engine, args[at], 0, NULL, 0);
    PyObject *name, *item;
    Py_ssize_t at = 0;
    while (done == 0 && kwargs != NULL && engine->measurer != NULL && PyDict_Next(kwargs, &at, &name, &item)) {
        Py_INCREF(item);
        done = measure_all(engine, item, 0, NULL, 0);
        Py_DECREF(item);
    }
    return forgiven(engine, done);
}

int measure_given(Engine *engine, Log *log, int64_t at, PyObject *result, int from_op)
{
    if (engine->measures) {
        const int meant = is_meant(engine, log, at);
        const int done = meant <= 0 ? meant : measure_all(engine, result, from_op, log->made_from, 0);
        return forgiven(engine, done == 0 && engine->measurer != NULL ? tell_alarm(engine) : done);
    }
    if (Py_TYPE(result) == torch.Tensor) {
        int64_t value = from_op ? made_value(engine, result) : plain_value_of(engine, result);
        if (value == FAILED)
            return -1;
        return answered(PyObject_CallMethod(engine->measurer, "gave", "OLOL", log, (long long)at, result,
                                            (long long)value));
    }
    return answered(PyObject_CallMethod(engine->measurer, "gave_several", "OLOO", log, (long long)at, result,
                                        from_op ? Py_True : Py_False));
}

/* see(tensor, value) → value: what Python's walk through other containers finds. */
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
