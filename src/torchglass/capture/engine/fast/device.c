/* Measures values on an NVIDIA GPU (statistics/cuda.py), without waiting for the GPU.
 *
 * For each value, a kernel is launched on the stream that the program uses. The kernel writes its
 * results into a row of a *batch*. A full batch is copied back as a whole.
 *
 * Python compiles the kernels, makes the batches and fetches them. This file launches the kernels
 * (measure_on_device), and writes the rows of a batch into the journal (engine_take_rows). libcuda
 * is not linked: Python passes the address of its cuLaunchKernel.
 */
#include "fast.h"
#include "sketch.h"
#include "structmember.h"
#include <math.h>

/* A row begins with these doubles. A sketch may follow. */
enum {
    ALL,
    NAN_COUNT,
    POSINF,
    NEGINF,
    ZEROS,
    MINIMUM,
    MAXIMUM,
    SUM,
    SQUARES, /* the sum of the squared distances from the mean */
    ROW
};
#define BY_KERNEL 4   /* how the statistics were made (journal/layout.py) */
#define THREADS   256 /* of a block */
#define PRIME     17  /* the sums of each kind in a sketch */

typedef int (*Launch)(void *function, unsigned blocks, unsigned, unsigned, unsigned threads,
                      unsigned, unsigned, unsigned, void *stream, void **arguments, void **extra);

/* ----------------------------------------------- a batch of rows; the base of _Batch in cuda.py */

typedef struct {
    PyObject_HEAD
    long long address;    /* of the first row, on the GPU */
    long long used, room; /* rows */
    long long launching;  /* kernels that are being launched: until then the batch is not sent */
    long long width;      /* doubles of a row */
    long long slots;      /* address of working memory for the kernels, one slot for each row … */
    long long slot;       /* … of so many doubles */
    char has_arrived;     /* it was copied back, so no value can be added */
    PyObject *values;     /* a list: value, row, repeats, value, row, repeats, … */
} BatchFields;

/* begin() -> an unused row; -1: all are used. The batch is not sent before end(). */
static int64_t begin_row(BatchFields *batch)
{
    if (batch->used >= batch->room)
        return NONE;
    batch->launching++;
    return batch->used++;
}

static PyObject *batch_begin(BatchFields *batch, PyObject *unused)
{
    return PyLong_FromLongLong(begin_row(batch));
}

static PyObject *batch_end(BatchFields *batch, PyObject *unused)
{
    batch->launching--;
    Py_RETURN_NONE;
}

static int batch_traverse(BatchFields *batch, visitproc visit, void *arg)
{
    Py_VISIT(batch->values);
    return 0;
}

static int batch_clear(BatchFields *batch)
{
    Py_CLEAR(batch->values);
    return 0;
}

static void batch_dealloc(BatchFields *batch)
{
    PyObject_GC_UnTrack(batch);
    batch_clear(batch);
    Py_TYPE(batch)->tp_free((PyObject *)batch);
}

#define WORD(owner, name) {#name, T_LONGLONG, offsetof(owner, name), 0, NULL}
static PyMemberDef batch_members[] = {
    WORD(BatchFields, address),
    WORD(BatchFields, used),
    WORD(BatchFields, room),
    WORD(BatchFields, launching),
    WORD(BatchFields, width),
    WORD(BatchFields, slots),
    WORD(BatchFields, slot),
    {"has_arrived", T_BOOL, offsetof(BatchFields, has_arrived), 0, NULL},
    {"values", T_OBJECT, offsetof(BatchFields, values), 0, NULL},
    {NULL},
};
static PyMethodDef batch_methods[] = {
    {"begin", (PyCFunction)batch_begin, METH_NOARGS, NULL},
    {"end", (PyCFunction)batch_end, METH_NOARGS, NULL},
    {NULL},
};
static PyTypeObject BatchFieldsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.BatchFields",
    .tp_doc = "Rows of one stream that are copied back together.",
    .tp_basicsize = sizeof(BatchFields),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)batch_dealloc,
    .tp_traverse = (traverseproc)batch_traverse,
    .tp_clear = (inquiry)batch_clear,
    .tp_members = batch_members,
    .tp_methods = batch_methods,
};

