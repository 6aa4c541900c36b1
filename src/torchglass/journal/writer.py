"""Writes a journal: rows once, values in place of their numbers, records of each thread one behind the other.

The hot path is not here: engines write entries straight into ``ThreadWriter.buffer`` and its like. What is here is
what they ask for seldom: the next chunk, a row, the closing of a record that lies in an older chunk.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from sys import maxsize
from typing import Any

from torchglass.journal.chunks import COPY, Chunk, Streams, width_of
from torchglass.journal.homes import Home, Memory
from torchglass.journal.layout import (
    CLOSING,
    HEADER,
    IDS,
    NONE,
    PASSING,
    RECORD,
    RECORDS,
    ROW_SIZE,
    ROWS,
    VALUE,
    VALUES,
    pack_closing,
    pack_record,
    pack_row,
    pack_value,
    row_checksum,
)
from torchglass.journal.ring import Limits, Ring

SMALLEST = {RECORDS: 1 << 13, IDS: 1 << 12, VALUES: 1 << 15, ROWS: 1 << 16, PASSING: 1 << 14}
"""Bytes of the first chunk of a stream, of the first thread's some more; each further one has four times as many as the
one before …"""
LARGEST = 1 << 24
"""… up to this."""
FIRST_THREAD = 8
"""So many times as much room the first thread gets: others may be hundreds, and live for a moment."""

Open = list[tuple[int, list[int]]]
"""Records under way: number and words, outermost first."""
Carry = Callable[["ThreadWriter", Open], Open]
"""Makes records that were opened before a chunk complete in themselves (capture/engine/forms.py)."""


_all: weakref.WeakSet[Journal] = weakref.WeakSet()


def _end_in_child() -> None:
    """In a forked child the chunks are still the parent's: what is open there must not be closed by us."""
    for journal in list(_all):
        journal.end()


os.register_at_fork(after_in_child=_end_in_child)


class Journal:
    """One journal that grows; chunks are handed out one thread at a time."""

    def __init__(self, home: Home | None = None, limits: Limits | None = None) -> None:
        self.home: Home = home or Memory()
        self.streams = Streams()
        self.lock = threading.RLock()  # one: a `__del__` that calls torch may run while it is held
        self.ring = Ring(limits or Limits())
        self.rows = RowWriter(self, ROWS)
        self.passing = RowWriter(self, PASSING)
        self.values = ValueWriter(self)
        self.threads: list[ThreadWriter] = []
        self.carry: Carry | None = None
        self._ends: dict[tuple[int, int], int] = {}
        """By stream and owner: behind the last number that there is room for."""
        self.dead = False
        """In a forked child: nothing may be written any more."""
        _all.add(self)
        self.on_drop: Callable[[int, int], None] = _ignore
        """Told of the values that were dropped: the first, and behind the last."""
        self.on_full: Callable[[OSError], None] = _ignore
        """Told once when there is no room in the file any more: chunks are in memory from then on."""

    def new_chunk(self, stream: int, owner: int, size: int, copies: int = 0) -> Chunk:
        """A chunk with room for so many bytes of entries; it has no place in its stream before it is begun."""
        wanted = HEADER + copies * COPY + size
        try:
            buffer = self.home.take(wanted)
        except OSError as problem:
            self.home = Memory()
            self.on_full(problem)
            buffer = self.home.take(wanted)
        return Chunk(buffer, stream, owner, 0, copies)

    def begin(self, chunk: Chunk, first: int | None = None) -> None:
        """Put a chunk at the end of its stream; ``first`` is the number of its first entry, if that is known."""
        key = (chunk.stream, chunk.owner)
        behind = self._ends.get(key, 0)
        begins = behind if first is None else first
        chunk.last, chunk.first = begins + chunk.last, begins
        self._ends[key] = chunk.last
        chunk.begin()
        self.streams.add(chunk)

    def next_size(self, stream: int, owner: int) -> int:
        """Bytes of the next chunk of a stream, if nothing else bounds it."""
        before = self.streams.chunks.get((stream, owner))
        if before:
            size = 4 * (len(before[-1].buffer) - before[-1].start)
        else:
            size = SMALLEST[stream] * (FIRST_THREAD if stream in (RECORDS, IDS) and owner == 0 else 1)
        return max(min(size, LARGEST, self.ring.largest(stream), self.home.largest - HEADER), width_of(stream))

    def drop(self, chunk: Chunk) -> None:
        """Give up a chunk and what it holds."""
        self.streams.remove(chunk)
        self.home.give_back(chunk.buffer)

    def end(self) -> None:
        """Write nothing more, here or in a forked child; what is open is closed in vain. Takes no lock."""
        self.dead = True
        for thread in self.threads:
            thread.let_go()
        for stream in (self.rows, self.passing, self.values):
            stream.let_go()

    def close(self) -> None:
        """Nothing more is to be written or read."""
        self.end()
        self.streams.chunks.clear()
        self.home.close()

    def move_to(self, home: Home) -> None:
        """Go on in a file: all rows so far are copied there, and of the rest what is being written."""
        with self.lock:
            for (stream, _), chunks in self.streams.chunks.items():
                for chunk in chunks if stream in (ROWS, PASSING) else chunks[-1:]:
                    buffer = home.take(len(chunk.buffer))
                    buffer[: len(chunk.buffer)] = chunk.buffer
                    chunk.buffer = buffer
                    chunk.last = chunk.first + (len(buffer) - chunk.start) // width_of(stream)
                    chunk.begin()
                    self._ends[chunk.stream, chunk.owner] = chunks[-1].last
            self.home = home
            self._renew()

    def _renew(self) -> None:
        for writer in (*self.threads, self.rows, self.passing, self.values):
            writer.renew()

    def to_memory(self) -> None:
        """Lie in memory from now on, all of it: the file that it was in is to be closed."""
        with self.lock:
            home, self.home = self.home, Memory()
            for chunks in self.streams.chunks.values():
                for chunk in chunks:
                    chunk.buffer = bytearray(chunk.buffer)
            self._renew()
            home.close()


