"""Writes a journal: each thread's records and ids go into chunks of its own, rows and values into shared ones.

The hot path is not here: engines write entries straight into ``ThreadWriter.buffer`` and its like. What is here is
what they ask for seldom: the next chunk, the closing of a record that lies in an older chunk.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from sys import maxsize
from typing import Any

from torchglass.compiled import Log, slots
from torchglass.journal.homes import Buffer, Home, Memory
from torchglass.journal.layout import (
    CLOSING,
    COPY,
    HEADER,
    IDS,
    NONE,
    PASSING,
    RECORD,
    RECORDS,
    ROWS,
    WIDTHS,
    Chunk,
    pack_closing,
    pack_record,
    unpack_record,
)
from torchglass.journal.ring import OF_VALUES, Limits, Ring
from torchglass.journal.shared import LARGEST_FIRST, NumberedWriter, RowWriter, ignore

IN_FLIGHT = 0.02
"""Seconds after which a thread that was writing an entry has mostly written it …"""
MOST_IN_FLIGHT = 4096
"""… and the most ids that it had begun to write."""

Open = list[tuple[int, list[int]]]
"""Records under way: number and words, outermost first."""
Carry = Callable[["ThreadWriter", Open], Open]
"""Makes records that were opened before a chunk complete in themselves (capture/engine/forms.py)."""


EXPECTED: dict[int, int] = {}
"""What the next recording is likely to need, as the last one did (``Journal.expect``): in a loop all are alike."""
_all: list[weakref.ref[Journal]] = []
"""Not a WeakSet: that runs Python code when a journal dies, in which an exception of a signal handler would be lost."""


def _end_in_child() -> None:
    """In a forked child the chunks are still the parent's: what is open there must not be closed by us."""
    for each in _all:
        journal = each()
        if journal is not None:
            journal.end()


os.register_at_fork(after_in_child=_end_in_child)