/* --------------------------------------------------- one stream; the base of _Stream in cuda.py */

typedef struct {
    PyObject_HEAD
    long long device;
    long long handle; /* of the stream */
    long long parts;  /* address of the kernels' partial sums */
    long long launch; /* address of cuLaunchKernel */
    PyObject *batch;  /* the batch that is filled now */
} StreamFields;

static int stream_traverse(StreamFields *stream, visitproc visit, void *arg)
{
    Py_VISIT(stream->batch);
    return 0;
}

static int stream_clear(StreamFields *stream)
{
    Py_CLEAR(stream->batch);
    return 0;
}

static void stream_dealloc(StreamFields *stream)
{
    PyObject_GC_UnTrack(stream);
    stream_clear(stream);
    Py_TYPE(stream)->tp_free((PyObject *)stream);
}

static PyMemberDef stream_members[] = {
    {"index", T_LONGLONG, offsetof(StreamFields, device), 0, NULL},
    WORD(StreamFields, handle),
    WORD(StreamFields, parts),
    WORD(StreamFields, launch),
    {"batch", T_OBJECT, offsetof(StreamFields, batch), 0, NULL},
    {NULL},
};
static PyTypeObject StreamFieldsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torchglass._fast.StreamFields",
    .tp_doc = "What the kernels of one stream share.",
    .tp_basicsize = sizeof(StreamFields),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)stream_dealloc,
    .tp_traverse = (traverseproc)stream_traverse,
    .tp_clear = (inquiry)stream_clear,
    .tp_members = stream_members,
};

/* Return the stream with this handle, owned; NULL: it is new. */
static StreamFields *find_stream(PyObject *streams, int64_t device, int64_t handle)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(streams); at++) {
        StreamFields *each = (StreamFields *)PyList_GET_ITEM(streams, at); /* borrowed */
        if (each->device == device && each->handle == handle)
            return (StreamFields *)Py_NewRef((PyObject *)each);
    }
    return NULL;
}

/* Return the current stream of a device, owned. NULL with no exception: it is left to Python,
 * because the stream is new or a CUDA graph is being captured. */
static StreamFields *current_stream(Engine *engine, int64_t device)
{
    int is_capturing = as_truth(PyObject_CallNoArgs(engine->is_capturing));
    if (is_capturing != 0)
        return NULL;
    if (as_number(PyObject_CallNoArgs(engine->current_device)) != device)
        return NULL;
    PyObject *index = PyLong_FromLongLong(device);
    if (index == NULL)
        return NULL;
    int64_t handle = as_number(PyObject_CallOneArg(engine->current_raw_stream, index));
    Py_DECREF(index);
    if (handle == FAILED)
        return NULL;
    return find_stream(engine->device_streams, device, handle);
}

/* ---------------------------------------------------------------- one value */

/* Note that a row has the numbers of a value: append (value, row, 1) to the batch's list, or
 * nothing if there is an error. */
static int add_value(BatchFields *batch, int64_t number, int64_t row)
{
    if (batch->values == NULL || !PyList_CheckExact(batch->values))
        return -1;
    const int64_t words[3] = {number, row, 1};
    const Py_ssize_t before = PyList_GET_SIZE(batch->values);
    int status = 0;
    for (int at = 0; status == 0 && at < 3; at++) {
        PyObject *word = PyLong_FromLongLong(words[at]);
        status = word == NULL ? -1 : PyList_Append(batch->values, word);
        Py_XDECREF(word);
    }
    if (status < 0)
        PyList_SetSlice(batch->values, before, PyList_GET_SIZE(batch->values), NULL);
    return status;
}

