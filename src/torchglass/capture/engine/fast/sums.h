/* The kernels of a sketch: shared by sketch.c, sums.c, sums_avx2.c and hash.c. */
#ifndef TORCHGLASS_SUMS_H
#define TORCHGLASS_SUMS_H

#include "sketch.h"

#define BLOCK   1024 /* numbers of a block; each block has the same weights, times its own sign */
#define HASHED  2048 /* bytes of a block of the hash; each has the same keys, and its own factor */
#define LANES   16
#define PRIME   17
#define LARGEST 1e30 /* larger numbers are not summed, but counted, as are NaN and Inf */

/* A function compiled for one processor; it may not be called on another. */
#if defined(__x86_64__) && defined(__GNUC__)
#define FOR_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma"), optimize("O3")))
#define FOR_AVX2   __attribute__((target("avx2,fma"), optimize("O3")))
#else
#define FOR_AVX512
#define FOR_AVX2
#endif

/* The kinds of numbers, in the order of tally.c, and their bytes. */
enum { F8, F4, F2, BF, I1, U1, B1, I2, U2, I4, U4, I8, U8 };
extern const int WIDTHS[];

/* The position of a run of rows on the axes outside of them, which weights their sums. All rows lie
 * in one block of weights of the next outer axis. */
typedef struct {
    double factor; /* product of the weights of the axes further out, and of the block's sign */
    int64_t at;    /* index of the first row on the next outer axis */
    int shift;     /* which of the PRIME sums the first row is added to */
    int has_axis;  /* 0: there is no outer axis */
} OuterPosition;

/* A hash under way: its sum, in lanes, and the number of blocks in it. */
typedef struct {
    uint64_t lanes[8];
    int64_t blocks;
} Hash;

/* The kernels for one instruction set. Of a block they compute the weighted sum, in lanes, and the
 * sums of |x|, x³ and x⁴; of rows they add the weighted sums to those of the axes. */
typedef struct {
    void (*floats_block)(const float *from, int count, float ignored, double *lanes,
                         double *powers);
    /* of x * scale */
    void (*floats_scaled)(const float *from, int count, float scale, double *lanes, double *powers);
    void (*doubles_block)(const double *from, int count, double ignored, double *lanes,
                          double *powers);
    void (*floats_rows)(const float *from, const float *by, int size, int rows,
                        const OuterPosition *outer, double *axes);
    void (*doubles_rows)(const double *from, const double *by, int size, int rows,
                         const OuterPosition *outer, double *axes);
    /* sums and hash of a whole block; or NULL */
    void (*hashed_block)(const float *from, Hash *hash, double *lanes, double *powers);
} SumKernels;

extern const SumKernels KERNELS_OF[PROCESSOR_KINDS];
/* Two periods and some more, so that a row that begins in the middle of a block is read without
 * wrapping around. */
extern float weights[2 * BLOCK + LANES];
extern double wide_weights[2 * BLOCK + LANES];
/* Compute the weights and the hash keys. Call it first, with the GIL held. */
void make_weights(void);
/* Return the sign of a block's weights, +1 or -1. */
double block_weight(int64_t block);
/* Convert up to a block of numbers: to float32 those that it holds exactly, to double any. */
void as_floats(int kind, const char *from, int count, float *to);
void as_doubles(int kind, const char *from, int count, double *to);

/* hash.c */
void hashed_block_avx512(const float *from, Hash *hash, double lanes[LANES], double powers[3]);
extern uint64_t hash_keys[HASHED / 8];
/* Add the result of the next whole block. */
void add_hashed(Hash *hash, const uint64_t lanes[8]);
/* Return the splitmix64 of a counter. */
uint64_t stirred(uint64_t counter);
void make_keys(void);
void add_to_hash(Hash *hash, const char *bytes, int64_t size, int processor);
uint64_t finished_hash(const Hash *hash, int64_t bytes);

/* sums_avx2.c */
void hashed_block_avx2(const float *from, Hash *hash, double lanes[LANES], double powers[3]);
void floats_block_avx2(const float *from, int count, float scale, double lanes[LANES],
                       double powers[3]);
void floats_scaled_avx2(const float *from, int count, float scale, double lanes[LANES],
                        double powers[3]);
void floats_rows_avx2(const float *from, const float *by, int size, int rows,
                      const OuterPosition *above, double *axes);

#endif
