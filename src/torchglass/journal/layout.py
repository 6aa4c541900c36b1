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

import struct
import sys
import zlib

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
pack_record = struct.Struct(f"={RECORD_WORDS}q").pack_into
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
ROW_SIZE, pack_row = ROW.size, ROW.pack_into
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

_CHUNK = struct.Struct("=8sIIqqI")
"""Magic, stream, owner (a thread's number, else 0), number of the first entry, bytes in all, copies at the front."""


def chunk_header(stream: int, owner: int, first: int, size: int, copies: int = 0) -> bytes:
    """The first bytes of a chunk."""
    head = _CHUNK.pack(CHUNK_MAGIC, stream, owner, first, size, copies)
    return head + struct.pack("=I", zlib.crc32(head))


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
