/* Measures values on an NVIDIA GPU (statistics/cuda.py), without waiting for the GPU.
 *
 * For each value a kernel is launched on the stream that the program uses. It writes its result
 * into a row of a *batch*, and full batches are copied back together. Python compiles the kernels,
 * makes the batches and fetches them; here is the launch, and writing the rows of a batch into the
 * journal. libcuda is not linked: Python passes the address of its cuLaunchKernel.
 */
#include "fast.h"
#include "sketch.h"
#include "structmember.h"
#include <math.h>

/* A row begins with these doubles; a sketch may follow. */
enum {
    ALL,
    NAN_COUNT,
    POSINF,
    NEGINF,
    ZEROS,
    MINIMUM,
    MAXIMUM,
    SUM,
    SQUARES /* about the mean */,
    ROW
};
#define BY_KERNEL 4 /* how the statistics were made (journal/layout.py) */
#define THREADS   256
#define PRIME     17 /* the sums of each kind in a sketch */

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

/* The current stream of a device, owned; NULL: left to Python (a new stream, or a graph is
 * captured). */
static StreamFields *current_stream(Engine *engine, int64_t device)
{
    int is_capturing = as_truth(PyObject_CallNoArgs(engine->is_capturing));
    if (is_capturing != 0 || as_number(PyObject_CallNoArgs(engine->current_device)) != device)
        return NULL;
    PyObject *index = PyLong_FromLongLong(device);
    int64_t handle =
        index == NULL ? FAILED : as_number(PyObject_CallOneArg(engine->current_raw_stream, index));
    Py_XDECREF(index);
    for (Py_ssize_t at = 0; handle != FAILED && at < PyList_GET_SIZE(engine->device_streams);
         at++) {
        /* borrowed from the list */
        StreamFields *each = (StreamFields *)PyList_GET_ITEM(engine->device_streams, at);
        if (each->device == device && each->handle == handle)
            return (StreamFields *)Py_NewRef((PyObject *)each);
    }
    return NULL;
}

/* ---------------------------------------------------------------- one value */

/* Note that a row has the numbers of a value. */
static int add_value(BatchFields *batch, int64_t number, int64_t row)
{
    const int64_t words[] = {number, row, 1};
    PyObject *found[3] = {NULL};
    int done = batch->values != NULL && PyList_CheckExact(batch->values) ? 0 : -1;
    for (int at = 0; done == 0 && at < 3; at++)
        done = (found[at] = PyLong_FromLongLong(words[at])) == NULL ? -1 : 0;
    Py_ssize_t before = done == 0 ? PyList_GET_SIZE(batch->values) : 0;
    for (int at = 0; done == 0 && at < 3; at++)
        done = PyList_Append(batch->values, found[at]);
    if (done < 0 && batch->values != NULL && PyList_GET_SIZE(batch->values) > before)
        /* all three, or none */
        PyList_SetSlice(batch->values, before, PyList_GET_SIZE(batch->values), NULL);
    for (int at = 0; at < 3; at++)
        Py_XDECREF(found[at]);
    return done;
}

int measured_with(PyObject *batch, int64_t number, int64_t row)
{
    BatchFields *fields = (BatchFields *)batch;
    return fields == NULL || fields->has_arrived ? 0 : add_value(fields, number, row) < 0 ? -1 : 1;
}

/* kernels.py: launch and sketch_blocks. */
static unsigned blocks_of(const DeviceRun *numbers)
{
    const uint64_t share = (uint64_t)numbers->share;
    const uint64_t most = (uint64_t)numbers->most;
    const uint64_t wanted = ((uint64_t)numbers->count + share - 1) / share;
    if (numbers->order == NULL)
        return (unsigned)(wanted < most ? wanted : most);
    if (wanted <= PRIME)
        return (unsigned)wanted;
    const uint64_t all = (wanted + PRIME - 1) / PRIME;
    const uint64_t primes = most / PRIME;
    return (unsigned)(PRIME * (all < primes ? all : primes > 0 ? primes : 1));
}

/* Launch a kernel. The lock of Python is released: if the stream's queue is full the call waits,
 * maybe for another thread. */
static int launch(const StreamFields *stream, const BatchFields *batch, const DeviceRun *numbers,
                  uint64_t known, int64_t at)
{
    uint64_t row = (uint64_t)(batch->address + at * batch->width * 8);
    uint64_t slot = (uint64_t)(batch->slots + at * batch->slot * 8);
    uint64_t address = (uint64_t)numbers->address;
    uint64_t count = (uint64_t)numbers->count;
    uint64_t run = (uint64_t)numbers->run;
    uint64_t pitch = (uint64_t)numbers->pitch;
    uint64_t parts = (uint64_t)stream->parts;
    uint64_t ended = parts - 8;
    void *plainly[] = {&address, &count, &run, &pitch, &parts, &ended, &row};
    uint32_t what = known ? numbers->wanted : 0;
    void *in_order[] = {&address, (void *)numbers->order, &what, &known, &slot, &row};
    void **arguments = numbers->order == NULL ? plainly : in_order;
    unsigned blocks = blocks_of(numbers);
    Launch call = (Launch)(intptr_t)stream->launch;
    void *handle = (void *)(intptr_t)stream->handle;
    int problem;
    Py_BEGIN_ALLOW_THREADS
    problem = call((void *)(intptr_t)numbers->function, blocks, 1, 1, THREADS, 1, 1, 0, handle,
                   arguments, NULL);
    Py_END_ALLOW_THREADS
    return problem;
}

