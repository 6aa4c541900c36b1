/* The checksum of a row, the same as zlib.crc32: it takes eight bytes at a time and looks each up
 * in a table. */
#include "fast.h"

#define POLYNOMIAL 0xEDB88320u /* the lowest power is in the highest bit, as in all words here */
#define SLICES     8

/* what a byte adds to the checksum if it has so many bytes after it in its slice */
static uint32_t steps[SLICES][256];

/* Four bytes as a number, the first one lowest, on any machine. */
static inline uint32_t word_at(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

uint32_t checksum_of(uint32_t sum, const unsigned char *bytes, Py_ssize_t count)
{
    sum = ~sum;
    for (; count >= SLICES; count -= SLICES, bytes += SLICES) {
        /* Written out: a loop over the slices takes twice as long. */
        const uint32_t low = sum ^ word_at(bytes);
        const uint32_t high = word_at(bytes + 4);
        sum = steps[7][low & 255] ^ steps[6][low >> 8 & 255] ^ steps[5][low >> 16 & 255]
              ^ steps[4][low >> 24] ^ steps[3][high & 255] ^ steps[2][high >> 8 & 255]
              ^ steps[1][high >> 16 & 255] ^ steps[0][high >> 24];
    }
    for (; count > 0; count--, bytes++)
        sum = sum >> 8 ^ steps[0][(sum ^ *bytes) & 255];
    return ~sum;
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
            steps[slice][byte] =
                steps[slice - 1][byte] >> 8 ^ steps[0][steps[slice - 1][byte] & 255];
}