def _ignore(*_: object) -> None:
    return


class RowWriter:
    """Appends rows to one stream.

    A place is taken, and its length written, in a few steps without a call between them: so neither another thread nor
    a signal handler of the program's comes in between.
    """

    __slots__ = ("at", "buffer", "chunk", "end", "journal", "stream")

    def __init__(self, journal: Journal, stream: int) -> None:
        self.journal = journal
        self.stream = stream
        self.chunk: Chunk | None = None
        self.buffer: Any = bytearray()
        self.at = self.end = 0
        """Where the next row goes in the buffer, and where that ends."""

    def add(self, kind: int, number: int, payload: bytes) -> None:
        """Write one row; it is there when this returns."""
        need = ROW_SIZE + len(payload)
        while True:
            at, buffer = self.at, self.buffer
            if at + need <= self.end:
                self.at = at + need
                break
            if self.journal.dead:
                return
            self._more(need)
        # The length at once, without a call before it: who reads finds the rows behind, whatever becomes of this one.
        pack_row(buffer, at, len(payload), 0, kind, number)
        buffer[at + ROW_SIZE : at + need] = payload
        pack_row(buffer, at, len(payload), row_checksum(kind, number, payload), kind, number)

    def position(self) -> int:
        """How many bytes there were so far."""
        return 0 if self.chunk is None else self.chunk.first + self.at - self.chunk.start

    def _more(self, need: int) -> None:
        journal = self.journal
        with journal.lock:
            if self.at + need <= self.end:
                return  # another thread was first
            size = max(journal.next_size(self.stream, 0), need)
            chunk, before = journal.new_chunk(self.stream, 0, size), self.chunk
            journal.begin(chunk)
            if before is not None:
                journal.home.filled(before.buffer)
            self.chunk = chunk
            self.at, self.end, self.buffer = chunk.start, len(chunk.buffer), chunk.buffer

    def renew(self) -> None:
        """The newest chunk has another buffer."""
        if self.chunk is not None:
            self.buffer, self.end = self.chunk.buffer, len(self.chunk.buffer)

    def let_go(self) -> None:
        self.at = self.end = 0
        self.buffer = bytearray()


