"""Chunks and the streams they make up: the same whether somebody writes them now or a file is read."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

from torchglass.journal.layout import (
    HEADER,
    IDS,
    KEPT,
    KEPT_ENTRY,
    MEASURED,
    MEASURED_ENTRY,
    PASSING,
    RECORD,
    RECORD_WORDS,
    RECORDS,
    ROW,
    ROWS,
    SKETCHED,
    SKETCHED_ENTRY,
    START,
    VALUE,
    VALUES,
    chunk_header,
    row_checksum,
)

COPY = RECORD + 8
"""Bytes of an open record that is repeated at the front of a chunk: its number, then the record."""
WIDTHS = {
    RECORDS: RECORD, VALUES: VALUE, ROWS: 1, PASSING: 1, IDS: 8, MEASURED: MEASURED_ENTRY, SKETCHED: SKETCHED_ENTRY,
    KEPT: KEPT_ENTRY,
}  # fmt: skip
"""Bytes of an entry; of rows a byte is one."""

Buffer = bytearray | mmap.mmap | memoryview
RawRow = tuple[int, int, bytes]
"""Kind, number and JSON of a row."""


class Chunk:
    """A piece of one stream: entries from ``first`` on, up to ``last`` at the most."""

    __slots__ = ("buffer", "copies", "first", "last", "owner", "since", "start", "stream")

    def __init__(self, buffer: Buffer, stream: int, owner: int, first: int, copies: int = 0) -> None:
        self.buffer: Any = buffer
        self.stream = stream
        self.owner = owner
        self.first = first
        self.copies = copies
        self.start = HEADER + copies * COPY
        """Where the first entry lies."""
        self.last = first + (len(buffer) - self.start) // WIDTHS[stream]
        self.since: tuple[int, int, int] = (0, 0, 0)
        """Of records: where the thread's ids, the values and the passing rows stood when the chunk was begun."""

    def begin(self) -> None:
        """Write the header; from now on a reader of the file finds the chunk."""
        head = chunk_header(self.stream, self.owner, self.first, len(self.buffer), self.copies)
        self.buffer[: len(head)] = head

    def words(self, first: int, last: int) -> memoryview:
        """The words of entries ``first`` to ``last``, which must lie within, of a stream of fixed width."""
        width = WIDTHS[self.stream]
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


def rows_in(chunk: Chunk, begin: int = 0) -> Iterator[tuple[int, RawRow]]:
    """The rows of a chunk from a place on, each with the place behind it; what is damaged is passed over."""
    buffer, at = memoryview(chunk.buffer), max(begin, chunk.start)
    while at + ROW.size <= len(buffer):
        length, checksum, kind, number = ROW.unpack_from(buffer, at)
        behind = at + ROW.size + length
        if not length or behind > len(buffer):
            return
        payload = bytes(buffer[at + ROW.size : behind])
        at = behind
        if row_checksum(kind, number, payload) == checksum:
            yield at, (kind, number, payload)


class Streams:
    """All chunks that there are of a journal, by stream and owner, in order."""

    def __init__(self) -> None:
        self.chunks: dict[tuple[int, int], list[Chunk]] = {}

    def of(self, stream: int, owner: int = 0) -> list[Chunk]:
        """The chunks of one stream; a copy, since others may be adding."""
        return list(self.chunks.get((stream, owner), ()))

    def newest(self, stream: int, owner: int = 0) -> Chunk | None:
        """The chunk that is written to now."""
        found = self.chunks.get((stream, owner))
        return found[-1] if found else None

    def add(self, chunk: Chunk) -> None:
        """Put a chunk at the end of its stream; the one before it ends where it begins, at the latest."""
        chunks = self.chunks.setdefault((chunk.stream, chunk.owner), [])
        if chunks and chunks[-1].last > chunk.first:
            chunks[-1].last = chunk.first
        chunks.append(chunk)

    def remove(self, chunk: Chunk) -> None:
        self.chunks[chunk.stream, chunk.owner].remove(chunk)

    def ids(self, thread: int, first: int, count: int) -> list[int]:
        """So many words of a thread's ids; fewer where they are not there."""
        newest = self.newest(IDS, thread)
        chunks = self.of(IDS, thread) if newest is None or first < newest.first else [newest]
        for chunk in chunks:
            if chunk.first <= first < chunk.last:
                return chunk.words(first, min(first + count, chunk.last)).tolist()
        return []