/* Launch a kernel for a value. 1: done, with the batch (owned) and its row; 0: left to Python; -1:
 * error. */
int measure_on_device(Engine *engine, const DeviceRun *run, int64_t number, PyObject **where,
                      int64_t *row)
{
    *where = NULL;
    StreamFields *stream =
        engine->device_streams == NULL ? NULL : current_stream(engine, run->device);
    if (stream == NULL || stream->batch == NULL
        || !PyObject_TypeCheck(stream->batch, &BatchFieldsType)) {
        Py_XDECREF(stream);
        return PyErr_Occurred() ? -1 : 0;
    }
    BatchFields *batch = (BatchFields *)Py_NewRef(stream->batch);
    int done = 0;
    if ((batch->width > ROW) == (run->order != NULL) && (*row = begin_row(batch)) != NONE) {
        const int64_t known = batch->address + run->known_row * batch->width * 8;
        done =
            launch(stream, batch, run,
                   run->known == (PyObject *)batch ? (uint64_t)known : 0 /* copied back already */,
                   *row)
            == 0;
        batch->launching--;
        if (done && add_value(batch, number, *row) < 0)
            done = -1;
        if (batch->used >= batch->room && batch->launching == 0 && done >= 0) {
            PyObject *sent = PyObject_CallOneArg(engine->send_batch, (PyObject *)stream);
            Py_XDECREF(sent);
            done = sent == NULL ? -1 : done;
        }
    }
    Py_DECREF(stream);
    if (done == 1)
        *where = (PyObject *)batch;
    else
        Py_DECREF(batch);
    return done;
}

/* ---------------------------------------------------------------- a batch that was copied back */

/* Write the statistics of a value; 1: they are alarming. */
static int write_row(Engine *engine, int64_t number, const double *row, double times)
{
    int64_t counts[5], finite;
    double numbers[5] = {NAN, NAN, NAN, NAN, NAN};
    for (int at = 0; at < 5; at++)
        counts[at] = (int64_t)(row[at] * times);
    finite = counts[0] - counts[1] - counts[2] - counts[3];
    if (finite > 0) {
        double squares = row[SQUARES] * times;
        double mean = row[SUM] * times / (double)finite;
        numbers[0] = row[MINIMUM];
        numbers[1] = row[MAXIMUM];
        numbers[2] = mean;
        numbers[3] = sqrt(squares / (double)finite);
        numbers[4] = sqrt(squares + (double)finite * mean * mean);
    }
    if (write_measured(engine, number, counts, numbers, BY_KERNEL) < 0)
        return -1;
    return is_alarming(counts);
}

/* Write the sketch at the end of a row, if it has one: a hash of 0 says that it has none. */
static int write_row_sketch(ValueFields *sketched, int64_t number, const double *row, double times)
{
    Sketch sketch;
    memcpy(&sketch, row + ROW, sizeof sketch);
    return times != 1.0 || !sketch.hash ? 0 : write_sketch(sketched, number, &sketch);
}

/* take_rows(values, address, width, writer of sketches): write the statistics of the values of a
 * batch, whose rows lie at this address. Return whether one of them is alarming. */
PyObject *engine_take_rows(Engine *engine, PyObject *args)
{
    PyObject *values, *sketched;
    unsigned long long address;
    long long width;
    if (!PyArg_ParseTuple(args, "O!KLO!", &PyList_Type, &values, &address, &width, &ValueFieldsType,
                          &sketched))
        return NULL;
    int is_any_alarming = 0;
    for (Py_ssize_t at = 0; at + 2 < PyList_GET_SIZE(values); at += 3) {
        int64_t number = PyLong_AsLongLong(PyList_GET_ITEM(values, at));
        int64_t row = PyLong_AsLongLong(PyList_GET_ITEM(values, at + 1));
        double times = PyLong_AsDouble(PyList_GET_ITEM(values, at + 2));
        const double *numbers = (const double *)(uintptr_t)address + row * width;
        int alarming = PyErr_Occurred() ? -1 : write_row(engine, number, numbers, times);
        if (alarming < 0
            || (width > ROW
                && write_row_sketch((ValueFields *)sketched, number, numbers, times) < 0))
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
