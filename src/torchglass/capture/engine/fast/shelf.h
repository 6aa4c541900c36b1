/* What shelf.c and measuring.c share: where copies of values lie. */
#ifndef TORCHGLASS_SHELF_H
#define TORCHGLASS_SHELF_H

#include <stdint.h>

typedef struct Shelf Shelf;

/* Bytes that a value shows, and of what they are a part. */
typedef struct {
    int64_t number;      /* of the value */
    uintptr_t storage;   /* where the memory begins that it may share with others */
    const char *memory;  /* its own first byte */
    int64_t length;      /* from there to behind its last byte */
    int item;            /* bytes of an element */
    int has_gaps;        /* most of the bytes are not its own: they are not copied for its sake */
} Shown;

enum { NOT_KEPT, KEPT, KEPT_ELSEWHERE }; /* elsewhere: not here, since it has gaps */
int keep_on_shelf(Shelf *shelf, const Shown *shown, int64_t words[4]); /* -1: error; the words are the journal's */

#endif
