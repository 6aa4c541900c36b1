"""Measures tensors on an accelerator: with our kernels (cuda.py) if possible, otherwise with torch's reductions.

Nothing waits while the program runs. Results are collected on the device, copied to pinned memory a few hundred at a
time, and written into the journal when they have arrived. Results that are still on the device are lost if the process
dies.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan, sqrt
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torchglass.capture.statistics.cuda import CudaTallies
from torchglass.capture.torch import private
from torchglass.capture.transparency.ours import foreign
from torchglass.journal.layout import BY_DEVICE, BY_KERNEL, Numbers

if TYPE_CHECKING:
    from torchglass.capture.session import Session

BATCH = 256
"""How many values to copy from the device at once."""
NO_KERNEL = (
    "statistics on the GPU were taken by torch's own reductions, which take several times as long"
)
NO_SKETCH = "some values on a device have statistics and no sketch: no kernel makes one of their dtype or layout"
CAPTURING = (
    "statistics were not taken while a CUDA graph was captured: "
    "what is launched then would be part of the graph"
)


class _Sent(NamedTuple):
    """A batch of results that is being copied from the device."""

    values: list[int]
    rows: Any
    arrived: Any
    """The CUDA event that marks the end of the copy; None on other devices, where the copy has already ended."""


class DeviceTallies:
    """Measures tensors on devices, and holds the results until they are written into the journal."""

    def __init__(
        self,
        session: Session,
        write: Callable[[int, Numbers, int], None],
        alarm: Callable[[], None],
    ) -> None:
        """Take the session and two functions.

        ``write`` is called with each result, ``alarm`` for bad values whose results the compiled engine wrote.
        """
        self._session = session
        self._write = write
        self._waiting: dict[Any, tuple[list[int], list[Any]]] = {}
        """Keyed by device and stream: values, and for each value a row of numbers on the device."""
        self._sent: list[_Sent] = []
        self._lock = Lock()
        self._kernels: CudaTallies | None = CudaTallies(
            self._take_row, alarm, session.engine, lambda: session.journal.sketched
        )
        """Measures with our kernels; None if the kernels are not available here."""
        self.sketches = False

    def choose(self, sketches: bool) -> None:
        """Set whether sketches are wanted, too."""
        self.sketches = sketches
        if self._kernels is not None:
            self._kernels.sketches = sketches

    def _take_row(self, value: int, row: list[float], sketch: bytes) -> None:
        self._write(value, _numbers(row), BY_KERNEL)
        if sketch:
            self._session.journal.sketched.write(value, sketch)

    def measure(self, tensor: Any, number: int, changed: bool = False) -> None:
        """Measure a tensor, after what its stream is doing now."""
        if tensor.is_cuda and private.is_capturing():
            self._session.note(CAPTURING)
            return
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            return
        # The bits of a plain tensor are its numbers.
        is_plain = tensor.is_cuda and not tensor.is_conj() and not tensor.is_neg()
        if is_plain and self._by_kernel(tensor, number, changed):
            return
        if self.sketches and tensor.numel():
            self._session.note(NO_SKETCH)
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            private.no_subclasses(),
            private.no_dispatch(),
        ):
            row = _row(tensor.detach())
            stream = None
            if tensor.is_cuda:
                stream = torch.cuda.current_stream(tensor.device)
            values, rows = self._waiting.setdefault((tensor.device, stream), ([], []))
            values.append(number)
            rows.append(row)
            if len(values) >= BATCH:
                self._send((tensor.device, stream))
                self._take(wait=False)

    def plan(self, tensor: Any) -> tuple[Any, ...] | None:
        """Return how the compiled engine can measure tensors like this one with a kernel, or None if it cannot."""
        if (
            self._kernels is None
            or tensor.layout is not torch.strided
            or tensor.is_nested
            or tensor.is_quantized
        ):
            return None
        if private.is_capturing():
            return None
        return self._kernels.plan(tensor)

    def _by_kernel(self, tensor: Any, number: int, changed: bool) -> bool:
        if self._kernels is None:
            return False
        try:
            done, is_sketched = self._kernels.measure(tensor, number, changed)
            if done and not is_sketched:
                self._session.note(NO_SKETCH)
            return done
        except Exception as reason:
            foreign(reason)
            self._kernels = None
            self._session.note(f"{NO_KERNEL} ({type(reason).__name__}: {reason})")
            return False

    def forget(self, wanted: set[int]) -> None:
        """Drop weak references to these tensors, by ``id``."""
        if self._kernels is not None:
            self._kernels.forget(wanted)

    def finish(self) -> None:
        """Copy the remaining results from the device, wait for them, and write them."""
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            private.no_subclasses(),
            private.no_dispatch(),
        ):
            if self._kernels is not None:
                self._kernels.finish()
            for place in list(self._waiting):
                self._send(place)
            self._take(wait=True)

    def release(self) -> None:
        """Forget the kernels, which hold a reference back to this object."""
        self._kernels = None

    def _send(self, place: tuple[Any, Any]) -> None:
        values, rows = self._waiting.pop(place)
        device, stream = place
        if device.type != "cuda":
            self._sent.append(_Sent(values, torch.stack(rows).cpu(), None))
            return
        with torch.cuda.stream(stream):
            together = torch.stack(rows)
            here = torch.empty(together.shape, dtype=together.dtype, pin_memory=True)
            here.copy_(together, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(stream)
        self._sent.append(_Sent(values, here, arrived))

    def _take(self, wait: bool) -> None:
        """Write the results that have arrived into the journal."""
        with self._lock:
            while self._sent:
                first = self._sent[0]
                if first.arrived is not None and not first.arrived.query():
                    if not wait:
                        return
                    first.arrived.synchronize()
                self._sent.pop(0)
                for value, row in zip(first.values, first.rows.tolist(), strict=True):
                    self._write(value, _numbers(row), BY_DEVICE)


def _row(tensor: Any) -> Any:
    """Return nine doubles on the device: all, NaN, +Inf, -Inf, zeros, min, max, sum, sum of squares about the mean."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    numbers = tensor.to(torch.float64).reshape(-1)
    if not numbers.numel():
        return torch.zeros(9, dtype=torch.float64, device=tensor.device)
    finite = torch.isfinite(numbers)
    kept = torch.where(finite, numbers, 0.0)
    total = kept.sum()
    mean = total / finite.sum().clamp(min=1)
    return torch.stack([
        torch.full((), numbers.numel(), dtype=torch.float64, device=numbers.device),
        torch.isnan(numbers).sum(), (numbers == inf).sum(), (numbers == -inf).sum(), (numbers == 0).sum(),
        torch.where(finite, numbers, inf).amin(), torch.where(finite, numbers, -inf).amax(), total,
        torch.where(finite, (numbers - mean).square(), 0.0).sum(),
    ])  # fmt: skip


def _numbers(row: list[float]) -> Numbers:
    count, nans, posinf, neginf, zeros = map(int, row[:5])
    low, high, total, squares = row[5:]
    counts = (count, nans, posinf, neginf, zeros)
    finite = count - nans - posinf - neginf
    if not finite:
        return (*counts, nan, nan, nan, nan, nan)
    mean = total / finite
    return (*counts, low, high, mean, sqrt(squares / finite), sqrt(squares + finite * mean * mean))
