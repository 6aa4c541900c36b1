"""Statistics and sketches of tensors on an NVIDIA GPU: one kernel a value, in the program's stream, and never a wait.

Rows of numbers gather on the device (kernels.py launches what makes them, and what makes those with sketches whole)
and go to pinned memory a batch at a time; what had not arrived when the process died is unknown.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch

from torchglass.capture.statistics.axes import packed_order
from torchglass.capture.statistics.kernels import (
    A_THREAD,
    PART,
    PRIME,
    ROW,
    SKETCH_ROW,
    SKETCH_WIDTH,
    THREADS,
    DeviceRun,
    Kernels,
    kernels_of,
    sketch_share,
)
from torchglass.capture.statistics.sketch import MOST
from torchglass.capture.torch import private
from torchglass.compiled import extension

ALIGNED = 16
"""Bytes that are read at once."""
BATCH, SKETCHES = 1024, 256
"""Values that are brought back together; fewer with sketches, whose blocks leave more behind until then."""
MOST_SEEN = 16384

Give = Callable[[int, list[float], bytes], None]
"""Takes a value's number, its row, and its sketch, which is empty where there is none."""


class BatchFields:
    """What the compiled engine reads and writes of a batch (engine/fast/device.c), where there is none."""

    address = used = room = launching = width = slots = slot = 0
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

    index = handle = parts = launch = 0
    batch: Any


if not TYPE_CHECKING and extension is not None:
    BatchFields, StreamFields = extension.BatchFields, extension.StreamFields


class _Batch(BatchFields):
    """Rows of one stream that go back together."""

    def __init__(self, device: Any, slot: int) -> None:
        """A slot is what the blocks of one launch leave for a sketch; 0 where there are none."""
        self.room, self.width = (SKETCHES, SKETCH_WIDTH) if slot else (BATCH, ROW)
        # Zeros: a row that has no sketch has no hash.
        self.table: Any = torch.zeros((self.room, self.width), dtype=torch.float64, device=device)
        self.left: Any = torch.empty(self.room * slot, dtype=torch.float64, device=device) if slot else None
        self.address, self.slot, self.slots = self.table.data_ptr(), slot, self.left.data_ptr() if slot else 0
        self.values = []
        """By turns: a value, its row, and how often the numbers of that are there."""
        self.here: Any = None
        """The rows, on their way or here: then it has arrived."""
        self.arrived: Any = None


class _Stream(StreamFields):
    """What kernels of one stream share: they run one after the other."""

    def __init__(self, device: Any, handle: int, kernels: Kernels) -> None:
        self.device, self.index, self.handle, self.launch = device, device.index, handle, kernels.launch_address
        self.stream = torch.cuda.current_stream(device)
        most = max(kernels.most_blocks(None), PRIME)
        self.scratch = torch.zeros(most * PART + 1, dtype=torch.float64, device=device)
        self.parts = self.scratch.data_ptr() + 8
        """A row for each block, behind the number of those that have ended."""
        self.kernels = kernels
        self.batch = _Batch(device, 0)


