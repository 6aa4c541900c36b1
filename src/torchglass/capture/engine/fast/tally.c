/* Counts and sums of the numbers in a piece of memory, in one pass (statistics/tally.py): how many
 * are NaN, infinite or 0, their minimum and maximum, their mean, and the sum of the squared
 * deviations from the mean.
 *
 * The numbers are taken in blocks. Each block is summed in double precision about its *pivot*, the
 * first finite number in it, so that nothing cancels however far the numbers are from 0; blocks are
 * joined as tally.py does. Numbers that are not finite are replaced by the pivot with masks, so the
 * loop over a block has no branch. It handles eight numbers at a time, in the vector types of the
 * compiler. Below, the file handles tensors that do not lie side by side, and expanded ones.
 */
#include "fast.h"
#include "tally.h"
#include <math.h>

#define LANES 8
#define BLOCK                                                                                      \
    16384 /* numbers: their sum loses no digit that counts, and they stay in a near cache if they  \
             are needed again */
#define GATHERED 4096 /* elements that are copied side by side before they are tallied */
#define LARGE_ENOUGH                                                                               \
    (1 << 16)           /* elements of a tensor that is worth letting other threads run meanwhile */
#define TOO_LARGE 1e150 /* squares of larger numbers overflow; Python measures these with numpy */

typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Longs __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));
typedef uint16_t Halves __attribute__((vector_size(16)));

typedef void (*TallyBlock)(const char *memory, Py_ssize_t count, Tally *block);

/* The loop is compiled for three kinds of processors; `processor` tells which of them this one is.
 */
#if defined(__x86_64__) && defined(__GNUC__)
#define FOR_AVX512 __attribute__((target("avx512f,avx512dq,avx2,fma")))
#define FOR_AVX2   __attribute__((target("avx2,fma")))
static int processor(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("fma"))
        return AVX512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? AVX2 : PLAIN;
}
#else
#define FOR_AVX512
#define FOR_AVX2
static int processor(void)
{
    return PLAIN;
}
#endif

/* Lane by lane: `one` where the mask is set, else `other`. */
#define WHERE(mask, one, other) ((Doubles)(((mask) & (Longs)(one)) | (~(mask) & (Longs)(other))))
#define ALL(number) ((Doubles){number, number, number, number, number, number, number, number})
#define SUM(vector)                                                                                \
    (vector[0] + vector[1] + vector[2] + vector[3] + vector[4] + vector[5] + vector[6] + vector[7])

/* Add the eight numbers `x`, lane by lane. It reads the variable `pivots` of DEFINE_FOR and adds to
 * `not_finite`, `zeros`, `low`, `high`, `sum` and `squares`: with these in a struct the compiler
 * keeps them in memory, which takes twice as long. */
#define ADD_LANES(x)                                                                               \
    do {                                                                                           \
        const Longs is_not_finite = (x - x) != 0.0;                                                \
        x = WHERE(is_not_finite, pivots, x);                                                       \
        not_finite -= is_not_finite; /* a lane of a mask is -1 where it is set */                  \
        zeros -= x == 0.0;                                                                         \
        low = WHERE(x < low, x, low);                                                              \
        high = WHERE(x > high, x, high);                                                           \
        x -= pivots;                                                                               \
        sum += x;                                                                                  \
        squares += x * x;                                                                          \
    } while (0)

/* Define a function that tallies a block of numbers of one type, compiled for the processor
 * `target`. widen(x, from) sets x to the eight numbers at `from` as doubles. The last numbers,
 * fewer than eight, are copied into `tail`; its other lanes are masked by `is_padding`. */
