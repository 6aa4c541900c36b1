/* The sums of a sketch, sixteen lanes at a time, for three kinds of processors
 * (statistics/sketch.py).
 *
 * The weights come from a random generator with a counter. Numbers that float32 holds exactly are
 * summed in float32 within a block, in 32 lanes, and then in doubles. At the end are the
 * conversions of all kinds of numbers to floats and doubles.
 */
#include "fast.h"
#include "sums.h"

#define TURNS 8

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef double Doubles __attribute__((vector_size(128)));
typedef int64_t Longs __attribute__((vector_size(128)));

float weights[2 * BLOCK + LANES] __attribute__((aligned(64)));
double wide_weights[2 * BLOCK + LANES] __attribute__((aligned(64)));
const int WIDTHS[] = {8, 4, 2, 2, 1, 1, 1, 2, 2, 4, 4, 8, 8};

/* Return a random sign times a number from 0.5 to 1.5; exact in float32. */
static double weight(uint64_t counter)
{
    uint64_t z = stirred(counter);
    double size = 0.5 + (double)(z >> 41) * 0x1p-23;
    return z & 1 ? -size : size;
}

/* Return the sign of the weights of a block. */
double block_weight(int64_t block)
{
    return block && stirred(BLOCK + (uint64_t)block) & 1 ? -1.0 : 1.0;
}

void make_weights(void)
{
    static int is_ready;
    if (is_ready)
        return;
    for (int at = 0; at < BLOCK; at++)
        wide_weights[at] = wide_weights[at + BLOCK] = weights[at] = weights[at + BLOCK] =
            (float)weight((uint64_t)at);
    make_keys();
    is_ready = 1;
}

/* Define a function for one block, whose count is a multiple of two vectors: the weighted sum in
 * lanes, and the sums of |x|, x³ and x⁴; with SCALED, of x * scale. */
#define DEFINE_BLOCK(target, name, type, Vector, Bits, without_sign, weights, SCALED)              \
    target static void name(const type *from, int count, type scale, double lanes[LANES],          \
                            double powers[3])                                                      \
    {                                                                                              \
        Vector one = {0}, two = {0}, sizes = {0}, cubes = {0}, fourths = {0}, more[3] = {{0}};     \
        for (int at = 0; at < count; at += 2 * LANES) {                                            \
            Vector x, y, w, v;                                                                     \
            memcpy(&x, from + at, sizeof x);                                                       \
            memcpy(&y, from + at + LANES, sizeof y);                                               \
            memcpy(&w, weights + at, sizeof w);                                                    \
            memcpy(&v, weights + at + LANES, sizeof v);                                            \
            if (SCALED) {                                                                          \
                x *= scale;                                                                        \
                y *= scale;                                                                        \
            }                                                                                      \
            one += x * w;                                                                          \
            two += y * v;                                                                          \
            sizes += (Vector)((Bits)x & without_sign);                                             \
            more[0] += (Vector)((Bits)y & without_sign);                                           \
            Vector xx = x * x, yy = y * y;                                                         \
            cubes += xx * x;                                                                       \
            more[1] += yy * y;                                                                     \
            fourths += xx * xx;                                                                    \
            more[2] += yy * yy;                                                                    \
        }                                                                                          \
        Doubles sums[4] = {__builtin_convertvector(one, Doubles)                                   \
                               + __builtin_convertvector(two, Doubles),                            \
                           __builtin_convertvector(sizes + more[0], Doubles),                      \
                           __builtin_convertvector(cubes + more[1], Doubles),                      \
                           __builtin_convertvector(fourths + more[2], Doubles)};                   \
        memcpy(lanes, &sums[0], sizeof sums[0]);                                                   \
        for (int power = 0; power < 3; power++) {                                                  \
            powers[power] = 0.0;                                                                   \
            for (int lane = 0; lane < LANES; lane++)                                               \
                powers[power] += sums[power + 1][lane];                                            \
        }                                                                                          \
    }

/* Rows that follow one another, or a part of one, each with the weights of its axis: into sixteen
 * sums in a row, which ones and with which factor its place on the axis above says. In turns: what
 * was just written one step beside cannot be read at once. */