class CudaTallies:
    """What was measured by kernels and is not in the journal yet."""

    def __init__(self, give: Give, alarm: Callable[[], None], engine: Any, sketched: Callable[[], Any]) -> None:
        """``sketched`` gives what writes sketches into the journal."""
        self._give, self._alarm, self._engine, self._sketched = give, alarm, engine, sketched
        self.sketches = False
        """Whether sketches are wanted, too."""
        self._streams: list[_Stream] = []
        self._sent: list[_Batch] = []
        self._seen: dict[tuple[Any, ...], tuple[weakref.ref[Any], int, _Batch, int]] = {}
        """By address, size, dtype and, with a sketch, order: the tensor measured there, its version, and its row."""
        self._lock = Lock()
        if engine is not None:
            engine.ask({
                "device_streams": self._streams, "send_batch": self._send_full, "is_capturing": private.is_capturing,
                "current_device": private.current_device, "current_raw_stream": private.current_raw_stream,
            })  # fmt: skip

    def plan(self, tensor: Any) -> tuple[Any, ...] | None:
        """How the compiled engine has tensors like this one measured; None where it cannot.

        The device, the kernel, the runs, how many numbers a block is given, how many blocks there are at most, and the
        order where there is a sketch.
        """
        is_one = self._engine is not None and not tensor.is_complex() and tensor.numel()
        order = packed_order(tensor) if is_one and self.sketches else None
        runs = (tensor.numel(), 0) if order is not None else _runs(tensor) if is_one and not self.sketches else None
        if runs is None:
            return None
        kernels, dtype = kernels_of(tensor.device.index), tensor.dtype
        if not kernels.has(dtype):
            return None
        share = THREADS * A_THREAD if order is None else sketch_share(dtype)
        function: int = kernels.function(dtype, order).value or 0
        return tensor.device.index, function, *runs, share, kernels.most_blocks(order), order or b""

    def measure(self, tensor: Any, number: int, changed: bool) -> tuple[bool, bool]:
        """Have a tensor measured: whether this can, and whether there will be a sketch where one is wanted.

        Raises where there is no compiler or no library.
        """
        device = tensor.device.index
        kernels = kernels_of(device)
        part, times, run = self._run_of(tensor, kernels)
        if run is None:
            return False, False
        dense, is_sketched = part, run.order is not None or not self.sketches
        if dense.untyped_storage().nbytes() < (dense.storage_offset() + _span(dense)) * dense.element_size():
            return True, True  # its memory was given back: there is nothing to measure
        place = (part.data_ptr(), part.numel(), part.dtype, run.order)
        version = -1 if tensor.is_inference() else tensor._version
        with self._lock:
            known = None if changed else self._seen.get(place)
            if known is not None and known[1] == version >= 0 and _is_same(known[0](), part):
                self._add(number, known[2], known[3], times)
                return True, is_sketched
            stream = self._stream(tensor.device, kernels)
            batch = self._batch(stream)
            row = batch.begin()
            try:
                kernels.launch(run, stream, batch, row)
            finally:
                batch.end()
            batch.values += (number, row, times)
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen[place] = (weakref.ref(tensor), version, batch, row)
            if batch.used == batch.room:
                self._send_unseen(stream)
        return True, is_sketched

    def _run_of(self, tensor: Any, kernels: Kernels) -> tuple[Any, int, DeviceRun | None]:
        """What a kernel is given of a tensor, how often each number of that is there, and how it goes through it."""
        order: bytes | None = None
        if tensor.is_contiguous() and kernels.has(tensor.dtype) and private.current_device() == tensor.device.index:
            part, times, dense = tensor, 1, tensor  # as most are: nothing of torch runs
            runs, order = (tensor.numel(), 0), packed_order(tensor) if self.sketches else None
        else:
            with self._unseen(tensor.device.index):
                part, times = torch.view_as_real(tensor) if tensor.is_complex() else tensor, 1
                if self.sketches and (part.numel() <= MOST or _span(part) >= part.numel()):
                    order = packed_order(part)
                if order is None:
                    part, times = _without_repeats(part)
                runs = _runs(part) if part.data_ptr() % ALIGNED == 0 else None
                is_there = order is not None or runs is not None or _fills(part)
                dense = part if is_there else part.contiguous()
        if not kernels.has(dense.dtype) or not dense.numel():
            return part, times, None
        return dense, times, DeviceRun(dense.dtype, dense.data_ptr(), dense.numel(), runs or (dense.numel(), 0), order)

    def _batch(self, stream: _Stream) -> _Batch:
        """One that has room for a row as wide as is wanted now."""
        if stream.batch.used >= stream.batch.room:
            self._send_unseen(stream)
        if (stream.batch.slot != 0) != self.sketches:
            with self._unseen(stream.index):
                if stream.batch.used:
                    self._send(stream)
                else:
                    stream.batch = self._fresh(stream)
        return stream.batch

    def _fresh(self, stream: _Stream) -> _Batch:
        return _Batch(stream.device, stream.kernels.slot() if self.sketches else 0)

    def _send_full(self, stream: _Stream) -> None:
        """Asked by the compiled engine, when a batch is full."""
        with self._lock:
            if stream.batch.used >= stream.batch.room:
                self._send_unseen(stream)

    def _send_unseen(self, stream: _Stream) -> None:
        with self._unseen(stream.index):
            self._send(stream)
            self._take(wait=False)

    @staticmethod
    @contextmanager
    def _unseen(device: int) -> Iterator[None]:
        """DeviceRun functions of torch's out of sight of modes and autograd, on a device.

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

    def _stream(self, device: Any, kernels: Kernels) -> _Stream:
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
            self._give_row(number, batch, row, times)
        else:
            batch.values += (number, row, times)

    def _send(self, stream: _Stream) -> None:
        with torch.cuda.stream(stream.stream):
            batch, stream.batch = stream.batch, self._fresh(stream)
            while batch.launching:
                time.sleep(0)  # another thread has taken a row, and is about to launch
            stream.kernels.join(stream, batch)
            batch.left = None
            batch.here = torch.empty((batch.used, batch.width), dtype=torch.float64, pin_memory=True)
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
                if self._engine.take_rows(batch.values, batch.here.data_ptr(), batch.width, self._sketched()):
                    self._alarm()
                continue
            for number, row, times in zip(*[iter(batch.values)] * 3, strict=True):
                self._give_row(number, batch, row, times)

    def _give_row(self, number: int, batch: _Batch, row: int, times: int) -> None:
        found = batch.here[row].numpy()
        sketch: bytes = found[ROW:SKETCH_ROW].tobytes()
        is_sketched = times == 1 and any(sketch[:8])
        self._give(number, _times(found[:ROW].tolist(), times), sketch if is_sketched else b"")


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
