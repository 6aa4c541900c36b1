/* Copies of the bytes of values: shared by saved.c and measuring.c. */
#ifndef TORCHGLASS_SAVED_H
#define TORCHGLASS_SAVED_H

#include <stdint.h>

typedef struct SavedBytes SavedBytes;

/* The bytes that a value shows, and the memory of which they are a part. */
typedef struct {
    int64_t number;     /* of the value */
    uintptr_t storage;  /* address of the storage, which other values may share */
    const char *memory; /* its first byte */
    int64_t length;     /* from its first byte to its last one */
    int item;           /* bytes of an element */
    /* most of these bytes are not its own, so they are not copied for this value */
    int has_gaps;
} Shown;

enum {
    NOT_KEPT,
    KEPT,
    LEFT_TO_SAVER /* Python copies it, without the gaps (statistics/saver.py) */
};
/* Copy the bytes of a value, and set the words that the journal has of the copy; -1: error. */
int save_bytes(SavedBytes *saved, const Shown *shown, int64_t words[4]);

#endif
