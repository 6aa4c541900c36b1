/* What tally.c and measuring.c share: where numbers lie, and what was counted in them. */
#ifndef TORCHGLASS_TALLY_H
#define TORCHGLASS_TALLY_H

#include <stdint.h>

#define MOST_SIZES 8

/* How a tensor's numbers lie in memory; dimensions by step, the smallest first, without those of one or of step 0. */
typedef struct {
    int kind, parts; /* parts: how many numbers are one element */
    int dimensions, is_dense;
    int64_t steps[MOST_SIZES], sizes[MOST_SIZES]; /* in elements */
    int64_t count, span; /* elements that are read, and from the first to behind the last of them */
    int64_t repeats;     /* how often each is shown */
} Layout;

typedef struct {
    int64_t count, nan, posinf, neginf, zeros, finite;
    double low, high, mean, squares; /* of the finite ones; squares: of the distances from the mean, summed up */
} Tally;

enum { PLAIN, AVX2, AVX512, PROCESSORS };

int64_t tally_floats(const char *memory, int64_t count, int processor, Tally *block); /* how many, from the first on */
int kind_of(const char *code); /* -1: not known */
int used_processor(void);      /* whose instructions are taken */
void join_tallies(Tally *tally, const Tally *block);
void tally_run(Tally *tally, int kind, const char *memory, Py_ssize_t count); /* numbers side by side, added to others */
int read_layout(PyObject *described, Layout *layout);
int tally_memory(const Layout *layout, const char *memory, Tally *tally); /* 0: too large for double precision */
void tally_numbers(const Tally *tally, int64_t counts[5], double numbers[5]); /* as they stand in the journal */

#endif
