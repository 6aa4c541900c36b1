/* Makes sketches: content fingerprints, by which the same numbers are recognized
 * (statistics/sketch.py is the definition).
 *
 * A sketch has a hash of the bits, sums with weights by the place in the flat order, sums with
 * weights by the place on each axis, and sums without weights. The numbers are taken in their
 * logical order, some blocks of 1,024 at a time, so that they stay in a near cache while all sums
 * are made. They are read in place, or gathered first. The kernels are in sums.c, sums_avx2.c and
 * hash.c.
 */
#include "fast.h"
#include "sums.h"
#include <math.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#define PIECE (8 * BLOCK) /* numbers that are gathered or widened together … */
#define LARGE_PIECE                                                                                \
    (16 * BLOCK) /* … and those that are read where they lie, before the next sums are made of   \
                    them */
#define TILE 16  /* elements of a row that are gathered before those of the next row */
#define MODEST                                                                                     \
    20 /* numbers with a smaller exponent are summed as they are, others are scaled first */
#define LARGE_ENOUGH (1 << 16) /* elements that are worth letting other threads run meanwhile */

typedef struct {
    double flat[2 * LANES], axes[2 * LANES];               /* folded to PRIME at the end */
    double sum, squares, sizes, cubes, fourths, low, high; /* `sizes`: of absolute values */
    int64_t odd; /* numbers that are not finite or too large, which are in no sum */
} Sums;

/* Return whether float32 holds all numbers of this kind exactly. */
static int is_narrow(int kind)
{
    return kind != F8 && kind < I4;
}

/* The place of the next number: its index on each axis, the last one innermost. */
typedef struct {
    int count;
    int64_t sizes[MOST_AXES + 1], index[MOST_AXES + 1];
    double factor; /* product of the weights of all axes but the last two */
    int shift;     /* sum of their shifts: which of the PRIME sums a number is added to */
} Place;

/* Compute factor and shift of the axes but the last two, whose indices seldom change. */
static void weigh(Place *place)
{
    place->factor = 1.0;
    place->shift = 0;
    for (int axis = 0; axis < place->count - 2; axis++) {
        const int64_t at = place->index[axis];
        place->factor *= wide_weights[at % BLOCK] * block_weight(at / BLOCK);
        place->shift = (int)((place->shift + at % LANES + at / BLOCK) % PRIME);
    }
}

static void begin_place(Place *place, const Order *order)
{
    *place = (Place){0};
    for (int axis = 0; axis < order->dimensions; axis++)
        place->sizes[place->count++] = order->sizes[axis];
    if (order->parts > 1)
        place->sizes[place->count++] = order->parts;
    if (place->count == 0)
        place->sizes[place->count++] = 1;
    weigh(place);
}

/* Move on by some rows, at most to the end of the last axis but one. */
static void next_rows(Place *place, int64_t rows)
{
    int axis = place->count - 2;
    place->index[axis + 1] = 0;
    if (axis < 0 || (place->index[axis] += rows) < place->sizes[axis])
        return;
    while (axis >= 0 && place->index[axis] == place->sizes[axis]) {
        place->index[axis] = 0;
        if (--axis >= 0)
            place->index[axis]++;
    }
    weigh(place);
}

