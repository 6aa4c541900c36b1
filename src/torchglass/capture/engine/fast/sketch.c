/* By what numbers are known again (statistics/sketch.py is the definition): a hash of the bits, sums with weights by
 * place in the flat order, sums with weights by place on each axis, and sums that do not ask for the place.
 *
 * Numbers come in their logical order, some blocks of 1,024 at a time, read where they lie or gathered. Weights come from a counter
 * and repeat, with another sign, from block to block: so nothing is read but the numbers. What float32 holds exactly
 * is summed in it, sixteen lanes and at most sixteen additions each, and then in doubles.
 */
#include "fast.h"
#include "sketch.h"
#include <math.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define FOR_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma"), optimize("O3")))
#define FOR_AVX2 __attribute__((target("avx2,fma"), optimize("O3")))
#else
#define FOR_AVX512
#define FOR_AVX2
#endif

#define BLOCK 1024 /* numbers; also the bytes after which the hash is stirred */
#define PIECE (4 * BLOCK) /* numbers that are gathered or widened together … */
#define LARGE_PIECE (16 * BLOCK) /* … and those that are read where they lie, before the next sums are made of them */
#define LANES 16
#define STRIP 256 /* numbers that are summed in float32 before they go to doubles */
#define PRIME 17
#define TURNS 8
#define LARGEST 1e30 /* what is larger, or not finite, is counted and not summed */
#define LARGE_ENOUGH (1 << 16)

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef double Doubles __attribute__((vector_size(128)));
typedef int64_t Longs __attribute__((vector_size(128)));
typedef uint64_t Words __attribute__((vector_size(64)));

static float weights[2 * BLOCK + LANES] __attribute__((aligned(64)));         /* twice: rows begin anywhere */
static double wide_weights[2 * BLOCK + LANES] __attribute__((aligned(64)));
static uint64_t keys[BLOCK / 8] __attribute__((aligned(64)));
static int is_ready;

