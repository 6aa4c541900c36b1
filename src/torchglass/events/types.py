"""The plain records a trace is read as: what happened, to which values, at which place in the code.

Events and values are named tuples, because a trace makes them by the hundred thousand while it is looked at: a
frozen dataclass of their size takes seven times as long to make (docs/decisions/0002-named-tuples.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from torchglass.events.spelling import clean, tensor_text

Kind = str
"""One of ``module function op call variable mark step unseen``."""


@dataclass(frozen=True, slots=True)
class Location:
    """One frame of a stack: a place in a source file, resolved from an instruction."""

    file: str
    line: int
    end_line: int
    col: int
    end_col: int
    function: str
    """The qualified name of the code that ran (``co_qualname``)."""
    source: str
    """The source line, without its indentation; ``""`` when it could not be read."""
    origin: str
    """``user``, ``torch``, ``stdlib`` or ``generated``."""


class Stats(NamedTuple):
    """What is in a value, in numbers. Those after ``zeros`` are of what is finite, and NaN where nothing is.

    A complex number counts as two, a sparse tensor with the zeros that it does not store, True as 1.
    """

    count: int  # pyright: ignore[reportIncompatibleMethodOverride]  # more telling here than a tuple's own method
    nan: int
    posinf: int
    neginf: int
    zeros: int
    min: float
    max: float
    mean: float
    std: float
    """Of the population: divided by how many there are."""
    norm: float
    """The square root of the sum of squares."""

    @property
    def finite(self) -> int:
        """How many are neither NaN nor infinite."""
        return self.count - self.nan - self.posinf - self.neginf


class Sketch(NamedTuple):
    """By what the numbers of a value are known again; ``torchglass.same`` compares two."""

    hash: int
    """Of the bits: equal bits have equal ones. 0: not known, of a trace that an earlier version recorded."""
    flat: tuple[float, ...]
    """17 sums with weights by place in the flat order."""
    axes: tuple[float, ...]
    """17 sums with weights by place on each axis: the same for a transposed tensor."""
    orders: tuple[float, ...]
    """The sums of x, x², |x|, x³ and x⁴, the smallest and the largest: the same in any order."""
    odd: int
    """How many numbers are not finite, or larger than 1e30: they are in none of the sums."""

    @classmethod
    def of(cls, raw: bytes) -> Sketch:
        """From its bytes."""
        found = SKETCH.unpack(raw)
        return cls(found[0], found[1:18], found[18:35], found[35:42], found[42])


SKETCH = Struct("=Q17f17f7dq")


def without_hash(raw: bytes) -> bytes:
    """A sketch whose hash was another one: its bits are not known any more, its sums are."""
    return bytes(8) + raw[8:]


class Value(NamedTuple):
    """One tensor, array or scalar that an event took or gave, at one version."""

    id: int
    """From 0, in order of first sight; another version of a tensor is another value."""
    kind: str
    """``tensor``; other kinds come with the probes that see them."""
    role: str
    """Where it stood: ``x``, ``kv[0]``, ``out.logits``; for a module's parameter its name."""
    shape: tuple[int, ...] | None
    """None when the tensor has no shape to tell (lazy parameters, some nested tensors)."""
    dtype: str
    """The name without ``torch.``, as in ``float32``."""
    device: str
    stride: tuple[int, ...] | None
    layout: str
    requires_grad: bool
    type: str
    """The Python class, as in ``Tensor`` or ``Parameter``."""
    storage: int | None
    """Equal numbers share memory."""
    version: int | None
    """The in-place version counter; None where torch keeps none (inference tensors)."""
    producer: int | None
    """The id of the event that made it; None when it was there before, or made out of sight."""
    stats: Stats | None = None
    """What was in it; None where that was not measured (``record(values="stats")`` does), or nobody had written it."""
    sketch: Sketch | None = None
    """By what its numbers are known again; None where nobody asked (``record(values="stats+sketch")`` does)."""


