"""Measures and sketches tensors on an NVIDIA GPU without waiting: one kernel for each value, in the program's stream.

The kernels (kernels.py) write rows of numbers on the device, which are copied to pinned memory in batches. Rows that
are still on the device are lost if the process dies.
"""

from __future__ import annotations

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
from torchglass.system import sleep

ALIGNED = 16
"""The number of bytes that a thread of the kernel reads at once."""
BATCH = 1024
SKETCHES = 256
"""How many values to copy from the device at once, without and with sketches.

There are fewer with sketches, because the partial results of their blocks take more memory until the batch is sent.
"""
MOST_SEEN = 16384
"""The most tensors to remember with their rows; then all of them are forgotten."""

Give = Callable[[int, list[float], bytes], None]
"""A function that takes the number of a value, its row, and its sketch (empty if there is no sketch)."""


class BatchFields:
    """The fields of a batch in Python, for use without the compiled engine.

    With the engine they are in C (engine/fast/device.c), where the engine reads and writes them.
    """

    address = used = room = launching = width = slots = slot = 0
    has_arrived = False
    values: list[int]

    def begin(self) -> int:
        """Reserve a row, or return -1; the batch is not sent before ``end``."""
        if self.used >= self.room:
            return -1
        self.launching += 1
        self.used += 1
        return self.used - 1

    def end(self) -> None:
        self.launching -= 1


class StreamFields:
    """The fields of a stream in Python, for use without the compiled engine."""

    index = handle = parts = launch = 0
    batch: Any


if not TYPE_CHECKING and extension is not None:
    BatchFields = extension.BatchFields
    StreamFields = extension.StreamFields


class _Batch(BatchFields):
    """Rows of one stream that are copied from the device together."""

    def __init__(self, device: Any, slot: int) -> None:
        """Take a device and the size of a slot in doubles.

        A slot holds the partial results of one launch with a sketch. Its size is 0 without sketches.
        """
        if slot:
            self.room = SKETCHES
            self.width = SKETCH_WIDTH
        else:
            self.room = BATCH
            self.width = ROW
        # The table begins with zeros, so the hash of a row without a sketch is 0.
        self.table: Any = torch.zeros((self.room, self.width), dtype=torch.float64, device=device)
        self.left: Any = (
            torch.empty(self.room * slot, dtype=torch.float64, device=device) if slot else None
        )
        self.address, self.slot, self.slots = (
            self.table.data_ptr(),
            slot,
            self.left.data_ptr() if slot else 0,
        )
        self.values = []
        """Three entries for each value: its number, its row, and how often each of its numbers occurs."""
        self.here: Any = None
        """The rows in pinned memory; they are valid once the batch has arrived."""
        self.arrived: Any = None


class _Stream(StreamFields):
    """The memory that the kernels of one CUDA stream share; these kernels run one after the other."""

    def __init__(self, device: Any, handle: int, kernels: Kernels) -> None:
        self.device = device
        self.index = device.index
        self.handle = handle
        self.launch = kernels.launch_address
        self.stream = torch.cuda.current_stream(device)
        most = max(kernels.most_blocks(None), PRIME)
        self.scratch = torch.zeros(most * PART + 1, dtype=torch.float64, device=device)
        self.parts = self.scratch.data_ptr() + 8
        """The address of one row for each block; the counter of finished blocks lies just before it."""
        self.kernels = kernels
        self.batch = _Batch(device, 0)


