/* The sums and the hash of float32 in instructions of AVX2: the same as those of sums.c and hash.c
 * for any processor.
 *
 * AVX2 has sixteen registers of eight floats, and the compiler's code for vectors of sixteen lanes
 * does not fit into them.
 */
#include "fast.h"
#include "sums.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define STRIPE    16           /* numbers that are hashed side by side, and as many lanes */
#define HALF      (HASHED / 4) /* numbers whose bytes are hashed together: half a block */
#define MANY_ROWS 24           /* rows that are worth sums of their own in float32 */

/* What is summed of at most half a block: weighted, in two times eight lanes; powers; words and
 * their products. */
typedef struct {
    __m256 flat[2], sizes[2], cubes[2], fourths[2];
    __m256i hash[2];
} Part;

__attribute__((always_inline)) FOR_AVX2 static inline void add_eight(
    Part *part, int side, const float *from, const float *by, const char *key, const float *scale)
{
    __m256 x = _mm256_loadu_ps(from);
    if (key != NULL) {
        const __m256i word = _mm256_castps_si256(x);
        const __m256i mixed = _mm256_xor_si256(word, _mm256_load_si256((const __m256i *)key));
        const __m256i product = _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));
        part->hash[side] = _mm256_add_epi64(
            part->hash[side], _mm256_add_epi64(_mm256_shuffle_epi32(product, 0xB1), word));
    }
    if (scale != NULL)
        x = _mm256_mul_ps(x, _mm256_broadcast_ss(scale));
    const __m256 xx = _mm256_mul_ps(x, x);
    part->flat[side] = _mm256_fmadd_ps(x, _mm256_loadu_ps(by), part->flat[side]);
    part->sizes[side] =
        _mm256_add_ps(part->sizes[side], _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x));
    part->cubes[side] = _mm256_fmadd_ps(xx, x, part->cubes[side]);
    part->fourths[side] = _mm256_fmadd_ps(xx, xx, part->fourths[side]);
}

FOR_AVX2 static inline __m256d in_doubles(__m256 one, __m256 other)
{
    const __m256 both = _mm256_add_ps(one, other);
    return _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(both)),
                         _mm256_cvtps_pd(_mm256_extractf128_ps(both, 1)));
}

FOR_AVX2 static inline double total(__m256d four)
{
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

FOR_AVX2 static inline void add_lanes(double *lanes, __m256 eight, __m256d factor)
{
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(eight));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(eight, 1));
    _mm256_storeu_pd(lanes, _mm256_fmadd_pd(low, factor, _mm256_loadu_pd(lanes)));
    _mm256_storeu_pd(lanes + 4, _mm256_fmadd_pd(high, factor, _mm256_loadu_pd(lanes + 4)));
}

/* A multiple of sixteen numbers, at most a block; `hash` and `scale` may be NULL. */
__attribute__((always_inline)) FOR_AVX2 static inline void sum_block(const float *from, int count,
                                                                     const float *scale, Hash *hash,
                                                                     double lanes[LANES],
                                                                     double powers[3])
{
    const __m256d one = _mm256_set1_pd(1.0);
    __m256d sizes = _mm256_setzero_pd();
    __m256d cubes = sizes;
    __m256d fourths = sizes;
    memset(lanes, 0, LANES * sizeof(double));
    for (int begin = 0; begin < count; begin += HALF) {
        const int end = begin + HALF < count ? begin + HALF : count;
        Part part;
        for (int side = 0; side < 2; side++) {
            part.flat[side] = part.sizes[side] = part.cubes[side] = part.fourths[side] =
                _mm256_setzero_ps();
            part.hash[side] = _mm256_setzero_si256();
        }
        /* at the same distance as numbers and weights */
        const char *keys = (const char *)hash_keys - 4 * begin;
        for (int64_t at = begin; at < end; at += STRIPE) {
            add_eight(&part, 0, from + at, weights + at, hash == NULL ? NULL : keys + 4 * at,
                      scale);
            add_eight(&part, 1, from + at + 8, weights + at + 8,
                      hash == NULL ? NULL : keys + 4 * at + 32, scale);
        }
        add_lanes(lanes, part.flat[0], one);
        add_lanes(lanes + 8, part.flat[1], one);
        sizes = _mm256_add_pd(sizes, in_doubles(part.sizes[0], part.sizes[1]));
        cubes = _mm256_add_pd(cubes, in_doubles(part.cubes[0], part.cubes[1]));
        fourths = _mm256_add_pd(fourths, in_doubles(part.fourths[0], part.fourths[1]));
        if (hash != NULL)
            add_hashed(hash, (const uint64_t *)part.hash);
    }
    powers[0] = total(sizes);
    powers[1] = total(cubes);
    powers[2] = total(fourths);
}

FOR_AVX2 void floats_block_avx2(const float *from, int count, float scale, double lanes[LANES],
                                double powers[3])
{
    sum_block(from, count, NULL, NULL, lanes, powers);
}

