"""The layout of a journal: chunks, records, values and rows, each byte of them.

A journal is a set of *streams*; a stream is a list of *chunks*, each with a header of its own. Four streams have
entries of fixed width (64-bit words in the machine's own byte order), two have rows with a length and a checksum::

    RECORDS   one a thread   an event: RECORD_WORDS words, written when it opens, completed when it closes
    IDS       one a thread   what events took and gave: one word a value (its number and its metadata)
    VALUES    one            VALUE_WORDS words a value, in the order of their numbers
    ROWS      one            all that is written once and then only referred to by number
    PASSING   one            the same for what a program makes without end: forms and errors
    MEASURED  one            what was in a value: MEASURED_WORDS words, in place of its number
    SKETCHED  one            by what its numbers are known again: SKETCHED_WORDS words, likewise
    KEPT      one            where a copy of its numbers lies: KEPT_WORDS words, likewise

Numbers count from the beginning of a stream and never change their meaning, also when chunks between have been
dropped. An entry is there when its last word is not 0, a row when its checksum is right: both are written last. Of a
record that has no END the words before it say nothing: they may be half written.
"""

from __future__ import annotations

import mmap
import struct
import sys
import zlib
from collections.abc import Iterator
from typing import Any

FORMAT = 1
MAGIC = b"torchglass journal\n"
PAGE = 4096
"""What the size and place of a chunk in a file are multiples of; the first page says what the file is."""
CHUNK_MAGIC = b"tg-chunk"
HEADER = 64
"""Bytes before the first entry of a chunk."""

RECORDS, IDS, VALUES, ROWS, PASSING, MEASURED, SKETCHED, KEPT = 1, 2, 3, 4, 5, 6, 7, 8

# ---------------------------------------------------------------- records

WHAT, PARENT, STACK, ARGS, INPUTS, CALL, RESULT, OUTPUTS, ERROR, NODES, END, START = range(12)
"""The words of a record.

WHAT: what was called: a row of WHAT, or -2 - the row of a module. PARENT: the number of the record in whose course it
happened. STACK, ARGS, RESULT, ERROR: rows. INPUTS, OUTPUTS: where in the thread's IDS its values begin. CALL: the
number of the Python call that it belongs to, of a variable; of all else -2 - the number that the thread's next autograd
node had when it opened. NODES: the lower NODE_BITS bits of that number when it closed, and above them the number + 1 of
the node that was being run, in backward. START and END: nanoseconds.
"""
NODE_BITS = 16
NODE_MASK = (1 << NODE_BITS) - 1
MOST_NODES = 1 << 44
"""Numbers from here on are of nodes that no forward step made: those that accumulate gradients."""
RECORD_WORDS = 12
RECORD = RECORD_WORDS * 8
NONE = -1
"""In any word: nothing there (yet)."""
_RECORD = struct.Struct(f"={RECORD_WORDS}q")
pack_record, unpack_record = _RECORD.pack_into, _RECORD.unpack_from
unpack_word = struct.Struct("=q").unpack_from
pack_closing = struct.Struct("=5q").pack_into
"""RESULT, OUTPUTS, ERROR, NODES and, as the last one, END."""
CLOSING = RESULT * 8
"""Where in a record the closing words begin."""

# ---------------------------------------------------------------- values

VALUE_WORDS = 4
VALUE = VALUE_WORDS * 8
VERSION, ADDRESS, BEFORE, META_AND_1 = range(4)
"""The words of a value; the last one is the row of its metadata + 1, so that it is never 0.

ADDRESS: of the storage, 0 for none. BEFORE: the number of the value that the same tensor was before a change;
-2 - the number of an array in whose memory it lies."""
pack_value = struct.Struct("=4q").pack_into
NUMBER_BITS = 40
NUMBER_MASK = (1 << NUMBER_BITS) - 1
"""A value is written as its number with the row of its metadata above: so its shape is known without its own entry."""

# ---------------------------------------------------------------- what was in a value

