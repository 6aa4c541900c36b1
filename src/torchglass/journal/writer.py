"""Write a journal: each thread has chunks for its records and ids, and all threads share those for rows and values.

This is not the hot path: engines write entries straight into ``ThreadWriter.buffer`` and similar buffers. They call
this module for what is rare, such as getting the next chunk, or ending a record that is in an older chunk.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from sys import maxsize
from typing import Any

from torchglass.compiled import Log, slots
from torchglass.journal import forks
from torchglass.journal.backing import Backing, Buffer, Memory
from torchglass.journal.chunks import MAX_FIRST_CHUNK_BYTES, ignore
from torchglass.journal.layout import (
    CLOSING,
    COPY,
    HEADER,
    IDS,
    MADE,
    NONE,
    PASSING,
    RECORD,
    RECORDS,
    ROWS,
    WIDTHS,
    Chunk,
    Since,
    Streams,
    pack_closing,
    pack_record,
    unpack_record,
)
from torchglass.journal.packed import pack
from torchglass.journal.ring import OF_VALUES, Limits, Ring
from torchglass.journal.shared import NumberedWriter
from torchglass.system import sleep

WRITE_SECONDS = 0.02
"""Seconds to wait for a thread that was just writing an entry. It has nearly always finished by then."""
MAX_UNFINISHED_IDS = 4096
"""Number of ids, at most, that a thread may have begun to write at once."""

OpenRecords = list[tuple[int, list[int]]]
"""Records that have begun and not ended: number and words of each, outermost first."""
Completer = Callable[["ThreadWriter", OpenRecords], OpenRecords]
"""Rewrites what open records refer to, so that older chunks can be dropped (capture/engine/forms.py)."""


EXPECTED_BYTES: dict[int, int] = {}
"""How many bytes the next recording will probably need, taken from the last one (``Journal.expect``).

