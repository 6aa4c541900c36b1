/* How numbers lie in memory, and what was counted in them: shared by tally.c, floats.c (the same
 * for float32, faster), measuring.c, which keeps these for the values of a recording, and sketch.c,
 * which makes both in one pass. */
#ifndef TORCHGLASS_TALLY_H
#define TORCHGLASS_TALLY_H

#include <stdint.h>

#define MOST_SIZES 8
/* A block is summed once more, about its mean, if the sum of squares about the first number is so
 * many times that about the mean: six bits of the result are lost then. */
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
int used_processor(void); /* the kind that is used: PLAIN, AVX2 or AVX512 */

int kind_of(const char *code); /* an index of KINDS; -1: not known */
/* from the tuple that statistics/memory.py makes; -1: error */
int read_layout(PyObject *described, Layout *layout);
/* 0: numbers too large for double precision */
int tally_memory(const Layout *layout, const char *memory, Tally *tally);
/* add numbers that lie side by side */
void tally_run(Tally *tally, int kind, const char *memory, Py_ssize_t count);
/* Copy elements of `item` bytes that stand `stride` bytes apart, so that they lie side by side. */
void gather_elements(char *to, const char *from, int64_t count, int64_t stride, size_t item);
void join_tallies(Tally *tally, const Tally *block); /* add the tally of other numbers */
/* floats.c: tally as many of the first floats as it can, and return how many. */
int64_t tally_floats(const char *memory, int64_t count, int processor, Tally *block);
/* Return the numbers that the journal keeps. counts: all, NaN, +Inf, -Inf, zeros; numbers:
 * minimum, maximum, mean, std, norm. */
void tally_numbers(const Tally *tally, int64_t counts[5], double numbers[5]);

#endif