FOR_AVX2 void floats_scaled_avx2(const float *from, int count, float scale, double lanes[LANES],
                                 double powers[3])
{
    sum_block(from, count, &scale, NULL, lanes, powers);
}

FOR_AVX2 void hashed_block_avx2(const float *from, Hash *hash, double lanes[LANES],
                                double powers[3])
{
    if (hash != NULL) /* so that it is known to the compiler */
        sum_block(from, BLOCK, NULL, hash, lanes, powers);
}

/* ---------------------------------------------------------------- rows, by axes */

/* The lanes behind the last whole sixteen of a row. */
typedef struct {
    int count;
    __m256i low, high;
} Rest;

FOR_AVX2 static inline Rest rest_of(int size)
{
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int count = size % STRIPE;
    return (Rest){count, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), places),
                  _mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8), places)};
}

/* One row with the weights of its axis, in sixteen lanes. */
__attribute__((always_inline)) FOR_AVX2 static inline void sum_row(const float *from,
                                                                   const float *by, int size,
                                                                   const Rest *rest, __m256 *low,
                                                                   __m256 *high)
{
    const int whole = size - rest->count;
    __m256 a = _mm256_setzero_ps();
    __m256 b = a;
    __m256 c = a;
    __m256 d = a;
    int at = 0;
    for (; at + 2 * STRIPE <= whole; at += 2 * STRIPE) {
        a = _mm256_fmadd_ps(_mm256_loadu_ps(from + at), _mm256_loadu_ps(by + at), a);
        b = _mm256_fmadd_ps(_mm256_loadu_ps(from + at + 8), _mm256_loadu_ps(by + at + 8), b);
        c = _mm256_fmadd_ps(_mm256_loadu_ps(from + at + 16), _mm256_loadu_ps(by + at + 16), c);
        d = _mm256_fmadd_ps(_mm256_loadu_ps(from + at + 24), _mm256_loadu_ps(by + at + 24), d);
    }
    if (at < whole) {
        a = _mm256_fmadd_ps(_mm256_loadu_ps(from + at), _mm256_loadu_ps(by + at), a);
        b = _mm256_fmadd_ps(_mm256_loadu_ps(from + at + 8), _mm256_loadu_ps(by + at + 8), b);
    }
    if (rest->count) {
        c = _mm256_fmadd_ps(_mm256_maskload_ps(from + whole, rest->low),
                            _mm256_loadu_ps(by + whole), c);
        if (rest->count > 8)
            d = _mm256_fmadd_ps(_mm256_maskload_ps(from + whole + 8, rest->high),
                                _mm256_loadu_ps(by + whole + 8), d);
    }
    *low = _mm256_add_ps(a, c);
    *high = _mm256_add_ps(b, d);
}

static inline int shift_of(const OuterPosition *above, uint64_t number)
{
    const int shift = above->shift + (above->has_axis ? (int)(number % LANES) : 0);
    return shift < PRIME ? shift : shift - PRIME;
}

/* Many rows: those that go into the same sums are summed in float32 first. */
FOR_AVX2 static void add_many_rows(const float *from, const float *by, int size, int rows,
                                   const OuterPosition *above, double *axes)
{
    float several[PRIME][LANES] __attribute__((aligned(64))) = {{0}};
    const Rest rest = rest_of(size);
    for (int row = 0; row < rows; row++, from += size) {
        const uint64_t number = (uint64_t)above->at + (uint64_t)row;
        const __m256 factor = _mm256_broadcast_ss(weights + number % BLOCK);
        float *to = several[shift_of(above, number)];
        __m256 low, high;
        sum_row(from, by, size, &rest, &low, &high);
        _mm256_store_ps(to, _mm256_fmadd_ps(low, factor, _mm256_load_ps(to)));
        _mm256_store_ps(to + 8, _mm256_fmadd_ps(high, factor, _mm256_load_ps(to + 8)));
    }
    const __m256d factor = _mm256_set1_pd(above->factor);
    for (int shift = 0; shift < PRIME; shift++) {
        add_lanes(axes + shift, _mm256_load_ps(several[shift]), factor);
        add_lanes(axes + shift + 8, _mm256_load_ps(several[shift] + 8), factor);
    }
}

FOR_AVX2 void floats_rows_avx2(const float *from, const float *by, int size, int rows,
                               const OuterPosition *above, double *axes)
{
    if (above->has_axis && rows >= MANY_ROWS) {
        add_many_rows(from, by, size, rows, above, axes);
        return;
    }
    const Rest rest = rest_of(size);
    for (int row = 0; row < rows; row++, from += size) {
        const uint64_t number = (uint64_t)above->at + (uint64_t)row;
        const __m256d factor = _mm256_set1_pd(
            above->has_axis ? above->factor * wide_weights[number % BLOCK] : above->factor);
        double *to = axes + shift_of(above, number);
        __m256 low, high;
        sum_row(from, by, size, &rest, &low, &high);
        add_lanes(to, low, factor);
        add_lanes(to + 8, high, factor);
    }
}

#endif
