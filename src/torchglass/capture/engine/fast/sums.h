/* What sketch.c, sums.c and hash.c share: the pieces of which a sketch is made. */
#ifndef TORCHGLASS_SUMS_H
#define TORCHGLASS_SUMS_H

#include "sketch.h"

#define BLOCK 1024 /* numbers after which the weights repeat, with another sign */
#define HASHED 2048 /* bytes after which the keys of the hash repeat, with another factor */
#define LANES 16
#define PRIME 17
#define LARGEST 1e30 /* what is larger, or not finite, is counted and not summed */

/* A function compiled for one processor; it may not be called on another. */
#if defined(__x86_64__) && defined(__GNUC__)
#define FOR_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma"), optimize("O3")))
#define FOR_AVX2 __attribute__((target("avx2,fma"), optimize("O3")))
#else
#define FOR_AVX512
#define FOR_AVX2
#endif

/* The kinds of numbers, in the order of tally.c, and their bytes. */
enum { F8, F4, F2, BF, I1, U1, B1, I2, U2, I4, U4, I8, U8 };
extern const int WIDTHS[];

/* Where rows stand on the axes outside of them: on the next one from `at` on, all in one block of its weights. */
typedef struct {
    double factor; /* of all further axes, and of the block */
    int64_t at;
    int shift, has_axis;
} Above;

/* What was hashed so far: its sum, in lanes, and how many blocks it had. */
typedef struct {
    uint64_t lanes[8];
    int64_t blocks;
} Hash;

/* One processor's ways to sum: of a block the weighted sum, in lanes, and |x|, x³, x⁴; of rows the sums by axes. */
typedef struct {
    void (*floats_block)(const float *, int, float, double *, double *); /* as they are, whatever the scale … */
    void (*floats_scaled)(const float *, int, float, double *, double *); /* … and scaled first */
    void (*doubles_block)(const double *, int, double, double *, double *);
    void (*floats_rows)(const float *, const float *, int, int, const Above *, double *);
    void (*doubles_rows)(const double *, const double *, int, int, const Above *, double *);
    void (*hashed_block)(const float *, Hash *, double *, double *); /* of a whole block, and its bits; may be NULL */
} Ways;

extern const Ways WAYS_OF[PROCESSORS];
extern float weights[2 * BLOCK + LANES]; /* twice: rows begin anywhere */
extern double wide_weights[2 * BLOCK + LANES];
void make_weights(void);                                            /* and keys; before all else, under Python's lock */
double block_weight(int64_t block);                                 /* a sign, by which blocks differ */
void as_floats(int kind, const char *from, int count, float *to);   /* at most a block, of those that float32 holds */
void as_doubles(int kind, const char *from, int count, double *to); /* at most a block, of any */

void hashed_block_avx512(const float *from, Hash *hash, double lanes[LANES], double powers[3]); /* hash.c */
extern uint64_t hash_keys[HASHED / 8];
void add_hashed(Hash *hash, const uint64_t found[8]); /* what the next whole block of bytes gave, in lanes */
uint64_t stirred(uint64_t counter); /* 64 bits of a counter */
void make_keys(void);
void add_to_hash(Hash *hash, const char *bytes, int64_t size, int processor);
uint64_t finished_hash(const Hash *hash, int64_t bytes);

void hashed_block_avx2(const float *from, Hash *hash, double lanes[LANES], double powers[3]); /* sums_avx2.c */
void floats_block_avx2(const float *from, int count, float scale, double lanes[LANES], double powers[3]);
void floats_scaled_avx2(const float *from, int count, float scale, double lanes[LANES], double powers[3]);
void floats_rows_avx2(const float *from, const float *by, int size, int rows, const Above *above, double *axes);

#endif
