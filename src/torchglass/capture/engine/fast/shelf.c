/* Copies of what values hold (statistics/shelf.py is the definition): each piece of memory once, as long as it is the same.
 *
 * Python gives large regions, of a file that is mapped or of its own memory; here bytes are put into them one behind the
 * other. Whether the memory of a value was copied before is asked of the bytes themselves: no count of versions knows of
 * what numpy writes, and comparing costs less than to copy.
 */
#include "fast.h"
#include "shelf.h"
#include "structmember.h"

#define PLACES 4096 /* pieces of memory of which it is known where a copy lies; a power of two */
#define ALIGNMENT 16
#define LARGE_ENOUGH (1 << 18) /* bytes: to let other threads run meanwhile */

/* What Python gave. */
typedef struct {
    Py_buffer view;
    int is_there;
    int64_t place, base; /* as the journal names it, and what to add to offsets in it */
    int64_t at;          /* where the next bytes go */
    int64_t room;        /* copies that it may still take */
    int64_t used;        /* bytes of those that it has */
    int64_t newest;      /* the last value that refers to it */
    int users;           /* threads that copy or compare without Python's lock */
} Region;

/* The last copy that was made of some memory. */
typedef struct {
    uintptr_t storage;
    const char *memory;
    int64_t length, offset, region;
} Copied;

struct Shelf {
    PyObject_HEAD
    PyObject *more; /* more(bytes) → (region, place, what to add, how many copies), or None */
    long long most, used, kept;
    char is_full;
    Region *regions;
    int64_t count, current;
    Copied places[PLACES];
};

static Copied *place_of(Shelf *shelf, uintptr_t storage)
{
    return &shelf->places[((uint64_t)storage * 0x9E3779B97F4A7C15u) >> 52];
}

