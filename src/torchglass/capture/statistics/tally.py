"""The sums from which statistics are made, piece by piece: each piece in double precision about its own mean."""

from __future__ import annotations

from math import inf, isfinite, nan, sqrt
from typing import Any

import numpy as np

from torchglass.journal.layout import BY_COMPILED, BY_NUMPY, Numbers


class Tally:
    """Counts of all numbers so far, and sums of the finite ones."""

    __slots__ = ("count", "finite", "high", "how", "low", "mean", "nan", "neginf", "posinf", "squares", "zeros")

    def __init__(self) -> None:
        self.count = self.nan = self.posinf = self.neginf = self.zeros = 0
        self.finite = 0
        self.low, self.high = inf, -inf
        self.mean = 0.0
        self.squares = 0.0
        """The sum of the squared distances from the mean."""
        self.how = BY_NUMPY

    @classmethod
    def of(cls, found: tuple[Any, ...]) -> Tally:
        """What the compiled engine has counted (tally.c)."""
        made = cls()
        made.count, made.nan, made.posinf, made.neginf, made.zeros, made.finite = found[:6]
        made.low, made.high, made.mean, made.squares = found[6:]
        made.how = BY_COMPILED
        return made

    def add(self, piece: Any) -> None:
        """Add a flat array of floats, or of whole numbers; of at most a few thousand entries, else it is slow."""
        size = piece.size
        self.count += size
        low, high = float(np.minimum.reduce(piece)), float(np.maximum.reduce(piece))
        if not (isfinite(low) and isfinite(high)):
            piece = self._without_others(piece)
            size = piece.size
            if not size:
                return
            low, high = float(np.minimum.reduce(piece)), float(np.maximum.reduce(piece))
        if low <= 0.0 <= high:
            self.zeros += int(np.count_nonzero(piece == 0))
        exact = piece.astype(np.float64)
        mean = float(np.add.reduce(exact)) / size
        exact -= mean
        self._join(size, mean, float(np.dot(exact, exact)), (low, high))

    def _without_others(self, piece: Any) -> Any:
        """Count what is not finite, and leave it out."""
        finite = np.isfinite(piece)
        others = piece[~finite]
        posinf, neginf = int(np.count_nonzero(others == inf)), int(np.count_nonzero(others == -inf))
        self.posinf += posinf
        self.neginf += neginf
        self.nan += others.size - posinf - neginf
        return piece[finite]

    def add_repeated(self, values: Any, times: Any) -> None:
        """Add numbers of which it is known how often each occurs."""
        occurs = times > 0
        values, times = values[occurs], times[occurs]
        self.count += int(times.sum())
        self.nan += int(times[np.isnan(values)].sum())
        self.posinf += int(times[values == inf].sum())
        self.neginf += int(times[values == -inf].sum())
        finite = np.isfinite(values)
        values, times = values[finite], times[finite]
        size = int(times.sum())
        if not size:
            return
        self.zeros += int(times[values == 0].sum())
        mean = float((values * times).sum()) / size
        squares = float(((values - mean) ** 2 * times).sum())
        self._join(size, mean, squares, (float(values.min()), float(values.max())))

    def add_zeros(self, count: int) -> None:
        """Add zeros that are nowhere stored."""
        if count > 0:
            self.count += count
            self.zeros += count
            self._join(count, 0.0, 0.0, (0.0, 0.0))

    def join(self, other: Tally) -> None:
        """Add all that another one has counted."""
        self.count += other.count
        self.nan += other.nan
        self.posinf += other.posinf
        self.neginf += other.neginf
        self.zeros += other.zeros
        self.how = other.how
        if other.finite:
            self._join(other.finite, other.mean, other.squares, (other.low, other.high))

    def _join(self, size: int, mean: float, squares: float, ends: tuple[float, float]) -> None:
        """Two means and sums of squares about them are one: nothing cancels, however far the numbers are from 0."""
        whole = self.finite + size
        apart = mean - self.mean
        # Of the first there is nothing between: and no product of 0 with what may have overflowed.
        self.squares += squares + (apart * apart * (self.finite / whole) * size if self.finite else 0.0)
        self.mean += apart * (size / whole)
        self.finite = whole
        self.low, self.high = min(self.low, ends[0]), max(self.high, ends[1])

    def repeat(self, times: int) -> None:
        """All that was counted stands for so many times as much."""
        for name in ("count", "nan", "posinf", "neginf", "zeros", "finite"):
            setattr(self, name, getattr(self, name) * times)
        self.squares *= times

    def numbers(self) -> Numbers:
        """What is written of a value."""
        counts = (self.count, self.nan, self.posinf, self.neginf, self.zeros)
        if not self.finite:
            return (*counts, nan, nan, nan, nan, nan)
        norm = sqrt(self.squares + self.finite * self.mean * self.mean)
        # The mean of equal numbers may be rounded out of their range.
        mean = min(max(self.mean, self.low), self.high)
        return (*counts, self.low, self.high, mean, sqrt(self.squares / self.finite), norm)
