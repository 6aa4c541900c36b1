"""Provide the memory of a journal's chunks: memory of the process, or a file that survives the process.

A file is mapped into memory where that is safe. What is stored into a shared mapping reaches the file even if the
process is killed. Only a power cut may lose it. But a store for which the disk has no room would kill the process, so
disk space is allocated before. On file systems that do not guarantee allocated space, chunks are in memory, and each is
written to the file when it is full.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from pathlib import Path

from torchglass.journal.descriptors import Owned, close_mapping, map_shared
from torchglass.journal.files import allocate, check_length, file_system, write_all
from torchglass.journal.layout import CHUNK_MAGIC, PAGE, RECORDS, file_header, read_chunk_header
from torchglass.system import getpid

Buffer = bytearray | mmap.mmap
MAPPED_SYSTEMS = frozenset(["ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"])
"""File systems on which a store into allocated space never fails."""
PLAIN_CHUNK = 1 << 16
"""Bytes of a chunk if chunks are written when they are full. A kill may lose this much of each stream."""


class Backing:
    """Provides memory for chunks, and takes it back. It is used by one thread at a time.

    All methods but ``write_note`` and ``close`` may raise OSError.
    """

    largest = sys.maxsize
    """Bytes of a chunk at most, unless a single entry needs more."""
    growth = 4
    """Each chunk of a stream is this many times as large as the one before."""
    path: Path | None = None
    """The file, if there is one."""

    def take(self, size: int) -> Buffer:
        """Return at least this many bytes for a chunk, all of them zero."""
        raise NotImplementedError

    def give_back(self, buffer: Buffer) -> None:
        """Take back the memory of a chunk, which may have come from another backing."""

    def filled(self, buffer: Buffer) -> None:
        """Note that nothing more will be appended to the chunk."""

    def touched(self, buffer: Buffer, at: int, length: int) -> None:
        """Note that bytes of a filled chunk have changed."""

    def check(self) -> None:
        """Raise OSError if the file is no longer ours, or was truncated."""

    def write_note(self, word: str, number: int) -> None:
        """Write a note for readers into a file that cannot grow any more. This never raises."""

    def close(self) -> None:
        """Release everything but the content of the file. This never raises."""


class Memory(Backing):
    """Provides memory of the process."""

    growth = 2
    """Smaller than for files: zeroing memory that a short recording never uses takes time, and it evicts the program's
    data from the processor's caches. In a file, each chunk also costs a system call."""

    def take(self, size: int) -> Buffer:
        return bytearray(size)


class _File:
    """A new journal file, whose first page is its header."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.owned = Owned(self.file)
        self.end = PAGE
        self._notes: dict[str, int] = {}
        try:
            write_all(self.file, file_header(getpid(), self._notes), 0)
        except BaseException:
            os.close(self.file)
            path.unlink()
            raise

    def reserve(self, size: int) -> int:
        """Reserve room at the end of the file, and return its offset."""
        self.end += size
        return self.end - size

    def allocate(self, size: int) -> int:
        """Reserve room at the end of the file, allocate it on the disk, and return its offset."""
        self.check()
        allocate(self.file, self.end, size)
        return self.reserve(size)

    def check(self) -> None:
        self.owned.check()
        check_length(self.file, self.end)

    def write_note(self, word: str, number: int) -> None:
        """Write a note into the first page. That needs no room on a full disk."""
        self._notes[word] = number
        with contextlib.suppress(OSError):
            self.owned.check()
            write_all(self.file, file_header(getpid(), self._notes), 0)

    def close(self) -> None:
        self.owned.close(self.file)


class MappedFile(Backing):
    """Provides shared mappings of one file. Mappings that come back are reused, so a bounded journal stays bounded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _File(path)
        self._free: list[mmap.mmap] = []
        self._taken: list[mmap.mmap] = []

    def take(self, size: int) -> Buffer:
        size = _whole_pages(size)
        fitting = [mapping for mapping in self._free if size <= len(mapping) <= 2 * size]
        if fitting:
            mapping = min(fitting, key=len)
            self._free.remove(mapping)
            mapping[:] = bytes(len(mapping))
            return mapping
        offset = self._file.allocate(size)
        mapping, descriptors = map_shared(self._file.file, size, offset)
        self._file.owned.add(*descriptors)
        self._taken.append(mapping)
        return mapping

    def give_back(self, buffer: Buffer) -> None:
        # A chunk that was begun before the journal had a file is in memory.
        if isinstance(buffer, mmap.mmap):
            buffer[: len(CHUNK_MAGIC)] = bytes(len(CHUNK_MAGIC))
            self._free.append(buffer)

    def check(self) -> None:
        self._file.check()

    def write_note(self, word: str, number: int) -> None:
        self._file.write_note(word, number)

    def close(self) -> None:
        """Close the mappings and the file, except where that would close a file of the program."""
        # Check before closing the first mapping: its copy of the descriptor is closed with it.
        is_ours = self._file.owned.are_ours
        for mapping in self._taken:
            close_mapping(mapping, is_ours)
        self._taken = []
        self._free = []
        self._file.close()


