"""Chunks and the streams they make up: the same whether somebody writes them now or a file is read."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

from torchglass.journal.layout import (
    HEADER,
    PASSING,
    RECORD,
    RECORD_WORDS,
    RECORDS,
    ROW,
    ROWS,
    START,
    VALUE,
    VALUES,
    chunk_header,
    row_checksum,
)

COPY = RECORD + 8
"""Bytes of an open record that is repeated at the front of a chunk: its number, then the record."""
WIDTHS = {RECORDS: RECORD, VALUES: VALUE}
"""Bytes of an entry; of all other streams a word, or the single byte of a row."""

RawRow = tuple[int, int, bytes]
"""Kind, number and JSON of a row."""


class Chunk:
    """A piece of one stream: entries from ``first`` on, up to ``last`` at the most."""

    __slots__ = ("buffer", "copies", "first", "last", "owner", "since", "start", "stream")

    def __init__(
        self, buffer: bytearray | mmap.mmap | memoryview, stream: int, owner: int, first: int, copies: int = 0
    ) -> None:
        self.buffer: Any = buffer
        self.stream = stream
        self.owner = owner
        self.first = first
        self.copies = copies
        self.start = HEADER + copies * COPY
        """Where the first entry lies."""
        self.last = first + (len(buffer) - self.start) // width_of(stream)
        self.since: tuple[int, int, int] = (0, 0, 0)
        """Of records: where the thread's ids, the values and the passing rows stood when the chunk was begun."""

    def begin(self) -> None:
        """Write the header; from now on a reader of the file finds the chunk."""
        head = chunk_header(self.stream, self.owner, self.first, len(self.buffer), self.copies)
        self.buffer[: len(head)] = head

    def words(self, first: int, last: int) -> memoryview:
        """The words of entries ``first`` to ``last``, which must lie within, of a stream of fixed width."""
        width = width_of(self.stream)
        begin, end = self.start + (first - self.first) * width, self.start + (last - self.first) * width
        return memoryview(self.buffer)[begin:end].cast("q")

    def written(self) -> int:
        """Behind the last entry that is there; of a stream of records."""
        starts = self.words(self.first, self.last)[START::RECORD_WORDS].tolist()
        return self.first + (starts.index(0) if 0 in starts else len(starts))

    def copied(self) -> Iterator[tuple[int, list[int]]]:
        """The numbers and words of the records that are repeated at the front."""
        for index in range(self.copies):
            at = HEADER + index * COPY
            words = memoryview(self.buffer)[at : at + COPY].cast("q").tolist()
            yield words[0], words[1:]


def width_of(stream: int) -> int:
    """Bytes of one entry."""
    return WIDTHS.get(stream) or (1 if stream in (ROWS, PASSING) else 8)


def rows_in(chunk: Chunk, begin: int = 0) -> Iterator[tuple[int, int, RawRow | None]]:
    """The rows of a chunk from a place on: where each begins and ends, and the row; None where it is not whole.

    Its length is written first: another thread may still be at it, or the process died just then. Rows behind are
    there all the same.
    """
    buffer, at = memoryview(chunk.buffer), max(begin, chunk.start)
    while at + ROW.size <= len(buffer):
        length, checksum, kind, number = ROW.unpack_from(buffer, at)
        behind = at + ROW.size + length
        if not length or behind > len(buffer):
            return
        payload = bytes(buffer[at + ROW.size : behind])
        is_whole = row_checksum(kind, number, payload) == checksum
        yield at, behind, (kind, number, payload) if is_whole else None
        at = behind


class Streams:
    """All chunks that there are of a journal, by stream and owner, in order."""

    def __init__(self) -> None:
        self.chunks: dict[tuple[int, int], list[Chunk]] = {}

    def of(self, stream: int, owner: int = 0) -> list[Chunk]:
        """The chunks of one stream; a copy, since others may be adding."""
        return list(self.chunks.get((stream, owner), ()))

    def add(self, chunk: Chunk) -> None:
        self.chunks.setdefault((chunk.stream, chunk.owner), []).append(chunk)

    def remove(self, chunk: Chunk) -> None:
        self.chunks[chunk.stream, chunk.owner].remove(chunk)

    def ids(self, thread: int, first: int, count: int) -> list[int]:
        """So many words of a thread's ids; fewer where they are not there."""
        for chunk in self.of_ids(thread):
            if chunk.first <= first < chunk.last:
                return chunk.words(first, min(first + count, chunk.last)).tolist()
        return []

    def of_ids(self, thread: int) -> list[Chunk]:
        from torchglass.journal.layout import IDS

        return self.chunks.get((IDS, thread), [])
