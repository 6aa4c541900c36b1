/* A hash table: sequence of words -> number (fast.h: Table). */
#include "fast.h"

static uint64_t hash_of(const int64_t *words, Py_ssize_t length)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ (uint64_t)length;
    for (Py_ssize_t at = 0; at < length; at++) {
        hash ^= (uint64_t)words[at];
        hash *= 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    return hash | 1; /* 0 is an empty slot */
}

static int is_key(const Table *table, Py_ssize_t key, const int64_t *words, Py_ssize_t length)
{
    const int64_t *known = table->keys + key;
    return known[0] == length && memcmp(known + 1, words, (size_t)length * 8) == 0;
}

int64_t table_find(const Table *table, const int64_t *words, Py_ssize_t length, uint64_t *hash)
{
    *hash = hash_of(words, length);
    if (table->slots == NULL)
        return NONE;
    for (Py_ssize_t at = (Py_ssize_t)(*hash & (uint64_t)table->mask);;
         at = (at + 1) & table->mask) {
        const struct slot *slot = &table->slots[at];
        if (slot->hash == 0)
            return NONE;
        if (slot->hash == *hash && is_key(table, slot->key, words, length))
            return slot->number;
    }
}

static int grow(Table *table)
{
    Py_ssize_t size = table->slots == NULL ? 64 : 2 * (table->mask + 1);
    struct slot *slots = PyMem_Calloc((size_t)size, sizeof(struct slot));
    if (slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t old = 0; table->slots != NULL && old <= table->mask; old++) {
        if (table->slots[old].hash == 0)
            continue;
        Py_ssize_t at = (Py_ssize_t)(table->slots[old].hash & (uint64_t)(size - 1));
        while (slots[at].hash != 0)
            at = (at + 1) & (size - 1);
        slots[at] = table->slots[old];
    }
    PyMem_Free(table->slots);
    table->slots = slots;
    table->mask = size - 1;
    return 0;
}

int table_add(Table *table, const int64_t *words, Py_ssize_t length, uint64_t hash, int64_t number)
{
    if (2 * (table->count + 1) > table->mask + 1 && grow(table) < 0)
        return -1;
    if (table->used + length + 1 > table->room) {
        Py_ssize_t room = 2 * table->room + length + 1024;
        int64_t *keys = PyMem_Realloc(table->keys, (size_t)room * 8);
        if (keys == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        table->keys = keys;
        table->room = room;
    }
    Py_ssize_t key = table->used;
    table->keys[key] = length;
    memcpy(table->keys + key + 1, words, (size_t)length * 8);
    table->used += length + 1;
    Py_ssize_t at = (Py_ssize_t)(hash & (uint64_t)table->mask);
    while (table->slots[at].hash != 0)
        at = (at + 1) & table->mask;
    table->slots[at] = (struct slot){hash, key, number};
    table->count++;
    return 0;
}

void table_clear(Table *table)
{
    PyMem_Free(table->keys);
    PyMem_Free(table->slots);
    memset(table, 0, sizeof *table);
}
