"""Statistics of tensors on an accelerator: by a kernel of ours (cuda.py), or by reductions of torch's.

Nothing waits while the program runs: results gather on the device, go to pinned memory some hundred at a time, and are
written down when they have arrived. What had not arrived when the process died is unknown.
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
"""Values that are brought back together."""
NO_KERNEL = "statistics on the GPU were taken by torch's own reductions, which take several times as long"
NO_SKETCH = "some values on a device have statistics and no sketch: no kernel makes one of their dtype or layout"
CAPTURING = (
    "statistics were not taken while a CUDA graph was captured: what is launched then would be part of the graph"
)


class _Sent(NamedTuple):
    """A batch on its way."""

    values: list[int]
    rows: Any
    arrived: Any
    """An event of the stream, or None where the device has none: then it has arrived."""


class DeviceTallies:
    """What was measured on devices and is not in the journal yet."""

    def __init__(self, session: Session, write: Callable[[int, Numbers, int], None], alarm: Callable[[], None]) -> None:
        """``alarm`` is called when something is bad that the compiled engine has written itself."""
        self._session = session
        self._write = write
        self._waiting: dict[Any, tuple[list[int], list[Any]]] = {}
        """By device and stream: values, and a row of numbers on the device for each."""
        self._sent: list[_Sent] = []
        self._lock = Lock()
        self._kernels: CudaTallies | None = CudaTallies(
            self._take_row, alarm, session.engine, lambda: session.journal.sketched
        )
        """None: they cannot be had here."""
        self.sketches = False

    def choose(self, sketches: bool) -> None:
        """Whether sketches are wanted, too."""
        self.sketches = sketches
        if self._kernels is not None:
            self._kernels.sketches = sketches

    def _take_row(self, value: int, row: list[float], sketch: bytes) -> None:
        self._write(value, _numbers(row), BY_KERNEL)
        if sketch:
            self._session.journal.sketched.write(value, sketch)

    def measure(self, tensor: Any, number: int, changed: bool = False) -> None:
        """Have a tensor measured behind what its stream is doing now."""
        if tensor.is_cuda and private.is_capturing():
            self._session.note(CAPTURING)
            return
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            return
        is_plain = tensor.is_cuda and not tensor.is_conj() and not tensor.is_neg()  # its bits are its numbers
        if is_plain and self._by_kernel(tensor, number, changed):
            return
        if self.sketches and tensor.numel():
            self._session.note(NO_SKETCH)
        with torch.inference_mode(False), torch.no_grad(), private.no_subclasses(), private.no_dispatch():
            row = _row(tensor.detach())
            stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
            values, rows = self._waiting.setdefault((tensor.device, stream), ([], []))
            values.append(number)
            rows.append(row)
            if len(values) >= BATCH:
                self._send((tensor.device, stream))
                self._take(wait=False)

    def plan(self, tensor: Any) -> tuple[Any, ...] | None:
        """How the compiled engine has tensors like this one measured by a kernel; None where it cannot."""
        if self._kernels is None or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            return None
        return None if private.is_capturing() else self._kernels.plan(tensor)

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
        """Bring back the rest, and wait for it."""
        with torch.inference_mode(False), torch.no_grad(), private.no_subclasses(), private.no_dispatch():
            if self._kernels is not None:
                self._kernels.finish()
            for place in list(self._waiting):
                self._send(place)
            self._take(wait=True)

    def let_go(self) -> None:
        """Nothing more comes: the kernels, which hand their rows to this, are not known here any more."""
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
        """Write down what has arrived."""
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
    """Nine doubles on the device: all, NaN, +Inf, -Inf, zeros, minimum, maximum, sum, sum of squares about the mean."""
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
    counts, finite = (count, nans, posinf, neginf, zeros), count - nans - posinf - neginf
    if not finite:
        return (*counts, nan, nan, nan, nan, nan)
    mean = total / finite
    return (*counts, low, high, mean, sqrt(squares / finite), sqrt(squares + finite * mean * mean))