static uint64_t stirred(uint64_t counter)
{
    uint64_t z = (counter + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* A random sign times a number from 0.5 to 1.5; exact in float32. */
static double weight(uint64_t counter)
{
    uint64_t z = stirred(counter);
    double size = 0.5 + (double)(z >> 41) * 0x1p-23;
    return z & 1 ? -size : size;
}

/* A sign, by which the weights of one block differ from those of another. */
static double block_weight(int64_t block)
{
    return block && stirred(BLOCK + (uint64_t)block) & 1 ? -1.0 : 1.0;
}

static void make_ready(void)
{
    for (int at = 0; at < BLOCK; at++)
        wide_weights[at] = wide_weights[at + BLOCK] = weights[at] = weights[at + BLOCK] = (float)weight((uint64_t)at);
    for (int at = 0; at < BLOCK / 8; at++)
        keys[at] = stirred((1ull << 32) + (uint64_t)at);
    is_ready = 1;
}

/* ---------------------------------------------------------------- the hash */

#define STIR 0x9FB21C651E98DF25u
#define STRIPE 64

static void hash_stripes(uint64_t lanes[8], const char *bytes, const uint64_t *with, int stripes)
{
    for (int stripe = 0; stripe < stripes; stripe++)
        for (int lane = 0; lane < 8; lane++) {
            uint64_t word;
            memcpy(&word, bytes + STRIPE * stripe + 8 * lane, 8);
            uint64_t mixed = word ^ with[8 * stripe + lane];
            lanes[lane] += (mixed & 0xffffffffu) * (mixed >> 32) + (word << 32 | word >> 32);
        }
}

static void stir(uint64_t lanes[8])
{
    for (int lane = 0; lane < 8; lane++)
        lanes[lane] = (lanes[lane] ^ (lanes[lane] >> 47)) * STIR;
}

static void hash_plain(uint64_t lanes[8], const char *bytes, int64_t blocks)
{
    for (; blocks > 0; blocks--, bytes += BLOCK) {
        hash_stripes(lanes, bytes, keys, BLOCK / STRIPE);
        stir(lanes);
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
FOR_AVX512 static void hash_avx512(uint64_t lanes[8], const char *bytes, int64_t blocks)
{
    __m512i sum = _mm512_loadu_si512(lanes);
    for (; blocks > 0; blocks--, bytes += BLOCK) {
        __m512i other = _mm512_setzero_si512();
        for (int stripe = 0; stripe < BLOCK / STRIPE; stripe++) {
            __m512i word = _mm512_loadu_si512(bytes + STRIPE * stripe);
            __m512i mixed = _mm512_xor_si512(word, _mm512_load_si512(keys + 8 * stripe));
            sum = _mm512_add_epi64(sum, _mm512_mul_epu32(mixed, _mm512_srli_epi64(mixed, 32)));
            other = _mm512_add_epi64(other, _mm512_rol_epi64(word, 32));
        }
        sum = _mm512_add_epi64(sum, other);
        sum = _mm512_xor_si512(sum, _mm512_srli_epi64(sum, 47));
        sum = _mm512_mullo_epi64(sum, _mm512_set1_epi64((long long)STIR));
    }
    _mm512_storeu_si512(lanes, sum);
}

FOR_AVX2 static void hash_avx2(uint64_t lanes[8], const char *bytes, int64_t blocks)
{
    for (; blocks > 0; blocks--, bytes += BLOCK) {
        for (int half = 0; half < 2; half++) {
            __m256i sum = _mm256_loadu_si256((const __m256i *)lanes + half);
            for (int stripe = 0; stripe < BLOCK / STRIPE; stripe++) {
                __m256i word = _mm256_loadu_si256((const __m256i *)(bytes + STRIPE * stripe) + half);
                __m256i mixed = _mm256_xor_si256(word, _mm256_load_si256((const __m256i *)(keys + 8 * stripe) + half));
                sum = _mm256_add_epi64(sum, _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32)));
                sum = _mm256_add_epi64(sum, _mm256_shuffle_epi32(word, 0xB1));
            }
            _mm256_storeu_si256((__m256i *)lanes + half, sum);
        }
        stir(lanes);
    }
}
#else
#define hash_avx512 hash_plain
#define hash_avx2 hash_plain
#endif

static void (*const HASHES[PROCESSORS])(uint64_t *, const char *, int64_t) = {hash_plain, hash_avx2, hash_avx512};

/* All bytes but the last come in whole blocks. */
static void add_to_hash(uint64_t lanes[8], const char *bytes, int64_t size, int processor)
{
    HASHES[processor](lanes, bytes, size / BLOCK);
    bytes += size / BLOCK * BLOCK;
    const int left = (int)(size % BLOCK), whole = left / STRIPE;
    if (left == 0)
        return;
    char rest[STRIPE] = {0};
    memcpy(rest, bytes + STRIPE * whole, (size_t)(left % STRIPE));
    hash_stripes(lanes, bytes, keys, whole);
    hash_stripes(lanes, rest, keys + 8 * whole, left % STRIPE != 0);
    stir(lanes);
}

/* ---------------------------------------------------------------- sums */

typedef struct {
    double flat[2 * LANES], axes[2 * LANES]; /* folded to PRIME at the end */
    double sum, squares, sizes, cubes, fourths, low, high;
    int64_t odd;
} Sums;

/* Of one block, a multiple of two vectors: the lanes of the weighted sum, and |x|, x³, x⁴ of x * scale. */
#define DEFINE_BLOCK(target, name, type, Vector, Bits, without_sign, weights)                                         \
    target static void name(const type *from, int count, type scale, double lanes[LANES], double powers[3])          \
    {                                                                                                                 \
        Doubles sums[4] = {{0}};                                                                                      \
        for (int begin = 0; begin < count; begin += STRIP) {                                                          \
            const int end = count - begin < STRIP ? count : begin + STRIP;                                            \
            Vector one = {0}, two = {0}, sizes = {0}, cubes = {0}, fourths = {0}, more[3] = {{0}};                    \
            for (int at = begin; at < end; at += 2 * LANES) {                                                         \
                Vector x, y, w, v;                                                                                    \
                memcpy(&x, from + at, sizeof x);                                                                      \
                memcpy(&y, from + at + LANES, sizeof y);                                                              \
                memcpy(&w, weights + at, sizeof w);                                                                   \
                memcpy(&v, weights + at + LANES, sizeof v);                                                           \
                x *= scale;                                                                                           \
                y *= scale;                                                                                           \
                one += x * w;                                                                                         \
                two += y * v;                                                                                         \
                sizes += (Vector)((Bits)x & without_sign);                                                            \
                more[0] += (Vector)((Bits)y & without_sign);                                                          \
                Vector xx = x * x, yy = y * y;                                                                        \
                cubes += xx * x;                                                                                      \
                more[1] += yy * y;                                                                                    \
                fourths += xx * xx;                                                                                   \
                more[2] += yy * yy;                                                                                   \
            }                                                                                                         \
            sums[0] += __builtin_convertvector(one + two, Doubles);                                                   \
            sums[1] += __builtin_convertvector(sizes + more[0], Doubles);                                             \
            sums[2] += __builtin_convertvector(cubes + more[1], Doubles);                                             \
            sums[3] += __builtin_convertvector(fourths + more[2], Doubles);                                           \
        }                                                                                                             \
        memcpy(lanes, &sums[0], sizeof sums[0]);                                                                      \
        for (int power = 0; power < 3; power++) {                                                                     \
            powers[power] = 0.0;                                                                                      \
            for (int lane = 0; lane < LANES; lane++)                                                                  \
                powers[power] += sums[power + 1][lane];                                                               \
        }                                                                                                             \
    }

/* Rows that follow one another, or a part of one, each with the weights of its axis: into sixteen sums in a row, which
 * ones and with which factor its place on the axis above says. In turns: what was just written one step beside cannot be
 * read at once. */
#define DEFINE_ROWS(target, name, type, Vector)                                                                       \
    target static void name(const type *from, const type *by, int size, int rows, const Above *above, double *axes)   \
    {                                                                                                                 \
        const int whole = size / LANES * LANES, rest = size - whole, turns = rows < TURNS ? 1 : TURNS;                \
        double several[TURNS][2 * LANES];                                                                             \
        memset(several, 0, turns * sizeof several[0]);                                                                \
        for (int row = 0; row < rows; row++, from += size) {                                                          \
            Vector sum = {0}, x, w;                                                                                   \
            Doubles sums = {0};                                                                                       \
            for (int begin = 0; begin < whole; begin += STRIP) {                                                      \
                const int end = whole - begin < STRIP ? whole : begin + STRIP;                                        \
                if (begin) {                                                                                          \
                    sums += __builtin_convertvector(sum, Doubles);                                                    \
                    sum = (Vector){0};                                                                                \
                }                                                                                                     \
                for (int at = begin; at < end; at += LANES) {                                                         \
                    memcpy(&x, from + at, sizeof x);                                                                  \
                    memcpy(&w, by + at, sizeof w);                                                                    \
                    sum += x * w;                                                                                     \
                }                                                                                                     \
            }                                                                                                         \
            if (rest) {                                                                                               \
                x = (Vector){0};                                                                                      \
                memcpy(&w, by + whole, sizeof w);                                                                     \
                memcpy(&x, from + whole, (size_t)rest * sizeof(type));                                                \
                sum += x * w;                                                                                         \
            }                                                                                                         \
            const uint64_t at = (uint64_t)above->at + (uint64_t)row, place = at % BLOCK;                              \
            const double factor = above->has_axis ? above->factor * wide_weights[place] : above->factor;              \
            const uint64_t shift = (uint64_t)above->shift + (above->has_axis ? at % LANES : 0);                       \
            double *to = several[row & (turns - 1)] + (shift < PRIME ? shift : shift - PRIME);                        \
            Doubles before;                                                                                           \
            memcpy(&before, to, sizeof before);                                                                       \
            before += (sums + __builtin_convertvector(sum, Doubles)) * factor;                                        \
            memcpy(to, &before, sizeof before);                                                                       \
        }                                                                                                             \
        for (int turn = 0; turn < turns; turn++)                                                                      \
            for (int at = 0; at < 2 * LANES; at++)                                                                    \
                axes[at] += several[turn][at];                                                                        \
    }

/* Where rows stand on the axes outside of them: on the next one from `at` on, all in one block of its weights. */
typedef struct {
    double factor; /* of all further axes, and of the block */
    int64_t at;
    int shift, has_axis;
} Above;

#define DEFINE_FOR(target, suffix)                                                                                    \
    DEFINE_BLOCK(target, floats_block_##suffix, float, Floats, Ints, 0x7fffffff, weights)                             \
    DEFINE_BLOCK(target, doubles_block_##suffix, double, Doubles, Longs, 0x7fffffffffffffff, wide_weights)            \
    DEFINE_ROWS(target, floats_rows_##suffix, float, Floats)                                                          \
    DEFINE_ROWS(target, doubles_rows_##suffix, double, Doubles)
DEFINE_FOR(, plain)
DEFINE_FOR(FOR_AVX2, avx2)
DEFINE_FOR(FOR_AVX512, avx512)

typedef struct {
    void (*floats_block)(const float *, int, float, double *, double *);
    void (*doubles_block)(const double *, int, double, double *, double *);
    void (*floats_rows)(const float *, const float *, int, int, const Above *, double *);
    void (*doubles_rows)(const double *, const double *, int, int, const Above *, double *);
} Ways;
#define WAYS(suffix) {floats_block_##suffix, doubles_block_##suffix, floats_rows_##suffix, doubles_rows_##suffix}
static const Ways WAYS_OF[PROCESSORS] = {WAYS(plain), WAYS(avx2), WAYS(avx512)};

/* ---------------------------------------------------------------- numbers of any kind, as floats or doubles */

enum { F8, F4, F2, BF, I1, U1, B1, I2, U2, I4, U4, I8, U8 }; /* in the order of tally.c */

static const int WIDTHS[] = {8, 4, 2, 2, 1, 1, 1, 2, 2, 4, 4, 8, 8};

static int is_narrow(int kind)
{
    return kind != F8 && kind < I4;
}

static float half(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, size = bits & 0x7fff;
    const float small = (float)size * 0x1p-24f;
    uint32_t wide = (size << 13) + (112u << 23) + (size >= 0x7c00 ? 112u << 23 : 0), low;
    memcpy(&low, &small, 4);
    wide = (size < 0x0400 ? low : wide) | sign;
    float found;
    memcpy(&found, &wide, 4);
    return found;
}

#define EACH(kind, type, expression)                                                                                  \
    case kind:                                                                                                        \
        for (int at = 0; at < count; at++) {                                                                          \
            const type each = ((const type *)from)[at];                                                               \
            to[at] = expression;                                                                                      \
        }                                                                                                             \
        break;

__attribute__((optimize("O3"))) static void as_floats(int kind, const char *from, int count, float *to)
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

__attribute__((optimize("O3"))) static void as_doubles(int kind, const char *from, int count, double *to)
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

/* ---------------------------------------------------------------- a whole tensor */

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

/* Numbers that float32 holds, in whole blocks but for the last; `exponent`: of the largest. */
static void add_floats(Sums *sums, const float *numbers, int count, int64_t block, int exponent, const Ways *ways)
{
    double lanes[LANES], powers[3];
    const float scale = ldexpf(1.0f, -exponent);
    for (int at = 0; at < count; at += BLOCK, block++) {
        float padded[BLOCK] __attribute__((aligned(64)));
        const float *whole = numbers + at;
        const int size = count - at < BLOCK ? count - at : BLOCK, filled = (size + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
        if (filled != size) {
            memcpy(padded, whole, (size_t)size * sizeof(float));
            memset(padded + size, 0, (size_t)(filled - size) * sizeof(float));
            whole = padded;
        }
        ways->floats_block(whole, filled, scale, lanes, powers);
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
        if (order->steps[last] == (int64_t)item)
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
    return exponent < -120 ? -120 : exponent;
}

static void fold(const double lanes[2 * LANES], float to[PRIME])
{
    for (int at = 0; at < PRIME; at++)
        to[at] = (float)(lanes[at] + (at + PRIME < 2 * LANES ? lanes[at + PRIME] : 0.0));
}

static uint64_t finished(const uint64_t lanes[8], int64_t bytes)
{
    uint64_t hash = (uint64_t)bytes * STIR;
    for (int lane = 0; lane < 8; lane++)
        hash = stirred(hash ^ lanes[lane]);
    return hash;
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

/* `lanes` of the hash NULL: only the sums by axes are wanted. */
static void sketch_pieces(const Order *order, const char *memory, const Tally *tally, Sums *sums, uint64_t *lanes)
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
        if (lanes != NULL)
            add_to_hash(lanes, from, (int64_t)elements * order->item, processor);
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
            if (lanes != NULL)
                add_floats(sums, read, count, block, exponent, ways);
        }
        if (place.count > 1)
            add_axes(sums, &place, read, count, is_wide, ways);
    }
    if (!is_wide)
        scale_back(sums, exponent);
    if (place.count == 1) /* the flat order is that of the one axis */
        memcpy(sums->axes, sums->flat, sizeof sums->axes);
    if (!is_wide && tally->finite) {
        sums->sum = tally->mean * (double)tally->finite;
        sums->squares = tally->squares + sums->sum * tally->mean;
        sums->low = tally->low;
        sums->high = tally->high;
    }
}

/* With the lock of Python let go of where it takes a while. */
static void sketch_unlocked(const Order *order, const char *memory, const Tally *tally, Sums *sums, uint64_t *lanes)
{
    if (!is_ready)
        make_ready();
    PyThreadState *saved = order->count > LARGE_ENOUGH ? PyEval_SaveThread() : NULL;
#if defined(__x86_64__) && defined(__GNUC__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8000); /* what is too small for float32 is 0: powers of it would take a hundred times as long */
#endif
    sketch_pieces(order, memory, tally, sums, lanes);
#if defined(__x86_64__) && defined(__GNUC__)
    _mm_setcsr(before);
#endif
    if (saved != NULL)
        PyEval_RestoreThread(saved);
}

void sketch_memory(const Order *order, const char *memory, const Tally *tally, Sketch *sketch)
{
    Sums sums = {.low = INFINITY, .high = -INFINITY};
    uint64_t lanes[8] = {0};
    sketch_unlocked(order, memory, tally, &sums, lanes);
    *sketch = (Sketch){.hash = finished(lanes, order->count * order->item), .odd = sums.odd};
    fold(sums.flat, sketch->flat);
    fold(sums.axes, sketch->axes);
    const double orders[7] = {sums.sum, sums.squares, sums.sizes, sums.cubes, sums.fourths, sums.low, sums.high};
    memcpy(sketch->orders, orders, sizeof orders);
    if (!(sums.low <= sums.high))
        sketch->orders[5] = sketch->orders[6] = 0.0;
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
