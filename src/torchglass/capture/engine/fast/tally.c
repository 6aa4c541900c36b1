/* The numbers of a piece of memory in one pass (statistics/tally.py): counts, ends, mean, squares about the mean.
 *
 * Each block is summed in double precision about its own first finite number, so nothing cancels however far the
 * numbers are from 0; blocks are joined as tally.py does. What is not finite is replaced by that number, by masks, so
 * that a block needs no branch. Eight numbers at a time, in the compiler's own vector types.
 */
#include "fast.h"
#include "tally.h"
#include <math.h>

#define LANES 8
#define BLOCK 16384 /* numbers: so many lose no digit that counts, and stay in a near cache if they are needed again */
#define GATHERED 4096
#define LARGE_ENOUGH (1 << 16) /* to let other threads run meanwhile */
#define TOO_LARGE 1e150 /* squares of larger numbers overflow: numpy's way is right there */

typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Longs __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));
typedef uint16_t Halves __attribute__((vector_size(16)));

typedef void (*Block)(const char *memory, Py_ssize_t count, Tally *block);

/* The same code for three kinds of processors; which one this is, is asked once. */
#if defined(__x86_64__) && defined(__GNUC__)
#define FOR_AVX512 __attribute__((target("avx512f,avx512dq,avx2,fma")))
#define FOR_AVX2 __attribute__((target("avx2,fma")))
static int processor(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma"))
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

#define WHERE(mask, one, other) ((Doubles)(((mask) & (Longs)(one)) | (~(mask) & (Longs)(other))))
#define ALL(number) ((Doubles){number, number, number, number, number, number, number, number})
#define SUM(vector) \
    (vector[0] + vector[1] + vector[2] + vector[3] + vector[4] + vector[5] + vector[6] + vector[7])

/* One step of a block; `x` is eight numbers. */
#define STEP(x)                                                                                                       \
    Longs bad = (x - x) != 0.0;                                                                                       \
    odd -= bad;                                                                                                       \
    x = WHERE(bad, about, x);                                                                                         \
    zeros -= x == 0.0;                                                                                                \
    low = WHERE(x < low, x, low);                                                                                     \
    high = WHERE(x > high, x, high);                                                                                  \
    x -= about;                                                                                                       \
    sum += x;                                                                                                         \
    squares += x * x;

/* Of a block; `widen` makes doubles of eight numbers. Where the first finite number is far from the others compared
 * with how far these are apart, digits are lost: then once more, about the mean. */
#define DEFINE_FOR(target, name, type, widen)                                                                         \
    target static void name(const char *memory, Py_ssize_t count, Tally *block)                                       \
    {                                                                                                                 \
        const type *from = (const type *)memory;                                                                      \
        const Py_ssize_t whole = count / LANES, rest = count % LANES;                                                 \
        type last[LANES] = {0};                                                                                       \
        memcpy(last, from + whole * LANES, (size_t)rest * sizeof(type));                                              \
        const Longs behind = (Longs){0, 1, 2, 3, 4, 5, 6, 7} >= rest;                                                 \
        double middle = NAN, total, apart, spread;                                                                    \
        for (Py_ssize_t at = 0; at < count && !isfinite(middle); at++) {                                              \
            type several[LANES] = {from[at]};                                                                         \
            Doubles x;                                                                                                \
            widen(x, several);                                                                                        \
            middle = x[0];                                                                                            \
        }                                                                                                             \
        if (!isfinite(middle))                                                                                        \
            middle = 1.0; /* anything but 0: it is counted as no number */                                            \
        *block = (Tally){.count = count};                                                                             \
        for (int again = 0;; again++) {                                                                               \
            const Doubles about = ALL(middle);                                                                        \
            Doubles low = about, high = about, sum = ALL(0.0), squares = ALL(0.0);                                    \
            Longs odd = (Longs)ALL(0.0), zeros = odd;                                                                 \
            for (Py_ssize_t at = 0; at < whole; at++) {                                                               \
                Doubles x;                                                                                            \
                widen(x, from + at * LANES);                                                                          \
                STEP(x)                                                                                               \
            }                                                                                                         \
            if (rest) {                                                                                               \
                Doubles x;                                                                                            \
                widen(x, last);                                                                                       \
                x = WHERE(behind, about, x);                                                                          \
                STEP(x)                                                                                               \
            }                                                                                                         \
            const int64_t bad = SUM(odd), pads = rest ? LANES - rest : 0;                                             \
            block->finite = count - bad;                                                                              \
            block->zeros = SUM(zeros) - (middle == 0.0 ? bad + pads : 0);                                             \
            double ends[2][LANES];                                                                                    \
            memcpy(ends[0], &low, 64);                                                                                \
            memcpy(ends[1], &high, 64);                                                                               \
            block->low = block->high = middle;                                                                        \
            for (int lane = 0; lane < LANES; lane++) {                                                                \
                block->low = ends[0][lane] < block->low ? ends[0][lane] : block->low;                                 \
                block->high = ends[1][lane] > block->high ? ends[1][lane] : block->high;                              \
            }                                                                                                         \
            if (!block->finite)                                                                                       \
                break;                                                                                                \
            total = SUM(sum), apart = total / (double)block->finite;                                                  \
            spread = SUM(squares);                                                                                    \
            block->mean = middle + apart;                                                                             \
            block->squares = fmax(spread - total * apart, 0.0);                                                       \
            if (again || spread < 64.0 * block->squares || spread == 0.0 || !isfinite(spread))                        \
                break;                                                                                                \
            middle = block->mean;                                                                                     \
        }                                                                                                             \
        if (block->finite == count)                                                                                   \
            return;                                                                                                   \
        Longs above = (Longs)ALL(0.0), below = above;                                                                 \
        for (Py_ssize_t at = 0; at < whole + (rest > 0); at++) {                                                      \
            Doubles x;                                                                                                \
            widen(x, at < whole ? from + at * LANES : last);                                                          \
            above -= x == (double)INFINITY;                                                                           \
            below -= x == (double)-INFINITY;                                                                          \
        }                                                                                                             \
        block->posinf = SUM(above);                                                                                   \
        block->neginf = SUM(below);                                                                                   \
        block->nan = count - block->finite - block->posinf - block->neginf;                                           \
    }

#define DEFINE_BLOCK(name, type, widen)                                                                               \
    DEFINE_FOR(, name##_plain, type, widen)                                                                           \
    DEFINE_FOR(FOR_AVX2, name##_avx2, type, widen)                                                                    \
    DEFINE_FOR(FOR_AVX512, name##_avx512, type, widen)                                                                \
    static const Block name[PROCESSORS] = {name##_plain, name##_avx2, name##_avx512};

#define WIDEN_FLOAT64(vector, from) memcpy(&(vector), from, 64)
#define WIDEN(type, vector, from)                                                                                     \
    do {                                                                                                              \
        type raw;                                                                                                     \
        memcpy(&raw, from, sizeof raw);                                                                               \
        vector = __builtin_convertvector(raw, Doubles);                                                               \
    } while (0)
#define WIDEN_FLOAT32(vector, from) WIDEN(Floats, vector, from)
#define WIDEN_BFLOAT16(vector, from)                                                                                  \
    do {                                                                                                              \
        Halves raw;                                                                                                   \
        memcpy(&raw, from, sizeof raw);                                                                               \
        Words wide = __builtin_convertvector(raw, Words) << 16;                                                       \
        vector = __builtin_convertvector((Floats)wide, Doubles);                                                      \
    } while (0)
/* Exponent and fraction move to where float32 has them, 112 further up; the smallest are whole multiples of 2^-24. */
#define WIDEN_FLOAT16(vector, from)                                                                                   \
    do {                                                                                                              \
        Halves raw;                                                                                                   \
        memcpy(&raw, from, sizeof raw);                                                                               \
        Words half = __builtin_convertvector(raw, Words), sign = (half & 0x8000) << 16, size = half & 0x7fff;         \
        Floats small = __builtin_convertvector((Ints)size, Floats) * 0x1p-24f;                                        \
        Words is_small = (Words)(size < 0x0400), is_odd = (Words)(size >= 0x7c00);                                    \
        Words wide = (size << 13) + (112u << 23) + (is_odd & (112u << 23));                                           \
        wide = (is_small & (Words)small) | (~is_small & wide) | sign;                                                 \
        vector = __builtin_convertvector((Floats)wide, Doubles);                                                      \
    } while (0)

#define VECTOR_OF(name, type) typedef type name __attribute__((vector_size(8 * sizeof(type))))
VECTOR_OF(Int8, int8_t);
VECTOR_OF(Uint8, uint8_t);
VECTOR_OF(Int16, int16_t);
VECTOR_OF(Uint32, uint32_t);
VECTOR_OF(Uint64, uint64_t);
#define WIDEN_BOOL(vector, from)                                                                                      \
    do {                                                                                                              \
        Int8 raw;                                                                                                     \
        memcpy(&raw, from, sizeof raw);                                                                               \
        raw = (Int8)(raw != 0); /* -1 where it is true */                                                             \
        vector = -__builtin_convertvector(raw, Doubles);                                                              \
    } while (0)
#define WIDEN_INT8(vector, from) WIDEN(Int8, vector, from)
#define WIDEN_UINT8(vector, from) WIDEN(Uint8, vector, from)
#define WIDEN_INT16(vector, from) WIDEN(Int16, vector, from)
#define WIDEN_UINT16(vector, from) WIDEN(Halves, vector, from)
#define WIDEN_INT32(vector, from) WIDEN(Ints, vector, from)
#define WIDEN_UINT32(vector, from) WIDEN(Uint32, vector, from)
#define WIDEN_INT64(vector, from) WIDEN(Longs, vector, from)
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

/* By the codes of statistics/memory.py. */
static const struct { const char *code; int size; const Block *blocks; } KINDS[] = {
    {"f8", 8, of_float64}, {"f4", 4, of_float32}, {"f2", 2, of_float16}, {"bf", 2, of_bfloat16}, {"i1", 1, of_int8},
    {"u1", 1, of_uint8},   {"b1", 1, of_bool},   {"i2", 2, of_int16},   {"u2", 2, of_uint16},   {"i4", 4, of_int32},
    {"u4", 4, of_uint32},  {"i8", 8, of_int64},   {"u8", 8, of_uint64},
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

/* Two means and sums of squares about them are one. */
void join_tallies(Tally *tally, const Tally *block)
{
    tally->count += block->count;
    tally->nan += block->nan;
    tally->posinf += block->posinf;
    tally->neginf += block->neginf;
    tally->zeros += block->zeros;
    if (!block->finite)
        return;
    double size = (double)block->finite, whole = (double)tally->finite + size, apart = block->mean - tally->mean;
    tally->squares += block->squares + apart * apart * ((double)tally->finite / whole) * size;
    tally->mean += apart * (size / whole);
    tally->low = tally->finite && tally->low < block->low ? tally->low : block->low;
    tally->high = tally->finite && tally->high > block->high ? tally->high : block->high;
    tally->finite += block->finite;
}

static int chosen = -1; /* the processor's way */

int used_processor(void)
{
    if (chosen < 0)
        chosen = processor();
    return chosen;
}

void tally_run(Tally *tally, int kind, const char *memory, Py_ssize_t count)
{
    const int this = used_processor();
    Tally block;
    for (Py_ssize_t at = 0; at < count; at += BLOCK) {
        Py_ssize_t size = count - at < BLOCK ? count - at : BLOCK, done = 0;
        const char *from = memory + at * KINDS[kind].size;
        if (kind == FLOAT32 && (done = tally_floats(from, size, this, &block)) > 0)
            join_tallies(tally, &block);
        if (done == size)
            continue;
        KINDS[kind].blocks[this](from + done * KINDS[kind].size, size - done, &block);
        join_tallies(tally, &block);
    }
}

/* Copy a row of elements that stand apart. */
static void gather(char *to, const char *from, Py_ssize_t count, int64_t step, size_t item)
{
    switch (item) {
#define GATHER(type)                                                                                                  \
    case sizeof(type):                                                                                                \
        for (Py_ssize_t at = 0; at < count; at++)                                                                     \
            ((type *)to)[at] = *(const type *)(from + at * step);                                                     \
        break;
        GATHER(uint8_t) GATHER(uint16_t) GATHER(uint32_t) GATHER(uint64_t)
    default:
        for (Py_ssize_t at = 0; at < count; at++)
            memcpy(to + (size_t)at * item, from + at * step, item);
    }
}

/* What does not lie side by side is gathered, some rows at a time; the first dimension is the innermost. */
static void add_strided(Tally *tally, const Layout *layout, const char *memory)
{
    _Alignas(64) char pieces[GATHERED * 16];
    const size_t item = (size_t)KINDS[layout->kind].size * (size_t)layout->parts;
    const Py_ssize_t room = GATHERED;
    int64_t index[MOST_SIZES] = {0};
    Py_ssize_t used = 0;
    for (;;) {
        const char *row = memory;
        for (int at = 1; at < layout->dimensions; at++)
            row += index[at] * layout->steps[at] * (int64_t)item;
        for (Py_ssize_t done = 0; done < layout->sizes[0];) {
            Py_ssize_t left = layout->sizes[0] - done, count = left < room - used ? left : room - used;
            const char *from = row + done * layout->steps[0] * (int64_t)item;
            if (layout->steps[0] == 1)
                memcpy(pieces + (size_t)used * item, from, (size_t)count * item);
            else
                gather(pieces + (size_t)used * item, from, count, layout->steps[0] * (int64_t)item, item);
            done += count;
            used += count;
            if (used == room) {
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
    double mean = tally->mean < tally->low ? tally->low : tally->mean > tally->high ? tally->high : tally->mean;
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

/* (code, parts, repeats, ((step, size), …)), the smallest step first, as statistics/memory.py makes it. */
int read_layout(PyObject *described, Layout *layout)
{
    const char *code;
    PyObject *sizes;
    long long repeats;
    if (!PyArg_ParseTuple(described, "siLO!", &code, &layout->parts, &repeats, &PyTuple_Type, &sizes))
        return -1;
    layout->kind = kind_of(code);
    layout->repeats = repeats;
    layout->dimensions = (int)PyTuple_GET_SIZE(sizes);
    if (layout->kind < 0 || layout->dimensions > MOST_SIZES || layout->parts < 1 || layout->parts > 2)
        return PyErr_SetString(PyExc_ValueError, "a layout that is not known"), -1;
    layout->count = layout->span = layout->is_dense = 1;
    for (int at = 0; at < layout->dimensions; at++) {
        long long step, size;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sizes, at), "LL", &step, &size))
            return -1;
        layout->steps[at] = step;
        layout->sizes[at] = size;
        layout->is_dense &= step == layout->count;
        layout->count *= size;
        layout->span += step * (size - 1);
    }
    return 0;
}

/* use_processor(n) → the way that is taken from now on: n, or the best that this processor can do. */
PyObject *use_processor(PyObject *module, PyObject *wanted)
{
    long way = PyLong_AsLong(wanted);
    if (way == -1 && PyErr_Occurred())
        return NULL;
    chosen = way >= PLAIN && way < processor() ? (int)way : processor();
    return PyLong_FromLong(chosen);
}

/* tally(address, layout) → (count, nan, posinf, neginf, zeros, finite, low, high, mean, squares); None: not so. */
PyObject *tally_at(PyObject *module, PyObject *args)
{
    unsigned long long address;
    PyObject *described;
    Layout layout;
    Tally tally;
    if (!PyArg_ParseTuple(args, "KO!", &address, &PyTuple_Type, &described) || read_layout(described, &layout) < 0)
        return NULL;
    if (!tally_memory(&layout, (const char *)(uintptr_t)address, &tally))
        Py_RETURN_NONE;
    return Py_BuildValue("LLLLLLdddd", (long long)tally.count, (long long)tally.nan, (long long)tally.posinf,
                         (long long)tally.neginf, (long long)tally.zeros, (long long)tally.finite, tally.low, tally.high,
                         tally.mean, tally.squares);
}
