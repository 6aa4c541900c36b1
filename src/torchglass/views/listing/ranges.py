"""Parts of a source text by line and column, and which of them lie in others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class Range(NamedTuple):
    """Lines from 1, columns in characters from 0."""

    line: int
    end_line: int
    col: int
    end_col: int

    @property
    def start(self) -> tuple[int, int]:
        return self.line, self.col

    @property
    def end(self) -> tuple[int, int]:
        return self.end_line, self.end_col


def outermost(ranges: Iterable[Range]) -> list[Range]:
    """Those that lie in no other, in order."""
    found: list[Range] = []
    for each in sorted(set(ranges), key=lambda each: (each.line, each.col, -each.end_line, -each.end_col)):
        if not found or each.end > found[-1].end:
            found.append(each)
    return found


class Spans:
    """The ranges of expressions, which lie in each other or are apart: many are asked for, so they are sorted once."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges = outermost(ranges)
        self._starts = [each.start for each in self._ranges]

    def hold(self, where: Range) -> bool:
        """Whether one of them holds this one."""
        at = bisect_right(self._starts, where.start) - 1
        return at >= 0 and where.end <= self._ranges[at].end
