/* By what numbers are known again (statistics/sketch.py is the definition): a hash of the bits, sums with weights by
 * place in the flat order, sums with weights by place on each axis, and sums that do not ask for the place.
 *
 * Numbers come in their logical order, some blocks of 1,024 at a time, read where they lie or gathered; a piece stays in a
 * near cache for all that is asked of it.
 */
#include "fast.h"
#include "sums.h"
#include <math.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#define PIECE (8 * BLOCK) /* numbers that are gathered or widened together … */
#define LARGE_PIECE (16 * BLOCK) /* … and those that are read where they lie, before the next sums are made of them */
#define TILE 16 /* elements of a row that are gathered in turn */
#define MODEST 20 /* an exponent */
#define LARGE_ENOUGH (1 << 16) /* to let other threads run meanwhile */

typedef struct {
    double flat[2 * LANES], axes[2 * LANES]; /* folded to PRIME at the end */
    double sum, squares, sizes, cubes, fourths, low, high;
    int64_t odd;
} Sums;

static int is_narrow(int kind)
{
    return kind != F8 && kind < I4;
}

/* Where the next number stands: on its axes, the last one innermost. */
typedef struct {
    int count;
    int64_t sizes[MOST_AXES + 1], index[MOST_AXES + 1];
    double factor; /* of all axes but the last two */
    int shift;
} Place;

/* What the axes but the last two say: they seldom change. */
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

/* So many rows further; no further than to the end of the last axis but one. */
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

