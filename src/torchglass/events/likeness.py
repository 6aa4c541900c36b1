"""Compare two values by their sketches: equal bits, the same numbers rounded, in another shape or order, or different.

This needs no tensor. The size of a difference is estimated from 17 random sums, and is right to about a third. Equal
numbers are never called different.
"""

from __future__ import annotations

from math import isfinite, prod, sqrt
from typing import NamedTuple

from torchglass.errors import NotRecorded, WrongType
from torchglass.events.spelling import clean
from torchglass.events.tables import Tables
from torchglass.events.types import Event, Sketch, Value

EPSILONS = {
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "complex32": 2.0**-10,
    "float8_e4m3fn": 2.0**-3,
    "float8_e4m3fnuz": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "float8_e5m2fnuz": 2.0**-2,
    "float8_e8m0fnu": 1.0,
}
"""The machine epsilon of each dtype. All others have that of float32, since sketches have sums in float32."""
EPSILON_FLOAT32 = 2.0**-23
ROUNDINGS = 8
"""How many roundings results of the same formula may differ by. In a model with twelve layers it was seven."""
SUM_ERROR = 2.5e-7
"""Relative error of the sums that do not depend on the order. It is twice the largest error measured by shuffling."""
VISIBLE = 5
"""A difference shows in these sums only if it exceeds their error by this factor."""
ORDER_SUMS = 5
"""How many of ``Sketch.orders`` are sums over all numbers. The smallest and the largest number follow."""
ONE_WEIGHT = 13 / 12
"""The mean square of the weights in a sketch."""


class Likeness(NamedTuple):
    """How two values differ. It is true if they have the same numbers up to rounding, and its text says how."""

    how: str
    """``bits``, ``close``, ``transposed``, ``order`` or ``different``."""
    error: float
    """The estimated size of the difference, relative to the norm of the numbers. NaN if it is not known."""
    tolerance: float
    """The error up to which values of these dtypes count as the same."""
    reshaped: bool = False
    """Whether the shapes differ."""
    note: str = ""
    """Why they cannot be compared."""

    def __bool__(self) -> bool:
        return self.how != "different"

    def __str__(self) -> str:
        if self.how == "different":
            return f"≠ {self.note or format(self.error, '.2g')}"
        if self.how == "order":
            return "the same numbers in another order"
        text = "equal bits"
        if self.how != "bits":
            text = f"≈ {self.error:.2g}"
        if self.how == "transposed":
            # The sums are not more exact than float32.
            if self.error < EPSILON_FLOAT32:
                text = "the same numbers"
            return f"{text}, transposed"
        if self.reshaped:
            return f"{text}, reshaped"
        return text


def same(one: Value, other: Value, tolerance: float | None = None) -> Likeness:
    """Compare two values of one trace or of two, recorded with ``values="stats+sketch"``.

    The result prints as ``equal bits``, ``≈ 1.4e-07``, ``the same numbers in another order`` or ``≠ 0.12``. As a
    condition it is true unless the numbers differ. ``tolerance`` is the relative error up to which they count as the
    same. The default is eight roundings of the less precise dtype.
    """
    for value in (one, other):
        if not isinstance(value, Value):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(
                f"same() takes two values, as event.outputs has them, not {type(value).__name__}"
            )
        if value.sketch is None:
            raise NotRecorded(
                f"value {value.id} has no fingerprint, so it cannot be compared: record(values='stats+sketch') "
                "keeps one of plain tensors on a CPU or an NVIDIA GPU; trace.tensor(value) returns a kept tensor"
            )
    return _compared(one, other, tolerance)


class Occurrence(NamedTuple):
    """One value of a trace that has the numbers of a tensor."""

    event: Event
    """The event that made the value or, if there is none in the trace, the first that took it."""
    value: Value
    likeness: Likeness

    def __str__(self) -> str:
        event = self.event
        name = (event.file or "").replace("\\", "/").rpartition("/")[2]
        place = ""
        if name:
            place = f" at {name}:{event.line}"
        how = "given by"
        if self.value.id in {value.id for value in event.inputs}:
            how = "taken by"
        if event.kind == "module":
            callee = f"module {event.module or event.root}"
        elif event.direct and event.code:
            callee = event.code
        elif event.module is not None:
            callee = f"{event.name} in {event.module or event.root}"
        else:
            callee = event.name
        return clean(f"{how} {callee}{place}: {self.likeness}")


def find(tables: Tables, other: Value, tolerance: float | None = None) -> list[Occurrence]:
    """Return the values of a trace that have these numbers, in the order of their events."""
    occurrences: list[Occurrence] = []
    seen: set[int] = set()
    for event, number, role in tables.mentions():
        if number in seen or number not in tables.sketches:
            continue
        seen.add(number)
        value = tables.value(number, role)
        if _count(value) != _count(other):
            continue
        likeness = same(other, value, tolerance)
        if likeness:
            maker = value.producer
            if maker is None:
                maker = event
            occurrences.append(Occurrence(tables.event(maker), value, likeness))
    return sorted(occurrences, key=lambda occurrence: occurrence.event.id)


