"""Reads the file of a journal, of a living process or of a dead one, and trusts nothing in it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator

from torchglass.journal.layout import (
    COPY,
    FORMAT,
    HEADER,
    IDS,
    KEPT,
    MAGIC,
    MEASURED,
    PAGE,
    PASSING,
    RECORDS,
    ROWS,
    SKETCHED,
    VALUES,
    Chunk,
    Streams,
    read_chunk_header,
)

ORDER = ((RECORDS,), (IDS,), (KEPT,), (SKETCHED,), (MEASURED,), (VALUES,), (ROWS, PASSING))
"""What names something is read before what is named: the process may be writing."""


class BadJournal(ValueError):
    """The file is no journal that can be read; the text says why."""


class OtherJournal(BadJournal):
    """It is whole, but not for this version or machine; the text says for which."""


class StoredFile:
    """An open file, in which there may be more each time."""

    def __init__(self, file: int) -> None:
        self._file = file

    def size(self) -> int:
        return os.fstat(self._file).st_size

    def read(self, at: int, length: int) -> bytes:
        """So many bytes; fewer where there are no more."""
        pieces: list[bytes] = []
        while length and (piece := os.pread(self._file, length, at)):
            pieces.append(piece)
            at, length = at + len(piece), length - len(piece)
        return b"".join(pieces)

    def next_data(self, at: int) -> int:
        """Where something may stand, from a place on: past holes, which may be as large as a file can be."""
        try:
            return os.lseek(self._file, at, os.SEEK_DATA) // PAGE * PAGE
        except OSError as error:
            return sys.maxsize if error.errno == errno.ENXIO else at  # nothing more comes; or it is not told
        except AttributeError:  # a system without
            return at


def read_journal(stored: StoredFile) -> Streams:
    """The chunks of a journal, as far as they are there."""
    head = stored.read(0, PAGE)
    if not any(head):
        return Streams()  # the process died before it had written anything
    _check_head(head)
    found: list[Chunk] = []
    for wanted in ORDER:
        found += (chunk for at, head in _heads(stored) if head[0] in wanted for chunk in _chunk(stored, at, head))
    return _in_order(found)


Head = tuple[int, int, int, int, int]
"""Stream, owner, number of the first entry, bytes, copies at the front."""


def _heads(stored: StoredFile) -> Iterator[tuple[int, Head]]:
    """Where chunks begin, and what their headers say."""
    at, size = PAGE, stored.size()
    while at + HEADER <= size:
        head = read_chunk_header(stored.read(at, HEADER))
        if head is None:
            at = max(stored.next_data(at + PAGE), at + PAGE)  # given back, or not begun when the process died
            continue
        yield at, head
        at += max(-(-head[3] // PAGE) * PAGE, PAGE)


def _chunk(stored: StoredFile, at: int, head: Head) -> Iterator[Chunk]:
    """The chunk, if it is one and was not given back while it was read."""
    stream, owner, first, size, copies = head
    if first < 0 or size < HEADER + copies * COPY:
        return
    content = stored.read(at, min(size, stored.size() - at))
    if len(content) < HEADER + copies * COPY or read_chunk_header(stored.read(at, HEADER)) != head:
        return
    yield Chunk(memoryview(content), stream, owner, first, copies)


def _check_head(head: bytes) -> None:
    if not head.startswith(MAGIC):
        raise BadJournal("it does not begin as a journal does")
    lines = head[len(MAGIC) :].split(b"\0")[0].decode("ascii", "replace").splitlines()
    said = dict(line.rsplit(" ", 1) for line in lines if " " in line)
    number = said.get("format", "")
    if not number.isascii() or not number.isdecimal() or len(number) > 9:
        raise BadJournal("it does not say which format it has")
    if int(number) > FORMAT:
        raise OtherJournal(
            f"it has format {number}, and up to {FORMAT} is read here: update torchglass (pip install -U torchglass)"
        )
    if said.get("byte order") != sys.byteorder:
        raise OtherJournal("it was written on a machine with the other byte order: read it on such a machine")


def _in_order(found: list[Chunk]) -> Streams:
    """Chunks by their first number; where two claim the same numbers, the later one's are its own."""
    streams = Streams()
    for chunk in sorted(found, key=lambda each: each.first):
        streams.add(chunk)
    return streams