class Journal(Ring):
    """One journal that grows: its streams, and who writes to them."""

    def __init__(
        self, home: Home | None = None, limits: Limits | None = None, expected: dict[int, int] | None = None
    ) -> None:
        super().__init__(home or Memory(), limits or Limits())
        self.expected = {} if expected is None else expected
        self.threads: list[ThreadWriter] = []
        self.rows = RowWriter(self, ROWS)
        self._numbered = [NumberedWriter(self, stream) for stream in OF_VALUES]
        self.values, self.measured, self.sketched, self.kept = self._numbered
        self.carry: Carry | None = None
        self._in_flight: list[Callable[[], bool]] = []
        """Of buffers that chunks had before: takes over what was written there; True when that was the last."""
        self._left: list[Home] = []
        """Homes in which no chunk is any more; closed when no thread can be writing there."""
        _all[:] = [*[each for each in _all if each() is not None], weakref.ref(self)]

    def expect(self) -> dict[int, int]:
        """What one like this is likely to need: by stream, the bytes of a first chunk that would have been enough."""
        if not self.threads:
            return {}
        first = self.threads[0]
        used = {RECORDS: first.at * RECORD, IDS: (first.id_base + first.id_at) * 8, ROWS: self.rows.position()}
        return {stream: min(1 << (count + count // 8).bit_length(), LARGEST_FIRST) for stream, count in used.items()}

    def end_chunks(self) -> None:
        for writer in (*self.threads, self.rows, self.passing):
            writer.end_chunk()

    # The end, and moving

    def end(self) -> None:
        """Write nothing more, here or in a forked child; what is open is closed in vain. Takes no lock."""
        self.dead = True
        for writer in (*self.threads, self.rows, self.passing, *self._numbered):
            writer.let_go()

    def let_go(self) -> None:
        """Nothing more is written, and nobody who wrote refers back to it; what there is can be read."""
        self.take_over()
        self.dead = True
        for writer in (*self.threads, self.rows, self.passing, *self._numbered):
            writer.let_go()
            writer.journal = NOWHERE
        self._close_left()
        self.threads.clear()
        self.carry, self.on_drop = None, ignore

    def close(self) -> None:
        """Nothing more is to be written or read."""
        self.end()
        self.streams.chunks.clear()
        self._leave_for_memory()
        self._close_left()

    def take_over(self) -> None:
        """Take over what threads have written, since it was moved, into buffers which they had taken before."""
        if not self.dead:  # of a forked child the chunks are the parent's
            self._in_flight = [each for each in self._in_flight if not each()]
            if not self._in_flight:
                self._close_left()

    def _leave_for_memory(self) -> None:
        self._left += [*self.former, self.home]
        self.former, self.home = [], Memory()

    def _close_left(self) -> None:
        while self._left:
            self._left.pop().close()

    def move_to(self, home: Home) -> None:
        """Go on in a file: all rows so far are copied there, and of the rest what is being written.

        OSError where there is no room for that; then nothing has changed.
        """
        with self.lock:
            self._move(home, [each for chunks in self.streams.chunks.values() for each in _wanted(chunks)])
            self.home = home

    def to_memory(self) -> None:
        """Lie in memory from now on, all of it: the file that it was in is to be closed."""
        with self.lock:
            self._move(Memory(), [each for chunks in self.streams.chunks.values() for each in chunks])
            self._leave_for_memory()
            self.take_over()

    def _move(self, home: Home, chunks: list[Chunk]) -> None:
        """Give chunks buffers of another home. The threads that are writing to them are not asked to wait."""
        try:
            buffers = [home.take(len(chunk.buffer)) for chunk in chunks]
        except BaseException:
            home.close()
            raise
        shared = {each.chunk: each for each in (self.rows, self.passing, *self._numbered)}
        self.take_over()
        for chunk, buffer in zip(chunks, buffers, strict=True):
            if chunk in shared:
                shared[chunk].move(buffer)
            elif chunk is self.streams.newest(chunk.stream, chunk.owner):
                self._in_flight.append(self.threads[chunk.owner].move(chunk, buffer))
            else:
                buffer[: len(chunk.buffer)] = chunk.buffer
                chunk.buffer = buffer
            chunk.begin()  # the buffer may be longer
            if chunk is self.streams.newest(chunk.stream, chunk.owner):
                self.ends[chunk.stream, chunk.owner] = chunk.last
        if len(self.threads) > 1:
            time.sleep(IN_FLIGHT)
            self.take_over()


NOWHERE = Journal()
"""Of writers whose journal is let go of: nothing can be written there."""
NOWHERE.end()


def _wanted(chunks: list[Chunk]) -> list[Chunk]:
    """What a file needs of a stream that was in memory so far."""
    return chunks if chunks[0].stream in (ROWS, PASSING) else chunks[-1:]


class ThreadWriter(Log):
    """The records and ids of one thread, and where the next ones go; only that thread writes to it."""

    __slots__ = slots(
        Log, "at buffer chunk copies end first id_at id_base id_chunk id_end ids journal number open_records shift"
    )

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
            journal.take_over()
            if self.chunk is not None:
                journal.filled(self.chunk)  # first: where the file takes no more, the next chunk is in memory already
            size = journal.room_for(self)
            if size <= 0:
                return False
            # What is carried is named by the chunk: it comes behind the place up to which all else may be dropped.
            since = (self.id_base + self.id_at, journal.values.first, journal.passing.position())
            carried = self._carried() if journal.is_turning else []
            chunk = journal.new_chunk(RECORDS, self.number, size, len(carried))
            for index, (number, words) in enumerate(carried):
                at = HEADER + index * COPY
                memoryview(chunk.buffer)[at : at + 8].cast("q")[0] = number
                pack_record(chunk.buffer, at + 8, *words)
            chunk.since = since
            journal.begin(chunk, self.at)
            self.copies = {number: HEADER + index * COPY + 8 for index, (number, _) in enumerate(carried)}
            self.chunk, self.buffer, self.shift = chunk, chunk.buffer, chunk.start - chunk.first * RECORD
            self.first, self.end = chunk.first, chunk.last
            journal.began(self, chunk)
        return True

    def _carried(self) -> Open:
        """The records under way, as they go to the front of the next chunk."""
        opened = [(each, words) for each in self.open_records() if (words := self.read(each))]
        carry = self.journal.carry
        return opened if carry is None else carry(self, opened)

    def end_chunk(self) -> None:
        """Have the next record begin a new chunk, and the next ids; may be said by another thread."""
        self.end, self.id_end = min(self.end, self.at), 0

    def move(self, chunk: Chunk, buffer: Buffer) -> Callable[[], bool]:
        """Go on in another buffer, with what is there so far.

        This thread may be about to write one entry into the old one. Returns what takes over that, to be called a
        little later, and again until it says that the thread has gone on.
        """
        old, count, width = chunk.buffer, len(chunk.buffer), WIDTHS[chunk.stream]
        last = chunk.first + (len(buffer) - chunk.start) // width
        if chunk is self.chunk:
            begin = self.at
            buffer[:count] = old
            self.buffer, chunk.buffer, self.end, chunk.last = buffer, buffer, last, last
            return lambda: self._is_over(chunk) or _take_over(chunk, old, (begin, begin + 1), self.at)
        words = memoryview(buffer)[chunk.start : chunk.start + (last - chunk.first) * width].cast("q")
        begin, room = self.id_base + self.id_at, last - chunk.first
        buffer[:count] = old
        self.ids, chunk.buffer, self.id_end, chunk.last = words, buffer, room, last
        entries = (begin, min(begin + MOST_IN_FLIGHT, last))
        return lambda: self._is_over(chunk) or _take_over(chunk, old, entries, self.id_base + self.id_at)

    def _is_over(self, chunk: Chunk) -> bool:
        """Whether this thread writes to another chunk by now: the memory of this one may be another's."""
        return self.journal.streams.newest(chunk.stream, chunk.owner) is not chunk

    def let_go(self) -> None:
        """Nothing more is written: neither new records nor the ends of open ones."""
        self.copies = {}
        self.first, self.end, self.id_end = maxsize, 0, -1
        self.buffer, self.ids = bytearray(), memoryview(b"").cast("q")

    def read(self, at: int) -> list[int]:
        """The words of a record, as they were last repeated; none where it is not kept."""
        place = self.copies.get(at)
        if place is None and self.first <= at < min(self.end, self.at):
            place = at * RECORD + self.shift
        if place is not None:
            return list(unpack_record(self.buffer, place))
        for chunk in self.journal.streams.of(RECORDS, self.number):
            if chunk.first <= at < min(chunk.last, self.at):
                return chunk.words(at, at + 1).tolist()
        return []

    def close(self, at: int, result: int, outputs: int, error: int, nodes: int, end: int) -> None:
        """Complete a record, wherever it lies."""
        for buffer, place in self._places(at):
            pack_closing(buffer, place + CLOSING, result, outputs, error, nodes, end)
            self.journal.touched(buffer, place, RECORD)

    def set_word(self, at: int, word: int, value: int) -> None:
        """Change one word of a record."""
        for buffer, place in self._places(at):
            memoryview(buffer)[place : place + RECORD].cast("q")[word] = value
            self.journal.touched(buffer, place, RECORD)

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
            journal.take_over()
            if self.id_chunk is not None:
                journal.filled(self.id_chunk)
            chunk = journal.new_chunk(IDS, self.number, max(journal.next_size(IDS, self.number), count * 8))
            journal.begin(chunk)
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


def _take_over(chunk: Chunk, old: Any, entries: tuple[int, int], reached: int) -> bool:
    """Copy the entries that a thread has written into the buffer which a chunk had before; True: it has gone on."""
    (first, last), width = entries, WIDTHS[chunk.stream]
    begin = chunk.start + (first - chunk.first) * width
    end = min(chunk.start + (last - chunk.first) * width, len(old), len(chunk.buffer))
    for at in range(begin, end - width + 1, width):
        entry = bytes(old[at : at + width])
        if any(entry[-8:]) and not any(chunk.buffer[at + width - 8 : at + width]):
            chunk.buffer[at : at + width] = entry
    return reached > first