class ValueWriter:
    """Values in place of their numbers; whoever describes one again overwrites it."""

    __slots__ = ("buffer", "chunk", "end", "first", "journal", "shift")

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.chunk: Chunk | None = None
        self.buffer: Any = bytearray()
        self.first = self.end = self.shift = 0
        """The numbers that the newest chunk has room for; number * VALUE + shift is a value's place in it."""

    def write(self, number: int, version: int, address: int, before: int, meta: int) -> None:
        """Write a value that may lie in any chunk."""
        while number >= self.end and not self.journal.dead:
            self._more(number)
        for chunk in reversed(self.journal.streams.of(VALUES)):
            if chunk.first <= number < chunk.last:
                at = chunk.start + (number - chunk.first) * VALUE
                pack_value(chunk.buffer, at, version, address, before, meta + 1)
                self.journal.home.touched(chunk.buffer, at, VALUE)
                return

    def _more(self, number: int) -> None:
        journal = self.journal
        with journal.lock:
            if number < self.end or journal.dead:
                return  # another thread was first
            chunk, before = journal.new_chunk(VALUES, 0, journal.next_size(VALUES, 0)), self.chunk
            journal.begin(chunk)
            if before is not None:
                journal.home.filled(before.buffer)
            self.chunk = chunk
            self.renew()

    def renew(self) -> None:
        """Take over what the newest chunk says, all at once."""
        if self.chunk is not None:
            chunk = self.chunk
            buffer, shift = chunk.buffer, chunk.start - chunk.first * VALUE
            self.buffer, self.shift, self.first, self.end = buffer, shift, chunk.first, chunk.last

    def let_go(self) -> None:
        self.first, self.end = maxsize, 0
        self.buffer = bytearray()


