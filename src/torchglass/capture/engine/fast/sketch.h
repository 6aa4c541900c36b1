/* Sketches, the content fingerprints of tensors: shared by sketch.c, measuring.c and device.c. */
#ifndef TORCHGLASS_SKETCH_H
#define TORCHGLASS_SKETCH_H

#include "tally.h"

#define MOST_AXES 8

/* The elements of a tensor in their logical order: the last axis innermost, without axes of one
 * element. */
typedef struct {
    int kind;        /* of the numbers: an index of KINDS in tally.c */
    int parts, item; /* numbers of an element, and its bytes */
    int dimensions, is_contiguous;
    int64_t sizes[MOST_AXES];
    int64_t steps[MOST_AXES]; /* bytes from one element to the next on this axis */
    int64_t count;
} Order;

/* A sketch as the journal has it (journal/layout.py), without its last word. */
typedef struct {
    uint64_t hash;    /* of all bits */
    float flat[17];   /* sums with weights by the place in the flat order */
    float axes[17];   /* sums with weights by the place on each axis */
    double orders[7]; /* sums of x, x², |x|, x³, x⁴; minimum and maximum */
    int64_t odd;      /* numbers that are not finite or too large, which are in no sum */
} Sketch;

/* Read an order from the tuple that statistics/sketch.py makes. */
int read_order(PyObject *described, Order *order);
int is_same_order(const Order *one, const Order *other);

/* Make the sketch of numbers in memory. `tally` has their statistics. */
void sketch_memory(const Order *order, const char *memory, const Tally *tally, Sketch *sketch);
/* Change a sketch into that of the same numbers in the same flat order, but with other axes. */
void sketch_axes(const Order *order, const char *memory, const Tally *tally, Sketch *sketch);
/* Make the statistics and the sketch, reading the numbers once if they are many. 0: the numbers are
 * too large for double precision. */
int tally_and_sketch(const Layout *layout, const Order *order, const char *memory, Tally *tally,
                     Sketch *sketch);
/* Write a sketch into the journal. */
int write_sketch(ValueFields *fields, int64_t number, const Sketch *sketch);

#endif