static void copy_bytes(char *to, const char *from, int64_t length)
{
    if (length < LARGE_ENOUGH) {
        memcpy(to, from, (size_t)length);
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    memcpy(to, from, (size_t)length);
    Py_END_ALLOW_THREADS
}

static int are_equal(const char *one, const char *other, int64_t length)
{
    int different;
    if (length < LARGE_ENOUGH)
        return memcmp(one, other, (size_t)length) == 0;
    Py_BEGIN_ALLOW_THREADS
    different = memcmp(one, other, (size_t)length);
    Py_END_ALLOW_THREADS
    return different == 0;
}

static int64_t tell(Shelf *shelf, const Shown *shown, int64_t region, int64_t offset, int64_t length, int64_t first,
                    int64_t words[4])
{
    Region *found = &shelf->regions[region];
    if (shown->number > found->newest)
        found->newest = shown->number;
    shelf->kept++;
    words[0] = found->base + offset;
    words[1] = length;
    words[2] = first;
    words[3] = found->place;
    return KEPT;
}

/* Whether a copy of its memory holds the same bytes. */
static int is_copied(Shelf *shelf, const Shown *shown, int64_t words[4])
{
    const Copied known = *place_of(shelf, shown->storage);
    const int64_t first = shown->memory - known.memory;
    if (known.length == 0 || known.storage != shown->storage || first < 0 || first + shown->length > known.length
        || first % shown->item || known.length % shown->item || !shelf->regions[known.region].is_there)
        return 0;
    shelf->regions[known.region].users++;
    const char *copy = (const char *)shelf->regions[known.region].view.buf + known.offset;
    const int same = are_equal(copy + first, shown->memory, shown->length);
    shelf->regions[known.region].users--; /* others may have come, and the regions lie elsewhere */
    return same && tell(shelf, shown, known.region, known.offset, known.length, first, words) == KEPT;
}

/* A region of so many bytes at least; its number, NONE where there is no more, FAILED. */
static int64_t new_region(Shelf *shelf, int64_t bytes)
{
    PyObject *given = PyObject_CallFunction(shelf->more, "L", (long long)bytes), *buffer;
    long long place, base, room;
    if (given == NULL)
        return FAILED;
    if (given == Py_None) {
        Py_DECREF(given);
        return NONE;
    }
    Region region = {.is_there = 1, .newest = -1};
    if (!PyArg_ParseTuple(given, "OLLL", &buffer, &place, &base, &room)
        || PyObject_GetBuffer(buffer, &region.view, PyBUF_WRITABLE) < 0) {
        Py_DECREF(given);
        return FAILED;
    }
    Py_DECREF(given);
    region.place = place;
    region.base = base;
    region.room = room;
    Region *more = PyMem_Realloc(shelf->regions, (size_t)(shelf->count + 1) * sizeof(Region));
    if (more == NULL || region.view.len < bytes) {
        PyBuffer_Release(&region.view);
        shelf->regions = more == NULL ? shelf->regions : more;
        return PyErr_NoMemory(), FAILED;
    }
    shelf->regions = more;
    more[shelf->count] = region;
    return shelf->count++;
}

/* Where so many bytes can go. */
static int64_t find_region(Shelf *shelf, int64_t length)
{
    if (shelf->current >= 0) {
        const Region *now = &shelf->regions[shelf->current];
        if (now->is_there && now->at + length <= now->view.len && now->room > 0)
            return shelf->current;
    }
    const int64_t fresh = new_region(shelf, length);
    if (fresh < 0)
        return fresh;
    const Region *now = &shelf->regions[fresh];
    if (shelf->current < 0 || now->view.len - length > now->view.len / 4) /* not one that it fills */
        shelf->current = fresh;
    return fresh;
}

int keep_on_shelf(Shelf *shelf, const Shown *shown, int64_t words[4])
{
    if (is_copied(shelf, shown, words))
        return KEPT;
    if (shown->has_gaps)
        return KEPT_ELSEWHERE;
    if (shelf->used + shown->length > shelf->most) {
        shelf->is_full = 1;
        return NOT_KEPT;
    }
    const int64_t number = find_region(shelf, shown->length);
    if (number < 0)
        return number == NONE ? KEPT_ELSEWHERE : -1;
    Region *region = &shelf->regions[number];
    const int64_t offset = region->at;
    region->at += (shown->length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    region->room--;
    region->used += shown->length;
    region->users++;
    shelf->used += shown->length;
    copy_bytes((char *)region->view.buf + offset, shown->memory, shown->length);
    shelf->regions[number].users--;
    *place_of(shelf, shown->storage) = (Copied){shown->storage, shown->memory, shown->length, offset, number};
    return (int)tell(shelf, shown, number, offset, shown->length, 0, words);
}

/* ---------------------------------------------------------------- asked by Python */

/* keep(number, storage, address, length, item, has gaps) → the four words, True: elsewhere, None: there is no room */
static PyObject *shelf_keep(Shelf *shelf, PyObject *args)
{
    long long number, storage, address, length;
    int64_t words[4];
    int item, has_gaps;
    if (!PyArg_ParseTuple(args, "LLLLip", &number, &storage, &address, &length, &item, &has_gaps))
        return NULL;
    const Shown shown = {number, (uintptr_t)storage, (const char *)(uintptr_t)address, length, item, has_gaps};
    switch (keep_on_shelf(shelf, &shown, words)) {
    case KEPT:
        return Py_BuildValue("LLLL", (long long)words[0], (long long)words[1], (long long)words[2], (long long)words[3]);
    case KEPT_ELSEWHERE:
        Py_RETURN_TRUE;
    case NOT_KEPT:
        Py_RETURN_NONE;
    }
    return NULL;
}

static void let_region_go(Region *region)
{
    if (region->is_there) {
        region->is_there = 0;
        PyBuffer_Release(&region->view);
    }
}

/* forget(value) → places of the regions to which only values before that one refer; they are let go of. */
static PyObject *shelf_forget(Shelf *shelf, PyObject *args)
{
    long long before;
    PyObject *gone = PyList_New(0);
    if (gone == NULL || !PyArg_ParseTuple(args, "L", &before)) {
        Py_XDECREF(gone);
        return NULL;
    }
    for (int64_t at = 0; at < shelf->count; at++) {
        Region *region = &shelf->regions[at];
        if (at == shelf->current || !region->is_there || region->users || region->newest >= before)
            continue;
        PyObject *place = PyLong_FromLongLong(region->place);
        if (place == NULL || PyList_Append(gone, place) < 0) {
            Py_XDECREF(place);
            Py_DECREF(gone);
            return NULL;
        }
        Py_DECREF(place);
        if (region->place < 0) /* what lies in a file stays there */
            shelf->used -= region->used;
        let_region_go(&shelf->regions[at]);
    }
    return gone;
}

/* drop(place, what was to add): that region is not looked at any more; False: it is in use. */
static PyObject *shelf_drop(Shelf *shelf, PyObject *args)
{
    long long place, base;
    if (!PyArg_ParseTuple(args, "LL", &place, &base))
        return NULL;
    for (int64_t at = 0; at < shelf->count; at++) {
        Region *region = &shelf->regions[at];
        if (region->place != place || region->base != base)
            continue;
        if (at == shelf->current || region->users)
            Py_RETURN_FALSE;
        let_region_go(region);
    }
    Py_RETURN_TRUE;
}

/* close(): nothing more is kept, and no region is held on to. */
static PyObject *shelf_close(Shelf *shelf, PyObject *unused)
{
    for (int64_t at = 0; at < shelf->count; at++)
        if (!shelf->regions[at].users)
            let_region_go(&shelf->regions[at]);
    shelf->current = -1;
    Py_RETURN_NONE;
}

/* Shelf(more, the most bytes) */
static int shelf_init(Shelf *shelf, PyObject *args, PyObject *kwargs)
{
    PyObject *more;
    if (!PyArg_ParseTuple(args, "OL", &more, &shelf->most))
        return -1;
    Py_XSETREF(shelf->more, Py_NewRef(more));
    shelf->current = -1;
    return 0;
}

static int shelf_traverse(Shelf *shelf, visitproc visit, void *arg)
{
    Py_VISIT(shelf->more);
    return 0;
}

static int shelf_clear(Shelf *shelf)
{
    Py_CLEAR(shelf->more);
    return 0;
}

static void shelf_dealloc(Shelf *shelf)
{
    PyObject_GC_UnTrack(shelf);
    shelf_clear(shelf);
    for (int64_t at = 0; at < shelf->count; at++)
        let_region_go(&shelf->regions[at]);
    PyMem_Free(shelf->regions);
    Py_TYPE(shelf)->tp_free((PyObject *)shelf);
}

/* Memory that is not cleared first: whoever has it fills it. */
typedef struct { PyObject_HEAD char *memory; Py_ssize_t size; } Block;

static int block_init(Block *block, PyObject *args, PyObject *kwargs)
{
    if (block->memory != NULL || !PyArg_ParseTuple(args, "n", &block->size))
        return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_TypeError, "it has its memory"), -1);
    block->memory = block->size > 0 ? PyMem_RawMalloc((size_t)block->size) : NULL;
    return block->memory != NULL ? 0 : (PyErr_NoMemory(), -1);
}