#define DEFINE_FOR(target, name, type, widen)                                                      \
    target static void name(const char *memory, Py_ssize_t count, Tally *block)                    \
    {                                                                                              \
        const type *from = (const type *)memory;                                                   \
        const Py_ssize_t whole = count / LANES, rest = count % LANES;                              \
        type tail[LANES] = {0};                                                                    \
        memcpy(tail, from + whole * LANES, (size_t)rest * sizeof(type));                           \
        const Longs is_padding = (Longs){0, 1, 2, 3, 4, 5, 6, 7} >= rest;                          \
        double pivot = NAN;                                                                        \
        for (Py_ssize_t at = 0; at < count && !isfinite(pivot); at++) {                            \
            type one[LANES] = {from[at]};                                                          \
            Doubles x;                                                                             \
            widen(x, one);                                                                         \
            pivot = x[0];                                                                          \
        }                                                                                          \
        if (!isfinite(pivot))                                                                      \
            pivot = 1.0; /* no number is finite; a pivot of 0 would be counted as zeros */         \
        *block = (Tally){.count = count};                                                          \
        for (int again = 0;; again++) {                                                            \
            const Doubles pivots = ALL(pivot);                                                     \
            Doubles low = pivots, high = pivots, sum = ALL(0.0), squares = ALL(0.0);               \
            Longs not_finite = (Longs)ALL(0.0), zeros = not_finite;                                \
            for (Py_ssize_t at = 0; at < whole; at++) {                                            \
                Doubles x;                                                                         \
                widen(x, from + at * LANES);                                                       \
                ADD_LANES(x);                                                                      \
            }                                                                                      \
            if (rest) {                                                                            \
                Doubles x;                                                                         \
                widen(x, tail);                                                                    \
                x = WHERE(is_padding, pivots, x);                                                  \
                ADD_LANES(x);                                                                      \
            }                                                                                      \
            const int64_t replaced = SUM(not_finite), padding = rest ? LANES - rest : 0;           \
            block->finite = count - replaced;                                                      \
            block->zeros = SUM(zeros) - (pivot == 0.0 ? replaced + padding : 0);                   \
            double ends[2][LANES]; /* minimum and maximum of each lane */                          \
            memcpy(ends[0], &low, sizeof ends[0]);                                                 \
            memcpy(ends[1], &high, sizeof ends[1]);                                                \
            block->low = block->high = pivot;                                                      \
            for (int lane = 0; lane < LANES; lane++) {                                             \
                block->low = ends[0][lane] < block->low ? ends[0][lane] : block->low;              \
                block->high = ends[1][lane] > block->high ? ends[1][lane] : block->high;           \
            }                                                                                      \
            if (!block->finite)                                                                    \
                break;                                                                             \
            const double total = SUM(sum), mean_shift = total / (double)block->finite;             \
            const double about_pivot = SUM(squares);                                               \
            block->mean = pivot + mean_shift;                                                      \
            block->squares = fmax(about_pivot - total * mean_shift, 0.0);                          \
            const double most = MOST_CANCELLED * block->squares;                                   \
            if (again || about_pivot < most || about_pivot == 0.0 || !isfinite(about_pivot))       \
                break;                                                                             \
            pivot = block->mean;                                                                   \
        }                                                                                          \
        if (block->finite == count)                                                                \
            return;                                                                                \
        Longs above = (Longs)ALL(0.0), below = above;                                              \
        for (Py_ssize_t at = 0; at < whole + (rest > 0); at++) {                                   \
            Doubles x;                                                                             \
            widen(x, at < whole ? from + at * LANES : tail);                                       \
            above -= x == (double)INFINITY;                                                        \
            below -= x == (double)-INFINITY;                                                       \
        }                                                                                          \
        block->posinf = SUM(above);                                                                \
        block->neginf = SUM(below);                                                                \
        block->nan = count - block->finite - block->posinf - block->neginf;                        \
    }