MEASURED_WORDS = 11
MEASURED_ENTRY = MEASURED_WORDS * 8
COUNTS = 5
"""Five whole numbers (all, NaN, +Inf, -Inf, zeros), five doubles (minimum, maximum, mean, standard deviation, norm of
what is finite), and last how it was measured, which is never 0."""
BY_NUMPY, BY_COMPILED, BY_DEVICE, BY_KERNEL = 1, 2, 3, 4
"""How: by numpy, by the compiled engine, by torch on the device where the tensor lies, there by a kernel of ours."""
pack_measured = struct.Struct("=5q5dq").pack_into
Numbers = tuple[int, int, int, int, int, float, float, float, float, float]
"""All but how."""

SKETCHED_WORDS = 27
SKETCHED_ENTRY = SKETCHED_WORDS * 8
WITH_OTHER_HASH, SKETCHED_NOW = 1, 2
IS_SKETCHED = struct.pack("=q", SKETCHED_NOW)
"""An entry is what events.types.SKETCH packs (a hash, 17 sums by the flat order, 17 by the axes, 7 in any order, and
how many numbers were not summed), and behind it this word; in journals of earlier versions, with their hash, 1."""

KEPT_WORDS = 4
KEPT_ENTRY = KEPT_WORDS * 8
pack_kept = struct.Struct("=4q").pack_into
"""Where the copy begins, how many bytes it has, how many of them are before the value's first element, and the place,
which is never 0: a shard of a recording's folder, or below 0 a piece of memory. Values that share memory share a copy;
shape, strides and dtype are those of their metadata."""
RECORDING_SHIFT = 20


def shard_place(recording: int, shard: int) -> int:
    """A shard in the folder of a recording, as KEPT names it."""
    return (recording + 1) << RECORDING_SHIFT | shard


def read_place(place: int) -> tuple[int, int]:
    """Recording and shard; for a piece of memory NONE and its number."""
    if place < 0:
        return NONE, -1 - place
    return (place >> RECORDING_SHIFT) - 1, place & (1 << RECORDING_SHIFT) - 1


# ---------------------------------------------------------------- rows

ROW = struct.Struct("=IIIq")
"""Length, checksum, kind and number; then as many bytes of JSON as the length says."""
(
    JOURNAL, RECORDING, WINDOW, ENDED, THREAD, CODE, STACK_ROW, FORM, META, WHAT_ROW, CLASS, MODULE, DESCRIBED,
    ERROR_ROW, NOTE, FAULT, BACKWARD, SOURCE, SAVED,
) = range(1, 20)  # fmt: skip
"""The kinds of rows; journal/rows.py says what each holds."""


_ROW_NAME = struct.Struct("=Iq")


def row_checksum(kind: int, number: int, payload: bytes) -> int:
    """What tells a row that was written from one that was not, or not wholly."""
    return zlib.crc32(payload, zlib.crc32(_ROW_NAME.pack(kind, number)))


# ---------------------------------------------------------------- chunks

_CHECKSUM = struct.Struct("=I")
_CHUNK = struct.Struct("=8sIIqqI")
"""Magic, stream, owner (a thread's number, else 0), number of the first entry, bytes in all, copies at the front."""


def chunk_header(stream: int, owner: int, first: int, size: int, copies: int = 0) -> bytes:
    """The first bytes of a chunk."""
    head = _CHUNK.pack(CHUNK_MAGIC, stream, owner, first, size, copies)
    return head + _CHECKSUM.pack(zlib.crc32(head))


def read_chunk_header(head: bytes | memoryview) -> tuple[int, int, int, int, int] | None:
    """(stream, owner, first, size, copies); None where no chunk begins."""
    head = bytes(head[: _CHUNK.size + 4])
    if len(head) < _CHUNK.size + 4 or struct.unpack_from("=I", head, _CHUNK.size)[0] != zlib.crc32(head[: _CHUNK.size]):
        return None
    magic, stream, owner, first, size, copies = _CHUNK.unpack_from(head)
    return (stream, owner, first, size, copies) if magic == CHUNK_MAGIC else None


def file_header(process: int) -> bytes:
    """The first page of a journal's file."""
    text = MAGIC + f"format {FORMAT}\nbyte order {sys.byteorder}\nprocess {process}\n".encode()
    return text.ljust(PAGE, b"\0")


# ---------------------------------------------------------------- chunks in memory
#
# The same whether somebody writes them now or a file is read.

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