#define DEFINE_ROWS(target, name, type, Vector)                                                    \
    target static void name(const type *from, const type *by, int size, int rows,                  \
                            const OuterPosition *above, double *axes)                              \
    {                                                                                              \
        const int whole = size / LANES * LANES, rest = size - whole,                               \
                  turns = rows < TURNS ? 1 : TURNS;                                                \
        double several[TURNS][2 * LANES];                                                          \
        memset(several, 0, turns * sizeof several[0]);                                             \
        for (int row = 0; row < rows; row++, from += size) {                                       \
            Vector sum = {0}, x, w, three[3] = {{0}};                                              \
            int at = 0;                                                                            \
            for (; at + 4 * LANES <= whole;                                                        \
                 at += 4 * LANES) { /* four at a time: each sum waits for itself */                \
                memcpy(&x, from + at, sizeof x);                                                   \
                memcpy(&w, by + at, sizeof w);                                                     \
                sum += x * w;                                                                      \
                for (int each = 0; each < 3; each++) {                                             \
                    memcpy(&x, from + at + (each + 1) * LANES, sizeof x);                          \
                    memcpy(&w, by + at + (each + 1) * LANES, sizeof w);                            \
                    three[each] += x * w;                                                          \
                }                                                                                  \
            }                                                                                      \
            for (; at < whole; at += LANES) {                                                      \
                memcpy(&x, from + at, sizeof x);                                                   \
                memcpy(&w, by + at, sizeof w);                                                     \
                sum += x * w;                                                                      \
            }                                                                                      \
            sum = (sum + three[0]) + (three[1] + three[2]);                                        \
            if (rest) {                                                                            \
                x = (Vector){0};                                                                   \
                memcpy(&w, by + whole, sizeof w);                                                  \
                memcpy(&x, from + whole, (size_t)rest * sizeof(type));                             \
                sum += x * w;                                                                      \
            }                                                                                      \
            const uint64_t number = (uint64_t)above->at + (uint64_t)row, place = number % BLOCK;   \
            const double factor =                                                                  \
                above->has_axis ? above->factor * wide_weights[place] : above->factor;             \
            const uint64_t shift =                                                                 \
                (uint64_t)above->shift + (above->has_axis ? number % LANES : 0);                   \
            double *to = several[row & (turns - 1)] + (shift < PRIME ? shift : shift - PRIME);     \
            Doubles before;                                                                        \
            memcpy(&before, to, sizeof before);                                                    \
            before += __builtin_convertvector(sum, Doubles) * factor;                              \
            memcpy(to, &before, sizeof before);                                                    \
        }                                                                                          \
        for (int turn = 0; turn < turns; turn++)                                                   \
            for (int at = 0; at < 2 * LANES; at++)                                                 \
                axes[at] += several[turn][at];                                                     \
    }

#define DEFINE_FLOATS(target, suffix)                                                              \
    DEFINE_BLOCK(target, floats_block_##suffix, float, Floats, Ints, 0x7fffffff, weights, 0)       \
    DEFINE_BLOCK(target, floats_scaled_##suffix, float, Floats, Ints, 0x7fffffff, weights, 1)      \
    DEFINE_ROWS(target, floats_rows_##suffix, float, Floats)
#define DEFINE_DOUBLES(target, suffix)                                                             \
    DEFINE_BLOCK(target, doubles_block_##suffix, double, Doubles, Longs, 0x7fffffffffffffff,       \
                 wide_weights, 0)                                                                  \
    DEFINE_ROWS(target, doubles_rows_##suffix, double, Doubles)
#define KERNELS(suffix, hashed)                                                                    \
    {floats_block_##suffix, floats_scaled_##suffix, doubles_block_##suffix,                        \
     floats_rows_##suffix,  doubles_rows_##suffix,  hashed}
DEFINE_FLOATS(, plain)
DEFINE_DOUBLES(, plain)
#if defined(__x86_64__) && defined(__GNUC__)
DEFINE_DOUBLES(FOR_AVX2, avx2) /* its floats: sums_avx2.c */
DEFINE_FLOATS(FOR_AVX512, avx512)
DEFINE_DOUBLES(FOR_AVX512, avx512)
const SumKernels KERNELS_OF[PROCESSOR_KINDS] = {
    KERNELS(plain, NULL), KERNELS(avx2, hashed_block_avx2), KERNELS(avx512, hashed_block_avx512)};
#else
const SumKernels KERNELS_OF[PROCESSOR_KINDS] = {KERNELS(plain, NULL), KERNELS(plain, NULL),
                                                KERNELS(plain, NULL)};
#endif

/* ---------------------------------------------------- numbers of any kind, as floats or doubles */

static float half(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t size = bits & 0x7fff;
    const float small = (float)size * 0x1p-24f;
    uint32_t wide = (size << 13) + (112u << 23) + (size >= 0x7c00 ? 112u << 23 : 0), low;
    memcpy(&low, &small, 4);
    wide = (size < 0x0400 ? low : wide) | sign;
    float found;
    memcpy(&found, &wide, 4);
    return found;
}

#define EACH(kind, type, expression)                                                               \
    case kind:                                                                                     \
        for (int at = 0; at < count; at++) {                                                       \
            const type each = ((const type *)from)[at];                                            \
            to[at] = expression;                                                                   \
        }                                                                                          \
        break;

__attribute__((optimize("O3"))) void as_floats(int kind, const char *from, int count, float *to)
{
    switch (kind) {
        EACH(F4, float, each)
        EACH(F2, uint16_t, half(each))
        EACH(I1, int8_t, (float)each)
        EACH(U1, uint8_t, (float)each)
        EACH(B1, uint8_t, each != 0 ? 1.0f : 0.0f)
        EACH(I2, int16_t, (float)each)
        EACH(U2, uint16_t, (float)each)
    case BF:
        for (int at = 0; at < count; at++) {
            const uint32_t wide = (uint32_t)((const uint16_t *)from)[at] << 16;
            memcpy(to + at, &wide, 4);
        }
    }
}

__attribute__((optimize("O3"))) void as_doubles(int kind, const char *from, int count, double *to)
{
    float narrow[BLOCK];
    switch (kind) {
        EACH(F8, double, each)
        EACH(I4, int32_t, (double)each)
        EACH(U4, uint32_t, (double)each)
        EACH(I8, int64_t, (double)each)
        EACH(U8, uint64_t, (double)each)
    default:
        as_floats(kind, from, count, narrow);
        for (int at = 0; at < count; at++)
            to[at] = narrow[at];
    }
}
