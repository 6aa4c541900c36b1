"""Define the layout of a journal to the byte: its chunks, records, values and rows.

A journal is a set of *streams*. A stream is a list of *chunks*, and each chunk has a header. Six streams have entries
of fixed width (64-bit words in the machine's byte order). The other two have rows with a length and a checksum::

    RECORDS   one for each thread   events: RECORD_WORDS words, written when an event begins, completed when it ends
    IDS       one for each thread   the inputs and outputs of events: one word for each value (number and metadata)
    VALUES    one                   VALUE_WORDS words for each value, in the order of the values' numbers
    ROWS      one                   rows, each written once and then referred to by its number
    PASSING   one                   rows that grow without end and may be dropped: argument forms, errors
    MEASURED  one                   the statistics of values: MEASURED_WORDS words, at the index of the value's number
    SKETCHED  one                   the fingerprints of values: SKETCHED_WORDS words, at the index of the value's number
    KEPT      one                   where copies of values are: KEPT_WORDS words, at the index of the value's number

Numbers count from the beginning of a stream and never change their meaning, even if chunks have been dropped. An entry
is valid if its last word is not 0, and a row if its checksum is right. Both are written last. In a record without END,
the closing words may be half written, so they mean nothing.
"""

from __future__ import annotations

import mmap
import struct
import sys
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

FORMAT = 1
MAGIC = b"torchglass journal\n"
PAGE = 4096
"""Sizes and positions of chunks in a file are multiples of this. The first page says what the file is."""
CHUNK_MAGIC = b"tg-chunk"
HEADER = 64
"""Bytes before the first entry of a chunk."""

RECORDS, IDS, VALUES, ROWS, PASSING, MEASURED, SKETCHED, KEPT = 1, 2, 3, 4, 5, 6, 7, 8

# ---------------------------------------------------------------- records

WHAT, PARENT, STACK, ARGS, INPUTS, CALL, RESULT, OUTPUTS, ERROR, NODES, END, START = range(12)
"""The words of a record::

    WHAT             the callee: a row of kind WHAT_ROW, or -2 - the row of a module
    PARENT           the number of the record in which it happened
    STACK            a row
    ARGS             a row: the form of the arguments
    INPUTS           the number of its first input in the thread's IDS
    CALL             for a variable: the number of the Python call that it belongs to
                     for all others: -2 - the sequence number of the thread's next autograd node at the start
    RESULT           a row: the form of the result
    OUTPUTS          the number of its first output in the thread's IDS
    ERROR            a row
    NODES            lower NODE_BITS bits: those bits of the sequence number of the next autograd node at the end
                     bits above: in backward, 1 + the sequence number of the node that was being run
    END, START       nanoseconds
"""
NODE_BITS = 16
NODE_MASK = (1 << NODE_BITS) - 1
MOST_NODES = 1 << 44
"""Sequence numbers from here on belong to nodes that no forward call made: those that accumulate gradients."""
RECORD_WORDS = 12
RECORD = RECORD_WORDS * 8
"""Bytes of a record."""
NONE = -1
"""Stands in any word for a value that is missing, or not known yet."""
_RECORD = struct.Struct(f"={RECORD_WORDS}q")
pack_record, unpack_record = _RECORD.pack_into, _RECORD.unpack_from
unpack_word = struct.Struct("=q").unpack_from
pack_closing = struct.Struct("=5q").pack_into
"""RESULT, OUTPUTS, ERROR, NODES and, as the last one, END."""
CLOSING = RESULT * 8
"""The offset in a record, in bytes, of the words that are written when the event ends."""

# ---------------------------------------------------------------- values

VALUE_WORDS = 4
VALUE = VALUE_WORDS * 8
VERSION, ADDRESS, BEFORE, META_AND_1 = range(4)
"""The words of a value::

    VERSION      the version counter of the tensor
    ADDRESS      the address of its storage, or 0 if it has none
    BEFORE       the number of the value that the same tensor had before a change,
                 or -2 - the number of an array in whose memory the tensor is
    META_AND_1   1 + the row of its metadata, so that this last word is never 0
"""
pack_value = struct.Struct("=4q").pack_into
NUMBER_BITS = 40
NUMBER_MASK = (1 << NUMBER_BITS) - 1
"""The bits of an id that are the number of a value. The bits above are the row of its metadata.

So the shape of a value is known even if the entry of the value was dropped.
"""

# ---------------------------------------------------------------- statistics and copies of values

MEASURED_WORDS = 11
MEASURED_ENTRY = MEASURED_WORDS * 8
COUNTS = 5
"""The number of counts at the beginning of the statistics of a value.

These are counts of all elements, NaN, +Inf, -Inf and zeros. Five doubles over the finite elements follow: minimum,
maximum, mean, standard deviation and norm. The last word says how they were measured, and is never 0.
"""
BY_NUMPY, BY_COMPILED, BY_DEVICE, BY_KERNEL = 1, 2, 3, 4
"""How a value was measured: by numpy, by the compiled engine, by torch on its device, or there by our kernel."""
pack_measured = struct.Struct("=5q5dq").pack_into
Numbers = tuple[int, int, int, int, int, float, float, float, float, float]
"""The five counts and five doubles of a value's statistics."""