#define DEFINE_BLOCK(name, type, widen)                                                            \
    DEFINE_FOR(, name##_plain, type, widen)                                                        \
    DEFINE_FOR(FOR_AVX2, name##_avx2, type, widen)                                                 \
    DEFINE_FOR(FOR_AVX512, name##_avx512, type, widen)                                             \
    static const TallyBlock name[PROCESSOR_KINDS] = {name##_plain, name##_avx2, name##_avx512};

#define WIDEN_FLOAT64(vector, from) memcpy(&(vector), from, 64)
#define WIDEN(type, vector, from)                                                                  \
    do {                                                                                           \
        type raw;                                                                                  \
        memcpy(&raw, from, sizeof raw);                                                            \
        vector = __builtin_convertvector(raw, Doubles);                                            \
    } while (0)
#define WIDEN_FLOAT32(vector, from) WIDEN(Floats, vector, from)
#define WIDEN_BFLOAT16(vector, from)                                                               \
    do {                                                                                           \
        Halves raw;                                                                                \
        memcpy(&raw, from, sizeof raw);                                                            \
        Words wide = __builtin_convertvector(raw, Words) << 16;                                    \
        vector = __builtin_convertvector((Floats)wide, Doubles);                                   \
    } while (0)
/* Exponent and fraction move to where float32 has them, 112 further up; the smallest are whole
 * multiples of 2^-24. */
#define WIDEN_FLOAT16(vector, from)                                                                \
    do {                                                                                           \
        Halves raw;                                                                                \
        memcpy(&raw, from, sizeof raw);                                                            \
        Words half = __builtin_convertvector(raw, Words), sign = (half & 0x8000) << 16,            \
              size = half & 0x7fff;                                                                \
        Floats small = __builtin_convertvector((Ints)size, Floats) * 0x1p-24f;                     \
        Words is_small = (Words)(size < 0x0400), is_odd = (Words)(size >= 0x7c00);                 \
        Words wide = (size << 13) + (112u << 23) + (is_odd & (112u << 23));                        \
        wide = (is_small & (Words)small) | (~is_small & wide) | sign;                              \
        vector = __builtin_convertvector((Floats)wide, Doubles);                                   \
    } while (0)

#define VECTOR_OF(name, type) typedef type name __attribute__((vector_size(8 * sizeof(type))))
VECTOR_OF(Int8, int8_t);
VECTOR_OF(Uint8, uint8_t);
VECTOR_OF(Int16, int16_t);
VECTOR_OF(Uint32, uint32_t);
VECTOR_OF(Uint64, uint64_t);
#define WIDEN_BOOL(vector, from)                                                                   \
    do {                                                                                           \
        Int8 raw;                                                                                  \
        memcpy(&raw, from, sizeof raw);                                                            \
        raw = (Int8)(raw != 0); /* -1 where it is true */                                          \
        vector = -__builtin_convertvector(raw, Doubles);                                           \
    } while (0)
#define WIDEN_INT8(vector, from)   WIDEN(Int8, vector, from)
#define WIDEN_UINT8(vector, from)  WIDEN(Uint8, vector, from)
#define WIDEN_INT16(vector, from)  WIDEN(Int16, vector, from)
#define WIDEN_UINT16(vector, from) WIDEN(Halves, vector, from)
#define WIDEN_INT32(vector, from)  WIDEN(Ints, vector, from)
#define WIDEN_UINT32(vector, from) WIDEN(Uint32, vector, from)
#define WIDEN_INT64(vector, from)  WIDEN(Longs, vector, from)
#define WIDEN_UINT64(vector, from) WIDEN(Uint64, vector, from)

DEFINE_BLOCK(of_float64, double, WIDEN_FLOAT64)
DEFINE_BLOCK(of_float32, float, WIDEN_FLOAT32)
DEFINE_BLOCK(of_float16, uint16_t, WIDEN_FLOAT16)
DEFINE_BLOCK(of_bfloat16, uint16_t, WIDEN_BFLOAT16)
DEFINE_BLOCK(of_bool, uint8_t, WIDEN_BOOL)
DEFINE_BLOCK(of_int8, int8_t, WIDEN_INT8)
DEFINE_BLOCK(of_uint8, uint8_t, WIDEN_UINT8)
DEFINE_BLOCK(of_int16, int16_t, WIDEN_INT16)
DEFINE_BLOCK(of_uint16, uint16_t, WIDEN_UINT16)
DEFINE_BLOCK(of_int32, int32_t, WIDEN_INT32)
DEFINE_BLOCK(of_uint32, uint32_t, WIDEN_UINT32)
DEFINE_BLOCK(of_int64, int64_t, WIDEN_INT64)
DEFINE_BLOCK(of_uint64, uint64_t, WIDEN_UINT64)

/* The kinds of numbers, by their codes in statistics/memory.py: bytes of one, and the function for
 * each kind of processor. */
static const struct {
    const char *code;
    int size;
    const TallyBlock *tally_block;
} KINDS[] = {
    {"f8", 8, of_float64}, {"f4", 4, of_float32}, {"f2", 2, of_float16}, {"bf", 2, of_bfloat16},
    {"i1", 1, of_int8},    {"u1", 1, of_uint8},   {"b1", 1, of_bool},    {"i2", 2, of_int16},
    {"u2", 2, of_uint16},  {"i4", 4, of_int32},   {"u4", 4, of_uint32},  {"i8", 8, of_int64},
    {"u8", 8, of_uint64},
};
enum { FLOAT32 = 1 };
#define KIND_COUNT ((int)(sizeof KINDS / sizeof KINDS[0]))

int kind_of(const char *code)
{
    for (int kind = 0; kind < KIND_COUNT; kind++)
        if (strcmp(KINDS[kind].code, code) == 0)
            return kind;
    return -1;
}

/* Join the counts, the means, and the sums of squares about these. */
void join_tallies(Tally *tally, const Tally *block)
{
    tally->count += block->count;
    tally->nan += block->nan;
    tally->posinf += block->posinf;
    tally->neginf += block->neginf;
    tally->zeros += block->zeros;
    if (!block->finite)
        return;
    const double size = (double)block->finite;
    const double whole = (double)tally->finite + size;
    const double difference = block->mean - tally->mean;
    tally->squares +=
        block->squares + difference * difference * ((double)tally->finite / whole) * size;
    tally->mean += difference * (size / whole);
    tally->low = tally->finite && tally->low < block->low ? tally->low : block->low;
    tally->high = tally->finite && tally->high > block->high ? tally->high : block->high;
    tally->finite += block->finite;
}

static int chosen = -1; /* PLAIN, AVX2 or AVX512; -1: not asked yet */

int used_processor(void)
{
    if (chosen < 0)
        chosen = processor();
    return chosen;
}

void tally_run(Tally *tally, int kind, const char *memory, Py_ssize_t count)
{
    const int kind_of_processor = used_processor();
    Tally block;
    for (Py_ssize_t at = 0; at < count; at += BLOCK) {
        const Py_ssize_t size = count - at < BLOCK ? count - at : BLOCK;
        Py_ssize_t done = 0;
        const char *from = memory + at * KINDS[kind].size;
        if (kind == FLOAT32 && (done = tally_floats(from, size, kind_of_processor, &block)) > 0)
            join_tallies(tally, &block);
        if (done == size)
            continue;
        KINDS[kind].tally_block[kind_of_processor](from + done * KINDS[kind].size, size - done,
                                                   &block);
        join_tallies(tally, &block);
    }
}

void gather_elements(char *to, const char *from, int64_t count, int64_t stride, size_t item)
{
    switch (item) {
#define GATHER(type)                                                                               \
    case sizeof(type):                                                                             \
        for (int64_t at = 0; at < count; at++)                                                     \
            ((type *)to)[at] = *(const type *)(from + at * stride);                                \
        break;
        GATHER(uint8_t)
        GATHER(uint16_t)
        GATHER(uint32_t)
        GATHER(uint64_t)
    default:
        for (int64_t at = 0; at < count; at++)
            memcpy(to + (size_t)at * item, from + at * stride, item);
    }
}

/* Elements that do not lie side by side are copied into `pieces`, some rows at a time. The first
 * dimension is the innermost. */
static void add_strided(Tally *tally, const Layout *layout, const char *memory)
{
    _Alignas(64) char pieces[GATHERED * 16];
    const size_t item = (size_t)KINDS[layout->kind].size * (size_t)layout->parts;
    int64_t index[MOST_SIZES] = {0};
    Py_ssize_t used = 0;
    for (;;) {
        const char *row = memory;
        for (int at = 1; at < layout->dimensions; at++)
            row += index[at] * layout->strides[at] * (int64_t)item;
        for (Py_ssize_t done = 0; done < layout->sizes[0];) {
            const Py_ssize_t left = layout->sizes[0] - done;
            const Py_ssize_t room = GATHERED - used;
            const Py_ssize_t count = left < room ? left : room;
            const char *from = row + done * layout->strides[0] * (int64_t)item;
            if (layout->strides[0] == 1)
                memcpy(pieces + (size_t)used * item, from, (size_t)count * item);
            else
                gather_elements(pieces + (size_t)used * item, from, count,
                                layout->strides[0] * (int64_t)item, item);
            done += count;
            used += count;
            if (used == GATHERED) {
                tally_run(tally, layout->kind, pieces, used * layout->parts);
                used = 0;
            }
        }
        int at = 1;
        while (at < layout->dimensions && ++index[at] == layout->sizes[at])
            index[at++] = 0;
        if (at >= layout->dimensions)
            break;
    }
    tally_run(tally, layout->kind, pieces, used * layout->parts);
}

/* Count each number of an expanded tensor as often as the tensor shows it. */
static void repeat(Tally *tally, int64_t times)
{
    tally->count *= times;
    tally->nan *= times;
    tally->posinf *= times;
    tally->neginf *= times;
    tally->zeros *= times;
    tally->finite *= times;
    tally->squares *= (double)times;
}

int tally_memory(const Layout *layout, const char *memory, Tally *tally)
{
    *tally = (Tally){0};
    PyThreadState *saved = layout->count > LARGE_ENOUGH ? PyEval_SaveThread() : NULL;
    if (layout->is_dense)
        tally_run(tally, layout->kind, memory, layout->count * layout->parts);
    else
        add_strided(tally, layout, memory);
    if (saved != NULL)
        PyEval_RestoreThread(saved);
    if (layout->repeats > 1)
        repeat(tally, layout->repeats);
    return !tally->finite || (tally->low > -TOO_LARGE && tally->high < TOO_LARGE);
}

void tally_numbers(const Tally *tally, int64_t counts[5], double numbers[5])
{
    const int64_t own[5] = {tally->count, tally->nan, tally->posinf, tally->neginf, tally->zeros};
    double mean = tally->mean < tally->low    ? tally->low
                  : tally->mean > tally->high ? tally->high
                                              : tally->mean;
    double finite = (double)tally->finite;
    memcpy(counts, own, sizeof own);
    for (int at = 0; at < 5; at++)
        numbers[at] = NAN;
    if (!tally->finite)
        return;
    numbers[0] = tally->low;
    numbers[1] = tally->high;
    numbers[2] = mean;
    numbers[3] = sqrt(tally->squares / finite);
    numbers[4] = sqrt(tally->squares + finite * tally->mean * tally->mean);
}

/* (code, parts, repeats, ((step, size), …)), the smallest step first, as statistics/memory.py makes
 * it. */
int read_layout(PyObject *described, Layout *layout)
{
    const char *code;
    PyObject *sizes;
    long long repeats;
    if (!PyArg_ParseTuple(described, "siLO!", &code, &layout->parts, &repeats, &PyTuple_Type,
                          &sizes))
        return -1;
    layout->kind = kind_of(code);
    layout->repeats = repeats;
    layout->dimensions = (int)PyTuple_GET_SIZE(sizes);
    if (layout->kind < 0 || layout->dimensions > MOST_SIZES || layout->parts < 1
        || layout->parts > 2) {
        PyErr_SetString(PyExc_ValueError, "a layout that is not known");
        return -1;
    }
    layout->count = layout->span = layout->is_dense = 1;
    for (int at = 0; at < layout->dimensions; at++) {
        long long stride, size;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sizes, at), "LL", &stride, &size))
            return -1;
        layout->strides[at] = stride;
        layout->sizes[at] = size;
        layout->is_dense &= stride == layout->count;
        layout->count *= size;
        layout->span += stride * (size - 1);
    }
    return 0;
}

/* use_processor(kind) → PLAIN, AVX2 or AVX512: the kind that is used from now on. It is `kind`, if
 * this processor can do that, else the best that it can do. For tests. */
PyObject *use_processor(PyObject *module, PyObject *wanted)
{
    long kind = PyLong_AsLong(wanted);
    if (kind == -1 && PyErr_Occurred())
        return NULL;
    chosen = kind >= PLAIN && kind < processor() ? (int)kind : processor();
    return PyLong_FromLong(chosen);
}

/* tally(address, layout) → (count, nan, posinf, neginf, zeros, finite, low, high, mean, squares);
 * None: the numbers are too large. */
PyObject *tally_at(PyObject *module, PyObject *args)
{
    unsigned long long address;
    PyObject *described;
    Layout layout;
    Tally tally;
    if (!PyArg_ParseTuple(args, "KO!", &address, &PyTuple_Type, &described)
        || read_layout(described, &layout) < 0)
        return NULL;
    if (!tally_memory(&layout, (const char *)(uintptr_t)address, &tally))
        Py_RETURN_NONE;
    return Py_BuildValue("LLLLLLdddd", (long long)tally.count, (long long)tally.nan,
                         (long long)tally.posinf, (long long)tally.neginf, (long long)tally.zeros,
                         (long long)tally.finite, tally.low, tally.high, tally.mean, tally.squares);
}
