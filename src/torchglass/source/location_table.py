"""Read the location table of a code object, which has the source range of each instruction, as of Python 3.11."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Range(NamedTuple):
    """A range of source text, with lines from 1 and columns in bytes from 0. What is not known is None."""

    line: int | None
    end_line: int | None
    col: int | None
    end_col: int | None


NOWHERE = Range(None, None, None, None)
"""The range of an instruction that belongs to no source text."""


def char_column(line: str, byte: int) -> int:
    """Convert a column counted in UTF-8 bytes to one in characters."""
    if line.isascii():
        return byte
    return len(line.encode("utf-8", "surrogatepass")[:byte].decode("utf-8", "ignore"))


# The kinds of entries, as CPython numbers them. Kinds below 10 hold a range within the current line.
_ONE_LINE = range(10, 13)
_NO_COLUMN = 13
_LONG = 14
_NO_RANGE = 15


@lru_cache(maxsize=1024)
def read_positions(table: bytes, line: int, count: int) -> tuple[Range, ...]:
    """Return the ranges of ``count`` instructions of code that begins in ``line``.

    ``CodeType.co_positions`` is not used: the table may come from a file, and Python would read it without checks. The
    result is cached because the same code comes in every recording. Instructions beyond the table get NOWHERE.
    """
    ranges: list[Range] = []
    reader = _Table(table)
    try:
        while len(ranges) < count:
            head = reader.byte()
            kind = head >> 3 & 15
            length = (head & 7) + 1
            line, where = reader.entry(kind, line)
            ranges += [where] * length
    except IndexError:
        pass  # the table ends here
    ranges += [NOWHERE] * (count - len(ranges))
    return tuple(ranges[:count])


class _Table:
    """Reads a location table from its beginning. It raises IndexError at the end of the table."""

    def __init__(self, table: bytes) -> None:
        self.table = table
        self.position = 0

    def byte(self) -> int:
        value = self.table[self.position]
        self.position += 1
        return value

    def entry(self, kind: int, line: int) -> tuple[int, Range]:
        """Read the rest of an entry. Return the line at its end, from which the next entry counts, and its range."""
        if kind == _NO_RANGE:
            return line, NOWHERE
        if kind == _LONG:
            line += self._signed()
            end_line = line + self._number()
            col = self._number() - 1
            end_col = self._number() - 1
            if col < 0:
                col = None
            if end_col < 0:
                end_col = None
            return line, Range(line, end_line, col, end_col)
        if kind == _NO_COLUMN:
            line += self._signed()
            return line, Range(line, line, None, None)
        if kind in _ONE_LINE:
            line += kind - 10
            return line, Range(line, line, self.byte(), self.byte())
        second = self.byte()
        col = kind * 8 + (second >> 4 & 7)
        return line, Range(line, line, col, col + (second & 15))

    def _number(self) -> int:
        """Read a number, six bits at a time, the lowest first."""
        value = 0
        shift = 0
        while True:
            part = self.byte()
            value |= (part & 63) << shift
            shift += 6
            if not part & 64:
                return value

    def _signed(self) -> int:
        """Read a number whose lowest bit is its sign."""
        value = self._number()
        if value & 1:
            return -(value >> 1)
        return value >> 1