SKETCHED_WORDS = 27
SKETCHED_ENTRY = SKETCHED_WORDS * 8
WITH_OTHER_HASH, SKETCHED_NOW = 1, 2
IS_SKETCHED = struct.pack("=q", SKETCHED_NOW)
"""The last word of a fingerprint, as bytes: the version of its hash, which is 1 in journals of earlier versions.

The words before it are what events.types.SKETCH packs: a hash, 17 sums by the flat order, 17 by the axes, 7 in any
order, and the count of elements that were not summed.
"""

KEPT_WORDS = 4
KEPT_ENTRY = KEPT_WORDS * 8
pack_kept = struct.Struct("=4q").pack_into
"""Write the entry of a copy: its offset, its length in bytes, the offset of the value's first element in it, its place.

The place is never 0. A positive place names a shard in the folder of a recording, a negative one a piece of memory.
Values that share memory share a copy. Their shape, strides and dtype are in their metadata.
"""
RECORDING_SHIFT = 20
"""Number of bits for the shard in a place. The bits above are 1 + the number of the recording."""


def shard_place(recording: int, shard: int) -> int:
    """Return the number by which KEPT names a shard in the folder of a recording."""
    return (recording + 1) << RECORDING_SHIFT | shard


def read_place(place: int) -> tuple[int, int]:
    """Return the numbers of a recording and a shard, or NONE and the number of a piece of memory."""
    if place < 0:
        return NONE, -1 - place
    return (place >> RECORDING_SHIFT) - 1, place & (1 << RECORDING_SHIFT) - 1


# ---------------------------------------------------------------- rows

ROW = struct.Struct("=IIIq")
"""The header of a row: length, checksum, kind and number. The length counts the bytes of JSON that follow."""
(
    JOURNAL, RECORDING, WINDOW, ENDED, THREAD, CODE, STACK_ROW, FORM, META, WHAT_ROW, CLASS, MODULE, DESCRIBED,
    ERROR_ROW, NOTE, FAULT, BACKWARD, SOURCE, SAVED, PLACE, CALL_NAMES, ONLY,
    DROPPED, SERIES, ROUND,
) = range(1, 26)  # fmt: skip
"""The kinds of rows. Their fields are in journal/rows.py."""


_ROW_NAME = struct.Struct("=Iq")


def row_checksum(kind: int, number: int, payload: bytes) -> int:
    """Return the checksum of a row, by which a reader knows that all of it was written."""
    return zlib.crc32(payload, zlib.crc32(_ROW_NAME.pack(kind, number)))


# ---------------------------------------------------------------- chunks

_CHECKSUM = struct.Struct("=I")
_CHUNK = struct.Struct("=8sIIqqI")


class ChunkHeader(NamedTuple):
    """The header of a chunk."""

    stream: int
    owner: int
    """The number of the thread that the stream belongs to, or 0."""
    first: int
    """The number of the first entry."""
    size: int
    """Bytes of the chunk, with the header."""
    copies: int
    """The number of open records that are repeated at the front."""


def chunk_header(stream: int, owner: int, first: int, size: int, copies: int = 0) -> bytes:
    """Return the first bytes of a chunk."""
    head = _CHUNK.pack(CHUNK_MAGIC, stream, owner, first, size, copies)
    return head + _CHECKSUM.pack(zlib.crc32(head))


def read_chunk_header(head: bytes | memoryview) -> ChunkHeader | None:
    """Return the header of a chunk, or None if no chunk begins here."""
    head = bytes(head[: _CHUNK.size + _CHECKSUM.size])
    if len(head) < _CHUNK.size + _CHECKSUM.size:
        return None
    (checksum,) = _CHECKSUM.unpack_from(head, _CHUNK.size)
    if checksum != zlib.crc32(head[: _CHUNK.size]):
        return None
    magic, *fields = _CHUNK.unpack_from(head)
    if magic == CHUNK_MAGIC:
        return ChunkHeader(*fields)
    return None


def file_header(process: int, notes: dict[str, int]) -> bytes:
    """Return the first page of a journal's file. ``notes`` may have the entries STOPPED and MADE."""
    lines = [f"format {FORMAT}", f"byte order {sys.byteorder}", f"process {process}"]
    lines += [f"{word} {number}" for word, number in notes.items()]
    return (MAGIC + "".join(f"{line}\n" for line in lines).encode()).ljust(PAGE, b"\0")


STOPPED = "stopped"
"""The note in a file that could not grow any more. Its value is the errno of the reason, or 0 for any other reason."""
MADE = "records"
"""The note in such a file that says how many records the journal had in the end. It is missing if that is not known."""