int measured_with(PyObject *batch, int64_t number, int64_t row)
{
    BatchFields *fields = (BatchFields *)batch;
    if (fields == NULL || fields->has_arrived)
        return 0;
    return add_value(fields, number, row) < 0 ? -1 : 1;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Return how many blocks a kernel gets (kernels.py: launch and sketch_blocks). A kernel that makes
 * a sketch needs a multiple of PRIME blocks, or fewer than PRIME. */
static unsigned blocks_of(const DeviceRun *run)
{
    const uint64_t share = (uint64_t)run->share;
    const uint64_t most = (uint64_t)run->most;
    const uint64_t wanted = ((uint64_t)run->count + share - 1) / share;
    if (run->order == NULL)
        return (unsigned)least(wanted, most);
    if (wanted <= PRIME)
        return (unsigned)wanted;
    uint64_t most_primes = most / PRIME;
    if (most_primes == 0)
        most_primes = 1;
    return (unsigned)(PRIME * least((wanted + PRIME - 1) / PRIME, most_primes));
}

/* Launch a kernel that writes the row with this index. `known` is the address of a row with the
 * same numbers, or 0. Return 0, or cuLaunchKernel's error.
 *
 * Python's lock is released meanwhile: if the stream's queue is full, the call waits, maybe for
 * another thread of the program. */
static int launch(const StreamFields *stream, const BatchFields *batch, const DeviceRun *run,
                  uint64_t known, int64_t index)
{
    uint64_t row = (uint64_t)(batch->address + index * batch->width * 8);
    uint64_t slot = (uint64_t)(batch->slots + index * batch->slot * 8);
    uint64_t address = (uint64_t)run->address;
    uint64_t count = (uint64_t)run->count;
    uint64_t run_length = (uint64_t)run->run;
    uint64_t pitch = (uint64_t)run->pitch;
    uint64_t parts = (uint64_t)stream->parts;
    uint64_t ended = parts - 8;
    uint32_t wanted = known ? run->wanted : 0;
    void *of_statistics[] = {&address, &count, &run_length, &pitch, &parts, &ended, &row};
    void *of_sketch[] = {&address, (void *)run->order, &wanted, &known, &slot, &row};
    void **arguments = run->order == NULL ? of_statistics : of_sketch;

    const Launch call = (Launch)(intptr_t)stream->launch;
    void *function = (void *)(intptr_t)run->function;
    void *handle = (void *)(intptr_t)stream->handle;
    const unsigned blocks = blocks_of(run);
    int problem;
    Py_BEGIN_ALLOW_THREADS
    problem = call(function, blocks, 1, 1, THREADS, 1, 1, 0, handle, arguments, NULL);
    Py_END_ALLOW_THREADS
    return problem;
}

/* Let Python copy back a batch that is full and has no kernel that is being launched. */
static int send_if_full(Engine *engine, StreamFields *stream, const BatchFields *batch)
{
    if (batch->used < batch->room || batch->launching > 0)
        return 0;
    return as_done(PyObject_CallOneArg(engine->send_batch, (PyObject *)stream));
}

/* Launch a kernel into an unused row of a batch. 1: done; 0: left to Python; -1: error. */
static int launch_into(Engine *engine, StreamFields *stream, BatchFields *batch,
                       const DeviceRun *run, int64_t number, int64_t *row)
{
    const int has_sketches = batch->width > ROW;
    const int wants_sketch = run->order != NULL;
    if (has_sketches != wants_sketch)
        return 0;
    *row = begin_row(batch);
    if (*row == NONE)
        return 0;
    /* 0: there is no such row, or it was copied back already */
    uint64_t known = 0;
    if (run->known == (PyObject *)batch)
        known = (uint64_t)(batch->address + run->known_row * batch->width * 8);
    const int is_launched = launch(stream, batch, run, known, *row) == 0;
    batch->launching--;
    if (is_launched && add_value(batch, number, *row) < 0)
        return -1;
    if (send_if_full(engine, stream, batch) < 0)
        return -1;
    return is_launched;
}

int measure_on_device(Engine *engine, const DeviceRun *run, int64_t number, PyObject **where,
                      int64_t *row)
{
    *where = NULL;
    if (engine->device_streams == NULL)
        return 0;
    StreamFields *stream = current_stream(engine, run->device);
    if (stream == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (stream->batch == NULL || !PyObject_TypeCheck(stream->batch, &BatchFieldsType)) {
        Py_DECREF(stream);
        return 0;
    }
    BatchFields *batch = (BatchFields *)Py_NewRef(stream->batch);
    const int status = launch_into(engine, stream, batch, run, number, row);
    Py_DECREF(stream);
    if (status == 1)
        *where = (PyObject *)batch;
    else
        Py_DECREF(batch);
    return status;
}

/* ---------------------------------------------------------------- a batch that was copied back */

/* Write the statistics of a value. Return 1 if they are alarming, -1 on error. `times` is how often
 * the value repeats the numbers that the kernel has seen. */
static int write_row(Engine *engine, int64_t number, const double *row, double times)
{
    int64_t counts[5]; /* all, NaN, +Inf, -Inf, zeros */
    for (int at = 0; at < 5; at++)
        counts[at] = (int64_t)(row[at] * times);
    double numbers[5] = {NAN, NAN, NAN, NAN, NAN}; /* minimum, maximum, mean, deviation, norm */
    const double finite = (double)(counts[0] - counts[1] - counts[2] - counts[3]);
    if (finite > 0) {
        const double squares = row[SQUARES] * times;
        const double mean = row[SUM] * times / finite;
        numbers[0] = row[MINIMUM];
        numbers[1] = row[MAXIMUM];
        numbers[2] = mean;
        numbers[3] = sqrt(squares / finite);
        numbers[4] = sqrt(squares + finite * mean * mean);
    }
    if (write_measured(engine, number, counts, numbers, BY_KERNEL) < 0)
        return -1;
    return is_alarming(counts);
}

/* Write the sketch at the end of a row. A hash of 0 means that the row has no sketch. */
static int write_row_sketch(ValueFields *sketched, int64_t number, const double *row, double times)
{
    Sketch sketch;
    memcpy(&sketch, row + ROW, sizeof sketch);
    if (times != 1.0 || !sketch.hash)
        return 0;
    return write_sketch(sketched, number, &sketch);
}

/* take_rows(values, address, width, writer of sketches): write the statistics of the values of a
 * batch that was copied back to this address. Return whether one of them is alarming. */
PyObject *engine_take_rows(Engine *engine, PyObject *args)
{
    PyObject *values, *sketched;
    unsigned long long address;
    long long width;
    if (!PyArg_ParseTuple(args, "O!KLO!", &PyList_Type, &values, &address, &width, &ValueFieldsType,
                          &sketched))
        return NULL;
    const double *first_row = (const double *)(uintptr_t)address;
    int is_any_alarming = 0;
    for (Py_ssize_t at = 0; at + 2 < PyList_GET_SIZE(values); at += 3) {
        const int64_t number = PyLong_AsLongLong(PyList_GET_ITEM(values, at));
        const int64_t index = PyLong_AsLongLong(PyList_GET_ITEM(values, at + 1));
        const double times = PyLong_AsDouble(PyList_GET_ITEM(values, at + 2));
        if (PyErr_Occurred())
            return NULL;
        const double *row = first_row + index * width;
        const int alarming = write_row(engine, number, row, times);
        if (alarming < 0)
            return NULL;
        if (width > ROW && write_row_sketch((ValueFields *)sketched, number, row, times) < 0)
            return NULL;
        is_any_alarming |= alarming;
    }
    return PyBool_FromLong(is_any_alarming);
}

int device_ready(PyObject *module)
{
    if (PyType_Ready(&BatchFieldsType) < 0 || PyType_Ready(&StreamFieldsType) < 0
        || PyModule_AddObjectRef(module, "BatchFields", (PyObject *)&BatchFieldsType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "StreamFields", (PyObject *)&StreamFieldsType);
}
