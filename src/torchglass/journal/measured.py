"""The stream of what was in the values: an entry of fixed width in place of each value's number, most of them empty."""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING, Any

from torchglass.journal.layout import MEASURED, MEASURED_ENTRY, pack_measured

if TYPE_CHECKING:
    from torchglass.journal.chunks import Chunk
    from torchglass.journal.homes import Buffer
    from torchglass.journal.writer import Journal

BEFORE = 4096
"""So many values before the first that is measured may be measured later, by other threads."""
Numbers = tuple[int, int, int, int, int, float, float, float, float, float]
"""What is written of a value; journal/layout.py says what each is."""


class MeasuredWriter:
    """Writes what was in a value; whoever measures it again overwrites it."""

    __slots__ = ("buffer", "chunk", "end", "first", "journal", "shift")

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.chunk: Chunk | None = None
        self.buffer: Any = bytearray()
        self.first = self.end = self.shift = 0
        """The numbers that the newest chunk has room for; number * MEASURED_ENTRY + shift is its place there."""

    def write(self, number: int, numbers: Numbers, how: int) -> None:
        """Write the entry of one value, whatever chunk it lies in."""
        if self.first <= number < self.end:
            pack_measured(self.buffer, number * MEASURED_ENTRY + self.shift, *numbers, how)
            return
        journal = self.journal
        while number >= self.end and not journal.dead:
            self._more(number)
        for chunk in reversed(journal.streams.of(MEASURED)):
            if chunk.first <= number < chunk.last and not journal.dead:
                at = chunk.start + (number - chunk.first) * MEASURED_ENTRY
                pack_measured(chunk.buffer, at, *numbers, how)
                journal.touched(chunk.buffer, at, MEASURED_ENTRY)
                return

    def _more(self, number: int) -> None:
        journal = self.journal
        with journal.lock:
            if number < self.end or journal.dead:
                return  # another thread was first
            chunk, before = journal.new_chunk(MEASURED, 0, journal.next_size(MEASURED, 0)), self.chunk
            # Where it is asked for late, nothing was measured of the values before: they need no room.
            journal.begin(chunk, max(number - BEFORE, 0) if before is None else None)
            shift, first, last = chunk.start - chunk.first * MEASURED_ENTRY, chunk.first, chunk.last
            self.chunk, self.buffer, self.shift, self.first, self.end = chunk, chunk.buffer, shift, first, last
            if before is not None:
                journal.filled(before)  # last: until then others may write to it

    def move(self, buffer: Buffer) -> None:
        """Go on in another buffer, with what is there so far."""
        chunk, old, count = self.chunk, self.buffer, len(self.buffer)
        assert chunk is not None
        last = chunk.first + (len(buffer) - chunk.start) // MEASURED_ENTRY
        buffer[:count] = old
        self.buffer, chunk.buffer, self.end, chunk.last = buffer, buffer, last, last

    def let_go(self) -> None:
        """Nothing more is written."""
        self.first, self.end = maxsize, 0
        self.buffer = bytearray()