class CudaTallies:
    """Measures tensors with our kernels, and holds the results until they are written into the journal."""

    def __init__(
        self, give: Give, alarm: Callable[[], None], engine: Any, sketched: Callable[[], Any]
    ) -> None:
        """Take the functions to call with results and for bad values, and the compiled engine, if there is one.

        ``sketched`` returns the object that writes sketches into the journal.
        """
        self._give = give
        self._alarm = alarm
        self._engine = engine
        self._sketched = sketched
        self.sketches = False
        """Whether sketches are wanted too."""
        self._streams: list[_Stream] = []
        self._sent: list[_Batch] = []
        self._seen: dict[tuple[Any, ...], tuple[weakref.ref[Any], int, _Batch, int]] = {}
        """Keyed by address, size, dtype and order (None without a sketch).

        An entry holds the tensor that was measured there, its version, and the batch and row of its result.
        """
        self._lock = Lock()
        if engine is not None:
            engine.ask({
                "device_streams": self._streams, "send_batch": self._send_full, "is_capturing": private.is_capturing,
                "current_device": private.current_device, "current_raw_stream": private.current_raw_stream,
            })  # fmt: skip

    def plan(self, tensor: Any) -> tuple[Any, ...] | None:
        """Return how the compiled engine can measure tensors like this one, or None if it cannot.

        The tuple holds the device, the kernel, the length and distance of the runs, how many numbers a block is given,
        the most blocks to launch, and the order, which is empty without a sketch.
        """
        is_one = self._engine is not None and not tensor.is_complex() and tensor.numel()
        order = None
        if is_one and self.sketches:
            order = packed_order(tensor)
        if order is not None:
            runs = (tensor.numel(), 0)
        elif is_one and not self.sketches:
            runs = _runs(tensor)
        else:
            runs = None
        if runs is None:
            return None
        kernels = kernels_of(tensor.device.index)
        dtype = tensor.dtype
        if not kernels.has(dtype):
            return None
        if order is None:
            share = THREADS * A_THREAD
        else:
            share = sketch_share(dtype)
        function: int = kernels.function(dtype, order).value or 0
        return tensor.device.index, function, *runs, share, kernels.most_blocks(order), order or b""

    def measure(self, tensor: Any, number: int, changed: bool) -> tuple[bool, bool]:
        """Measure a tensor; return whether a kernel can do that, and whether there will be a sketch if one is wanted.

        Raise an exception if NVRTC or libcuda is missing.
        """
        device = tensor.device.index
        kernels = kernels_of(device)
        part, times, run = self._run_of(tensor, kernels)
        if run is None:
            return False, False
        dense = part
        is_sketched = run.order is not None or not self.sketches
        if (
            dense.untyped_storage().nbytes()
            < (dense.storage_offset() + _span(dense)) * dense.element_size()
        ):
            return True, True  # the memory of the tensor was freed, so there is nothing to measure
        place = (part.data_ptr(), part.numel(), part.dtype, run.order)
        if tensor.is_inference():
            version = -1
        else:
            version = tensor._version
        with self._lock:
            known = None
            if not changed:
                known = self._seen.get(place)
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
        """Return the part of a tensor to measure, how often each number of the part occurs, and the run for a kernel.

        The run is None if there is no kernel for the tensor.
        """
        order: bytes | None = None
        if (
            tensor.is_contiguous()
            and kernels.has(tensor.dtype)
            and private.current_device() == tensor.device.index
        ):
            # Most tensors are contiguous, and need no torch function.
            part = tensor
            times = 1
            dense = tensor
            runs = (tensor.numel(), 0)
            order = None
            if self.sketches:
                order = packed_order(tensor)
        else:
            with self._unseen(tensor.device.index):
                part = tensor
                if tensor.is_complex():
                    part = torch.view_as_real(tensor)
                times = 1
                if self.sketches and (part.numel() <= MOST or _span(part) >= part.numel()):
                    order = packed_order(part)
                if order is None:
                    part, times = _without_repeats(part)
                runs = None
                if part.data_ptr() % ALIGNED == 0:
                    runs = _runs(part)
                is_there = order is not None or runs is not None or _fills(part)
                dense = part
                if not is_there:
                    dense = part.contiguous()
        if not kernels.has(dense.dtype) or not dense.numel():
            return part, times, None
        return (
            dense,
            times,
            DeviceRun(
                dense.dtype, dense.data_ptr(), dense.numel(), runs or (dense.numel(), 0), order
            ),
        )

    def _batch(self, stream: _Stream) -> _Batch:
        """Return a batch of a stream that has room for one more row, with or without a sketch as wanted now."""
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
        """Send a full batch; the compiled engine calls this."""
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
        """Hide torch functions from modes and autograd, and select a device.

        The two context managers of `private` take effect when they are created, not when they are entered. They are
        therefore created inside the ``with`` statement; created before it, they could stay in effect for ever.
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
        """Copy the remaining rows from the device, wait for them, and write them."""
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
        found = next(
            (
                each
                for each in self._streams
                if each.index == device.index and each.handle == handle
            ),
            None,
        )
        if found is None:
            with self._unseen(device.index):
                found = _Stream(device, handle, kernels)
            self._streams.append(found)
        return found

    def _add(self, number: int, batch: _Batch, row: int, times: int) -> None:
        """Give a value the statistics in a row that was measured for another value."""
        if batch.has_arrived:
            self._give_row(number, batch, row, times)
        else:
            batch.values += (number, row, times)

    def _send(self, stream: _Stream) -> None:
        with torch.cuda.stream(stream.stream):
            batch = stream.batch
            stream.batch = self._fresh(stream)
            while batch.launching:
                sleep(0)  # another thread has reserved a row, and is about to launch its kernel
            stream.kernels.join(stream, batch)
            batch.left = None
            batch.here = torch.empty(
                (batch.used, batch.width), dtype=torch.float64, pin_memory=True
            )
            batch.here.copy_(batch.table[: batch.used], non_blocking=True)
            batch.arrived = torch.cuda.Event()
            batch.arrived.record(stream.stream)
        self._sent.append(batch)

    def _take(self, wait: bool) -> None:
        """Write the rows that have arrived into the journal."""
        while self._sent:
            batch = self._sent[0]
            if not batch.arrived.query():
                if not wait:
                    return
                batch.arrived.synchronize()
            self._sent.pop(0)
            batch.has_arrived = True
            batch.table = None
            if self._engine is not None:
                if self._engine.take_rows(
                    batch.values, batch.here.data_ptr(), batch.width, self._sketched()
                ):
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
    """Return a row for numbers that each occur so many times."""
    if times == 1:
        return row
    return [*(each * times for each in row[:5]), *row[5:7], *(each * times for each in row[7:])]


def _without_repeats(tensor: Any) -> tuple[Any, int]:
    """Return an expanded tensor without its expanded dimensions, and how often each of its elements occurs."""
    times = 1
    for dim in range(tensor.dim() - 1, -1, -1):
        if tensor.stride(dim) == 0 and tensor.size(dim) > 1:
            times *= tensor.size(dim)
            tensor = tensor.select(dim, 0)
    return tensor, times


def _runs(tensor: Any) -> tuple[int, int] | None:
    """Return the length of a tensor's contiguous runs and the distance between them, or None if they are irregular.

    The kernel reads sixteen bytes at once, so each run must be a multiple of that unless there is only one run.
    """
    run = 1
    pitch = 0
    behind = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if step == run and not pitch:
            run *= size
        elif step > run and not pitch:
            pitch = step
            behind = step * size
        elif pitch and step == behind:
            behind *= size
        else:
            return None
    item = tensor.element_size()
    if pitch and (
        run * item % ALIGNED or pitch * item % ALIGNED or behind * item // ALIGNED >= 1 << 32
    ):
        return None
    return run, pitch


def _span(tensor: Any) -> int:
    """Return the distance in elements from the first element of a tensor to the end of its last."""
    return 1 + sum(
        step * (size - 1) for step, size in zip(tensor.stride(), tensor.shape, strict=True)
    )


def _fills(tensor: Any) -> bool:
    """Return whether the elements of a tensor fill one piece of memory, in any order of the dimensions."""
    expected = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step != expected:
                return False
            expected *= size
    return True


def _is_same(known: Any, tensor: Any) -> bool:
    """Return whether a tensor has the same elements as a tensor that was measured before (``known``).

    ``known`` must still be alive, because otherwise its memory may have been reused.
    """
    if known is None or known.data_ptr() != tensor.data_ptr():
        return False
    if known.shape == tensor.shape and known.stride() == tensor.stride():
        return True
    return _fills(known) and _fills(tensor)