# ---------------------------------------------------------------- chunks in memory, of a recording or read from a file

COPY = RECORD + 8
"""Bytes of an open record that is repeated at the front of a chunk: first its number, then the record."""
WIDTHS = {
    RECORDS: RECORD, VALUES: VALUE, ROWS: 1, PASSING: 1, IDS: 8, MEASURED: MEASURED_ENTRY, SKETCHED: SKETCHED_ENTRY,
    KEPT: KEPT_ENTRY,
}  # fmt: skip
"""Bytes of an entry. In streams of rows each byte counts as an entry."""

Buffer = bytearray | mmap.mmap | memoryview
RawRow = tuple[int, int, bytes]
"""Kind, number and JSON of a row."""


class Since(NamedTuple):
    """The next numbers of other streams when a chunk of records begins. Its records refer to nothing before them."""

    id: int = 0
    value: int = 0
    passing: int = 0


class Chunk:
    """A piece of one stream, with room for the entries from ``first`` on up to but without ``last``."""

    __slots__ = ("buffer", "copies", "first", "last", "owner", "since", "start", "stream")

    def __init__(
        self, buffer: Buffer, stream: int, owner: int, first: int, copies: int = 0
    ) -> None:
        self.buffer: Any = buffer
        self.stream = stream
        self.owner = owner
        self.first = first
        self.copies = copies
        self.start = HEADER + copies * COPY
        """The offset of the first entry in the buffer."""
        self.last = first + (len(buffer) - self.start) // WIDTHS[stream]
        self.since = Since()

    def begin(self) -> None:
        """Write the header. From now on a reader of the file finds the chunk."""
        head = chunk_header(self.stream, self.owner, self.first, len(self.buffer), self.copies)
        self.buffer[: len(head)] = head

    def words(self, first: int, last: int) -> memoryview:
        """Return the words of the entries from ``first`` up to but without ``last``, which must be in this chunk."""
        width = WIDTHS[self.stream]
        begin = self.start + (first - self.first) * width
        end = self.start + (last - self.first) * width
        return memoryview(self.buffer)[begin:end].cast("q")

    def written(self) -> int:
        """Return the number after the last record that was written."""
        starts = self.words(self.first, self.last)[START::RECORD_WORDS].tolist()
        if 0 in starts:
            return self.first + starts.index(0)
        return self.last

    def copied(self) -> Iterator[tuple[int, list[int]]]:
        """Yield the numbers and words of the records that are repeated at the front."""
        for index in range(self.copies):
            begin = HEADER + index * COPY
            words = memoryview(self.buffer)[begin : begin + COPY].cast("q").tolist()
            yield words[0], words[1:]


def rows_in(chunk: Chunk, begin: int = 0) -> Iterator[tuple[int, RawRow]]:
    """Yield the rows of a chunk from an offset on, each with the offset of its end. Skip damaged rows."""
    buffer = memoryview(chunk.buffer)
    offset = max(begin, chunk.start)
    while offset + ROW.size <= len(buffer):
        length, checksum, kind, number = ROW.unpack_from(buffer, offset)
        end = offset + ROW.size + length
        if not length or end > len(buffer):
            return
        payload = bytes(buffer[offset + ROW.size : end])
        offset = end
        if row_checksum(kind, number, payload) == checksum:
            yield offset, (kind, number, payload)


class Streams:
    """All chunks of a journal, by stream and owner, in order."""

    def __init__(self) -> None:
        self.chunks: dict[tuple[int, int], list[Chunk]] = {}
        self.notes: dict[str, int] = {}
        """The notes in the header of the file: STOPPED and MADE."""

    def of(self, stream: int, owner: int = 0) -> list[Chunk]:
        """Return a copy of the list of chunks of one stream, since other threads may be adding to it."""
        return list(self.chunks.get((stream, owner), ()))

    def newest(self, stream: int, owner: int = 0) -> Chunk | None:
        """Return the chunk that is being written to, or None if the stream has no chunk yet."""
        chunks = self.chunks.get((stream, owner))
        if chunks:
            return chunks[-1]
        return None

    def add(self, chunk: Chunk) -> None:
        """Append a chunk to its stream. The chunk before it ends at the latest where this one begins."""
        chunks = self.chunks.setdefault((chunk.stream, chunk.owner), [])
        if chunks and chunks[-1].last > chunk.first:
            chunks[-1].last = chunk.first
        chunks.append(chunk)

    def remove(self, chunk: Chunk) -> None:
        self.chunks[chunk.stream, chunk.owner].remove(chunk)

    def ids(self, thread: int, first: int, count: int) -> list[int]:
        """Return this many words of a thread's ids, or fewer if some are missing."""
        newest = self.newest(IDS, thread)
        if newest is None or first < newest.first:
            chunks = self.of(IDS, thread)
        else:
            chunks = [newest]
        for chunk in chunks:
            if chunk.first <= first < chunk.last:
                return chunk.words(first, min(first + count, chunk.last)).tolist()
        return []
