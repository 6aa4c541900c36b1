"""How alike two values are, by their sketches: equal bits, the same numbers rounded, in another shape or order, or not.

No tensor is needed. What is said is an estimate from 17 random sums: of a difference it tells the size to about a
third, and one that is not there it does not invent.
"""

from __future__ import annotations

from math import isfinite, prod, sqrt
from typing import NamedTuple

from torchglass.errors import NotRecorded, WrongType
from torchglass.events.spelling import clean
from torchglass.events.tables import Tables
from torchglass.events.types import Event, Sketch, Value

EPSILONS = {
    "bfloat16": 2.0**-7, "float16": 2.0**-10, "complex32": 2.0**-10, "float8_e4m3fn": 2.0**-3,
    "float8_e4m3fnuz": 2.0**-3, "float8_e5m2": 2.0**-2, "float8_e5m2fnuz": 2.0**-2, "float8_e8m0fnu": 1.0,
}  # fmt: skip
"""By dtype: how far apart numbers next to 1 are; of all others as in float32, in which the sums are kept."""
OF_FLOAT32 = 2.0**-23
NOISE = 8
"""Roundings that results of the same formula may be apart: twelve layers made seven of them."""
SUMMED = 2.5e-7
"""How exact the sums are that do not ask for the order: twice the worst that shuffling made of them."""
SHOWS = 5
"""By how much a difference must be larger than what the sums allow."""
ONE_WEIGHT = 13 / 12
"""The mean square of a weight."""


class Likeness(NamedTuple):
    """How alike two values are; it is true when they are the same numbers up to rounding, and its text says how."""

    how: str
    """``bits``, ``close``, ``transposed``, ``order`` or ``different``."""
    error: float
    """About how large the difference is, as a part of the numbers (of their norm); NaN where it cannot be told."""
    tolerance: float
    """The error up to which values of these dtypes are taken for the same."""
    reshaped: bool = False
    """Whether the shapes differ."""
    note: str = ""
    """What keeps them from being compared."""

    def __bool__(self) -> bool:
        return self.how != "different"

    def __str__(self) -> str:
        if self.how == "different":
            return f"≠ {self.note or format(self.error, '.2g')}"
        if self.how == "order":
            return "the same numbers in another order"
        text = "equal bits" if self.how == "bits" else f"≈ {self.error:.2g}"
        if self.how == "transposed" and self.error < OF_FLOAT32:
            text = "the same numbers"  # the sums are not more exact
        return text + (", transposed" if self.how == "transposed" else ", reshaped" if self.reshaped else "")


def same(one: Value, other: Value, tolerance: float | None = None) -> Likeness:
    """How alike two values are, of two traces or of one; both recorded with ``values="stats+sketch"``.

    Printed it is ``equal bits``, ``≈ 1.4e-07``, ``the same numbers in another order`` or ``≠ 0.12``; as a condition it
    is true unless the numbers differ. ``tolerance`` is the relative error up to which they do not; without it, that
    of eight roundings of the coarser dtype.
    """
    for value in (one, other):
        if not isinstance(value, Value):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(f"same() takes two values, as event.outputs has them, not {type(value).__name__}")
        if value.sketch is None:
            raise NotRecorded(
                f"value {value.id} has no sketch, so it cannot be compared: record(values='stats+sketch') keeps one of "
                "each plain tensor on a CPU or an NVIDIA GPU; of saved tensors trace.tensor(value) gives the numbers"
            )
    return _compared(one, other, tolerance)


class Occurrence(NamedTuple):
    """Where the numbers of a tensor occur in a trace."""

    event: Event
    """What made the value; where nothing in the trace did, what took it first."""
    value: Value
    likeness: Likeness

    def __str__(self) -> str:
        event = self.event
        name = (event.file or "").replace("\\", "/").rpartition("/")[2]
        at = f" at {name}:{event.line}" if name else ""
        how = "taken by" if self.value.id in {each.id for each in event.inputs} else "given by"
        what = f"module {event.module or event.root}" if event.kind == "module" else event.name
        if event.kind != "module" and event.module is not None:
            what += f" in {event.module or event.root}"
        if event.kind != "module" and event.direct and event.code:
            what = event.code
        return clean(f"{how} {what}{at}: {self.likeness}")


