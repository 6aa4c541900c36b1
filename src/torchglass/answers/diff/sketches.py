"""Holds the sketches of one trace as arrays, to compare one value with many at once.

A sketch is a short fingerprint of a value: a hash of its bits, 17 weighted sums of its elements in
flat order, 17 sums weighted by their position on each axis (equal for a transposed value), and sums
that do not depend on the order.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from torchglass.events.likeness import ONE_WEIGHT
from torchglass.events.tables import Meta, Tables

_LAYOUT = np.dtype(
    [
        ("hash", "<u8"),
        ("flat", "<f4", 17),
        ("axes", "<f4", 17),
        ("orders", "<f8", 7),
        ("odd", "<i8"),
    ],
    align=False,
)
SAME = 2e-7
"""Relative error up to which two sketches belong to the same numbers, because the sums are kept in
float32.
"""
Array = Any


class Sketches:
    """The sketches of values, one row each. Values without a sketch have no row."""

    def __init__(self, tables: Tables) -> None:
        values = list(tables.sketches)
        self.row = {value: row for row, value in enumerate(values)}
        raw = np.frombuffer(b"".join(tables.sketches[value] for value in values), dtype=_LAYOUT)
        self.hash: Array = raw["hash"]
        self.flat: Array = raw["flat"]
        self.axes: Array = raw["axes"]
        self.orders: Array = raw["orders"]
        self.odd: Array = raw["odd"]
        self.norm: Array = np.sqrt(np.maximum(self.orders[:, 1], 0.0))
        self._tables = tables
        self._sizes = [_sizes_of(each) for each in tables.metas]
        self._counts = [prod(each) for each in self._sizes]

    def hash_of(self, value: int) -> int:
        """Return the hash of a value's bits, or 0 if it is not known."""
        row = self.row.get(value)
        if row is None:
            return 0
        return int(self.hash[row])

    def equal_bits(self, one: int, other: int) -> bool:
        """Return whether two values of this trace hold equal bits in the same order."""
        first = self.row.get(one)
        second = self.row.get(other)
        if first is None or second is None or not self.hash[first]:
            return False
        return bool(self.hash[first] == self.hash[second])

    def same_numbers(self, one: int, other: int) -> bool:
        """Return whether two values of this trace hold the same numbers, in one layout or another."""
        first = self.row.get(one)
        second = self.row.get(other)
        if first is None or second is None or self.odd[first] != self.odd[second]:
            return False
        if self.hash[first] and self.hash[first] == self.hash[second]:
            return True
        norm = max(self.norm[first], self.norm[second])
        if not norm:
            return True
        if abs(self.norm[first] - self.norm[second]) > SAME * norm:
            return False
        if _distance(self.flat[first], self.flat[second], 1) <= SAME * norm:
            return True
        sizes = self.sizes(one)
        if len(sizes) < 2 or sorted(sizes) != sorted(self.sizes(other)):
            return False
        return bool(_distance(self.axes[first], self.axes[second], len(sizes)) <= SAME * norm)

    def holds_two_numbers(self, value: int) -> bool:
        """Return whether a value has at most two distinct numbers, or few distinct integers for its
        size.
        """
        row = self.row[value]
        count = max(self.count(value) - int(self.odd[row]), 1)
        total, squares, _, cubes, fourths, low, high = (float(each) for each in self.orders[row])
        dtype = self._tables.metas[self._tables.value_meta[value]].dtype
        if not dtype.startswith(("float", "bfloat", "complex")):
            return 4 * (high - low + 1) <= count
        mean = total / count
        variance = squares / count - mean * mean
        if variance <= 0:
            return True
        skew = (cubes / count - 3 * mean * squares / count + 2 * mean**3) / variance**1.5
        third = 4 * mean * cubes / count - 6 * mean**2 * squares / count + 3 * mean**4
        kurtosis = (fourths / count - third) / variance**2
        return kurtosis - skew * skew - 1 < 1e-6

    def sizes(self, value: int) -> tuple[int, ...]:
        """Return the sizes of the axes that have more than one element. A complex value has another
        axis of two.
        """
        return self._sizes[self._tables.value_meta[value]]

    def count(self, value: int) -> int:
        """Return how many numbers a value has. A complex number counts as two."""
        return self._counts[self._tables.value_meta[value]]


def _sizes_of(meta: Meta) -> tuple[int, ...]:
    """Return the sizes that ``Sketches.sizes`` gives."""
    found = tuple(size for size in meta.shape or () if size != 1)
    if meta.dtype.startswith("complex"):
        return (*found, 2)
    return found


def apart(one: Sketches, first: int, other: Sketches, rows: Array, axes: int = 0) -> Array:
    """Return how far a value is from several others, relative to their norm. With ``axes``,
    transposed values agree.
    """
    if axes:
        difference = other.axes[rows].astype(np.float64) - one.axes[first]
    else:
        difference = other.flat[rows].astype(np.float64) - one.flat[first]
    squares = np.einsum("ij,ij->i", difference, difference) / ONE_WEIGHT ** max(axes, 1)
    norm = np.maximum(one.norm[first], other.norm[rows])
    with np.errstate(all="ignore"):
        found = np.sqrt(squares) / norm
    found = np.where(norm > 0, found, 0.0)
    return np.where(other.odd[rows] == one.odd[first], found, np.inf)


def order_error(one: Sketches, first: int, other: Sketches, second: int) -> float:
    """Return how far apart two values are by what does not depend on the order: five sums, the
    minimum and the maximum.
    """
    return orders_apart(one.orders[first], other.orders[second])


def orders_apart(mine: Array, theirs: Array) -> float:
    """Return the largest relative difference of five sums, the minimum and the maximum."""
    squares = max(mine[1], theirs[1])
    fourths = max(mine[4], theirs[4])
    size = max(mine[2], theirs[2])
    scales = np.array([size, 2 * squares, size, 3 * (squares * fourths) ** 0.5, 4 * fourths])
    largest = max(np.abs(mine[5:]).max(), np.abs(theirs[5:]).max())
    with np.errstate(all="ignore"):
        sums = np.abs(mine[:5] - theirs[:5]) / scales
        ends = np.abs(mine[5:] - theirs[5:]) / largest
    found = np.concatenate([sums, ends])
    return float(np.nanmax(found, initial=0.0))


def _distance(one: Array, other: Array, axes: int) -> float:
    difference = one.astype(np.float64) - other
    return float(np.sqrt(difference @ difference / ONE_WEIGHT**axes))