Recordings in a loop are mostly alike.
"""
# This is not a WeakSet: that runs Python code when a journal is freed, and if a signal handler raised an exception in
# that code, the exception would be lost.
_journals: list[weakref.ref[Journal]] = []


def _end_in_child() -> None:
    """Abandon the journals in a forked child, since their chunks and open records belong to the parent."""
    for reference in _journals:
        journal = reference()
        if journal is not None:
            journal.end()


forks.in_child(_end_in_child)


class Journal(Ring):
    """A journal that is being written: its streams and their writers."""

    def __init__(
        self,
        backing: Backing | None = None,
        limits: Limits | None = None,
        expected: dict[int, int] | None = None,
    ) -> None:
        super().__init__(backing or Memory(), limits or Limits())
        if expected is not None:
            self.expected = expected
        self.threads: list[ThreadWriter] = []
        self._numbered = [NumberedWriter(self, stream) for stream in OF_VALUES]
        self.values, self.measured, self.sketched, self.kept = self._numbered
        self.complete_records: Completer | None = None
        self._copy_rests: list[Callable[[], bool]] = []
        """Functions that copy what a thread still wrote into a buffer that its chunk had before a move.

        Each returns True when the thread uses the new buffer.
        """
        self._left_backings: list[Backing] = []
        """Backings without chunks. They are closed when no thread can be writing there any more."""
        alive = [reference for reference in _journals if reference() is not None]
        _journals[:] = [*alive, weakref.ref(self)]

    def expect(self) -> dict[int, int]:
        """Return for some streams the size of a first chunk that would have been enough, as a hint for the next one."""
        if not self.threads:
            return {}
        first = self.threads[0]
        used = {
            RECORDS: first.at * RECORD,
            IDS: (first.id_base + first.id_at) * 8,
            ROWS: self.rows.position(),
        }
        return {
            stream: min(1 << (count + count // 8).bit_length(), MAX_FIRST_CHUNK_BYTES)
            for stream, count in used.items()
        }

    def write_record_count(self) -> None:
        """Write into each file that could not grow any more how many records the journal has."""
        count = sum(thread.at for thread in self.threads)
        for backing in self.former_backings:
            backing.write_note(MADE, count)

    def end_chunks(self) -> None:
        for writer in (*self.threads, self.rows, self.passing):
            writer.end_chunk()

    # How a journal ends, and how it moves to another backing

    def end(self) -> None:
        """Stop writing, even the ends of open records. Also used in a forked child, so it takes no lock."""
        self.dead = True
        for writer in (*self.threads, self.rows, self.passing, *self._numbered):
            writer.release()

    def release(self) -> None:
        """Stop writing, and clear references to and from the writers. The content can still be read."""
        self.copy_rests()
        self.dead = True
        for writer in (*self.threads, self.rows, self.passing, *self._numbered):
            writer.release()
            writer.journal = RELEASED
        self._close_left_backings()
        self.threads.clear()
        self.complete_records = None
        self.on_drop = ignore

    def close(self) -> None:
        """Release everything. Nothing can be written or read any more."""
        self.end()
        self.streams.chunks.clear()
        self._leave_for_memory()
        self._close_left_backings()

    def copy_rests(self) -> None:
        """Copy what threads have still written into their old buffers since the journal was moved."""
        # In a forked child, a dead journal's chunks belong to the parent.
        if not self.dead:
            self._copy_rests = [copy_rest for copy_rest in self._copy_rests if not copy_rest()]
            if not self._copy_rests:
                self._close_left_backings()

    def _leave_for_memory(self) -> None:
        self._left_backings += [*self.former_backings, self.backing]
        self.former_backings = []
        self.backing = Memory()

    def _close_left_backings(self) -> None:
        while self._left_backings:
            self._left_backings.pop().close()

    def move_to(self, backing: Backing) -> None:
        """Continue in a file, with a copy of all rows and of the current chunks of the other streams.

        If there is no room for that, raise OSError and change nothing.
        """
        with self.lock:
            moved: list[Chunk] = []
            for chunks in self.streams.chunks.values():
                moved += _chunks_to_copy(chunks)
            self._move(backing, moved)
            self.backing = backing

    def packed(self) -> Streams:
        """Return a copy of everything written so far, without unused room."""
        with self.lock:
            self.copy_rests()
            self.write_drop_summaries()
            id_ends = {thread.number: thread.id_base + thread.id_at for thread in self.threads}
            return pack(self.streams, id_ends)

    def keep_only(self, packed: Streams) -> None:
        """Stop writing, keep only a packed copy in memory, and release the file."""
        with self.lock:
            self.end()
            self.streams.chunks = packed.chunks
            self._leave_for_memory()
            self._close_left_backings()

    def to_memory(self) -> None:
        """Move the whole journal into memory, since its file is about to be closed."""
        with self.lock:
            moved: list[Chunk] = []
            for chunks in self.streams.chunks.values():
                moved += chunks
            self._move(Memory(), moved)
            self._leave_for_memory()
            self.copy_rests()

    def _move(self, backing: Backing, chunks: list[Chunk]) -> None:
        """Move chunks to buffers of another backing, without making threads wait that are writing to them."""
        try:
            buffers = [backing.take(len(chunk.buffer)) for chunk in chunks]
        except BaseException:
            backing.close()
            raise
        shared_writers = {
            writer.chunk: writer for writer in (self.rows, self.passing, *self._numbered)
        }
        self.copy_rests()
        for chunk, buffer in zip(chunks, buffers, strict=True):
            if chunk in shared_writers:
                shared_writers[chunk].move(buffer)
            elif chunk is self.streams.newest(chunk.stream, chunk.owner):
                self._copy_rests.append(self.threads[chunk.owner].move(chunk, buffer))
            else:
                buffer[: len(chunk.buffer)] = chunk.buffer
                chunk.buffer = buffer
            # The header has the size of the buffer, and the new one may be longer.
            chunk.begin()
            if chunk is self.streams.newest(chunk.stream, chunk.owner):
                self.ends[chunk.stream, chunk.owner] = chunk.last
        if len(self.threads) > 1:
            sleep(WRITE_SECONDS)
            self.copy_rests()


RELEASED = Journal()
"""The journal of writers whose own journal was released. Nothing can be written to it."""
RELEASED.end()


def _chunks_to_copy(chunks: list[Chunk]) -> list[Chunk]:
    """Return the chunks of a stream that are copied when a journal in memory moves to a file."""
    if chunks[0].stream in (ROWS, PASSING):
        return chunks
    return chunks[-1:]


class ThreadWriter(Log):
    """Writes the records and ids of one thread. Only that thread uses it."""

    __slots__ = slots(
        Log,
        "at buffer chunk copies end first id_at id_base id_chunk id_end ids journal number open_records over shift",
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
        self.first = 0
        """The first number for which the newest chunk has room."""
        self.end = 0
        """The end of the numbers for which the newest chunk has room."""
        self.shift = 0
        """The offset of a record in the newest chunk is number * RECORD + shift."""
        self.copies: dict[int, int] = {}
        """The offsets of the open records that are repeated at the front of the newest chunk, by their numbers."""
        self.id_chunk: Chunk | None = None
        self.ids: memoryview = memoryview(b"").cast("q")
        """The words of the newest chunk of ids."""
        self.id_at = 0
        """The index of the next word in ``ids``."""
        self.id_end = 0
        """For how many words there is room in ``ids``."""
        self.id_base = 0
        """The number of the first word in ``ids``."""
        self.over = False
        """Whether the thread has ended."""
        self.open_records: Callable[[], list[int]] = list[int]
        """Returns the numbers of the open records, outermost first."""

    # Records

    def more(self) -> bool:
        """Make room for records. Return False if there is none, so that the next record is lost."""
        journal = self.journal
        if journal.dead:
            return False
        with journal.lock:
            journal.copy_rests()
            # This comes first: if the file cannot grow any more, the next chunk must already be in memory.
            if self.chunk is not None:
                journal.note_full(self.chunk)
            size = journal.room_for(self)
            if size <= 0:
                return False
            # This is taken before open records are rewritten: what they refer to then belongs to the new chunk.
            since = Since(
                self.id_base + self.id_at, journal.values.first, journal.passing.position()
            )
            open_records: OpenRecords = []
            if journal.is_dropping:
                open_records = self._repeated_records()
            chunk = journal.new_chunk(RECORDS, self.number, size, len(open_records))
            copies: dict[int, int] = {}
            for index, (number, words) in enumerate(open_records):
                offset = HEADER + index * COPY
                memoryview(chunk.buffer)[offset : offset + 8].cast("q")[0] = number
                pack_record(chunk.buffer, offset + 8, *words)
                copies[number] = offset + 8
            chunk.since = since
            journal.begin(chunk, self.at)
            self.copies = copies
            self.chunk = chunk
            self.buffer = chunk.buffer
            self.shift = chunk.start - chunk.first * RECORD
            self.first = chunk.first
            self.end = chunk.last
            journal.began(self, chunk)
        return True

    def _repeated_records(self) -> OpenRecords:
        """Return the open records, which are repeated at the front of the next chunk."""
        records: OpenRecords = []
        for number in self.open_records():
            words = self.read(number)
            if words:
                records.append((number, words))
        complete_records = self.journal.complete_records
        if complete_records is None:
            return records
        return complete_records(self, records)

    def end_chunk(self) -> None:
        """Make the next record and the next ids begin new chunks. Other threads may call this."""
        self.end = min(self.end, self.at)
        self.id_end = 0

    def shrink(self) -> None:
        """Free the unused room of chunks in memory, since the thread has ended and there may be thousands of them."""
        self.over = True
        self.journal.copy_rests()
        if self.chunk is not None and isinstance(self.chunk.buffer, bytearray):
            _shorten(self.chunk, self.at)
            self.buffer = self.chunk.buffer
        if self.id_chunk is not None and isinstance(self.id_chunk.buffer, bytearray):
            _shorten(self.id_chunk, self.id_base + self.id_at)
            self.ids = self.id_chunk.words(self.id_chunk.first, self.id_chunk.last)

    def move(self, chunk: Chunk, buffer: Buffer) -> Callable[[], bool]:
        """Continue in another buffer, with a copy of what was written so far.

        The thread may be writing one more entry into the old buffer. Return a function that copies that entry. It must
        be called a little later, and again until it returns True: then the thread uses the new buffer.
        """
        old = chunk.buffer
        count = len(chunk.buffer)
        width = WIDTHS[chunk.stream]
        last = chunk.first + (len(buffer) - chunk.start) // width
        if chunk is self.chunk:
            begin = self.at
            buffer[:count] = old
            self.buffer = buffer
            chunk.buffer = buffer
            self.end = last
            chunk.last = last
            return lambda: (
                self._has_left(chunk) or _copy_rest(chunk, old, begin, begin + 1, self.at)
            )
        words = memoryview(buffer)[chunk.start : chunk.start + (last - chunk.first) * width].cast(
            "q"
        )
        begin = self.id_base + self.id_at
        room = last - chunk.first
        buffer[:count] = old
        self.ids = words
        chunk.buffer = buffer
        self.id_end = room
        chunk.last = last
        end = min(begin + MAX_UNFINISHED_IDS, last)
        return lambda: (
            self._has_left(chunk) or _copy_rest(chunk, old, begin, end, self.id_base + self.id_at)
        )

    def _has_left(self, chunk: Chunk) -> bool:
        """Return whether this thread now writes to another chunk. The memory of this one may be in use for others."""
        return self.journal.streams.newest(chunk.stream, chunk.owner) is not chunk

    def release(self) -> None:
        """Write neither new records nor the ends of open ones any more."""
        self.copies = {}
        self.first = maxsize
        self.end = 0
        self.id_end = -1
        self.buffer = bytearray()
        self.ids = memoryview(b"").cast("q")

    def read(self, at: int) -> list[int]:
        """Return the words of a record from its last repetition, or an empty list if it was not kept."""
        offset = self.copies.get(at)
        if offset is None and self.first <= at < min(self.end, self.at):
            offset = at * RECORD + self.shift
        if offset is not None:
            return list(unpack_record(self.buffer, offset))
        for chunk in self.journal.streams.of(RECORDS, self.number):
            if chunk.first <= at < min(chunk.last, self.at):
                return chunk.words(at, at + 1).tolist()
        return []

    def close(self, at: int, result: int, outputs: int, error: int, nodes: int, end: int) -> None:
        """Write the closing words of a record, in whatever chunks it is."""
        for buffer, offset in self._locations(at):
            pack_closing(buffer, offset + CLOSING, result, outputs, error, nodes, end)
            self.journal.note_change(buffer, offset, RECORD)

    def set_word(self, at: int, word: int, value: int) -> None:
        """Change one word of a record."""
        for buffer, offset in self._locations(at):
            memoryview(buffer)[offset : offset + RECORD].cast("q")[word] = value
            self.journal.note_change(buffer, offset, RECORD)

    def _locations(self, at: int) -> list[tuple[Any, int]]:
        """Return the buffers and offsets of a record: its original, if that was kept, and its repetition."""
        if self.journal.dead:
            return []
        if self.first <= at < self.end:
            return [(self.buffer, at * RECORD + self.shift)]
        locations: list[tuple[Any, int]] = []
        if at in self.copies:
            locations.append((self.buffer, self.copies[at]))
        for chunk in self.journal.streams.of(RECORDS, self.number):
            if chunk.first <= at < chunk.last:
                locations.append((chunk.buffer, chunk.start + (at - chunk.first) * RECORD))
        return locations

    # Ids

    def more_ids(self, count: int) -> bool:
        """Make room for this many consecutive ids, in a new chunk."""
        journal = self.journal
        if journal.dead:
            return False
        with journal.lock:
            journal.copy_rests()
            if self.id_chunk is not None:
                journal.note_full(self.id_chunk)
            size = max(journal.next_size(IDS, self.number), count * 8)
            chunk = journal.new_chunk(IDS, self.number, size)
            journal.begin(chunk)
            self.id_chunk = chunk
            self.ids = chunk.words(chunk.first, chunk.last)
            self.id_at = 0
            self.id_base = chunk.first
            self.id_end = chunk.last - chunk.first
        return True

    def put_ids(self, first: int, free: int, words: list[int], spare: int) -> tuple[int, int]:
        """Write more ids of an event whose ids so far are at indices ``first`` to ``free``, and not counted yet.

        The ids of an event are consecutive, so all of them may move to a new chunk. Return the indices of their
        beginning and their end. There is room for ``spare`` more after them.
        """
        if free + len(words) + spare > self.id_end:
            words = self.ids[first:free].tolist() + words
            if not self.more_ids(len(words) + spare):
                return first, first
            first = 0
            free = 0
        for word in words:
            self.ids[free] = word
            free += 1
        return first, free

    def add_ids(self, ids: list[int]) -> int:
        """Append words, and return the number of the first, or NONE if there is no room."""
        if self.id_at + len(ids) > self.id_end and not self.more_ids(len(ids)):
            return NONE
        begin = self.id_at
        for offset, word in enumerate(ids):
            self.ids[begin + offset] = word
        self.id_at = begin + len(ids)
        return self.id_base + begin


def _shorten(chunk: Chunk, end: int) -> None:
    """Cut a chunk off before the entry with number ``end``."""
    size = chunk.start + (end - chunk.first) * WIDTHS[chunk.stream]
    chunk.last = end
    chunk.buffer = chunk.buffer[:size]
    chunk.begin()


def _copy_rest(chunk: Chunk, old_buffer: Any, first: int, last: int, reached: int) -> bool:
    """Copy entries ``first`` to ``last`` that a thread still wrote into the old buffer of a chunk.

    Return whether the thread now uses the new buffer: it has ``reached`` a number after ``first``.
    """
    width = WIDTHS[chunk.stream]
    begin = chunk.start + (first - chunk.first) * width
    end = chunk.start + (last - chunk.first) * width
    end = min(end, len(old_buffer), len(chunk.buffer))
    for offset in range(begin, end - width + 1, width):
        # The last word of an entry is written last, and is never 0.
        entry = bytes(old_buffer[offset : offset + width])
        is_written = any(entry[-8:])
        is_copied = any(chunk.buffer[offset + width - 8 : offset + width])
        if is_written and not is_copied:
            chunk.buffer[offset : offset + width] = entry
    return reached > first