def find(tables: Tables, wanted: Value, tolerance: float | None = None) -> list[Occurrence]:
    """The values of a trace that hold these numbers, in order of the events."""
    found: list[Occurrence] = []
    seen: set[int] = set()
    for number, value, role in tables.mentions():
        if value in seen or value not in tables.sketches:
            continue
        seen.add(value)
        known = tables.value(value, role)
        likeness = same(wanted, known, tolerance) if _count(known) == _count(wanted) else None
        if likeness:
            maker = number if known.producer is None else known.producer
            found.append(Occurrence(tables.event(maker), known, likeness))
    return sorted(found, key=lambda each: each.event.id)


def _compared(value: Value, their_value: Value, given: float | None) -> Likeness:
    mine, theirs = value.sketch, their_value.sketch
    assert mine is not None
    assert theirs is not None
    tolerance = NOISE * max(_epsilon(value.dtype), _epsilon(their_value.dtype)) if given is None else given
    shape, their_shape = value.shape or (), their_value.shape or ()
    reshaped = shape != their_shape
    count = _count(value)
    if count != _count(their_value):
        return _different(tolerance, f"{count:,} numbers against {_count(their_value):,}")
    if mine.hash and mine.hash == theirs.hash and value.dtype == their_value.dtype:
        return Likeness("bits", 0.0, tolerance, reshaped)
    if mine.odd != theirs.odd:
        return _different(tolerance, f"{mine.odd:,} not finite against {theirs.odd:,}")
    flat = _apart(mine, theirs, "flat", 1)
    if flat <= tolerance:
        return Likeness("close", flat, tolerance, reshaped)
    sizes = _sizes(value)
    axes = _apart(mine, theirs, "axes", len(sizes)) if sorted(sizes) == sorted(_sizes(their_value)) else flat
    if axes <= tolerance:
        return Likeness("transposed", axes, tolerance, reshaped)
    if _same_in_any_order(mine, theirs, tolerance, (count, flat)):
        return Likeness("order", _order_error(mine, theirs), tolerance, reshaped)
    return Likeness("different", min(flat, axes) if reshaped else flat, tolerance, reshaped)


def _different(tolerance: float, note: str) -> Likeness:
    return Likeness("different", float("nan"), tolerance, True, note)


def _epsilon(dtype: str) -> float:
    return EPSILONS.get(dtype, OF_FLOAT32)


def _sizes(value: Value) -> list[int]:
    """The axes that count: those with more than one element, and the two parts of complex numbers."""
    found = [size for size in value.shape or () if size != 1]
    return [*found, *([2] if value.dtype.startswith("complex") else [])] or [1]


def _count(value: Value) -> int:
    return prod(_sizes(value))


def _apart(mine: Sketch, theirs: Sketch, which: str, axes: int) -> float:
    """About how far apart the numbers are, as a part of their norm."""
    norm = sqrt(max(mine.orders[1], theirs.orders[1]))
    sums: tuple[tuple[float, ...], tuple[float, ...]] = getattr(mine, which), getattr(theirs, which)
    squares = sum((a - b) ** 2 for a, b in zip(*sums, strict=True))
    if not norm or not isfinite(squares):
        return sqrt(squares) if not norm else float("inf")
    return sqrt(squares / ONE_WEIGHT**axes) / norm


def _same_in_any_order(mine: Sketch, theirs: Sketch, tolerance: float, counted: tuple[int, float]) -> bool:
    """Whether the sums agree although the numbers, place by place, are ``flat`` apart.

    Roundings are independent of each other: in a sum of many they nearly cancel. So would another small difference;
    that it is none but the order can only be said where it would show.
    """
    count, flat = counted
    allowed = tolerance / 4 / sqrt(count) + SUMMED
    if flat < SHOWS * sqrt(count) * allowed:
        return False
    largest = max(map(abs, (*mine.orders[5:], *theirs.orders[5:])))
    ends = max(abs(a - b) for a, b in zip(mine.orders[5:], theirs.orders[5:], strict=True))
    return ends <= (tolerance + SUMMED) * largest and _order_error(mine, theirs) <= allowed


def _order_error(mine: Sketch, theirs: Sketch) -> float:
    """The largest difference of the five sums, each as a part of the sum of its absolute terms, and of its power."""
    squares, fourths = (max(mine.orders[at], theirs.orders[at]) for at in (1, 4))
    sizes = max(mine.orders[2], theirs.orders[2])
    scales = (sizes, 2 * squares, sizes, 3 * sqrt(squares * fourths), 4 * fourths)
    pairs = zip(mine.orders, theirs.orders, scales, strict=False)
    return max((abs(a - b) / scale for a, b, scale in pairs if scale), default=0.0)
