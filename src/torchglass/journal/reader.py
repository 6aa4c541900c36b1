"""Read the journal's file of a running or dead process, and check everything in it."""

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
    MADE,
    MAGIC,
    MEASURED,
    NONE,
    PAGE,
    PASSING,
    RECORDS,
    ROWS,
    SKETCHED,
    STOPPED,
    VALUES,
    Chunk,
    ChunkHeader,
    Streams,
    read_chunk_header,
)

ORDER = ((RECORDS,), (IDS,), (KEPT,), (SKETCHED,), (MEASURED,), (VALUES,), (ROWS, PASSING))
"""The order in which streams are read: an entry before the entries that it refers to.

The process may still be writing. In this order, whatever an entry refers to has been written when it is read.
"""


class BadJournal(ValueError):
    """The file cannot be read as a journal. The text says why."""


class OtherJournal(BadJournal):
    """The journal is intact, but of another version or machine. The text says which."""


class StoredFile:
    """An open file that may grow while it is read."""

    def __init__(self, file: int) -> None:
        self._file = file

    def size(self) -> int:
        return os.fstat(self._file).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Return this many bytes, or fewer at the end of the file."""
        pieces: list[bytes] = []
        while length:
            piece = os.pread(self._file, length, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return b"".join(pieces)

    def next_data(self, offset: int) -> int:
        """Return the next offset, from this one on, that may have data. It skips holes, which may be huge."""
        try:
            return os.lseek(self._file, offset, os.SEEK_DATA) // PAGE * PAGE
        except OSError as error:
            # ENXIO says that only a hole follows. With any other error the system cannot tell.
            if error.errno == errno.ENXIO:
                return sys.maxsize
            return offset
        except AttributeError:
            # This system has no SEEK_DATA.
            return offset


def read_journal(stored: StoredFile) -> Streams:
    """Return the intact chunks of a journal."""
    page = stored.read(0, PAGE)
    if not any(page):
        # The process died before it wrote anything.
        return Streams()
    header = _read_file_header(page)
    chunks: list[Chunk] = []
    for streams_to_read in ORDER:
        for offset, chunk_header in _chunk_headers(stored):
            if chunk_header.stream in streams_to_read:
                chunk = _read_chunk(stored, offset, chunk_header)
                if chunk is not None:
                    chunks.append(chunk)
    streams = _in_order(chunks)
    streams.notes = {word: _number(header[word]) for word in (STOPPED, MADE) if word in header}
    return streams


def _chunk_headers(stored: StoredFile) -> Iterator[tuple[int, ChunkHeader]]:
    """Yield the offset and the header of each chunk."""
    offset = PAGE
    size = stored.size()
    while offset + HEADER <= size:
        header = read_chunk_header(stored.read(offset, HEADER))
        if header is None:
            # A chunk here was dropped, or not begun when the process died.
            offset = max(stored.next_data(offset + PAGE), offset + PAGE)
            continue
        yield offset, header
        offset += max(-(-header.size // PAGE) * PAGE, PAGE)


def _read_chunk(stored: StoredFile, offset: int, header: ChunkHeader) -> Chunk | None:
    """Return the chunk at an offset, or None if it is damaged or was dropped while it was read."""
    begin = HEADER + header.copies * COPY
    if header.first < 0 or header.size < begin:
        return None
    content = stored.read(offset, min(header.size, stored.size() - offset))
    if len(content) < begin or read_chunk_header(stored.read(offset, HEADER)) != header:
        return None
    return Chunk(memoryview(content), header.stream, header.owner, header.first, header.copies)


def _read_file_header(page: bytes) -> dict[str, str]:
    """Check the first page of a file, and return its words with their values."""
    if not page.startswith(MAGIC):
        raise BadJournal("it does not begin like a journal")
    lines = page[len(MAGIC) :].split(b"\0")[0].decode("ascii", "replace").splitlines()
    header = dict(line.rsplit(" ", 1) for line in lines if " " in line)
    number = _number(header.get("format", ""))
    if number == NONE:
        raise BadJournal("it does not name its format")
    if number > FORMAT:
        raise OtherJournal(
            f"it has format {number}, but this version reads only up to {FORMAT}: "
            "update torchglass (pip install -U torchglass)"
        )
    if header.get("byte order") != sys.byteorder:
        raise OtherJournal(
            "it was written on a machine with the other byte order: read it on such a machine"
        )
    return header


def _number(text: str) -> int:
    """Return the number that a text holds, or NONE if it holds none."""
    if text.isascii() and text.isdecimal() and len(text) <= 15:
        return int(text)
    return NONE


def _in_order(chunks: list[Chunk]) -> Streams:
    """Return chunks in the order of their first numbers. Numbers that two chunks claim belong to the later one."""
    streams = Streams()
    for chunk in sorted(chunks, key=lambda chunk: chunk.first):
        streams.add(chunk)
    return streams
