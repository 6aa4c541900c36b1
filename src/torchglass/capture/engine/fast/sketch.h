/* What sketch.c and measuring.c share: the logical order of a tensor's elements, and what is kept of their numbers. */
#ifndef TORCHGLASS_SKETCH_H
#define TORCHGLASS_SKETCH_H

#include "tally.h"

#define MOST_AXES 8

/* The elements of a tensor in their logical order: the last axis innermost, without axes of one element. */
typedef struct {
    int kind, parts, item; /* as tally.c knows it; numbers of an element, and its bytes */
    int dimensions, is_contiguous;
    int64_t sizes[MOST_AXES], steps[MOST_AXES]; /* steps in bytes */
    int64_t count;
} Order;

/* As it stands in the journal (journal/layout.py), but for the last word. */
typedef struct {
    uint64_t hash;
    float flat[17], axes[17];
    double orders[7];
    int64_t odd;
} Sketch;

int read_order(PyObject *described, Order *order);
void sketch_memory(const Order *order, const char *memory, const Tally *tally, Sketch *sketch);
/* The same, where the sketch is that of the same numbers in the same flat order, on other axes. */
void sketch_axes(const Order *order, const char *memory, const Tally *tally, Sketch *sketch);
/* Measures and sketches; where numbers are many, a piece at a time for both. 0: too large for double precision. */
int tally_and_sketch(const Layout *layout, const Order *order, const char *memory, Tally *tally, Sketch *sketch);
int write_sketch(ValueFields *fields, int64_t number, const Sketch *sketch); /* into the journal */
int is_same_order(const Order *one, const Order *other);

#endif
