/* Copies the bytes of values (statistics/saved.py is the definition). Values that share memory
 * share the copy.
 *
 * Python provides large *regions*, in a mapped file or in its own memory, and the copies are put
 * there one after the other. To find out whether the memory of a value was copied already, its
 * bytes are compared with the last copy: versions do not count what numpy writes, and comparing
 * costs less than copying.
 */
#include "fast.h"
#include "saved.h"
#include "structmember.h"
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACES 4096 /* copies that are remembered, by the hash of their storage; a power of two */
#define ALIGNMENT     16
#define LARGE_ENOUGH  (1 << 18) /* bytes that are worth letting other threads run meanwhile */
#define WORTH_A_WRITE 2048 /* bytes for which pwrite costs less than writing into mapped pages */

/* A region, as Python provided it. */
typedef struct {
    Py_buffer view;
    int is_there;
    int64_t place, base; /* its name in the journal, and what to add to an offset in it */
    int64_t at;          /* the offset of the next copy */
    int64_t room;        /* how many copies may still be added */
    int64_t used;        /* bytes of its copies */
    int64_t newest;      /* the last value that refers to it */
    int users;           /* threads that copy or compare without Python's lock */
    int file;            /* descriptor of the mapped file, or -1 */
    /* device and inode of that file: if the program closed the descriptor, another file may have it
     * now */
    dev_t device;
    ino_t inode;
} Region;

/* The last copy that was made of some memory. */
typedef struct {
    uintptr_t storage;
    const char *memory;
    int64_t length, offset, region;
} Copied;

struct SavedBytes {
    PyObject_HEAD
    /* more(bytes, unused) → (region, place, what to add, how many copies, file), or None */
    PyObject *more;
    long long most, used, kept;
    char is_full;
    Region *regions;
    int64_t count, current;
    Copied places[PLACES];
};

static Copied *place_of(SavedBytes *saved, uintptr_t storage)
{
    return &saved->places[((uint64_t)storage * 0x9E3779B97F4A7C15u) >> 52];
}

/* Write bytes into the mapped file by pwrite, since a page that is touched for the first time costs
 * as much as writing thirty. 0: not done, or not completely. */
static int is_written(const Region *to, int64_t offset, const char *from, int64_t length)
{
    struct stat now;
    struct rlimit most; /* beyond it a write sends SIGXFSZ */
    if (to->file < 0 || length < WORTH_A_WRITE || fstat(to->file, &now) < 0
        || now.st_dev != to->device || now.st_ino != to->inode)
        return 0;
    if (getrlimit(RLIMIT_FSIZE, &most) < 0
        || (most.rlim_cur != RLIM_INFINITY && (rlim_t)(to->base + offset + length) > most.rlim_cur))
        return 0;
    while (length > 0) {
        const ssize_t done = pwrite(to->file, from, (size_t)length, (off_t)(to->base + offset));
        if (done <= 0 && errno != EINTR)
            return 0;
        const int64_t step = done > 0 ? done : 0;
        offset += step;
        from += step;
        length -= step;
    }
    return 1;
}

/* `to` is a copy of the region: while the lock is released, another thread may move the array of
 * regions. */