static int64_t least(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

/* Add numbers that follow each other to the sums with the weights of the axes. */
static void add_axes(Sums *sums, Place *place, const void *numbers, int count, int is_wide,
                     const SumKernels *kernels)
{
    const int last = place->count - 1;
    for (int done = 0; done < count;) {
        const int64_t at = place->index[last];
        const int64_t size = place->sizes[last];
        const int64_t block = at / BLOCK;
        const int64_t above_at = last ? place->index[last - 1] : 0;
        int64_t rows = 1;
        int64_t run = least(least(count - done, size - at), BLOCK - at % BLOCK);
        if (at == 0 && run == size
            && last) /* whole rows, as far as they go on in one block of weights above */
            rows = least(least((count - done) / size, place->sizes[last - 1] - above_at),
                         BLOCK - above_at % BLOCK);
        OuterPosition above = {place->factor * block_weight(block), above_at,
                               (int)((place->shift + block) % PRIME), last > 0};
        if (last) {
            above.factor *= block_weight(above_at / BLOCK);
            above.shift = (int)((above.shift + above_at / BLOCK) % PRIME);
        }
        const int lane = (int)(at % LANES);
        double found[2 * LANES], *to = sums->axes;
        /* the run does not begin at the first lane: its sums are moved by so many lanes below */
        if (lane) {
            memset(found, 0, sizeof found);
            to = found;
            above.factor *= last ? wide_weights[above_at % BLOCK] : 1.0;
            above.has_axis = 0;
        }
        const int shift = above.shift + (lane && last ? (int)(above_at % LANES) : 0);
        if (lane)
            above.shift = 0;
        if (is_wide)
            kernels->doubles_rows((const double *)numbers + done, wide_weights + at % BLOCK,
                                  (int)run, (int)rows, &above, to);
        else
            kernels->floats_rows((const float *)numbers + done, weights + at % BLOCK, (int)run,
                                 (int)rows, &above, to);
        for (int each = 0; lane && each < LANES; each++)
            sums->axes[shift % PRIME + (lane + each) % LANES] += found[each];
        done += (int)(run * rows);
        place->index[last] += run;
        if (place->index[last] == size)
            next_rows(place, rows);
    }
}

static void add_block(Sums *sums, const double lanes[LANES], const double powers[3], int64_t block)
{
    const double factor = block_weight(block);
    double *flat = sums->flat + block % PRIME;
    for (int lane = 0; lane < LANES; lane++)
        flat[lane] += lanes[lane] * factor;
    sums->sizes += powers[0];
    sums->cubes += powers[1];
    sums->fourths += powers[2];
}

/* Undo the scaling: the sums are of numbers that were divided by 2^exponent. */
static void scale_back(Sums *sums, int exponent)
{
    for (int at = 0; at < 2 * LANES; at++)
        sums->flat[at] = ldexp(sums->flat[at], exponent);
    sums->sizes = ldexp(sums->sizes, exponent);
    sums->cubes = ldexp(sums->cubes, 3 * exponent);
    sums->fourths = ldexp(sums->fourths, 4 * exponent);
}

/* Add numbers that float32 holds, in whole blocks but for the last one. They are scaled by
 * 2^-exponent. If `hash` is not NULL their bits are hashed, too. */
static void add_floats(Sums *sums, const float *numbers, int count, int64_t block, int exponent,
                       int processor, Hash *hash)
{
    const SumKernels *kernels = &KERNELS_OF[processor];
    double lanes[LANES], powers[3];
    const float scale = ldexpf(1.0f, -exponent);
    for (int at = 0; at < count; at += BLOCK, block++) {
        float padded[BLOCK] __attribute__((aligned(64)));
        const float *whole = numbers + at;
        const int size = count - at < BLOCK ? count - at : BLOCK;
        if (hash != NULL && size == BLOCK && !exponent && kernels->hashed_block != NULL) {
            kernels->hashed_block(whole, hash, lanes, powers);
            add_block(sums, lanes, powers, block);
            continue;
        }
        if (hash != NULL)
            add_to_hash(hash, (const char *)whole, (int64_t)size * WIDTHS[F4], processor);
        const int filled = (size + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
        if (filled != size) {
            memcpy(padded, whole, (size_t)size * sizeof(float));
            memset(padded + size, 0, (size_t)(filled - size) * sizeof(float));
            whole = padded;
        }
        (exponent ? kernels->floats_scaled : kernels->floats_block)(whole, filled, scale, lanes,
                                                                    powers);
        add_block(sums, lanes, powers, block);
    }
}

/* Add numbers as doubles. Odd numbers are replaced by 0. After the last number there must be room
 * for padding. */
static void add_doubles(Sums *sums, double *numbers, int count, int64_t block,
                        const SumKernels *kernels)
{
    double lanes[LANES], powers[3];
    for (int at = 0; at < count; at++) {
        const double x = numbers[at];
        if (!(fabs(x) <= LARGEST)) {
            numbers[at] = 0.0;
            sums->odd++;
            continue;
        }
        sums->sum += x;
        sums->squares += x * x;
        sums->low = x < sums->low ? x : sums->low;
        sums->high = x > sums->high ? x : sums->high;
    }
    for (int at = count; at % (2 * LANES); at++)
        numbers[at] = 0.0;
    for (int at = 0; at < count; at += BLOCK, block++) {
        const int size = count - at < BLOCK ? count - at : BLOCK;
        kernels->doubles_block(numbers + at, (size + 2 * LANES - 1) / (2 * LANES) * (2 * LANES),
                               1.0, lanes, powers);
        add_block(sums, lanes, powers, block);
    }
}

/* Gather rows in squares of four by four, and return how many rows were done: the last ones may be
 * left. */
static int64_t gather_squares(uint32_t *to, const char *from, int64_t size, int64_t step,
                              int64_t rows)
{
#if defined(__x86_64__) && defined(__GNUC__)
    const int64_t whole = rows / 4 * 4;
    const int64_t wide = size / 4 * 4;
    for (int64_t at = 0; at < wide; at += 4)
        for (int64_t row = 0; row < whole; row += 4) {
            __m128 square[4];
            for (int each = 0; each < 4; each++)
                square[each] = _mm_loadu_ps((const float *)(from + (at + each) * step) + row);
            _MM_TRANSPOSE4_PS(square[0], square[1], square[2], square[3]);
            for (int each = 0; each < 4; each++)
                _mm_storeu_ps((float *)to + (row + each) * size + at, square[each]);
        }
    for (int64_t row = 0; row < whole; row++)
        for (int64_t at = wide; at < size; at++)
            to[row * size + at] = ((const uint32_t *)(from + at * step))[row];
    return whole;
#else
    return 0;
#endif
}

/* Gather rows of a transposed matrix. Neighbours in memory belong to different rows, so all rows
 * are filled together, a tile of each in turn; otherwise each element would load a cache line of
 * its own. */
static void gather_rows(char *to, const char *from, int64_t size, int64_t step, int64_t rows,
                        size_t item)
{
#define GATHER_ROWS(type)                                                                          \
    case sizeof(type):                                                                             \
        for (int64_t begin = 0; begin < size; begin += TILE) {                                     \
            const int64_t end = begin + TILE < size ? begin + TILE : size;                         \
            for (int64_t row = 0; row < rows; row++)                                               \
                for (int64_t at = begin; at < end; at++)                                           \
                    ((type *)to)[row * size + at] = ((const type *)(from + at * step))[row];       \
        }                                                                                          \
        break;
    if (item == sizeof(uint32_t)) {
        const int64_t done = gather_squares((uint32_t *)to, from, size, step, rows);
        to += (size_t)(done * size) * item;
        from += (size_t)done * item;
        rows -= done;
    }
    switch (item) {
        GATHER_ROWS(uint8_t) GATHER_ROWS(uint16_t) GATHER_ROWS(uint32_t) GATHER_ROWS(uint64_t)
    }
}

/* How many rows can be gathered like this from here on. */
static int64_t transposed_rows(const Order *order, const int64_t index[MOST_AXES], int64_t count)
{
    const int last = order->dimensions - 1;
    if (last < 1 || order->item > 8 || index[last] || order->steps[last - 1] != order->item
        || order->steps[last] == order->item)
        return 0;
    const int64_t rows =
        least(count / order->sizes[last], order->sizes[last - 1] - index[last - 1]);
    return rows > 1 ? rows : 0;
}

/* Copy the next elements in their logical order, so that they lie side by side. */
static void gather_next(const Order *order, const char *memory, int64_t index[MOST_AXES], char *to,
                        int count)
{
    const int last = order->dimensions - 1;
    const size_t item = (size_t)order->item;
    while (count > 0) {
        const char *from = memory;
        for (int axis = 0; axis <= last; axis++)
            from += index[axis] * order->steps[axis];
        int64_t run = order->sizes[last] - index[last];
        run = run < count ? run : count;
        const int64_t rows = transposed_rows(order, index, count);
        if (rows) {
            gather_rows(to, from, run, order->steps[last], rows, item);
            index[last - 1] += rows - 1; /* and one by the end of the row */
            to += (size_t)((rows - 1) * run) * item;
            count -= (int)((rows - 1) * run);
        } else if (order->steps[last] == (int64_t)item)
            memcpy(to, from, (size_t)run * item);
        else
            gather_elements(to, from, run, order->steps[last], item);
        to += (size_t)run * item;
        count -= (int)run;
        index[last] += run;
        for (int axis = last; axis >= 0 && index[axis] == order->sizes[axis]; axis--) {
            index[axis] = 0;
            if (axis)
                index[axis - 1]++;
        }
    }
}

/* Return the exponent by which numbers are scaled, so that float32 holds their fourth power. */
static int exponent_of(const Tally *tally)
{
    int exponent = 0;
    const double largest = fmax(fabs(tally->low), fabs(tally->high));
    if (tally->finite && largest > 0.0)
        frexp(largest, &exponent);
    if (-MODEST < exponent && exponent < MODEST)
        return 0; /* float32 holds the fourth power as it is */
    return exponent < -120 ? -120 : exponent;
}

/* Fold sums in lanes to PRIME sums. */
static void fold(const double lanes[2 * LANES], float to[PRIME])
{
    for (int at = 0; at < PRIME; at++)
        to[at] = (float)(lanes[at] + (at + PRIME < 2 * LANES ? lanes[at + PRIME] : 0.0));
}

/* Convert numbers to floats, and odd ones to 0. */
static void add_narrow(Sums *sums, int kind, const char *from, int count, int is_odd, float *to)
{
    for (int at = 0; at < count; at += BLOCK)
        as_floats(kind, from + (int64_t)at * WIDTHS[kind], count - at < BLOCK ? count - at : BLOCK,
                  to + at);
    for (int at = 0; is_odd && at < count; at++)
        if (!(fabsf(to[at]) <= (float)LARGEST)) {
            to[at] = 0.0f;
            sums->odd++;
        }
}

/* Take the sums that follow from others: from those of the flat order, and from the tally. */
static void derive_sums(Sums *sums, const Tally *tally, int axes)
{
    if (axes == 1) /* the flat order is that of the one axis */
        memcpy(sums->axes, sums->flat, sizeof sums->axes);
    if (tally == NULL || !tally->finite)
        return;
    sums->sum = tally->mean * (double)tally->finite;
    sums->squares = tally->squares + sums->sum * tally->mean;
    sums->low = tally->low;
    sums->high = tally->high;
}

/* Make all sums of a tensor; with `hash` NULL only those of the axes. */
static void sketch_pieces(const Order *order, const char *memory, const Tally *tally, Sums *sums,
                          Hash *hash)
{
    _Alignas(64) char gathered[PIECE * 8];
    _Alignas(64) double wide[PIECE + 2 * LANES];
    const int processor = used_processor();
    const int exponent = exponent_of(tally);
    const int is_odd = tally->finite != tally->count;
    const int is_wide = !is_narrow(order->kind)
                        || (tally->finite && (tally->low < -LARGEST || tally->high > LARGEST));
    const int is_read_there = order->is_contiguous && order->kind == F4 && !is_wide && !is_odd;
    const int numbers = (is_read_there ? LARGE_PIECE : PIECE) / order->parts;
    const SumKernels *kernels = &KERNELS_OF[processor];
    Place place;
    int64_t index[MOST_AXES] = {0}, block = 0;
    begin_place(&place, order);
    for (int64_t at = 0; at < order->count;
         at += numbers, block += numbers * order->parts / BLOCK) {
        const int elements = (int)least(order->count - at, numbers);
        const int count = elements * order->parts;
        const char *from = memory + at * order->item;
        const void *read = from;
        if (!order->is_contiguous) {
            gather_next(order, memory, index, gathered, elements);
            read = from = gathered;
        }
        if (hash != NULL && !is_read_there)
            add_to_hash(hash, from, (int64_t)elements * order->item, processor);
        if (is_wide) {
            for (int each = 0; each < count; each += BLOCK)
                as_doubles(order->kind, from + (int64_t)each * WIDTHS[order->kind],
                           count - each < BLOCK ? count - each : BLOCK, wide + each);
            add_doubles(sums, wide, count, block, kernels);
            read = wide;
        } else {
            if (!is_read_there && (order->kind != F4 || is_odd)) {
                add_narrow(sums, order->kind, from, count, is_odd, (float *)wide);
                read = wide;
            }
            if (hash != NULL)
                add_floats(sums, read, count, block, exponent, processor,
                           is_read_there ? hash : NULL);
        }
        if (place.count > 1)
            add_axes(sums, &place, read, count, is_wide, kernels);
    }
    if (!is_wide)
        scale_back(sums, exponent);
    derive_sums(sums, is_wide ? NULL : tally, place.count);
}

/* Let the processor round numbers too small for float32 to 0, since powers of them take a hundred
 * times as long. Return the setting before. */
static unsigned flush_small(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8000);
    return before;
#else
    return 0;
#endif
}

static void restore_small(unsigned before)
{
#if defined(__x86_64__) && defined(__GNUC__)
    _mm_setcsr(before);
#endif
}

/* Release the lock of Python if this takes a while. */
static void sketch_unlocked(const Order *order, const char *memory, const Tally *tally, Sums *sums,
                            Hash *hash)
{
    make_weights();
    PyThreadState *saved = order->count > LARGE_ENOUGH ? PyEval_SaveThread() : NULL;
    const unsigned before = flush_small();
    sketch_pieces(order, memory, tally, sums, hash);
    restore_small(before);
    if (saved != NULL)
        PyEval_RestoreThread(saved);
}

static void finish(const Order *order, const Sums *sums, const Hash *hash, Sketch *sketch)
{
    *sketch = (Sketch){.hash = finished_hash(hash, order->count * order->item), .odd = sums->odd};
    fold(sums->flat, sketch->flat);
    fold(sums->axes, sketch->axes);
    const double orders[7] = {
        sums->sum, sums->squares, sums->sizes, sums->cubes, sums->fourths, sums->low, sums->high,
    };
    memcpy(sketch->orders, orders, sizeof orders);
    if (!(sums->low <= sums->high))
        sketch->orders[5] = sketch->orders[6] = 0.0;
}

void sketch_memory(const Order *order, const char *memory, const Tally *tally, Sketch *sketch)
{
    Sums sums = {.low = INFINITY, .high = -INFINITY};
    Hash hash = {0};
    sketch_unlocked(order, memory, tally, &sums, &hash);
    finish(order, &sums, &hash, sketch);
}

/* Tally and sketch contiguous float32 in one pass. 0: some number is odd, and nothing of this
 * counts. */
static int tally_and_sketch_once(const Order *order, const char *memory, Tally *tally, Sums *sums,
                                 Hash *hash)
{
    const int processor = used_processor();
    const int numbers = LARGE_PIECE / order->parts;
    const SumKernels *kernels = &KERNELS_OF[processor];
    Place place;
    int64_t block = 0;
    begin_place(&place, order);
    for (int64_t at = 0; at < order->count; at += numbers, block += LARGE_PIECE / BLOCK) {
        const int count = (int)least(order->count - at, numbers) * order->parts;
        const char *from = memory + at * order->item;
        Tally piece = {0};
        tally_run(&piece, order->kind, from, count);
        if (piece.finite != count || piece.low < -LARGEST || piece.high > LARGEST)
            return 0;
        join_tallies(tally, &piece);
        Sums part = {0};
        const int exponent = exponent_of(&piece);
        add_floats(&part, (const float *)from, count, block, exponent, processor, hash);
        scale_back(&part, exponent);
        for (int each = 0; each < 2 * LANES; each++)
            sums->flat[each] += part.flat[each];
        sums->sizes += part.sizes;
        sums->cubes += part.cubes;
        sums->fourths += part.fourths;
        if (place.count > 1)
            add_axes(sums, &place, from, count, 0, kernels);
    }
    derive_sums(sums, tally, place.count);
    return 1;
}

int tally_and_sketch(const Layout *layout, const Order *order, const char *memory, Tally *tally,
                     Sketch *sketch)
{
    const int is_beyond_cache =
        order->is_contiguous && order->kind == F4 && order->count * order->parts > 4 * LARGE_PIECE;
    if (is_beyond_cache && layout->repeats == 1) {
        Sums sums = {.low = INFINITY, .high = -INFINITY};
        Hash hash = {0};
        make_weights();
        *tally = (Tally){0};
        PyThreadState *saved = PyEval_SaveThread();
        const unsigned before = flush_small();
        const int is_done = tally_and_sketch_once(order, memory, tally, &sums, &hash);
        restore_small(before);
        PyEval_RestoreThread(saved);
        if (is_done) {
            finish(order, &sums, &hash, sketch);
            return 1;
        }
    }
    if (!tally_memory(layout, memory, tally))
        return 0;
    sketch_memory(order, memory, tally, sketch);
    return 1;
}

void sketch_axes(const Order *order, const char *memory, const Tally *tally, Sketch *sketch)
{
    if (order->dimensions + (order->parts > 1) <= 1) { /* the flat order is that of the one axis */
        memcpy(sketch->axes, sketch->flat, sizeof sketch->axes);
        return;
    }
    Sums sums = {.low = INFINITY, .high = -INFINITY};
    sketch_unlocked(order, memory, tally, &sums, NULL);
    fold(sums.axes, sketch->axes);
}

int is_same_order(const Order *one, const Order *other)
{
    const size_t used = (size_t)one->dimensions * sizeof(int64_t);
    return one->kind == other->kind && one->parts == other->parts
           && one->dimensions == other->dimensions && memcmp(one->sizes, other->sizes, used) == 0
           && memcmp(one->steps, other->steps, used) == 0;
}

/* (code, parts, bytes of an element, ((size, step), …)) in their logical order, without sizes of
 * one; steps in bytes. */
int read_order(PyObject *described, Order *order)
{
    const char *code;
    PyObject *sizes;
    if (!PyArg_ParseTuple(described, "siiO!", &code, &order->parts, &order->item, &PyTuple_Type,
                          &sizes))
        return -1;
    order->kind = kind_of(code);
    order->dimensions = (int)PyTuple_GET_SIZE(sizes);
    if (order->kind < 0 || order->dimensions > MOST_AXES || order->parts < 1 || order->parts > 2
        || order->item < 1 || order->item > 16)
        return PyErr_SetString(PyExc_ValueError, "an order that is not known"), -1;
    order->count = order->is_contiguous = 1;
    for (int axis = order->dimensions - 1; axis >= 0; axis--) {
        long long size, step;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sizes, axis), "LL", &size, &step))
            return -1;
        order->sizes[axis] = size;
        order->steps[axis] = step;
        order->is_contiguous &= step == order->count * order->item;
        order->count *= size;
    }
    return 0;
}

/* sketch(address, order, (count, finite, low, high, mean, squares)) → its bytes, as they stand in
 * the journal. */
PyObject *sketch_at(PyObject *module, PyObject *args)
{
    unsigned long long address;
    PyObject *described;
    Order order;
    Tally tally = {0};
    Sketch sketch;
    long long count, finite;
    if (!PyArg_ParseTuple(args, "KO!(LLdddd)", &address, &PyTuple_Type, &described, &count, &finite,
                          &tally.low, &tally.high, &tally.mean, &tally.squares)
        || read_order(described, &order) < 0)
        return NULL;
    tally.count = count;
    tally.finite = finite;
    sketch_memory(&order, (const char *)(uintptr_t)address, &tally, &sketch);
    return PyBytes_FromStringAndSize((const char *)&sketch, sizeof sketch);
}
