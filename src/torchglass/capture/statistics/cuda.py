"""Statistics of tensors on an NVIDIA GPU: one kernel a value, in the program's own stream, and never a wait.

The kernel (statistics.cu) is compiled when the first value comes, by NVRTC, which torch brings, and launched by libcuda
itself: torch's own way to launch it takes ten times as long. Rows of numbers gather on the device and go to pinned
memory a batch at a time; what had not arrived when the process died is unknown.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from torchglass.capture.torch import private

THREADS = 256
A_THREAD = 32
"""Elements that a thread is given at least."""
BLOCKS_A_PROCESSOR = 4
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
        self.most_blocks = BLOCKS_A_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count
        self._data, self._count, self._row = ctypes.c_void_p(), ctypes.c_ulonglong(), ctypes.c_void_p()
        self._parts, self._ended = ctypes.c_void_p(), ctypes.c_void_p()
        self._lock = Lock()
        fields = (self._data, self._count, self._parts, self._ended, self._row)
        self._arguments = (ctypes.c_void_p * len(fields))(*(ctypes.addressof(each) for each in fields))

    def has(self, dtype: Any) -> bool:
        return dtype in self._functions

    def launch(self, run: tuple[Any, int, int], stream: _Stream, row: int) -> None:
        """Measure a run of numbers (dtype, address, count), behind what the stream is doing now."""
        dtype, address, count = run
        blocks = min(self.most_blocks, -(-count // (THREADS * A_THREAD)))
        function, handle = self._functions[dtype], ctypes.c_void_p(stream.handle)
        with self._lock:  # what the kernel is given lies in one place for all threads
            self._data.value, self._count.value, self._row.value = address, count, row
            self._parts.value, self._ended.value = stream.parts, stream.parts - 8
            problem = self._launch(function, blocks, 1, 1, THREADS, 1, 1, 0, handle, self._arguments, None)
        if problem:
            raise RuntimeError(f"cuLaunchKernel gave {problem}")


_kernels: dict[int, _Kernels] = {}
"""By device: they take a second to compile, and stay for the process."""


class _Batch:
    """Rows of one stream that go back together."""

    __slots__ = ("address", "arrived", "found", "here", "table", "used", "values")

    def __init__(self, device: Any) -> None:
        self.table: Any = torch.empty((BATCH, ROW), dtype=torch.float64, device=device)
        self.address = self.table.data_ptr()
        self.used = 0
        self.values: list[tuple[int, int, int]] = []
        """Each with its row, and how often the numbers of that are there."""
        self.here: Any = None
        self.arrived: Any = None
        self.found: list[list[float]] | None = None
        """The rows, when they have arrived."""


class _Stream:
    """What kernels of one stream share: they run one after the other."""

    def __init__(self, device: Any, handle: int, most_blocks: int) -> None:
        self.device, self.handle = device, handle
        self.stream = torch.cuda.current_stream(device)
        self.scratch = torch.zeros(most_blocks * ROW + 1, dtype=torch.float64, device=device)
        self.parts = self.scratch.data_ptr() + 8
        """A row for each block, behind the number of those that have ended."""
        self.batch = _Batch(device)


class CudaTallies:
    """What was measured by kernels and is not in the journal yet."""

    def __init__(self, give: Give) -> None:
        self._give = give
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._sent: list[_Batch] = []
        self._seen: dict[tuple[int, int, Any], tuple[weakref.ref[Any], int, _Batch, int]] = {}
        """By address, size and dtype: the tensor that was measured there, its version, and where the numbers are."""
        self._lock = Lock()

    def measure(self, tensor: Any, number: int, changed: bool) -> bool:
        """Have a tensor measured; False where this cannot. Raises where there is no compiler or no library."""
        device = tensor.device.index
        kernels = _kernels.get(device)
        if kernels is None:
            kernels = _kernels[device] = _Kernels(device)
        if tensor.is_contiguous() and kernels.has(tensor.dtype) and private.current_device() == device:
            part, times, dense = tensor, 1, tensor  # as most are: nothing of torch runs
        else:
            with self._unseen(device):
                part, times = _without_repeats(torch.view_as_real(tensor) if tensor.is_complex() else tensor)
                dense = part if _fills(part) else part.contiguous()
        if not kernels.has(dense.dtype) or not dense.numel():
            return False
        place = (part.data_ptr(), part.numel(), part.dtype)
        version = -1 if tensor.is_inference() else tensor._version
        with self._lock:
            known = None if changed else self._seen.get(place)
            if known is not None and known[1] == version >= 0 and _is_same(known[0](), part):
                self._add(number, known[2], known[3], times)
                return True
            stream = self._stream(tensor.device, kernels)
            batch, row = stream.batch, stream.batch.used
            kernels.launch((dense.dtype, dense.data_ptr(), dense.numel()), stream, batch.address + row * ROW * 8)
            batch.used += 1
            batch.values.append((number, row, times))
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen[place] = (weakref.ref(tensor), version, batch, row)
            if batch.used == BATCH:
                with self._unseen(device):
                    self._send(stream)
                    self._take(wait=False)
        return True

    @staticmethod
    @contextmanager
    def _unseen(device: int) -> Iterator[None]:
        """Run functions of torch's out of sight of modes and autograd, on a device."""
        unseen = private.no_subclasses(), private.no_dispatch()
        with torch.inference_mode(False), torch.no_grad(), unseen[0], unseen[1], torch.cuda.device(device):
            yield

    def finish(self) -> None:
        """Bring back the rest, and wait for it."""
        with self._lock:
            for stream in self._streams.values():
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
        found = self._streams.get((device.index, handle))
        if found is None:
            with self._unseen(device.index):
                found = self._streams[device.index, handle] = _Stream(device, handle, kernels.most_blocks)
        return found

    def _add(self, number: int, batch: _Batch, row: int, times: int) -> None:
        """The numbers of a value are those of another one."""
        if batch.found is not None:
            self._give(number, _times(batch.found[row], times))
        else:
            batch.values.append((number, row, times))

    def _send(self, stream: _Stream) -> None:
        batch, stream.batch = stream.batch, _Batch(stream.device)
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
            found: list[list[float]] = batch.here.tolist()
            batch.found, batch.here, batch.table = found, None, None
            for number, row, times in batch.values:
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
