"""The streams that all threads share: rows one behind the other; values, and what was in them, by their numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from sys import maxsize
from typing import TYPE_CHECKING, Any

from torchglass.compiled import ValueFields, extension, slots
from torchglass.journal import layout
from torchglass.journal.homes import Buffer, Home, Memory
from torchglass.journal.layout import Chunk, Numbers, Streams

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
        checksum, pack, length = layout.row_checksum(kind, number, payload), layout.ROW.pack_into, len(payload)
        while True:
            at, buffer = self.at, self.buffer
            behind = at + layout.ROW.size + length
            if behind > self.end:
                if not self.more(layout.ROW.size + length):
                    return
                continue
            where = slice(at + layout.ROW.size, behind)  # making it may run the collector, and that whatever it finds
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


class NumberedWriter(ValueFields):
    """Entries of one width in place of the numbers of values; whoever writes one again overwrites it."""

    __slots__ = (*slots(ValueFields, "buffer chunk end first journal shift"), "stream", "width")

    def __init__(self, journal: Chunks, stream: int) -> None:
        self.journal = journal
        self.stream, self.width = stream, layout.WIDTHS[stream]
        self.chunk: Chunk | None = None
        self.buffer: Any = bytearray()
        self.first = self.end = self.shift = 0
        """The numbers that the newest chunk has room for; number * width + shift is an entry's place in it."""

    def write(self, number: int, *entry: Any) -> None:
        """Write what ``PACK`` packs for this stream; it may lie in any chunk."""
        pack, journal = PACK[self.stream], self.journal
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
                journal.touched(chunk.buffer, at, self.width)
                return

    def _more(self, number: int) -> None:
        journal = self.journal
        with journal.lock:
            if number < self.end or journal.dead:
                return  # another thread was first
            chunk, before = journal.new_chunk(self.stream, 0, journal.next_size(self.stream, 0)), self.chunk
            # What is not there of every value, and may be asked for late, needs no room for the values before.
            is_late = before is None and self.stream != layout.VALUES
            journal.begin(chunk, max(number - BEFORE, 0) if is_late else None)
            buffer, shift, first, last = chunk.buffer, chunk.start - chunk.first * self.width, chunk.first, chunk.last
            self.chunk, self.buffer, self.shift, self.first, self.end = chunk, buffer, shift, first, last
            if before is not None:
                journal.filled(before)  # last: until then others may write to it

    def move(self, buffer: Buffer) -> None:
        """Go on in another buffer, with what is there so far."""
        chunk, old, count = self.chunk, self.buffer, len(self.buffer)
        assert chunk is not None
        last = chunk.first + (len(buffer) - chunk.start) // self.width
        buffer[:count] = old
        self.buffer, chunk.buffer, self.end, chunk.last = buffer, buffer, last, last

    def let_go(self) -> None:
        """Nothing more is written."""
        if self.chunk is not None:
            self.first, self.end = maxsize, 0
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
"""By stream: what writes an entry of it."""


# ---------------------------------------------------------------- handing

# Hands out the chunks of a journal, and knows where they lie; when a file can take no more, that is in memory.

SMALLEST = {
    layout.RECORDS: 1 << 13, layout.IDS: 1 << 12, layout.VALUES: 1 << 15, layout.ROWS: 1 << 15,
    layout.PASSING: 1 << 14, layout.MEASURED: 1 << 16, layout.SKETCHED: 1 << 17, layout.KEPT: 1 << 15,
}  # fmt: skip
"""Bytes of the first chunk of a stream, of the first thread's some more; each further one is larger than the
one before, as its home has it …"""
LARGEST = 1 << 24
"""… up to this."""
FIRST_THREAD = 4
"""So many times as much room the first thread gets: others may be hundreds, and live for a moment."""
LARGEST_FIRST = 1 << 18
"""Bytes of a first chunk at most, however much the recording before needed: such memory is used again (memory.c)."""


class Chunks:
    """The chunks of one journal; they are handed out one thread at a time."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.former: list[Home] = []
        """Homes that could take no more; some chunks still lie there."""
        self.streams = Streams()
        self.lock = threading.RLock()  # one: a `__del__` that calls torch may run while it is held
        self.dead = False
        """Nothing may be written any more: it is closed, or this is a forked child."""
        self.ends: dict[tuple[int, int], int] = {}
        """By stream and owner: behind the last number that there is room for."""
        self.expected: dict[int, int] = {}
        """By stream: bytes that it is likely to need, of the first thread's."""
        self.on_full: Callable[[OSError], None] = ignore
        """Told once when the file can take no more: chunks are in memory from then on."""

    def new_chunk(self, stream: int, owner: int, size: int, copies: int = 0) -> Chunk:
        """A chunk with room for so many bytes of entries; it has no place in its stream before it is begun."""
        wanted = layout.HEADER + copies * layout.COPY + size
        try:
            buffer = self.home.take(wanted)
        except OSError as problem:
            self._leave_home(problem)
            buffer = self.home.take(wanted)
        return Chunk(buffer, stream, owner, 0, copies)

    def begin(self, chunk: Chunk, first: int | None = None) -> None:
        """Put a chunk at the end of its stream; ``first`` is the number of its first entry, if that is known."""
        key = (chunk.stream, chunk.owner)
        begins = self.ends.get(key, 0) if first is None else first
        chunk.last, chunk.first = begins + chunk.last, begins
        self.ends[key] = chunk.last
        chunk.begin()
        self.streams.add(chunk)

    def next_size(self, stream: int, owner: int) -> int:
        """Bytes of the next chunk of a stream, if nothing else bounds it."""
        chunks = self.streams.chunks.get((stream, owner))
        if chunks:
            size = self.home.growth * (len(chunks[-1].buffer) - chunks[-1].start)
        else:
            size = SMALLEST[stream] * (FIRST_THREAD if stream in (layout.RECORDS, layout.IDS) and owner == 0 else 1)
            size = max(size, self.expected.get(stream, 0)) if owner == 0 else size
        return max(
            min(size, LARGEST, self.most_bytes(stream), self.home.largest - layout.HEADER), layout.WIDTHS[stream]
        )

    def most_bytes(self, stream: int) -> int:
        """Bytes of a chunk of a stream, at most."""
        return maxsize

    # What the home is told; where it fails, the journal goes on in memory

    def filled(self, chunk: Chunk) -> None:
        """Nothing more will be appended to a chunk."""
        try:
            self.home.filled(chunk.buffer)
        except OSError as problem:
            self._leave_home(problem)

    def touched(self, buffer: Buffer, at: int, length: int) -> None:
        """Some bytes of a chunk have changed."""
        try:
            self.home.touched(buffer, at, length)
        except OSError as problem:
            self._leave_home(problem)

    def drop(self, chunk: Chunk) -> None:
        """Give up a chunk and what it holds."""
        self.streams.remove(chunk)
        try:
            self.home.give_back(chunk.buffer)
        except OSError as problem:
            self._leave_home(problem)

    def end_chunks(self) -> None:
        """Have the next entry of every stream begin a new chunk."""

    def _leave_home(self, problem: OSError) -> None:
        """Go on in memory. The file stays as it is now: what comes later must not be half in it."""
        with self.lock:
            if isinstance(self.home, Memory):
                return  # another thread was first
            self.former.append(self.home)
            self.home = Memory()
            self.end_chunks()
        self.on_full(problem)


def ignore(*_: object) -> None:
    """Nobody is to be told."""