def _compared(value: Value, their_value: Value, tolerance: float | None) -> Likeness:
    mine = value.sketch
    theirs = their_value.sketch
    assert mine is not None
    assert theirs is not None
    if tolerance is None:
        tolerance = ROUNDINGS * max(_epsilon(value.dtype), _epsilon(their_value.dtype))
    shape = value.shape or ()
    their_shape = their_value.shape or ()
    reshaped = shape != their_shape
    count = _count(value)
    if count != _count(their_value):
        return _different(tolerance, f"{count:,} numbers against {_count(their_value):,}")
    if mine.hash and mine.hash == theirs.hash and value.dtype == their_value.dtype:
        return Likeness("bits", 0.0, tolerance, reshaped)
    if mine.odd != theirs.odd:
        return _different(tolerance, f"{mine.odd:,} not finite against {theirs.odd:,}")
    flat = _distance(mine, theirs, "flat", 1)
    if flat <= tolerance:
        return Likeness("close", flat, tolerance, reshaped)
    sizes = _sizes(value)
    if sorted(sizes) == sorted(_sizes(their_value)):
        axes = _distance(mine, theirs, "axes", len(sizes))
    else:
        axes = flat
    if axes <= tolerance:
        return Likeness("transposed", axes, tolerance, reshaped)
    if _same_in_any_order(mine, theirs, tolerance, count, flat):
        return Likeness("order", _order_error(mine, theirs), tolerance, reshaped)
    error = flat
    if reshaped:
        error = min(flat, axes)
    return Likeness("different", error, tolerance, reshaped)


def _different(tolerance: float, note: str) -> Likeness:
    return Likeness("different", float("nan"), tolerance, True, note)


def _epsilon(dtype: str) -> float:
    return EPSILONS.get(dtype, EPSILON_FLOAT32)


def _sizes(value: Value) -> list[int]:
    """Return the sizes of axes with more than one element. A complex dtype has one more axis, for its two parts."""
    sizes = [size for size in value.shape or () if size != 1]
    if value.dtype.startswith("complex"):
        sizes.append(2)
    return sizes or [1]


def _count(value: Value) -> int:
    return prod(_sizes(value))


def _distance(mine: Sketch, theirs: Sketch, which: str, axes: int) -> float:
    """Return the estimated distance of the numbers, relative to their norm, from the sums in field ``which``."""
    norm = sqrt(max(mine.orders[1], theirs.orders[1]))
    sums: tuple[float, ...] = getattr(mine, which)
    their_sums: tuple[float, ...] = getattr(theirs, which)
    squares = sum((a - b) ** 2 for a, b in zip(sums, their_sums, strict=True))
    if not norm:
        return sqrt(squares)
    if not isfinite(squares):
        return float("inf")
    return sqrt(squares / ONE_WEIGHT**axes) / norm


def _same_in_any_order(
    mine: Sketch, theirs: Sketch, tolerance: float, count: int, flat: float
) -> bool:
    """Return whether only the order of the numbers differs: the sums over all numbers agree.

    ``flat`` is the distance of the numbers in the given order. Roundings are independent of each other, so in the sum
    of many numbers they nearly cancel. Other small differences would cancel, too. So the result is only true if a
    difference of that size would show in the sums.
    """
    allowed = tolerance / 4 / sqrt(count) + SUM_ERROR
    if flat < VISIBLE * sqrt(count) * allowed:
        return False
    ends = mine.orders[ORDER_SUMS:]
    their_ends = theirs.orders[ORDER_SUMS:]
    largest = max(map(abs, (*ends, *their_ends)))
    difference = max(abs(a - b) for a, b in zip(ends, their_ends, strict=True))
    if difference > (tolerance + SUM_ERROR) * largest:
        return False
    return _order_error(mine, theirs) <= allowed


def _order_error(mine: Sketch, theirs: Sketch) -> float:
    """Return the largest difference of the five sums over all numbers, relative to the size of their terms."""
    squares = max(mine.orders[1], theirs.orders[1])
    sizes = max(mine.orders[2], theirs.orders[2])
    fourths = max(mine.orders[4], theirs.orders[4])
    scales = (sizes, 2 * squares, sizes, 3 * sqrt(squares * fourths), 4 * fourths)
    errors: list[float] = []
    sums = mine.orders[:ORDER_SUMS]
    their_sums = theirs.orders[:ORDER_SUMS]
    for one, other, scale in zip(sums, their_sums, scales, strict=True):
        if scale:
            errors.append(abs(one - other) / scale)
    return max(errors, default=0.0)
