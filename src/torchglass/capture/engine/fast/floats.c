/* Tallies blocks of float32 whose numbers are all finite, as most are: faster than tally.c, in
 * instructions of AVX2 and AVX-512.
 *
 * Nothing is replaced: if a number is not finite, neither is the sum, and then tally.c tallies the
 * block.
 */
#include "fast.h"
#include "tally.h"
#include <math.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define HALF_512(from) _mm256_loadu_ps(from)
#define ADD_ZEROS_512(v)                                                                           \
    zeros += __builtin_popcount(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_EQ_OQ))
#define HALF_256(from) _mm_loadu_ps(from)
/* An int holds the count of a lane, since a block is short. */
#define ADD_ZEROS_256(v)                                                                           \
    lanes_zero = _mm256_sub_epi32(                                                                 \
        lanes_zero, _mm256_castps_si256(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_EQ_OQ)))

/* Two steps at a time, with sums of their own: an addition waits for the one before it. Sums are
 * products with one, and so exactly the same: the units that add are those that widen, too, and
 * have more to do than those that multiply. */
#define STEP(bits, at, one, other)                                                                 \
    do {                                                                                           \
        __m##bits v = _mm##bits##_loadu_ps(from + (at));                                           \
        low = _mm##bits##_min_ps(v, low);                                                          \
        high = _mm##bits##_max_ps(v, high);                                                        \
        ADD_ZEROS_##bits(v);                                                                       \
        __m##bits##d x =                                                                           \
            _mm##bits##_sub_pd(_mm##bits##_cvtps_pd(HALF_##bits(from + (at))), about);             \
        __m##bits##d y =                                                                           \
            _mm##bits##_sub_pd(_mm##bits##_cvtps_pd(HALF_##bits(from + (at) + LANES / 2)), about); \
        sums[one] = _mm##bits##_fmadd_pd(x, unit, sums[one]);                                      \
        sums[other] = _mm##bits##_fmadd_pd(y, unit, sums[other]);                                  \
        squares[one] = _mm##bits##_fmadd_pd(x, x, squares[one]);                                   \
        squares[other] = _mm##bits##_fmadd_pd(y, y, squares[other]);                               \
    } while (0)

#define DEFINE_FLOATS(name, instructions, bits)                                                    \
    __attribute__((target(instructions))) static void name(const float *from, int64_t count,       \
                                                           double middle, Sums *found)             \
    {                                                                                              \
        enum { LANES = bits / 32 };                                                                \
        const __m##bits##d about = _mm##bits##_set1_pd(middle), unit = _mm##bits##_set1_pd(1.0);   \
        __m##bits low = _mm##bits##_set1_ps(from[0]), high = low;                                  \
        __m##bits##d sums[4], squares[4];                                                          \
        int64_t zeros = 0;                                                                         \
        __m256i lanes_zero = _mm256_setzero_si256();                                               \
        for (int at = 0; at < 4; at++)                                                             \
            sums[at] = squares[at] = _mm##bits##_setzero_pd();                                     \
        for (int64_t at = 0; at < count; at += 2 * LANES) {                                        \
            STEP(bits, at, 0, 1);                                                                  \
            STEP(bits, at + LANES, 2, 3);                                                          \
        }                                                                                          \
        int32_t several[8];                                                                        \
        _mm256_storeu_si256((__m256i *)several, lanes_zero);                                       \
        for (int lane = 0; lane < 8; lane++)                                                       \
            zeros += several[lane];                                                                \
        float ends[2][LANES];                                                                      \
        double lanes[2][LANES / 2];                                                                \
        _mm##bits##_storeu_ps(ends[0], low);                                                       \
        _mm##bits##_storeu_ps(ends[1], high);                                                      \
        *found = (Sums){.low = ends[0][0], .high = ends[1][0], .zeros = zeros};                    \
        for (int lane = 1; lane < LANES; lane++) {                                                 \
            found->low = ends[0][lane] < found->low ? ends[0][lane] : found->low;                  \
            found->high = ends[1][lane] > found->high ? ends[1][lane] : found->high;               \
        }                                                                                          \
        for (int at = 0; at < 4; at++) {                                                           \
            _mm##bits##_storeu_pd(lanes[0], sums[at]);                                             \
            _mm##bits##_storeu_pd(lanes[1], squares[at]);                                          \
            for (int lane = 0; lane < LANES / 2; lane++) {                                         \
                found->sum += lanes[0][lane];                                                      \
                found->squares += lanes[1][lane];                                                  \
            }                                                                                      \
        }                                                                                          \
    }

typedef struct {
    double low, high, sum, squares;
    int64_t zeros;
} Sums;
DEFINE_FLOATS(floats_512, "avx512f,avx512dq,avx2,fma,popcnt", 512)
DEFINE_FLOATS(floats_256, "avx2,fma,popcnt", 256)

int64_t tally_floats(const char *memory, int64_t count, int processor, Tally *block)
{
    const float *from = (const float *)memory;
    const int64_t whole = count & -32;
    if (processor == PLAIN || whole == 0 || !isfinite(from[0]))
        return 0;
    Sums found;
    (processor == AVX512 ? floats_512 : floats_256)(from, whole, from[0], &found);
    const double mean_shift = found.sum / (double)whole;
    const double squares = found.squares - found.sum * mean_shift;
    if (!isfinite(found.sum) || found.squares > MOST_CANCELLED * squares)
        return 0; /* tally.c does it once more about the mean */
    *block = (Tally){.count = whole,
                     .finite = whole,
                     .zeros = found.zeros,
                     .low = found.low,
                     .high = found.high};
    block->mean = from[0] + mean_shift;
    block->squares = squares;
    return whole;
}

#else

int64_t tally_floats(const char *memory, int64_t count, int processor, Tally *block)
{
    return 0;
}

#endif
