/* The hash of a sketch: equal bits have equal hashes, and different bits have different ones in
 * practice (statistics/sketch.py).
 *
 * The hash is a sum over blocks of 2,048 bytes. What a block adds depends only on its bytes and its
 * place, so the blocks can be hashed in any order.
 */
#include "fast.h"
#include "sums.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#define STRIPE  64 /* bytes that are hashed side by side */
#define STRIPES (HASHED / STRIPE)
#define KEYS    (1ull << 32) /* counters of the keys … */
#define FACTORS (2ull << 32) /* … and of the blocks' factors */

uint64_t hash_keys[HASHED / 8] __attribute__((aligned(64)));

uint64_t stirred(uint64_t counter)
{
    uint64_t z = (counter + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Return the factor of a block. It is odd, so the product differs for each sum of the block. */
static uint64_t factor_of(int64_t block)
{
    return stirred(FACTORS + (uint64_t)block) | 1;
}

static uint64_t hash_word(uint64_t word, uint64_t key)
{
    const uint64_t mixed = word ^ key;
    const uint64_t product = (mixed & 0xffffffffu) * (mixed >> 32);
    return (product << 32 | product >> 32) + word;
}

/* Hash some stripes, beginning with the first stripe of a block. */
static void hash_plain(uint64_t lanes[8], const char *bytes, int64_t block, int64_t stripes)
{
    for (; stripes > 0; stripes -= STRIPES, bytes += HASHED, block++) {
        const uint64_t factor = factor_of(block);
        for (int lane = 0; lane < 8; lane++) {
            uint64_t sum = 0, word;
            for (int at = lane; at < 8 * STRIPES && at < 8 * stripes; at += 8) {
                memcpy(&word, bytes + 8 * at, 8);
                sum += hash_word(word, hash_keys[at]);
            }
            lanes[lane] += sum * factor;
        }
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
FOR_AVX512 static inline __m512i add_block_avx512(__m512i lanes, __m512i sum, __m512i words,
                                                  int64_t block)
{
    const __m512i factor = _mm512_set1_epi64((long long)factor_of(block));
    return _mm512_add_epi64(lanes, _mm512_mullo_epi64(_mm512_add_epi64(sum, words), factor));
}

#define HASH_STRIPE(stripe)                                                                        \
    const __m512i word = _mm512_loadu_si512(bytes + STRIPE * (stripe));                            \
    const __m512i mixed = _mm512_xor_si512(word, _mm512_load_si512(hash_keys + 8 * (stripe)));     \
    const __m512i product = _mm512_mul_epu32(mixed, _mm512_srli_epi64(mixed, 32));                 \
    sum = _mm512_add_epi64(sum, _mm512_rol_epi64(product, 32));                                    \
    words = _mm512_add_epi64(words, word)

FOR_AVX512 static void hash_avx512(uint64_t lanes[8], const char *bytes, int64_t block,
                                   int64_t stripes)
{
    __m512i all = _mm512_loadu_si512(lanes);
    for (; stripes > 0; stripes -= STRIPES, bytes += HASHED, block++) {
        __m512i sum = _mm512_setzero_si512();
        __m512i words = sum;
        for (int stripe = 0; stripe < STRIPES && stripe < stripes; stripe++) {
            HASH_STRIPE(stripe);
        }
        all = add_block_avx512(all, sum, words, block);
    }
    _mm512_storeu_si512(lanes, all);
}

#define HASHED_AND_SUMMED(stripe, flat, sizes, cubes, fourths)                                     \
    do {                                                                                           \
        HASH_STRIPE(stripe);                                                                       \
        const __m512 x = _mm512_castsi512_ps(word), xx = _mm512_mul_ps(x, x);                      \
        flat = _mm512_fmadd_ps(x, _mm512_load_ps(by + LANES * (stripe)), flat);                    \
        sizes = _mm512_add_ps(sizes, _mm512_abs_ps(x));                                            \
        cubes = _mm512_fmadd_ps(xx, x, cubes);                                                     \
        fourths = _mm512_fmadd_ps(xx, xx, fourths);                                                \
    } while (0)

/* Hash and sum a block of numbers in one pass: the same as hash_avx512 and floats_block of sums.c.
 */
FOR_AVX512 void hashed_block_avx512(const float *from, Hash *hash, double lanes[LANES],
                                    double powers[3])
{
    const float *by = weights;
    const char *bytes = (const char *)from;
    __m512i all = _mm512_loadu_si512(hash->lanes);
    __m512 flat0 = _mm512_setzero_ps();
    __m512 sizes0 = flat0;
    __m512 cubes0 = flat0;
    __m512 fourths0 = flat0;
    __m512 flat1 = flat0;
    __m512 sizes1 = flat0;
    __m512 cubes1 = flat0;
    __m512 fourths1 = flat0;
    /* a block of numbers is two blocks of the hash */
    for (int half = 0; half < 2; half++, bytes += HASHED, by += BLOCK / 2) {
        __m512i sum = _mm512_setzero_si512();
        __m512i words = sum;
        for (int stripe = 0; stripe < STRIPES; stripe += 2) {
            HASHED_AND_SUMMED(stripe, flat0, sizes0, cubes0, fourths0);
            HASHED_AND_SUMMED(stripe + 1, flat1, sizes1, cubes1, fourths1);
        }
        all = add_block_avx512(all, sum, words, hash->blocks++);
    }
    _mm512_storeu_si512(hash->lanes, all);
    const __m512 flat[2] = {flat0, flat1};
    float found[2][LANES];
    for (int turn = 0; turn < 2; turn++)
        _mm512_storeu_ps(found[turn], flat[turn]);
    for (int lane = 0; lane < LANES; lane++)
        lanes[lane] = (double)found[0][lane] + (double)found[1][lane];
    powers[0] = _mm512_reduce_add_ps(_mm512_add_ps(sizes0, sizes1));
    powers[1] = _mm512_reduce_add_ps(_mm512_add_ps(cubes0, cubes1));
    powers[2] = _mm512_reduce_add_ps(_mm512_add_ps(fourths0, fourths1));
}

#define HASH_HALF(half)                                                                            \
    do {                                                                                           \
        const __m256i word =                                                                       \
            _mm256_loadu_si256((const __m256i *)(bytes + STRIPE * stripe) + (half));               \
        const __m256i key = _mm256_load_si256((const __m256i *)(hash_keys + 8 * stripe) + (half)); \
        const __m256i mixed = _mm256_xor_si256(word, key);                                         \
        const __m256i product = _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));             \
        sum[half] = _mm256_add_epi64(sum[half],                                                    \
                                     _mm256_add_epi64(_mm256_shuffle_epi32(product, 0xB1), word)); \
    } while (0)

FOR_AVX2 static void hash_avx2(uint64_t lanes[8], const char *bytes, int64_t block, int64_t stripes)
{
    for (; stripes > 0; stripes -= STRIPES, bytes += HASHED, block++) {
        const uint64_t factor = factor_of(block);
        __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (int stripe = 0; stripe < STRIPES && stripe < stripes; stripe++) {
            HASH_HALF(0);
            HASH_HALF(1);
        }
        uint64_t found[8];
        memcpy(found, sum, sizeof found);
        for (int lane = 0; lane < 8; lane++)
            lanes[lane] += found[lane] * factor;
    }
}
#else
#define hash_avx512 hash_plain
#define hash_avx2   hash_plain
#endif

static void (*const HASHES[PROCESSOR_KINDS])(uint64_t *, const char *, int64_t,
                                             int64_t) = {hash_plain, hash_avx2, hash_avx512};

/* A key is made of one for the quarter of the block and one for the place in the quarter.
 * */
void make_keys(void)
{
    for (int at = 0; at < HASHED / 8; at++)
        hash_keys[at] = stirred(KEYS + (uint64_t)at % 64) ^ stirred(KEYS + 64 + (uint64_t)at / 64);
}

void add_hashed(Hash *hash, const uint64_t found[8])
{
    const uint64_t factor = factor_of(hash->blocks++);
    for (int lane = 0; lane < 8; lane++)
        hash->lanes[lane] += found[lane] * factor;
}

/* Call this with whole blocks, but for the last bytes. */
void add_to_hash(Hash *hash, const char *bytes, int64_t size, int processor)
{
    const int64_t stripes = size / STRIPE;
    const int left = (int)(size % STRIPE);
    HASHES[processor](hash->lanes, bytes, hash->blocks, stripes);
    bytes += stripes * STRIPE;
    hash->blocks += size / HASHED;
    uint64_t sum = 0;
    for (int at = 0; at < left; at += 8) { /* the last word is filled with zeros */
        uint64_t word = 0;
        memcpy(&word, bytes + at, (size_t)(left - at < 8 ? left - at : 8));
        sum += hash_word(word, hash_keys[8 * (stripes % STRIPES) + at / 8]);
    }
    if (left)
        hash->lanes[0] += sum * factor_of(hash->blocks);
}

/* Return the hash; never 0, which means that there is none. */
uint64_t finished_hash(const Hash *hash, int64_t bytes)
{
    uint64_t sum = 0;
    for (int lane = 0; lane < 8; lane++)
        sum += hash->lanes[lane];
    sum = stirred(sum ^ stirred((uint64_t)bytes));
    return sum ? sum : 1;
}
