/* The checksum of a row: that of zlib.crc32.
 *
 * Rows of code are long, and each block writes them anew. Where the processor multiplies polynomials, sixteen bytes are
 * folded into the next sixteen in two steps; what is left is looked up in tables, eight bytes at a time.
 */
#include "fast.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define CAN_FOLD 1
#define FOR_PRODUCTS __attribute__((target("pclmul,sse2")))
#else
#define CAN_FOLD 0
#endif

#define POLYNOMIAL 0xEDB88320u /* its lowest power in the highest bit, as in all words here */
#define SLICES 8
#define FOLDED 16

static uint32_t steps[SLICES][256]; /* what a byte does to the checksum, so many bytes before the end of a slice */
static int folds;                   /* whether this processor does */

/* Four bytes as a number, the first one lowest, on any machine. */
static inline uint32_t word_at(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Written out: a loop over the slices takes twice as long. */
static uint32_t looked_up(uint32_t sum, const unsigned char *bytes, Py_ssize_t count)
{
    for (; count >= SLICES; count -= SLICES, bytes += SLICES) {
        const uint32_t low = sum ^ word_at(bytes), high = word_at(bytes + 4);
        sum = steps[7][low & 255] ^ steps[6][low >> 8 & 255] ^ steps[5][low >> 16 & 255] ^ steps[4][low >> 24]
              ^ steps[3][high & 255] ^ steps[2][high >> 8 & 255] ^ steps[1][high >> 16 & 255] ^ steps[0][high >> 24];
    }
    for (; count > 0; count--, bytes++)
        sum = sum >> 8 ^ steps[0][(sum ^ *bytes) & 255];
    return sum;
}

#if CAN_FOLD
static long long near_factor, far_factor; /* powers of x: how far the two halves of what is folded are moved */

static long long power_of_x(int exponent)
{
    uint32_t power = 0x80000000u;
    for (; exponent > 0; exponent--)
        power = power >> 1 ^ (power & 1 ? POLYNOMIAL : 0);
    return (long long)power << 1; /* a product of two such words is a bit too low */
}

/* Of whole groups of sixteen bytes, two at least: the last one stands for all before it. */
FOR_PRODUCTS static uint32_t folded(uint32_t sum, const unsigned char *bytes, Py_ssize_t count)
{
    const __m128i factors = _mm_set_epi64x(near_factor, far_factor);
    __m128i all = _mm_xor_si128(_mm_loadu_si128((const __m128i *)bytes), _mm_cvtsi32_si128((int)sum));
    for (bytes += FOLDED, count -= FOLDED; count > 0; bytes += FOLDED, count -= FOLDED) {
        const __m128i low = _mm_clmulepi64_si128(all, factors, 0x00), high = _mm_clmulepi64_si128(all, factors, 0x11);
        all = _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128((const __m128i *)bytes));
    }
    unsigned char left[FOLDED];
    memcpy(left, &all, FOLDED);
    return looked_up(0, left, FOLDED);
}
#endif

uint32_t checksum_of(uint32_t sum, const unsigned char *bytes, Py_ssize_t count)
{
    sum = ~sum;
#if CAN_FOLD
    const Py_ssize_t whole = folds && count >= 4 * FOLDED ? count - count % FOLDED : 0;
    if (whole) {
        sum = folded(sum, bytes, whole);
        bytes += whole;
        count -= whole;
    }
#endif
    return ~looked_up(sum, bytes, count);
}

void checksum_ready(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? POLYNOMIAL : 0);
        steps[0][byte] = sum;
    }
    for (int slice = 1; slice < SLICES; slice++)
        for (int byte = 0; byte < 256; byte++)
            steps[slice][byte] = steps[slice - 1][byte] >> 8 ^ steps[0][steps[slice - 1][byte] & 255];
#if CAN_FOLD
    far_factor = power_of_x(8 * FOLDED + 32);
    near_factor = power_of_x(8 * FOLDED - 32);
    folds = __builtin_cpu_supports("pclmul");
#endif
}
