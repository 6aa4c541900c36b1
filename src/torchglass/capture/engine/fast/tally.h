/* How numbers lie in memory, and their statistics.
 *
 *   tally.c      makes the statistics; floats.c makes those of float32, faster
 *   sketch.c     makes statistics and sketch in one pass
 *   measuring.c  decides which values are measured, and keeps the results
 */
#ifndef TORCHGLASS_TALLY_H
#define TORCHGLASS_TALLY_H

#include <stdint.h>

#define MOST_SIZES 8
/* The squares of a block are summed about its first number. If that sum is so many times the one
 * about the mean, six bits of the result are lost. Then the block is summed again, about its mean. */
#define MOST_CANCELLED 64.0

/* How a tensor's numbers lie in memory: its dimensions sorted by stride, the smallest first,
 * without those of size 1 and those of stride 0 (expanded). A complex number is one element of two
 * parts. */
typedef struct {
    int kind;  /* of the parts: an index of KINDS in tally.c */
    int parts; /* how many numbers are one element */
    int dimensions, is_dense;
    int64_t strides[MOST_SIZES], sizes[MOST_SIZES]; /* in elements */
    int64_t count;                                  /* elements that are read */
    int64_t span;    /* elements from the first of these to one past the last */
    int64_t repeats; /* how often an expanded tensor shows each of them */
} Layout;

typedef struct {
    int64_t count, nan, posinf, neginf, zeros, finite;
    double low, high, mean; /* of the finite ones, as is the next one */
    double squares;         /* sum of squared deviations from the mean */
} Tally;

/* The kinds of processors for which functions are compiled separately; each can do what those
 * before it can. */
enum { PLAIN, AVX2, AVX512, PROCESSOR_KINDS };
/* Return the kind that is used. */
int used_processor(void);

/* Return the index in KINDS of a dtype; -1: it is not known. */
int kind_of(const char *code);
/* Read a layout from the tuple that statistics/memory.py makes; -1: error. */
int read_layout(PyObject *described, Layout *layout);

/* Make the statistics of numbers in memory. 0: they are too large for double precision. */
int tally_memory(const Layout *layout, const char *memory, Tally *tally);
/* Add numbers that lie side by side. */
void tally_run(Tally *tally, int kind, const char *memory, Py_ssize_t count);
/* Add the statistics of other numbers. */
void join_tallies(Tally *tally, const Tally *block);
/* Make the statistics of as many of the first floats as possible, and return how many (floats.c). */
int64_t tally_floats(const char *memory, int64_t count, int processor, Tally *block);
/* Convert statistics to what the journal keeps. counts: all, NaN, +Inf, -Inf, zeros; numbers:
 * minimum, maximum, mean, deviation, norm. */
void tally_numbers(const Tally *tally, int64_t counts[5], double numbers[5]);

/* Copy elements of `item` bytes that are `stride` bytes apart, so that they lie side by side. */
void gather_elements(char *to, const char *from, int64_t count, int64_t stride, size_t item);

#endif
