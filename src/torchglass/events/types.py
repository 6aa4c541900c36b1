"""The plain records of a trace: what happened, to which values, at which place in the code.

Events and values are named tuples, because reading a trace creates hundreds of thousands of them: a frozen dataclass of
their size takes seven times as long to create (docs/decisions/0002-named-tuples.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

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
    """The source line, without its indentation; ``""`` if it could not be read."""
    origin: str
    """``user``, ``torch``, ``stdlib`` or ``generated``."""


def location_dict(at: Location | None) -> dict[str, Any] | None:
    """Return the JSON form of a place: the whole path, lines from 1, columns from 0 in characters."""
    if at is None:
        return None
    return {
        "file": at.file,
        "line": at.line,
        "end_line": at.end_line,
        "column": at.col,
        "end_column": at.end_col,
        "function": at.function,
        "source": at.source,
    }


class Stats(NamedTuple):
    """Statistics of a value. Those after ``zeros`` cover its finite numbers, and are NaN if there are none.

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
        """How many numbers are neither NaN nor infinite."""
        return self.count - self.nan - self.posinf - self.neginf


class Sketch(NamedTuple):
    """Content fingerprint of a value; ``torchglass.same`` compares two."""

    hash: int
    """A hash of the bits; 0 if an earlier version recorded the trace, which hashed in another way."""
    flat: tuple[float, ...]
    """17 sums with weights by place in the flat order."""
    axes: tuple[float, ...]
    """17 sums with weights by place on each axis: the same for a transposed tensor."""
    orders: tuple[float, ...]
    """The sums of x, x², |x|, x³ and x⁴, the smallest and the largest: the same in any order."""
    odd: int
    """How many numbers were left out of the sums because they are not finite or larger than 1e30."""

    @classmethod
    def of(cls, raw: bytes) -> Sketch:
        """Return the sketch that these bytes hold."""
        found = SKETCH.unpack(raw)
        return cls(found[0], found[1:18], found[18:35], found[35:42], found[42])


SKETCH = Struct("=Q17f17f7dq")


def without_hash(raw: bytes) -> bytes:
    """Return a sketch without its hash, which earlier versions computed in another way; its sums stay valid."""
    return bytes(8) + raw[8:]


class Value(NamedTuple):
    """One tensor, array or scalar that an event took or gave, at one version."""

    id: int
    """From 0, in order of first sight; another version of a tensor is another value."""
    kind: str
    """``tensor``, or ``array`` for a numpy array."""
    role: str
    """Its place among the arguments or results: ``x``, ``kv[0]``, ``out.logits``; of a parameter its name."""
    shape: tuple[int, ...] | None
    """None if the tensor has no shape (lazy parameters, some nested tensors)."""
    dtype: str
    """The name without ``torch.``, as in ``float32``."""
    device: str
    stride: tuple[int, ...] | None
    layout: str
    requires_grad: bool
    type: str
    """The Python class, as in ``Tensor`` or ``Parameter``."""
    storage: int | None
    """Values with the same number share memory."""
    version: int | None
    """The in-place version counter; None if torch keeps none (inference tensors)."""
    producer: int | None
    """The id of the event that made it; None if it existed before, or no recorded event made it."""
    stats: Stats | None = None
    """Its statistics; None if not measured (see ``record(values="stats")``), or if its memory was uninitialised."""
    sketch: Sketch | None = None
    """Its fingerprint; None unless recorded with ``record(values="stats+sketch")``."""


class Event(NamedTuple):
    """One thing that happened."""

    id: int
    """From 0, in the order in which events begin."""
    kind: Kind
    """``module``, ``function``, ``op``, ``variable``, ``mark``, ``step`` or ``unseen``."""
    name: str
    """module and step: class name; function: public name without ``torch.``; mark: the user's string."""
    parent: int | None
    """The id of the event inside which it happened."""
    thread: str
    """The thread's name, with ``#2`` added if two share it."""
    process: int
    """The process id (pid)."""
    phase: str
    """``forward`` or ``backward``."""
    forward_event: int | None
    """In backward: the id of the forward event that made the autograd node; None if that is not known."""
    start_ns: int
    end_ns: int | None
    """Host time. None while the event is still open."""
    module: str | None
    """Path of the innermost running module (of a module event its own); ``""`` is the root, None means no module."""
    root: str | None
    """A label for the root of that path: its class name, with ``#2`` added if two roots share it."""
    call: int | None
    """Module events: how often this module had been called before, so the first call is 0."""
    detail: str
    """Module events: what the class shows of its settings (``in_features=6, out_features=6``).

    Variables: ``argument``, ``assigned``, ``deleted``, or ``changed`` (in place)."""
    operator: str | None
    """The operator (``@ + += [] []= -`` …) if the step was written with one."""
    args: str
    """All arguments as text, tensors as ``f32[8, 3]``."""
    result: str
    """The result as text."""
    inputs: tuple[Value, ...]
    """Every tensor among the arguments."""
    outputs: tuple[Value, ...]
    """Every tensor in the result."""
    stack: tuple[Location, ...]
    """All frames except torchglass's, outermost first."""
    location: Location | None
    """The innermost user frame of the stack."""
    owner: str | None
    """``Class.method`` of the innermost ``nn.Module`` frame."""
    code: str
    """The exact expression at ``location``; ``""`` if unknown."""
    direct: bool
    """True if that expression itself made this call; False if something inside torch did."""
    target: tuple[str, ...]
    """The names that the result is assigned to, as written."""
    operands: tuple[str, ...]
    """The source text of each tensor argument, one for each of ``inputs``; ``()`` if not known."""
    key: str
    """Equal in two runs of the same program: root, path and call, site, name, occurrence."""
    error: str | None
    """``Type: text`` of the exception that this event raised."""
    note: str | None
    """What could not be seen, and how to see it."""
    python_call: int | None = None
    """Variables: the call of a Python function that it belongs to; equal numbers are one call."""

    @property
    def file(self) -> str | None:
        if self.location:
            return self.location.file
        return None

    @property
    def line(self) -> int | None:
        if self.location:
            return self.location.line
        return None

    @property
    def end_line(self) -> int | None:
        if self.location:
            return self.location.end_line
        return None

    @property
    def col(self) -> int | None:
        if self.location:
            return self.location.col
        return None

    @property
    def end_col(self) -> int | None:
        if self.location:
            return self.location.end_col
        return None

    @property
    def function(self) -> str | None:
        if self.location:
            return self.location.function
        return None

    @property
    def source(self) -> str | None:
        if self.location:
            return self.location.source
        return None

    @property
    def duration_ns(self) -> int | None:
        if self.end_ns is None:
            return None
        return self.end_ns - self.start_ns

    def __repr__(self) -> str:
        """Return one line: what it was, what went in and came out, and where."""
        if self.target and self.operator != "[]=":
            written = f"{', '.join(self.target)} = {self.code}"
        else:
            written = self.code
        path = ""
        if self.kind == "module":
            path = f" {self.root}:{self.module}"
        came = self.error or self.result
        went = ", ".join(tensor_text(each.dtype, each.shape) for each in self.inputs)
        parts = [
            f"Event {self.id}: {self.kind} {self.name}{path}",
            written if written and self.direct else "",
            f"{went} → {came}" if came or went else "",
            f"{self.file.replace(chr(92), '/').rpartition('/')[2]}:{self.line}"
            if self.file
            else "",
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
    """Return whether the elements are contiguous in their order. The stride of an axis of size one does not matter.

    A tensor without elements is contiguous, as torch says.
    """
    if stride is None:
        return True
    if len(shape) != len(stride):
        return False
    if 0 in shape:
        return True
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True
