"""Merges what differs between calls that are shown as one: shapes, dtypes, numbers and statistics become ranges."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from torchglass.events.types import Stats

UNKNOWN = "?"
"""The dtype of a tensor that was not kept, or that no step shows."""


class Tensor(Protocol):
    """The fields of a tensor that are merged; a ``Value`` has them."""

    @property
    def role(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...] | None: ...

    @property
    def layout(self) -> str: ...


_Tensor = TypeVar("_Tensor", bound=Tensor)


@dataclass(frozen=True, slots=True)
class MergedTensor:
    """Tensors of several calls as one: ``f32[8, 3]`` and ``f32[5, 3]`` have the sizes (5, 8) and (3,)."""

    role: str
    dtypes: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...] | None
    """By dimension, all its sizes, sorted; None if the shape is not known."""
    layout: str
    devices: tuple[str, ...] = ()
    stats: tuple[Stats, ...] = ()
    """The statistics of those that were measured."""


def merge_tensors(
    tensors: Sequence[Tensor], devices: Iterable[str] = (), stats: Iterable[Stats] = ()
) -> MergedTensor:
    """Merge tensors of one rank and layout."""
    shapes = [each.shape for each in tensors if each.shape is not None]
    dtypes = tuple(dict.fromkeys(each.dtype for each in tensors))
    sizes = None
    if shapes:
        sizes = merge_shapes(shapes)
    first = tensors[0]
    return MergedTensor(
        first.role, dtypes, sizes, first.layout, tuple(dict.fromkeys(devices)), tuple(stats)
    )


def merge_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Return the different sizes of each dimension, sorted. All shapes must have as many dimensions."""
    return tuple(tuple(sorted(set(column))) for column in zip(*shapes, strict=True))


def by_form(tensors: Iterable[_Tensor], form: Callable[[_Tensor], Hashable]) -> list[list[_Tensor]]:
    """Group tensors that may be merged: those of one rank and layout, and of one ``form``.

    Tensors whose metadata was not kept are left out, unless there are no others.
    """
    found: dict[Hashable, list[_Tensor]] = {}
    several = list(tensors)
    known = [each for each in several if each.shape is not None or each.dtype != UNKNOWN]
    for each in known or several:
        rank = None
        if each.shape is not None:
            rank = len(each.shape)
        found.setdefault((rank, each.layout, form(each)), []).append(each)
    return list(found.values())


# ---------------------------------------------------------------- numbers


class NumberRange(NamedTuple):
    """The smallest and the largest of several numbers."""

    low: float
    high: float


def merge_numbers(numbers: Sequence[float]) -> NumberRange:
    """Return the smallest and the largest of one or more numbers."""
    return NumberRange(min(numbers), max(numbers))


class MergedStats(NamedTuple):
    """The statistics of several values, each as a range over the values that have finite numbers."""

    values: NumberRange
    """The smallest and the largest of all numbers."""
    mean: NumberRange
    std: NumberRange
    percent_nonzero: NumberRange
    """The percentage of numbers that are not zero."""
    are_single: bool
    """Whether each value has one number."""


def merge_stats(several: Iterable[Stats]) -> MergedStats | None:
    """Merge the statistics of several values; return None if no number in them is finite."""
    known = [each for each in several if each.finite]
    if not known:
        return None
    return MergedStats(
        NumberRange(min(each.min for each in known), max(each.max for each in known)),
        merge_numbers([each.mean for each in known]),
        merge_numbers([each.std for each in known]),
        merge_numbers([100 * (each.count - each.zeros) / each.count for each in known]),
        all(each.count == 1 for each in known),
    )


class NotFinite(NamedTuple):
    """How many numbers are NaN, Inf and -Inf."""

    nan: int
    posinf: int
    neginf: int


def count_not_finite(several: Sequence[Stats]) -> NotFinite:
    """Count the numbers in several values that are not finite."""
    return NotFinite(
        sum(each.nan for each in several),
        sum(each.posinf for each in several),
        sum(each.neginf for each in several),
    )