class PlainFile(Backing):
    """Provides memory, and writes each chunk to a file when it is full. For file systems that must not be mapped."""

    largest = PLAIN_CHUNK

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _File(path)
        self._chunks: dict[int, tuple[bytearray, int]] = {}
        """The buffer of each chunk and its offset in the file, keyed by the ``id`` of the buffer."""
        self._written: set[int] = set()
        """The ids of buffers that are full and written. They change only through ``touched``."""
        self._free: list[tuple[int, int]] = []
        """Size and offset of the places of chunks that came back."""

    def take(self, size: int) -> Buffer:
        size = _whole_pages(size)
        fitting = [(room, offset) for room, offset in self._free if size <= room <= 2 * size]
        if fitting:
            size, offset = min(fitting)
            self._free.remove((size, offset))
        else:
            offset = self._file.reserve(size)
        buffer = bytearray(size)
        self._chunks[id(buffer)] = (buffer, offset)
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        # A chunk that was begun before the journal had a file is not one of ours.
        if id(buffer) in self._chunks:
            _, offset = self._chunks.pop(id(buffer))
            self._written.discard(id(buffer))
            self._free.append((len(buffer), offset))
            self._write(bytes(len(CHUNK_MAGIC)), offset)

    def filled(self, buffer: Buffer) -> None:
        """Write the chunk and all unfinished ones, so that whatever an entry in the file refers to is in the file."""
        if id(buffer) in self._chunks:
            self._write_unfinished()
            self._written.add(id(buffer))

    def touched(self, buffer: Buffer, at: int, length: int) -> None:
        if id(buffer) in self._written:
            _, offset = self._chunks[id(buffer)]
            self._write(memoryview(buffer)[at : at + length], offset + at)

    def _write_unfinished(self) -> None:
        """Write the unfinished chunks, and those of records last, in case the process is killed between."""
        unfinished = [
            chunk for number, chunk in self._chunks.items() if number not in self._written
        ]
        unfinished.sort(key=lambda chunk: _has_records(chunk[0]))
        for content, offset in unfinished:
            self._write(content, offset)

    def _write(self, content: bytes | bytearray | memoryview, offset: int) -> None:
        self._file.owned.check()
        write_all(self._file.file, content, offset)

    def write_note(self, word: str, number: int) -> None:
        self._file.write_note(word, number)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._write_unfinished()
        self._chunks.clear()
        self._written.clear()
        self._file.close()


def _has_records(chunk: bytearray) -> bool:
    header = read_chunk_header(memoryview(chunk))
    return header is not None and header.stream == RECORDS


def _whole_pages(size: int) -> int:
    """Round a number of bytes up to whole pages."""
    return -(-size // PAGE) * PAGE


def file_backing(path: Path) -> Backing:
    """Return a backing in a journal's file, mapped if that is safe."""
    if file_system(path.parent) in MAPPED_SYSTEMS:
        return MappedFile(path)
    return PlainFile(path)
