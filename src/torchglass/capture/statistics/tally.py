"""Adds up the counts and sums from which statistics are made, one piece of a tensor at a time.

The sum of squares of each piece is computed in double precision about the mean of that piece, and then merged.
"""

from __future__ import annotations

from math import inf, isfinite, nan, sqrt
from typing import Any

import numpy as np

from torchglass.journal.layout import BY_COMPILED, BY_NUMPY, Numbers


class Tally:
    """The counts of all numbers so far, and the mean, range and sum of squares of the finite numbers."""

    __slots__ = (
        "count",
        "finite",
        "high",
        "how",
        "low",
        "mean",
        "nan",
        "neginf",
        "posinf",
        "squares",
        "zeros",
    )

    def __init__(self) -> None:
        self.count = self.nan = self.posinf = self.neginf = self.zeros = 0
        self.finite = 0
        self.low = inf
        self.high = -inf
        self.mean = 0.0
        self.squares = 0.0
        """The sum of the squared distances from the mean."""
        self.how = BY_NUMPY

    @classmethod
    def of(cls, found: tuple[Any, ...]) -> Tally:
        """Return a tally with the result of the compiled engine (tally.c)."""
        made = cls()
        made.count, made.nan, made.posinf, made.neginf, made.zeros, made.finite = found[:6]
        made.low, made.high, made.mean, made.squares = found[6:]
        made.how = BY_COMPILED
        return made

    def add(self, piece: Any) -> None:
        """Add a flat array of floats or integers; more than a few thousand entries at once are slow."""
        size = piece.size
        self.count += size
        low = float(np.minimum.reduce(piece))
        high = float(np.maximum.reduce(piece))
        if not (isfinite(low) and isfinite(high)):
            piece = self._without_others(piece)
            size = piece.size
            if not size:
                return
            low = float(np.minimum.reduce(piece))
            high = float(np.maximum.reduce(piece))
        if low <= 0.0 <= high:
            self.zeros += int(np.count_nonzero(piece == 0))
        exact = piece.astype(np.float64)
        mean = float(np.add.reduce(exact)) / size
        exact -= mean
        self._join(size, mean, float(np.dot(exact, exact)), (low, high))

    def _without_others(self, piece: Any) -> Any:
        """Count the numbers that are not finite, and return the array without them."""
        finite = np.isfinite(piece)
        others = piece[~finite]
        posinf = int(np.count_nonzero(others == inf))
        neginf = int(np.count_nonzero(others == -inf))
        self.posinf += posinf
        self.neginf += neginf
        self.nan += others.size - posinf - neginf
        return piece[finite]

    def add_repeated(self, values: Any, times: Any) -> None:
        """Add each of the values as often as it occurs (``times``)."""
        occurs = times > 0
        values = values[occurs]
        times = times[occurs]
        self.count += int(times.sum())
        self.nan += int(times[np.isnan(values)].sum())
        self.posinf += int(times[values == inf].sum())
        self.neginf += int(times[values == -inf].sum())
        finite = np.isfinite(values)
        values = values[finite]
        times = times[finite]
        size = int(times.sum())
        if not size:
            return
        self.zeros += int(times[values == 0].sum())
        mean = float((values * times).sum()) / size
        squares = float(((values - mean) ** 2 * times).sum())
        self._join(size, mean, squares, (float(values.min()), float(values.max())))

    def add_zeros(self, count: int) -> None:
        """Add zeros that are not stored, as in a sparse tensor."""
        if count > 0:
            self.count += count
            self.zeros += count
            self._join(count, 0.0, 0.0, (0.0, 0.0))

    def join(self, other: Tally) -> None:
        """Add everything that another tally has counted."""
        self.count += other.count
        self.nan += other.nan
        self.posinf += other.posinf
        self.neginf += other.neginf
        self.zeros += other.zeros
        self.how = other.how
        if other.finite:
            self._join(other.finite, other.mean, other.squares, (other.low, other.high))

    def _join(self, size: int, mean: float, squares: float, ends: tuple[float, float]) -> None:
        """Merge a mean and the sum of squares about it into this tally.

        There is no cancellation, however far the numbers are from 0.
        """
        whole = self.finite + size
        apart = mean - self.mean
        # The first piece has no distance to an earlier mean; skipping the product also avoids 0 * inf on overflow.
        self.squares += squares + (
            apart * apart * (self.finite / whole) * size if self.finite else 0.0
        )
        self.mean += apart * (size / whole)
        self.finite = whole
        self.low, self.high = min(self.low, ends[0]), max(self.high, ends[1])

    def repeat(self, times: int) -> None:
        """Multiply all counts, for a tensor that repeats its memory so many times."""
        for name in ("count", "nan", "posinf", "neginf", "zeros", "finite"):
            setattr(self, name, getattr(self, name) * times)
        self.squares *= times

    def numbers(self) -> Numbers:
        """Return the statistics as the journal holds them for a value."""
        counts = (self.count, self.nan, self.posinf, self.neginf, self.zeros)
        if not self.finite:
            return (*counts, nan, nan, nan, nan, nan)
        norm = sqrt(self.squares + self.finite * self.mean * self.mean)
        # The mean of equal numbers may be rounded out of their range.
        mean = min(max(self.mean, self.low), self.high)
        return (*counts, self.low, self.high, mean, sqrt(self.squares / self.finite), norm)