/* Sums with the weights of the axes, of numbers that follow one another. */
static void add_axes(Sums *sums, Place *place, const void *numbers, int count, int is_wide, const Ways *ways)
{
    const int last = place->count - 1;
    for (int done = 0; done < count;) {
        const int64_t at = place->index[last], size = place->sizes[last], block = at / BLOCK;
        const int64_t above_at = last ? place->index[last - 1] : 0;
        int64_t rows = 1, run = least(least(count - done, size - at), BLOCK - at % BLOCK);
        if (at == 0 && run == size && last) /* whole rows, as far as they go on in one block of weights above */
            rows = least(least((count - done) / size, place->sizes[last - 1] - above_at), BLOCK - above_at % BLOCK);
        Above above = {place->factor * block_weight(block), above_at, (int)((place->shift + block) % PRIME), last > 0};
        if (last) {
            above.factor *= block_weight(above_at / BLOCK);
            above.shift = (int)((above.shift + above_at / BLOCK) % PRIME);
        }
        const int lane = (int)(at % LANES);
        double found[2 * LANES], *to = sums->axes;
        if (lane) { /* it begins between the lanes: what is found is turned back */
            memset(found, 0, sizeof found);
            to = found;
            above.factor *= last ? wide_weights[above_at % BLOCK] : 1.0;
            above.has_axis = 0;
        }
        const int shift = above.shift + (lane && last ? (int)(above_at % LANES) : 0);
        if (lane)
            above.shift = 0;
        if (is_wide)
            ways->doubles_rows((const double *)numbers + done, wide_weights + at % BLOCK, (int)run, (int)rows, &above, to);
        else
            ways->floats_rows((const float *)numbers + done, weights + at % BLOCK, (int)run, (int)rows, &above, to);
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

/* The sums were of numbers without this exponent. */
static void scale_back(Sums *sums, int exponent)
{
    for (int at = 0; at < 2 * LANES; at++)
        sums->flat[at] = ldexp(sums->flat[at], exponent);
    sums->sizes = ldexp(sums->sizes, exponent);
    sums->cubes = ldexp(sums->cubes, 3 * exponent);
    sums->fourths = ldexp(sums->fourths, 4 * exponent);
}

/* Numbers that float32 holds, in whole blocks but for the last; `exponent`: of the largest. `hash` is not NULL where
 * their bits are to be hashed, too. */
static void add_floats(Sums *sums, const float *numbers, int count, int64_t block, int exponent, int processor, Hash *hash)
{
    const Ways *ways = &WAYS_OF[processor];
    double lanes[LANES], powers[3];
    const float scale = ldexpf(1.0f, -exponent);
    for (int at = 0; at < count; at += BLOCK, block++) {
        float padded[BLOCK] __attribute__((aligned(64)));
        const float *whole = numbers + at;
        const int size = count - at < BLOCK ? count - at : BLOCK;
        if (hash != NULL && size == BLOCK && !exponent && ways->hashed_block != NULL) {
            ways->hashed_block(whole, hash, lanes, powers);
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
        (exponent ? ways->floats_scaled : ways->floats_block)(whole, filled, scale, lanes, powers);
        add_block(sums, lanes, powers, block);
    }
}

/* The same for all others; what is not to be summed becomes 0. There is room for a block behind the last number. */
static void add_doubles(Sums *sums, double *numbers, int count, int64_t block, const Ways *ways)
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
        ways->doubles_block(numbers + at, (size + 2 * LANES - 1) / (2 * LANES) * (2 * LANES), 1.0, lanes, powers);
        add_block(sums, lanes, powers, block);
    }
}

static void gather_run(char *to, const char *from, int64_t count, int64_t step, size_t item)
{
    switch (item) {
#define GATHER(type)                                                                                                  \
    case sizeof(type):                                                                                                \
        for (int64_t at = 0; at < count; at++)                                                                        \
            ((type *)to)[at] = *(const type *)(from + at * step);                                                     \
        break;
        GATHER(uint8_t) GATHER(uint16_t) GATHER(uint32_t) GATHER(uint64_t)
    default:
        for (int64_t at = 0; at < count; at++)
            memcpy(to + (size_t)at * item, from + at * step, item);
    }
}

/* Of the rows below as many as four by four go: how many, from the first on. */
static int64_t gather_squares(uint32_t *to, const char *from, int64_t size, int64_t step, int64_t rows)
{
#if defined(__x86_64__) && defined(__GNUC__)
    const int64_t whole = rows / 4 * 4, wide = size / 4 * 4;
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

/* Rows of a transposed matrix: what lies side by side in memory goes to different rows, so some rows are filled at once,
 * a few elements of each in turn; else every element would be a line of the cache. */
static void gather_rows(char *to, const char *from, int64_t size, int64_t step, int64_t rows, size_t item)
{
#define GATHER_ROWS(type)                                                                                             \
    case sizeof(type):                                                                                                \
        for (int64_t begin = 0; begin < size; begin += TILE) {                                                        \
            const int64_t end = begin + TILE < size ? begin + TILE : size;                                            \
            for (int64_t row = 0; row < rows; row++)                                                                  \
                for (int64_t at = begin; at < end; at++)                                                              \
                    ((type *)to)[row * size + at] = ((const type *)(from + at * step))[row];                          \
        }                                                                                                             \
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

/* How many rows can be gathered so from here on: 0 none. */
static int64_t transposed_rows(const Order *order, const int64_t index[MOST_AXES], int64_t count)
{
    const int last = order->dimensions - 1;
    if (last < 1 || order->item > 8 || index[last] || order->steps[last - 1] != order->item || order->steps[last] == order->item)
        return 0;
    const int64_t rows = least(count / order->sizes[last], order->sizes[last - 1] - index[last - 1]);
    return rows > 1 ? rows : 0;
}

/* The next elements in their logical order, side by side. */
static void gather_next(const Order *order, const char *memory, int64_t index[MOST_AXES], char *to, int count)
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
            gather_run(to, from, run, order->steps[last], item);
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

static int exponent_of(const Tally *tally)
{
    int exponent = 0;
    const double largest = fmax(fabs(tally->low), fabs(tally->high));
    if (tally->finite && largest > 0.0)
        frexp(largest, &exponent);
    if (-MODEST < exponent && exponent < MODEST)
        return 0; /* the fourth power is well within what float32 holds */
    return exponent < -120 ? -120 : exponent;
}

static void fold(const double lanes[2 * LANES], float to[PRIME])
{
    for (int at = 0; at < PRIME; at++)
        to[at] = (float)(lanes[at] + (at + PRIME < 2 * LANES ? lanes[at + PRIME] : 0.0));
}

/* Numbers as floats, those that are not to be summed as 0. */
static void add_narrow(Sums *sums, int kind, const char *from, int count, int is_odd, float *to)
{
    for (int at = 0; at < count; at += BLOCK)
        as_floats(kind, from + (int64_t)at * WIDTHS[kind], count - at < BLOCK ? count - at : BLOCK, to + at);
    for (int at = 0; is_odd && at < count; at++)
        if (!(fabsf(to[at]) <= (float)LARGEST)) {
            to[at] = 0.0f;
            sums->odd++;
        }
}

/* What is known without a look at the numbers. */
static void take_over(Sums *sums, const Tally *tally, int axes)
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

/* `hash` NULL: only the sums by axes are wanted. */
static void sketch_pieces(const Order *order, const char *memory, const Tally *tally, Sums *sums, Hash *hash)
{
    _Alignas(64) char gathered[PIECE * 8];
    _Alignas(64) double wide[PIECE + 2 * LANES];
    const int processor = used_processor(), exponent = exponent_of(tally), is_odd = tally->finite != tally->count;
    const int is_wide = !is_narrow(order->kind) || (tally->finite && (tally->low < -LARGEST || tally->high > LARGEST));
    const int is_read_there = order->is_contiguous && order->kind == F4 && !is_wide && !is_odd;
    const int numbers = (is_read_there ? LARGE_PIECE : PIECE) / order->parts;
    const Ways *ways = &WAYS_OF[processor];
    Place place;
    int64_t index[MOST_AXES] = {0}, block = 0;
    begin_place(&place, order);
    for (int64_t at = 0; at < order->count; at += numbers, block += numbers * order->parts / BLOCK) {
        const int elements = (int)least(order->count - at, numbers), count = elements * order->parts;
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
            add_doubles(sums, wide, count, block, ways);
            read = wide;
        } else {
            if (!is_read_there && (order->kind != F4 || is_odd)) {
                add_narrow(sums, order->kind, from, count, is_odd, (float *)wide);
                read = wide;
            }
            if (hash != NULL)
                add_floats(sums, read, count, block, exponent, processor, is_read_there ? hash : NULL);
        }
        if (place.count > 1)
            add_axes(sums, &place, read, count, is_wide, ways);
    }
    if (!is_wide)
        scale_back(sums, exponent);
    take_over(sums, is_wide ? NULL : tally, place.count);
}

/* From now on what is too small for float32 is 0: powers of it would take a hundred times as long. Gives what was. */
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

static void put_back(unsigned before)
{
#if defined(__x86_64__) && defined(__GNUC__)
    _mm_setcsr(before);
#endif
}

/* With the lock of Python let go of where it takes a while. */
static void sketch_unlocked(const Order *order, const char *memory, const Tally *tally, Sums *sums, Hash *hash)
{
    make_weights();
    PyThreadState *saved = order->count > LARGE_ENOUGH ? PyEval_SaveThread() : NULL;
    const unsigned before = flush_small();
    sketch_pieces(order, memory, tally, sums, hash);
    put_back(before);
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

/* Where most are, and far: float32 that is all finite, in its order, read once for both. 0: it is none of these. */
static int sketch_in_passing(const Order *order, const char *memory, Tally *tally, Sums *sums, Hash *hash)
{
    const int processor = used_processor(), numbers = LARGE_PIECE / order->parts;
    const Ways *ways = &WAYS_OF[processor];
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
            add_axes(sums, &place, from, count, 0, ways);
    }
    take_over(sums, tally, place.count);
    return 1;
}

int tally_and_sketch(const Layout *layout, const Order *order, const char *memory, Tally *tally, Sketch *sketch)
{
    const int is_far = order->is_contiguous && order->kind == F4 && order->count * order->parts > 4 * LARGE_PIECE;
    if (is_far && layout->repeats == 1) {
        Sums sums = {.low = INFINITY, .high = -INFINITY};
        Hash hash = {0};
        make_weights();
        *tally = (Tally){0};
        PyThreadState *saved = PyEval_SaveThread();
        const unsigned before = flush_small();
        const int is_done = sketch_in_passing(order, memory, tally, &sums, &hash);
        put_back(before);
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
    return one->kind == other->kind && one->parts == other->parts && one->dimensions == other->dimensions
           && memcmp(one->sizes, other->sizes, used) == 0 && memcmp(one->steps, other->steps, used) == 0;
}

/* (code, parts, bytes of an element, ((size, step), …)) in their logical order, without sizes of one; steps in bytes. */
int read_order(PyObject *described, Order *order)
{
    const char *code;
    PyObject *sizes;
    if (!PyArg_ParseTuple(described, "siiO!", &code, &order->parts, &order->item, &PyTuple_Type, &sizes))
        return -1;
    order->kind = kind_of(code);
    order->dimensions = (int)PyTuple_GET_SIZE(sizes);
    if (order->kind < 0 || order->dimensions > MOST_AXES || order->parts < 1 || order->parts > 2 || order->item < 1
        || order->item > 16)
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

/* sketch(address, order, (count, finite, low, high, mean, squares)) → its bytes, as they stand in the journal. */
PyObject *sketch_at(PyObject *module, PyObject *args)
{
    unsigned long long address;
    PyObject *described;
    Order order;
    Tally tally = {0};
    Sketch sketch;
    long long count, finite;
    if (!PyArg_ParseTuple(args, "KO!(LLdddd)", &address, &PyTuple_Type, &described, &count, &finite, &tally.low,
                          &tally.high, &tally.mean, &tally.squares)
        || read_order(described, &order) < 0)
        return NULL;
    tally.count = count;
    tally.finite = finite;
    sketch_memory(&order, (const char *)(uintptr_t)address, &tally, &sketch);
    return PyBytes_FromStringAndSize((const char *)&sketch, sizeof sketch);
}