class Event(NamedTuple):
    """One thing that happened."""

    id: int
    """From 0, in order of opening."""
    kind: Kind
    """``module``, ``function``, ``op``, ``variable``, ``mark``, ``step`` or ``unseen``."""
    name: str
    """module and step: class name; function: public name without ``torch.``; mark: the user's string."""
    parent: int | None
    """The id of the event in whose course it happened."""
    thread: str
    """The thread's name, ``#2`` added when two share it."""
    process: int
    """The number that the system gave to the process."""
    phase: str
    """``forward`` or ``backward``."""
    forward_event: int | None
    """In backward: the id of the event that made the autograd node which was run; None where that is not known."""
    start_ns: int
    end_ns: int | None
    """Host time. None while the event is still open."""
    module: str | None
    """Path of the innermost module under way (for a module event its own); ``""`` is the root, None outside any."""
    root: str | None
    """A label for that path's root: its class name, ``#2`` added when two roots share it."""
    call: int | None
    """Module events: how often this module had been called before in this trace."""
    detail: str
    """Module events: what the class shows of its settings (``in_features=6, out_features=6``).

    Variables: ``argument``, ``assigned``, ``deleted``, or ``changed`` (in place)."""
    operator: str | None
    """``@ + += [] []= -`` … when the step was written so."""
    args: str
    """All arguments as text, tensors as ``f32[8, 3]``."""
    result: str
    """What came out, as text."""
    inputs: tuple[Value, ...]
    """Every tensor among the arguments."""
    outputs: tuple[Value, ...]
    """Every tensor in the result."""
    stack: tuple[Location, ...]
    """Every frame but ours, outermost first."""
    location: Location | None
    """The innermost user frame of the stack."""
    owner: str | None
    """``Class.method`` of the innermost ``nn.Module`` frame."""
    code: str
    """The exact expression at ``location``; ``""`` when unknown."""
    direct: bool
    """True when that expression itself made this call (False: something it called did, inside torch)."""
    target: tuple[str, ...]
    """The names that the result is assigned to, as written."""
    operands: tuple[str, ...]
    """The source text of each tensor argument, one for each of ``inputs``; ``()`` when not known."""
    key: str
    """The same in two runs of one program: root, path and call, site, name, occurrence."""
    error: str | None
    """``Type: text`` of the exception that left this event."""
    note: str | None
    """What the reader should know: what was not seen, and how to see it."""
    python_call: int | None = None
    """Variables: which call of a Python function it belongs to; equal numbers are one call."""

    @property
    def file(self) -> str | None:
        return self.location.file if self.location else None

    @property
    def line(self) -> int | None:
        return self.location.line if self.location else None

    @property
    def end_line(self) -> int | None:
        return self.location.end_line if self.location else None

    @property
    def col(self) -> int | None:
        return self.location.col if self.location else None

    @property
    def end_col(self) -> int | None:
        return self.location.end_col if self.location else None

    @property
    def function(self) -> str | None:
        return self.location.function if self.location else None

    @property
    def source(self) -> str | None:
        return self.location.source if self.location else None

    @property
    def duration_ns(self) -> int | None:
        return None if self.end_ns is None else self.end_ns - self.start_ns

    def __repr__(self) -> str:
        """One line: what it was, what went in and came out, and where."""
        written = f"{', '.join(self.target)} = {self.code}" if self.target and self.operator != "[]=" else self.code
        path = f" {self.root}:{self.module}" if self.kind == "module" else ""
        came = self.error or self.result
        went = ", ".join(tensor_text(each.dtype, each.shape) for each in self.inputs)
        parts = [
            f"Event {self.id}: {self.kind} {self.name}{path}",
            written if written and self.direct else "",
            f"{went} → {came}" if came or went else "",
            f"{self.file.replace(chr(92), '/').rpartition('/')[2]}:{self.line}" if self.file else "",
        ]
        return f"<{clean('  '.join(filter(None, parts)))}>"


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """One module that was called, under one path of one root."""

    id: int
    root: str
    path: str
    name: str
    """Its class."""
    detail: str
    parameters: tuple[Value, ...]
    """Its own parameters, not its children's; ``role`` is the name. Equal ids are one shared parameter."""


def is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...] | None) -> bool:
    """Whether elements lie side by side in their order; of an axis of one the stride says nothing."""
    if stride is None:
        return True
    if len(shape) != len(stride):
        return False
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True