static void copy_bytes(const Region to, int64_t offset, const char *from, int64_t length)
{
    const int before = errno; /* the program's */
    PyThreadState *ours = length < LARGE_ENOUGH ? NULL : PyEval_SaveThread();
    if (!is_written(&to, offset, from, length))
        memcpy((char *)to.view.buf + offset, from, (size_t)length);
    if (ours != NULL)
        PyEval_RestoreThread(ours);
    errno = before;
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

/* Fill in the journal's words for a value that shows bytes from `first` on of a copy of `length`
 * bytes. */
static int put_words(SavedBytes *saved, const Shown *shown, int64_t region, int64_t offset,
                     int64_t length, int64_t first, int64_t words[4])
{
    Region *shared = &saved->regions[region];
    if (shown->number > shared->newest)
        shared->newest = shown->number;
    saved->kept++;
    words[0] = shared->base + offset;
    words[1] = length;
    words[2] = first;
    words[3] = shared->place;
    return KEPT;
}

/* Return whether a copy of its memory holds the same bytes. */
static int is_copied(SavedBytes *saved, const Shown *shown, int64_t words[4])
{
    const Copied known = *place_of(saved, shown->storage);
    const int64_t first = shown->memory - known.memory;
    if (known.length == 0 || known.storage != shown->storage || first < 0
        || first + shown->length > known.length || first % shown->item || known.length % shown->item
        || !saved->regions[known.region].is_there)
        return 0;
    saved->regions[known.region].users++;
    const char *copy = (const char *)saved->regions[known.region].view.buf + known.offset;
    const int same = are_equal(copy + first, shown->memory, shown->length);
    saved->regions[known.region].users--; /* looked up again: the array may have moved meanwhile */
    return same
           && put_words(saved, shown, known.region, known.offset, known.length, first, words)
                  == KEPT;
}

/* Get a region of at least so many bytes from Python; return its number. NONE: there is no more
 * memory. `unused`: the offset from which the region before is unused and may be given back; NONE:
 * it stays in use. */
static int64_t new_region(SavedBytes *saved, int64_t bytes, int64_t unused)
{
    PyObject *given = PyObject_CallFunction(saved->more, "LL", (long long)bytes, (long long)unused),
             *buffer;
    long long place, base, room;
    if (given == NULL)
        return FAILED;
    if (given == Py_None) {
        Py_DECREF(given);
        return NONE;
    }
    Region region = {.is_there = 1, .newest = -1};
    struct stat file;
    if (!PyArg_ParseTuple(given, "OLLLi", &buffer, &place, &base, &room, &region.file)
        || PyObject_GetBuffer(buffer, &region.view, PyBUF_WRITABLE) < 0) {
        Py_DECREF(given);
        return FAILED;
    }
    Py_DECREF(given);
    region.place = place;
    region.base = base;
    region.room = room;
    if (region.file >= 0 && fstat(region.file, &file) == 0) {
        region.device = file.st_dev;
        region.inode = file.st_ino;
    } else
        region.file = -1;
    Region *more = PyMem_Realloc(saved->regions, (size_t)(saved->count + 1) * sizeof(Region));
    if (more == NULL || region.view.len < bytes) {
        PyBuffer_Release(&region.view);
        saved->regions = more == NULL ? saved->regions : more;
        PyErr_NoMemory();
        return FAILED;
    }
    saved->regions = more;
    more[saved->count] = region;
    return saved->count++;
}

/* Return the number of a region with room for so many bytes; NONE: there is none; FAILED. */
static int64_t find_region(SavedBytes *saved, int64_t length)
{
    int64_t unused = NONE;
    if (saved->current >= 0) {
        const Region *now = &saved->regions[saved->current];
        if (now->is_there && now->at + length <= now->view.len && now->room > 0)
            return saved->current;
        /* else it gets a region of its own, and smaller copies still go here */
        if (length <= now->view.len / 4) {
            unused = now->base + now->at;
            saved->current = NONE; /* another thread must not fill what Python is given back now */
        }
    }
    const int64_t fresh = new_region(saved, length, unused);
    if (fresh < 0)
        return fresh;
    const Region *now = &saved->regions[fresh];
    if (saved->current < 0
        || now->view.len - length > now->view.len / 4) /* unless this copy almost fills it */
        saved->current = fresh;
    return fresh;
}

int save_bytes(SavedBytes *saved, const Shown *shown, int64_t words[4])
{
    if (is_copied(saved, shown, words))
        return KEPT;
    if (shown->has_gaps)
        return LEFT_TO_SAVER;
    if (saved->used + shown->length > saved->most) {
        saved->is_full = 1;
        return NOT_KEPT;
    }
    const int64_t number = find_region(saved, shown->length);
    if (number < 0)
        return number == NONE ? LEFT_TO_SAVER : -1;
    Region *region = &saved->regions[number];
    const int64_t offset = region->at;
    region->at += (shown->length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    region->room--;
    region->used += shown->length;
    region->users++;
    saved->used += shown->length;
    copy_bytes(*region, offset, shown->memory, shown->length);
    saved->regions[number].users--;
    *place_of(saved, shown->storage) =
        (Copied){shown->storage, shown->memory, shown->length, offset, number};
    return put_words(saved, shown, number, offset, shown->length, 0, words);
}

/* ---------------------------------------------------------------- methods of SavedBytes */

/* keep(number, storage, address, length, item, has gaps) -> four words for the journal; True:
 * Python has to copy it; None: there is no room */
static PyObject *saved_keep(SavedBytes *saved, PyObject *args)
{
    long long number, storage, address, length;
    int64_t words[4];
    int item, has_gaps;
    if (!PyArg_ParseTuple(args, "LLLLip", &number, &storage, &address, &length, &item, &has_gaps))
        return NULL;
    const Shown shown = {
        number, (uintptr_t)storage, (const char *)(uintptr_t)address, length, item, has_gaps};
    switch (save_bytes(saved, &shown, words)) {
    case KEPT:
        return Py_BuildValue("LLLL", (long long)words[0], (long long)words[1], (long long)words[2],
                             (long long)words[3]);
    case LEFT_TO_SAVER:
        Py_RETURN_TRUE;
    case NOT_KEPT:
        Py_RETURN_NONE;
    }
    return NULL;
}

static void release_region(Region *region)
{
    if (region->is_there) {
        region->is_there = 0;
        PyBuffer_Release(&region->view);
    }
}

/* forget(value): release the regions to which only values before that one refer -> their places in
 * the journal */
static PyObject *saved_forget(SavedBytes *saved, PyObject *args)
{
    long long before;
    PyObject *gone = PyList_New(0);
    if (gone == NULL || !PyArg_ParseTuple(args, "L", &before)) {
        Py_XDECREF(gone);
        return NULL;
    }
    for (int64_t at = 0; at < saved->count; at++) {
        Region *region = &saved->regions[at];
        if (at == saved->current || !region->is_there || region->users || region->newest >= before)
            continue;
        PyObject *place = PyLong_FromLongLong(region->place);
        if (place == NULL || PyList_Append(gone, place) < 0) {
            Py_XDECREF(place);
            Py_DECREF(gone);
            return NULL;
        }
        Py_DECREF(place);
        if (region->place < 0) /* what lies in a file stays there */
            saved->used -= region->used;
        release_region(&saved->regions[at]);
    }
    return gone;
}

/* drop(place, base): release a region; False: it is in use. */
static PyObject *saved_drop(SavedBytes *saved, PyObject *args)
{
    long long place, base;
    if (!PyArg_ParseTuple(args, "LL", &place, &base))
        return NULL;
    for (int64_t at = 0; at < saved->count; at++) {
        Region *region = &saved->regions[at];
        if (region->place != place || region->base != base)
            continue;
        if (at == saved->current || region->users)
            Py_RETURN_FALSE;
        release_region(region);
    }
    Py_RETURN_TRUE;
}

/* close(): release all regions. */
static PyObject *saved_close(SavedBytes *saved, PyObject *unused)
{
    for (int64_t at = 0; at < saved->count; at++)
        if (!saved->regions[at].users)
            release_region(&saved->regions[at]);
    saved->current = -1;
    Py_RETURN_NONE;
}

/* SavedBytes(more, the most bytes) */
static int saved_init(SavedBytes *saved, PyObject *args, PyObject *kwargs)
{
    PyObject *more;
    if (!PyArg_ParseTuple(args, "OL", &more, &saved->most))
        return -1;
    Py_XSETREF(saved->more, Py_NewRef(more));
    saved->current = -1;
    return 0;
}

static int saved_traverse(SavedBytes *saved, visitproc visit, void *arg)
{
    Py_VISIT(saved->more);
    return 0;
}

static int saved_clear(SavedBytes *saved)
{
    Py_CLEAR(saved->more);
    return 0;
}

static void saved_dealloc(SavedBytes *saved)
{
    PyObject_GC_UnTrack(saved);
    saved_clear(saved);
    for (int64_t at = 0; at < saved->count; at++)
        release_region(&saved->regions[at]);
    PyMem_Free(saved->regions);
    Py_TYPE(saved)->tp_free((PyObject *)saved);
}

/* Memory that is not cleared. */
typedef struct {
    PyObject_HEAD
    char *memory;
    Py_ssize_t size;
} Block;

static int block_init(Block *block, PyObject *args, PyObject *kwargs)
{
    if (block->memory != NULL || !PyArg_ParseTuple(args, "n", &block->size)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "it has its memory");
        return -1;
    }
    block->memory = block->size > 0 ? PyMem_RawMalloc((size_t)block->size) : NULL;
    if (block->memory == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int block_buffer(Block *block, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)block, block->memory,
                             block->memory == NULL ? 0 : block->size, 0, flags);
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

static PyMethodDef saved_methods[] = {
    {"keep", (PyCFunction)saved_keep, METH_VARARGS, NULL},
    {"forget", (PyCFunction)saved_forget, METH_VARARGS, NULL},
    {"drop", (PyCFunction)saved_drop, METH_VARARGS, NULL},
    {"close", (PyCFunction)saved_close, METH_NOARGS, NULL},
    {NULL},
};
static PyMemberDef saved_members[] = {
    {"most", T_LONGLONG, offsetof(SavedBytes, most), 0, NULL},
    {"used", T_LONGLONG, offsetof(SavedBytes, used), 0, NULL},
    {"kept", T_LONGLONG, offsetof(SavedBytes, kept), 0, NULL},
    {"is_full", T_BOOL, offsetof(SavedBytes, is_full), 0, NULL},
    {NULL},
};
PyTypeObject SavedBytesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.SavedBytes",
    .tp_doc = "Copies of the bytes of values.",
    .tp_basicsize = sizeof(SavedBytes),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)saved_init,
    .tp_dealloc = (destructor)saved_dealloc,
    .tp_traverse = (traverseproc)saved_traverse,
    .tp_clear = (inquiry)saved_clear,
    .tp_methods = saved_methods,
    .tp_members = saved_members,
};