static int block_buffer(Block *block, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)block, block->memory, block->memory == NULL ? 0 : block->size, 0, flags);
}

static void block_dealloc(Block *block)
{
    PyMem_RawFree(block->memory);
    Py_TYPE(block)->tp_free((PyObject *)block);
}

static PyBufferProcs block_procs = {.bf_getbuffer = (getbufferproc)block_buffer};
PyTypeObject BlockType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Block",
    .tp_doc = "So many bytes of memory, not cleared.",
    .tp_basicsize = sizeof(Block),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)block_init,
    .tp_dealloc = (destructor)block_dealloc,
    .tp_as_buffer = &block_procs,
};

static PyMethodDef shelf_methods[] = {
    {"keep", (PyCFunction)shelf_keep, METH_VARARGS, NULL},
    {"forget", (PyCFunction)shelf_forget, METH_VARARGS, NULL},
    {"drop", (PyCFunction)shelf_drop, METH_VARARGS, NULL},
    {"close", (PyCFunction)shelf_close, METH_NOARGS, NULL},
    {NULL},
};
static PyMemberDef shelf_members[] = {
    {"most", T_LONGLONG, offsetof(Shelf, most), 0, NULL},
    {"used", T_LONGLONG, offsetof(Shelf, used), 0, NULL},
    {"kept", T_LONGLONG, offsetof(Shelf, kept), 0, NULL},
    {"is_full", T_BOOL, offsetof(Shelf, is_full), 0, NULL},
    {NULL},
};
PyTypeObject ShelfType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.Shelf",
    .tp_doc = "Copies of what values hold.",
    .tp_basicsize = sizeof(Shelf),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)shelf_init,
    .tp_dealloc = (destructor)shelf_dealloc,
    .tp_traverse = (traverseproc)shelf_traverse,
    .tp_clear = (inquiry)shelf_clear,
    .tp_methods = shelf_methods,
    .tp_members = shelf_members,
};
