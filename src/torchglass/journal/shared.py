"""Write the streams that all threads share: rows one after the other, values and their statistics by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from sys import maxsize
from typing import TYPE_CHECKING, Any

from torchglass.compiled import ValueFields, extension, slots
from torchglass.journal import layout
from torchglass.journal.backing import Buffer
from torchglass.journal.chunks import Chunks
from torchglass.journal.forks import leave_parent, owns_journal
from torchglass.journal.layout import Chunk, Numbers

LATE_VALUES = 4096
"""How many values before the first measured one get room for statistics, too. Other threads may measure them later."""


class RowFields:
    """Writes rows in Python. This defines what the compiled extension does in C (engine/fast/rows.c)."""

    __slots__ = ("at", "buffer", "end")

    def __init__(self) -> None:
        self.buffer: Any = bytearray()
        self.at = 0
        """The offset of the next row in the buffer."""
        self.end = 0
        """The end of the buffer."""

    def add(self, kind: int, number: int, payload: bytes) -> None:
        """Write one row. The row is complete when this returns.

        An incomplete row would hide the rows after it from readers of the file. So from the moment at which ``at`` is
        advanced to the last written byte, there is no point where Python runs another thread or a signal handler.
        """
        if not owns_journal[0]:
            leave_parent()
        checksum = layout.row_checksum(kind, number, payload)
        pack = layout.ROW.pack_into
        length = len(payload)
        while True:
            at = self.at
            buffer = self.buffer
            row_end = at + layout.ROW.size + length
            if row_end > self.end:
                if not self.more(layout.ROW.size + length):
                    return
                continue
            # Creating the slice may run the garbage collector, whose finalizers may write rows, too. Then try again.
            payload_slice = slice(at + layout.ROW.size, row_end)
            if self.at is at and self.buffer is buffer:
                break
        self.at = row_end
        try:
            buffer[payload_slice] = payload
            pack(buffer, at, length, checksum, kind, number)
        except MemoryError:
            # Give the room back, since a gap would hide the rows after it.
            if self.at is row_end:
                self.at = at
            raise

    def more(self, need: int) -> bool:
        """Make room for this many bytes. Return False if nothing may be written any more."""
        raise NotImplementedError


if TYPE_CHECKING:
    Rows = RowFields
else:
    Rows = getattr(extension, "RowFields", RowFields)


class RowWriter(Rows):
    """Appends rows to one stream."""

    __slots__ = ("chunk", "journal", "stream")

    def __init__(self, journal: Chunks, stream: int) -> None:
        super().__init__()
        self.journal = journal
        self.stream = stream
        self.chunk: Chunk | None = None

    def position(self) -> int:
        """Return how many bytes of rows were written so far."""
        if self.chunk is None:
            return 0
        return self.chunk.first + self.at - self.chunk.start

    def more(self, need: int) -> bool:
        """Make room for this many bytes, in a new chunk."""
        journal = self.journal
        if journal.dead:
            return False
        with journal.lock:
            if self.at + need <= self.end:
                return True  # another thread was faster
            size = max(journal.next_size(self.stream, 0), need)
            chunk = journal.new_chunk(self.stream, 0, size)
            previous = self.chunk
            journal.begin(chunk)
            start = chunk.start
            end = len(chunk.buffer)
            self.chunk = chunk
            self.at = start
            self.end = end
            self.buffer = chunk.buffer
            # This comes last, since other threads may add to the previous chunk until now.
            if previous is not None:
                journal.note_full(previous)
        return True

    def end_chunk(self) -> None:
        """Make the next row begin a new chunk."""
        self.end = 0

    def move(self, buffer: Buffer) -> None:
        """Continue in another buffer, with a copy of what was written so far.

        Nothing may be written while it is copied. There is no point in between where Python runs another thread.
        """
        chunk = self.chunk
        old = self.buffer
        end = len(buffer)
        count = len(self.buffer)
        assert chunk is not None
        buffer[:count] = old
        self.buffer = buffer
        self.end = end
        chunk.buffer = buffer

    def release(self) -> None:
        self.at = self.end = 0
        self.buffer = bytearray()


class NumberedWriter(ValueFields):
    """Writes entries of fixed width by the numbers of values. Writing an entry again overwrites it."""

    __slots__ = (*slots(ValueFields, "buffer chunk end first journal shift"), "stream", "width")

    def __init__(self, journal: Chunks, stream: int) -> None:
        self.journal = journal
        self.stream = stream
        self.width = layout.WIDTHS[stream]
        self.chunk: Chunk | None = None
        self.buffer: Any = bytearray()
        self.first = 0
        """The first number for which the newest chunk has room."""
        self.end = 0
        """The end of the numbers for which the newest chunk has room."""
        self.shift = 0
        """The offset of an entry in the newest chunk is number * width + shift."""

    def write(self, number: int, *entry: Any) -> None:
        """Write an entry, which may be in any chunk. ``PACK`` has the parameters for this stream."""
        pack = PACK[self.stream]
        journal = self.journal
        if self.first <= number < self.end:
            pack(self.buffer, number * self.width + self.shift, *entry)
            return
        while number >= self.end and not journal.dead:
            self._more(number)
        for chunk in reversed(journal.streams.of(self.stream)):
            if journal.dead:
                return
            if chunk.first <= number < chunk.last:
                at = chunk.start + (number - chunk.first) * self.width
                pack(chunk.buffer, at, *entry)
                journal.note_change(chunk.buffer, at, self.width)
                return

    def _more(self, number: int) -> None:
        journal = self.journal
        with journal.lock:
            if number < self.end or journal.dead:
                return  # another thread was faster
            chunk = journal.new_chunk(self.stream, 0, journal.next_size(self.stream, 0))
            previous = self.chunk
            first = None
            if previous is None and self.stream != layout.VALUES:
                # Measuring may begin late. Then the values before need no room in this stream.
                first = max(number - LATE_VALUES, 0)
            journal.begin(chunk, first)
            buffer = chunk.buffer
            shift = chunk.start - chunk.first * self.width
            first = chunk.first
            last = chunk.last
            self.chunk = chunk
            self.buffer = buffer
            self.shift = shift
            self.first = first
            self.end = last
            # This comes last, since other threads may write to the previous chunk until now.
            if previous is not None:
                journal.note_full(previous)

    def move(self, buffer: Buffer) -> None:
        """Continue in another buffer, with a copy of what was written so far."""
        chunk = self.chunk
        old = self.buffer
        count = len(self.buffer)
        assert chunk is not None
        last = chunk.first + (len(buffer) - chunk.start) // self.width
        buffer[:count] = old
        self.buffer = buffer
        chunk.buffer = buffer
        self.end = last
        chunk.last = last

    def release(self) -> None:
        """Write nothing more."""
        if self.chunk is not None:
            self.first = maxsize
            self.end = 0
            self.buffer = bytearray()


def _pack_value(buffer: Any, at: int, version: int, address: int, before: int, meta: int) -> None:
    layout.pack_value(buffer, at, version, address, before, meta + 1)


def _pack_measured(buffer: Any, at: int, numbers: Numbers, how: int) -> None:
    layout.pack_measured(buffer, at, *numbers, how)


def _pack_sketch(buffer: Any, at: int, sketch: bytes) -> None:
    buffer[at : at + layout.SKETCHED_ENTRY] = sketch + layout.IS_SKETCHED


PACK: dict[int, Callable[..., None]] = {
    layout.VALUES: _pack_value,
    layout.MEASURED: _pack_measured,
    layout.SKETCHED: _pack_sketch,
    layout.KEPT: layout.pack_kept,
}
"""The function that writes an entry of each stream."""