class ThreadWriter:
    """The records and ids of one thread, and where the next ones go; only that thread writes to it."""

    __slots__ = (
        "at", "buffer", "chunk", "copies", "end", "first", "id_at", "id_base", "id_chunk", "id_end", "ids", "journal",
        "number", "open_records", "shift",
    )  # fmt: skip

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        with journal.lock:
            self.number = len(journal.threads)
            journal.threads.append(self)
        self.chunk: Chunk | None = None
        self.buffer: Any = bytearray()
        self.at = 0
        """The number of the next record."""
        self.first = self.end = self.shift = 0
        """The numbers that the newest chunk has room for; number * RECORD + shift is a record's place in it."""
        self.copies: dict[int, int] = {}
        """Records under way that are repeated at the front of the newest chunk: where."""
        self.id_chunk: Chunk | None = None
        self.ids: memoryview = memoryview(b"").cast("q")
        self.id_at = self.id_end = self.id_base = 0
        """Where in ``ids`` the next word goes, how many there is room for, and the number of the first one."""
        self.open_records: Callable[[], list[int]] = list[int]
        """Asks for the numbers of the records under way, outermost first."""

    # Records

    def more(self) -> bool:
        """Make room for records; False when there is none, and the record is lost."""
        journal = self.journal
        if journal.dead:
            return False
        with journal.lock:
            size = journal.ring.room_for(journal, self)
            if size <= 0:
                return False
            is_ring = journal.ring.is_turning
            opened = [(each, self.read(each)) for each in self.open_records()] if is_ring else []
            carried = self._carry([(each, words) for each, words in opened if words]) if is_ring else []
            chunk = journal.new_chunk(RECORDS, self.number, size, len(carried))
            for index, (number, words) in enumerate(carried):
                at = HEADER + index * COPY
                memoryview(chunk.buffer)[at : at + 8].cast("q")[0] = number
                pack_record(chunk.buffer, at + 8, *words)
            chunk.since = (self.id_base + self.id_at, journal.values.first, journal.passing.position())
            journal.begin(chunk, self.at)
            if self.chunk is not None:
                journal.home.filled(self.chunk.buffer)
            self.chunk = chunk
            self.copies = {number: HEADER + index * COPY + 8 for index, (number, _) in enumerate(carried)}
            self.renew()
            journal.ring.began(journal, self, chunk)
        return True

    def _carry(self, opened: Open) -> Open:
        carry = self.journal.carry
        return opened if carry is None else carry(self, opened)

    def renew(self) -> None:
        """Take over what the newest chunks say."""
        if self.chunk is not None:
            self.buffer = self.chunk.buffer
            self.shift = self.chunk.start - self.chunk.first * RECORD
            self.first, self.end = self.chunk.first, self.chunk.last
        if self.id_chunk is not None:
            self.ids = self.id_chunk.words(self.id_chunk.first, self.id_chunk.last)
            self.id_end = self.id_chunk.last - self.id_chunk.first

    def let_go(self) -> None:
        """Nothing more is written: neither new records nor the ends of open ones."""
        self.first, self.end, self.id_end = maxsize, 0, -1
        self.buffer, self.ids = bytearray(), memoryview(b"").cast("q")

    def read(self, at: int) -> list[int]:
        """The words of a record; none where it is not kept."""
        for chunk in self.journal.streams.of(RECORDS, self.number):
            if chunk.first <= at < min(chunk.last, self.at):
                return chunk.words(at, at + 1).tolist()
        place = self.copies.get(at)
        if place is None or self.chunk is None:
            return []
        return memoryview(self.chunk.buffer)[place : place + RECORD].cast("q").tolist()

    def close(self, at: int, result: int, outputs: int, error: int, nodes: int, end: int) -> None:
        """Complete a record, wherever it lies."""
        for buffer, place in self._places(at):
            pack_closing(buffer, place + CLOSING, result, outputs, error, nodes, end)
            self.journal.home.touched(buffer, place, RECORD)

    def set_word(self, at: int, word: int, value: int) -> None:
        """Change one word of a record."""
        for buffer, place in self._places(at):
            memoryview(buffer)[place : place + RECORD].cast("q")[word] = value
            self.journal.home.touched(buffer, place, RECORD)

    def _places(self, at: int) -> list[tuple[Any, int]]:
        """Where a record lies: in its own place, if that is kept, and where it was repeated."""
        if self.journal.dead:
            return []
        if self.first <= at < self.end:
            return [(self.buffer, at * RECORD + self.shift)]
        found = [(self.buffer, self.copies[at])] if at in self.copies else []
        for chunk in self.journal.streams.of(RECORDS, self.number):
            if chunk.first <= at < chunk.last:
                found.append((chunk.buffer, chunk.start + (at - chunk.first) * RECORD))
        return found

    # Ids

    def more_ids(self, count: int) -> bool:
        """Make room for so many ids in a row, in a new chunk."""
        journal = self.journal
        if journal.dead:
            return False
        with journal.lock:
            before = self.id_chunk
            chunk = journal.new_chunk(IDS, self.number, max(journal.next_size(IDS, self.number), count * 8))
            journal.begin(chunk)
            if before is not None:
                journal.home.filled(before.buffer)
            self.id_chunk, self.ids = chunk, chunk.words(chunk.first, chunk.last)
            self.id_at, self.id_base, self.id_end = 0, chunk.first, chunk.last - chunk.first
        return True

    def put_ids(self, first: int, free: int, found: list[int], spare: int) -> tuple[int, int]:
        """Write more ids of an event whose ids begin at ``first`` and are not counted yet; all stay side by side.

        Returns where they begin and end now, with room for ``spare`` more behind.
        """
        if free + len(found) + spare > self.id_end:
            found = self.ids[first:free].tolist() + found
            if not self.more_ids(len(found) + spare):
                return first, first
            first = free = 0
        for each in found:
            self.ids[free] = each
            free += 1
        return first, free

    def add_ids(self, ids: list[int]) -> int:
        """Append words; returns the number of the first."""
        if self.id_at + len(ids) > self.id_end and not self.more_ids(len(ids)):
            return NONE
        at = self.id_at
        for offset, each in enumerate(ids):
            self.ids[at + offset] = each
        self.id_at = at + len(ids)
        return self.id_base + at
