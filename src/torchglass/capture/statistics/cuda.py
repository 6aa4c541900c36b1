"""Statistics of tensors on an NVIDIA GPU: one kernel a value, in the program's own stream, and never a wait.

The kernel (statistics.cu) is compiled when the first value comes, by NVRTC, which torch brings, and launched by libcuda
itself: torch's own way to launch it takes ten times as long. Rows of numbers gather on the device and go to pinned
memory a batch at a time; what had not arrived when the process died is unknown.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch

from torchglass.capture.torch import private
from torchglass.compiled import extension

THREADS = 256
"""Of a block; the kernel relies on it."""
A_THREAD = 32
"""Elements that a thread is given at least."""
BLOCKS_A_PROCESSOR = 3
ALIGNED = 16
"""Bytes that are read at once."""
ROW = 9
"""Doubles: all, NaN, +Inf, -Inf, zeros, minimum, maximum, sum, sum of squares about the mean."""
BATCH = 1024
"""Values that are brought back together."""
MOST_SEEN = 16384
DTYPES = "float32 float64 float16 bfloat16 bool uint8 int8 int16 int32 int64".split()

Give = Callable[[int, list[float]], None]
"""Takes a value's number, and its row."""


class _Kernels:
    """The kernel for each dtype, on one device; raises where it cannot be had."""

    def __init__(self, device: int) -> None:
        names = [f"of_{name}" for name in DTYPES]
        with torch.cuda.device(device):
            program, _ = private.nvrtc_compile(Path(__file__).with_name("statistics.cu").read_text("utf-8"), names[0])
            found = private.load_cuda_module(program, names)
        self._functions = {getattr(torch, name): found[f"of_{name}"].func for name in DTYPES}
        self._launch = private.cuda_library().cuLaunchKernel
        self.launch_address = ctypes.cast(self._launch, ctypes.c_void_p).value or 0
        self.most_blocks = BLOCKS_A_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count
        self._data, self._count, self._row = ctypes.c_void_p(), ctypes.c_ulonglong(), ctypes.c_void_p()
        self._run, self._pitch = ctypes.c_ulonglong(), ctypes.c_ulonglong()
        self._parts, self._ended = ctypes.c_void_p(), ctypes.c_void_p()
        self._lock = Lock()
        fields = (self._data, self._count, self._run, self._pitch, self._parts, self._ended, self._row)
        self._arguments = (ctypes.c_void_p * len(fields))(*(ctypes.addressof(each) for each in fields))

    def has(self, dtype: Any) -> bool:
        return dtype in self._functions

    def address(self, dtype: Any) -> int:
        """Of the kernel for a dtype, as libcuda knows it."""
        return self._functions[dtype].value or 0

    def launch(self, dense: Any, runs: tuple[int, int], stream: _Stream, row: int) -> None:
        """Measure a tensor that lies in runs, behind what the stream is doing now."""
        dtype, address, count = dense.dtype, dense.data_ptr(), dense.numel()
        blocks = min(self.most_blocks, -(-count // (THREADS * A_THREAD)))
        function, handle = self._functions[dtype], ctypes.c_void_p(stream.handle)
        with self._lock:  # what the kernel is given lies in one place for all threads
            self._data.value, self._count.value, self._row.value = address, count, row
            self._run.value, self._pitch.value = runs
            self._parts.value, self._ended.value = stream.parts, stream.parts - 8
            problem = self._launch(function, blocks, 1, 1, THREADS, 1, 1, 0, handle, self._arguments, None)
        if problem:
            raise RuntimeError(f"cuLaunchKernel gave {problem}")


_kernels: dict[int, _Kernels] = {}
"""By device: they take a second to compile, and stay for the process."""


def _kernels_of(device: int) -> _Kernels:
    found = _kernels.get(device)
    if found is None:
        found = _kernels[device] = _Kernels(device)
    return found


class BatchFields:
    """What the compiled engine reads and writes of a batch (engine/fast/device.c), where there is none."""

    address = used = room = launching = 0
    has_arrived = False
    values: list[int]

    def begin(self) -> int:
        """A row that is nobody else's, or -1; the batch is not sent before ``end``."""
        if self.used >= self.room:
            return -1
        self.launching += 1
        self.used += 1
        return self.used - 1

    def end(self) -> None:
        self.launching -= 1


class StreamFields:
    """The same of a stream."""

    index = handle = parts = most_blocks = launch = 0
    batch: Any


if not TYPE_CHECKING and extension is not None:
    BatchFields, StreamFields = extension.BatchFields, extension.StreamFields


class _Batch(BatchFields):
    """Rows of one stream that go back together."""

    def __init__(self, device: Any) -> None:
        self.table: Any = torch.empty((BATCH, ROW), dtype=torch.float64, device=device)
        self.address, self.room = self.table.data_ptr(), BATCH
        self.values = []
        """By turns: a value, its row, and how often the numbers of that are there."""
        self.here: Any = None
        """The rows, on their way or here: then it has arrived."""
        self.arrived: Any = None


class _Stream(StreamFields):
    """What kernels of one stream share: they run one after the other."""

    def __init__(self, device: Any, handle: int, kernels: _Kernels) -> None:
        most_blocks = kernels.most_blocks
        self.device, self.index, self.handle = device, device.index, handle
        self.most_blocks, self.launch = most_blocks, kernels.launch_address
        self.stream = torch.cuda.current_stream(device)
        self.scratch = torch.zeros(most_blocks * ROW + 1, dtype=torch.float64, device=device)
        self.parts = self.scratch.data_ptr() + 8
        """A row for each block, behind the number of those that have ended."""
        self.batch = _Batch(device)


class CudaTallies:
    """What was measured by kernels and is not in the journal yet."""

    def __init__(self, give: Give, alarm: Callable[[], None], engine: Any) -> None:
        self._give, self._alarm, self._engine = give, alarm, engine
        self._streams: list[_Stream] = []
        self._sent: list[_Batch] = []
        self._seen: dict[tuple[int, int, Any], tuple[weakref.ref[Any], int, _Batch, int]] = {}
        """By address, size and dtype: the tensor that was measured there, its version, and where the numbers are."""
        self._lock = Lock()
        if engine is not None:
            engine.ask({
                "device_streams": self._streams, "send_batch": self._send_full, "is_capturing": private.is_capturing,
                "current_device": private.current_device, "current_raw_stream": private.current_raw_stream,
            })  # fmt: skip

    def plan(self, tensor: Any) -> tuple[int, int, int, int] | None:
        """The device, the kernel and the runs by which the compiled engine measures tensors like this one; or None."""
        runs = None if self._engine is None or tensor.is_complex() or not tensor.numel() else _runs(tensor)
        if runs is None:
            return None
        kernels = _kernels_of(tensor.device.index)
        return (tensor.device.index, kernels.address(tensor.dtype), *runs) if kernels.has(tensor.dtype) else None

    def measure(self, tensor: Any, number: int, changed: bool) -> bool:
        """Have a tensor measured; False where this cannot. Raises where there is no compiler or no library."""
        device = tensor.device.index
        kernels = _kernels_of(device)
        if tensor.is_contiguous() and kernels.has(tensor.dtype) and private.current_device() == device:
            part, times, dense, runs = tensor, 1, tensor, None  # as most are: nothing of torch runs
        else:
            with self._unseen(device):
                part, times = _without_repeats(torch.view_as_real(tensor) if tensor.is_complex() else tensor)
                runs = _runs(part) if part.data_ptr() % ALIGNED == 0 else None
                dense = part if _fills(part) or runs is not None else part.contiguous()
        if not kernels.has(dense.dtype) or not dense.numel():
            return False
        if dense.untyped_storage().nbytes() < (dense.storage_offset() + _span(dense)) * dense.element_size():
            return True  # its memory was given back: there is nothing to measure
        place = (part.data_ptr(), part.numel(), part.dtype)
        version = -1 if tensor.is_inference() else tensor._version
        with self._lock:
            known = None if changed else self._seen.get(place)
            if known is not None and known[1] == version >= 0 and _is_same(known[0](), part):
                self._add(number, known[2], known[3], times)
                return True
            stream = self._stream(tensor.device, kernels)
            if stream.batch.used >= BATCH:
                self._send_unseen(stream)
            batch, row = stream.batch, stream.batch.begin()
            try:
                kernels.launch(dense, runs or (dense.numel(), 0), stream, batch.address + row * ROW * 8)
            finally:
                batch.end()
            batch.values += (number, row, times)
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen[place] = (weakref.ref(tensor), version, batch, row)
            if batch.used == BATCH:
                self._send_unseen(stream)
        return True

    def _send_full(self, stream: _Stream) -> None:
        """Asked by the compiled engine, when a batch is full."""
        with self._lock:
            if stream.batch.used >= BATCH:
                self._send_unseen(stream)

    def _send_unseen(self, stream: _Stream) -> None:
        with self._unseen(stream.index):
            self._send(stream)
            self._take(wait=False)

    @staticmethod
    @contextmanager
    def _unseen(device: int) -> Iterator[None]:
        """Run functions of torch's out of sight of modes and autograd, on a device.

        The two in the middle are at work from when they are made: made before the first, they would stay for ever.
        """
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            private.no_subclasses(),
            private.no_dispatch(),
            torch.cuda.device(device),
        ):
            yield

    def finish(self) -> None:
        """Bring back the rest, and wait for it."""
        with self._lock:
            for stream in list(self._streams):
                if stream.batch.used:
                    self._send(stream)
            self._take(wait=True)
            self._seen.clear()

    def forget(self, wanted: set[int]) -> None:
        """Drop weak references to these tensors, by ``id``."""
        for place, known in list(self._seen.items()):
            if id(known[0]()) in wanted:
                self._seen.pop(place, None)

    def _stream(self, device: Any, kernels: _Kernels) -> _Stream:
        handle = private.current_raw_stream(device.index)
        found = next((each for each in self._streams if each.index == device.index and each.handle == handle), None)
        if found is None:
            with self._unseen(device.index):
                found = _Stream(device, handle, kernels)
            self._streams.append(found)
        return found

    def _add(self, number: int, batch: _Batch, row: int, times: int) -> None:
        """The numbers of a value are those of another one."""
        if batch.has_arrived:
            self._give(number, _times(batch.here[row].tolist(), times))
        else:
            batch.values += (number, row, times)

    def _send(self, stream: _Stream) -> None:
        batch, stream.batch = stream.batch, _Batch(stream.device)
        while batch.launching:
            time.sleep(0)  # another thread has taken a row, and is about to launch
        with torch.cuda.stream(stream.stream):
            batch.here = torch.empty((batch.used, ROW), dtype=torch.float64, pin_memory=True)
            batch.here.copy_(batch.table[: batch.used], non_blocking=True)
            batch.arrived = torch.cuda.Event()
            batch.arrived.record(stream.stream)
        self._sent.append(batch)

    def _take(self, wait: bool) -> None:
        """Write down what has arrived."""
        while self._sent:
            batch = self._sent[0]
            if not batch.arrived.query():
                if not wait:
                    return
                batch.arrived.synchronize()
            self._sent.pop(0)
            batch.has_arrived, batch.table = True, None
            if self._engine is not None:
                if self._engine.take_rows(batch.values, batch.here.data_ptr()):
                    self._alarm()
                continue
            found: list[list[float]] = batch.here.tolist()
            for number, row, times in zip(*[iter(batch.values)] * 3, strict=True):
                self._give(number, _times(found[row], times))


def _times(row: list[float], times: int) -> list[float]:
    """The row of numbers that are there so many times."""
    if times == 1:
        return row
    return [*(each * times for each in row[:5]), *row[5:7], *(each * times for each in row[7:])]


def _without_repeats(tensor: Any) -> tuple[Any, int]:
    """An expanded tensor as it lies in memory, and how often each element of it is there."""
    times = 1
    for dim in range(tensor.dim() - 1, -1, -1):
        if tensor.stride(dim) == 0 and tensor.size(dim) > 1:
            times *= tensor.size(dim)
            tensor = tensor.select(dim, 0)
    return tensor, times


def _runs(tensor: Any) -> tuple[int, int] | None:
    """How long the runs are that its elements lie in, in whatever order, and how far apart; None: not so.

    The kernel reads sixteen bytes at once, which all runs but a single one must be made of.
    """
    run, pitch, behind = 1, 0, 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if step == run and not pitch:
            run *= size
        elif step > run and not pitch:
            pitch, behind = step, step * size
        elif pitch and step == behind:
            behind *= size
        else:
            return None
    item = tensor.element_size()
    if pitch and (run * item % ALIGNED or pitch * item % ALIGNED or behind * item // ALIGNED >= 1 << 32):
        return None
    return run, pitch


def _span(tensor: Any) -> int:
    """From its first element to behind the last."""
    return 1 + sum(step * (size - 1) for step, size in zip(tensor.stride(), tensor.shape, strict=True))


def _fills(tensor: Any) -> bool:
    """Whether its elements are one run of memory, in whatever order."""
    expected = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step != expected:
                return False
            expected *= size
    return True


def _is_same(known: Any, tensor: Any) -> bool:
    """Whether a living tensor, already measured, has the same elements: being alive, its memory is still the same."""
    if known is None or known.data_ptr() != tensor.data_ptr():
        return False
    if known.shape == tensor.shape and known.stride() == tensor.stride():
        return True
    return _fills(known) and _fills(tensor)
