/* A hash of bits: equal ones have equal hashes, and others, in practice, have not (statistics/sketch.py). */
#include "fast.h"
#include "sums.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

static uint64_t keys[BLOCK / 8] __attribute__((aligned(64)));

uint64_t stirred(uint64_t counter)
{
    uint64_t z = (counter + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

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

#define HASHED(stripe, flat, sizes, cubes, fourths)                                                                   \
    do {                                                                                                              \
        const __m512i word = _mm512_loadu_si512(from + LANES * (stripe));                                             \
        const __m512i mixed = _mm512_xor_si512(word, _mm512_load_si512(keys + 8 * (stripe)));                         \
        const __m512 x = _mm512_castsi512_ps(word), xx = _mm512_mul_ps(x, x);                                         \
        sum = _mm512_add_epi64(sum, _mm512_mul_epu32(mixed, _mm512_srli_epi64(mixed, 32)));                           \
        other = _mm512_add_epi64(other, _mm512_rol_epi64(word, 32));                                                  \
        flat = _mm512_fmadd_ps(x, _mm512_load_ps(by + LANES * (stripe)), flat);                                       \
        sizes = _mm512_add_ps(sizes, _mm512_abs_ps(x));                                                               \
        cubes = _mm512_fmadd_ps(xx, x, cubes);                                                                        \
        fourths = _mm512_fmadd_ps(xx, xx, fourths);                                                                   \
    } while (0)

/* A block of numbers, hashed and summed in passing: the same as hash_avx512 and floats_block of sums.c. */
FOR_AVX512 void hashed_block_avx512(const float *from, uint64_t hash[8], double lanes[LANES], double powers[3])
{
    const float *by = weights;
    __m512i sum = _mm512_loadu_si512(hash);
    __m512 flat0 = _mm512_setzero_ps(), sizes0 = flat0, cubes0 = flat0, fourths0 = flat0;
    __m512 flat1 = flat0, sizes1 = flat0, cubes1 = flat0, fourths1 = flat0;
    for (int part = 0; part < 4; part++, from += BLOCK / 4, by += BLOCK / 4) { /* so many numbers are a block of bytes */
        __m512i other = _mm512_setzero_si512();
        for (int stripe = 0; stripe < BLOCK / STRIPE; stripe += 2) {
            HASHED(stripe, flat0, sizes0, cubes0, fourths0);
            HASHED(stripe + 1, flat1, sizes1, cubes1, fourths1);
        }
        sum = _mm512_add_epi64(sum, other);
        sum = _mm512_xor_si512(sum, _mm512_srli_epi64(sum, 47));
        sum = _mm512_mullo_epi64(sum, _mm512_set1_epi64((long long)STIR));
    }
    _mm512_storeu_si512(hash, sum);
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

void make_keys(void)
{
    for (int at = 0; at < BLOCK / 8; at++)
        keys[at] = stirred((1ull << 32) + (uint64_t)at);
}

/* All bytes but the last come in whole blocks. */
void add_to_hash(uint64_t lanes[8], const char *bytes, int64_t size, int processor)
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

uint64_t finished_hash(const uint64_t lanes[8], int64_t bytes)
{
    uint64_t hash = (uint64_t)bytes * STIR;
    for (int lane = 0; lane < 8; lane++)
        hash = stirred(hash ^ lanes[lane]);
    return hash;
}
