"""The streams that all threads share: rows one behind the other; values, and what was in them, by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from sys import maxsize
from typing import TYPE_CHECKING, Any

from torchglass.compiled import ValueFields, extension, slots
from torchglass.journal.layout import (
    IS_SKETCHED,
    KEPT,
    KEPT_ENTRY,
    MEASURED,
    MEASURED_ENTRY,
    ROW,
    SKETCHED,
    SKETCHED_ENTRY,
    VALUE,
    VALUES,
    Numbers,
    pack_kept,
    pack_measured,
    pack_value,
    row_checksum,
)  # fmt: skip

if TYPE_CHECKING:
    from torchglass.journal.chunks import Chunk
    from torchglass.journal.handing import Chunks
    from torchglass.journal.homes import Buffer

BEFORE = 4096
"""So many values before the first that is measured may be measured later, by other threads."""


class RowFields:
    """Where rows go, in Python: the definition of what C does where there is an extension (engine/fast/rows.c)."""

    __slots__ = ("at", "buffer", "end")

    def __init__(self) -> None:
        self.buffer: Any = bytearray()
        self.at = self.end = 0
        """Where the next row goes in the buffer, and where that ends."""

    def add(self, kind: int, number: int, payload: bytes) -> None:
        """Write one row; it is there when this returns.

        From the taking of a place to the last byte there is no point at which Python would let another thread or a
        signal handler run: a row that is not whole would hide those behind it from whoever reads the file.
        """
        checksum, pack, length = row_checksum(kind, number, payload), ROW.pack_into, len(payload)
        while True:
            at, buffer = self.at, self.buffer
            behind = at + ROW.size + length
            if behind > self.end:
                if not self.more(ROW.size + length):
                    return
                continue
            where = slice(at + ROW.size, behind)  # making it may run the collector, and that whatever it finds
            if self.at is at and self.buffer is buffer:
                break
        self.at = behind
        try:
            buffer[where] = payload
            pack(buffer, at, length, checksum, kind, number)
        except MemoryError:
            if self.at is behind:  # a place without a row would hide those behind it
                self.at = at
            raise

    def more(self, need: int) -> bool:
        """Make room for so many bytes; False where nothing may be written any more."""
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
        """How many bytes there were so far."""
        return 0 if self.chunk is None else self.chunk.first + self.at - self.chunk.start

    def more(self, need: int) -> bool:
        """Make room for so many bytes, in a new chunk."""
        journal = self.journal
        if journal.dead:
            return False
        with journal.lock:
            if self.at + need <= self.end:
                return True  # another thread was first
            size = max(journal.next_size(self.stream, 0), need)
            chunk, before = journal.new_chunk(self.stream, 0, size), self.chunk
            journal.begin(chunk)
            start, end = chunk.start, len(chunk.buffer)
            self.chunk, self.at, self.end, self.buffer = chunk, start, end, chunk.buffer
            if before is not None:
                journal.filled(before)  # last: until then others may add to it
        return True

    def end_chunk(self) -> None:
        """Have the next row begin a new chunk."""
        self.end = 0

    def move(self, buffer: Buffer) -> None:
        """Go on in another buffer, with what is there so far; nothing may be written in between."""
        chunk, old, end, count = self.chunk, self.buffer, len(buffer), len(self.buffer)
        assert chunk is not None
        buffer[:count] = old
        self.buffer, self.end, chunk.buffer = buffer, end, buffer

    def let_go(self) -> None:
        self.at = self.end = 0
        self.buffer = bytearray()


class _Numbered(ValueFields):
    """Entries of one width in place of their numbers; whoever writes one again overwrites it."""

    __slots__ = slots(ValueFields, "buffer chunk end first journal shift")
    stream: int
    width: int

    def __init__(self, journal: Chunks) -> None:
        self.journal = journal
        self.chunk: Chunk | None = None
        self.buffer: Any = bytearray()
        self.first = self.end = self.shift = 0
        """The numbers that the newest chunk has room for; number * width + shift is an entry's place in it."""

    def _put(self, number: int, pack: Callable[..., None], *words: float | bytes) -> None:
        """Write an entry that may lie in any chunk."""
        journal = self.journal
        while number >= self.end and not journal.dead:
            self._more(number)
        for chunk in reversed(journal.streams.of(self.stream)):
            if journal.dead:
                return
            if chunk.first <= number < chunk.last:
                at = chunk.start + (number - chunk.first) * self.width
                pack(chunk.buffer, at, *words)
                journal.touched(chunk.buffer, at, self.width)
                return

    def _more(self, number: int) -> None:
        journal = self.journal
        with journal.lock:
            if number < self.end or journal.dead:
                return  # another thread was first
            chunk, before = journal.new_chunk(self.stream, 0, journal.next_size(self.stream, 0)), self.chunk
            journal.begin(chunk, self._begins_at(number))
            self._take_over(chunk)
            if before is not None:
                journal.filled(before)  # last: until then others may write to it

    def _begins_at(self, number: int) -> int | None:
        """The first number of a new chunk; None: the one behind the last."""
        return None

    def _take_over(self, chunk: Chunk) -> None:
        """Take over what the newest chunk says, all at once."""
        buffer, shift, first, last = chunk.buffer, chunk.start - chunk.first * self.width, chunk.first, chunk.last
        self.chunk, self.buffer, self.shift, self.first, self.end = chunk, buffer, shift, first, last

    def move(self, buffer: Buffer) -> None:
        """Go on in another buffer, with what is there so far."""
        chunk, old, count = self.chunk, self.buffer, len(self.buffer)
        assert chunk is not None
        last = chunk.first + (len(buffer) - chunk.start) // self.width
        buffer[:count] = old
        self.buffer, chunk.buffer, self.end, chunk.last = buffer, buffer, last, last

    def let_go(self) -> None:
        """Nothing more is written."""
        self.first, self.end = maxsize, 0
        self.buffer = bytearray()


class ValueWriter(_Numbered):
    """Values."""

    __slots__ = ()
    stream, width = VALUES, VALUE

    def write(self, number: int, version: int, address: int, before: int, meta: int) -> None:
        self._put(number, pack_value, version, address, before, meta + 1)


class _Late(_Numbered):
    """What is not there of every value, and may be asked for late."""

    __slots__ = ()

    def _begins_at(self, number: int) -> int | None:
        """Of the values before there is nothing: they need no room."""
        return max(number - BEFORE, 0) if self.chunk is None else None


class MeasuredWriter(_Late):
    """What was in the values; most entries are empty."""

    __slots__ = ()
    stream, width = MEASURED, MEASURED_ENTRY

    def write(self, number: int, numbers: Numbers, how: int) -> None:
        if self.first <= number < self.end:
            pack_measured(self.buffer, number * MEASURED_ENTRY + self.shift, *numbers, how)
        else:
            self._put(number, pack_measured, *numbers, how)


class SketchWriter(_Late):
    """By what the numbers of values are known again; where nobody asked for it there is no chunk."""

    __slots__ = ()
    stream, width = SKETCHED, SKETCHED_ENTRY

    def write(self, number: int, sketch: bytes) -> None:
        self._put(number, _put_bytes, sketch + IS_SKETCHED)


class KeptWriter(_Late):
    """Where copies of the values lie."""

    __slots__ = ()
    stream, width = KEPT, KEPT_ENTRY

    def write(self, number: int, offset: int, length: int, first: int, place: int) -> None:
        self._put(number, pack_kept, offset, length, first, place)


def _put_bytes(buffer: Any, at: int, entry: Any) -> None:
    buffer[at : at + len(entry)] = entry
