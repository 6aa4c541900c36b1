"""Where the chunks of a journal lie: in the process's own memory, or in a file that the kernel keeps for us.

What was stored into a shared mapping is in the kernel's hands at once: it reaches the file whatever becomes of the
process. Only a power cut may lose it. A mapping has a price, though: a store for which there is no room on the disk,
or which the disk refuses, ends the process. So room is asked for before, and only file systems that keep their word
are mapped; on all others chunks are written when they are full.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchglass.compiled import extension
from torchglass.journal.layout import PAGE, RECORDS, file_header, read_chunk_header

Buffer = bytearray | mmap.mmap
MAPPED_SYSTEMS = frozenset(["ext2", "ext3", "ext4", "xfs", "tmpfs", "overlay"])
"""File systems on which room that was allocated is there."""
PIECE = 1 << 16
"""Bytes of a chunk where chunks are written as a whole: as much a kill may lose of each stream."""
LONGEST_WRITE = 1 << 26


class Home:
    """Gives and takes memory for chunks; used by one thread at a time. All but ``close`` may raise OSError."""

    largest = sys.maxsize
    """The most bytes of a chunk, unless one entry needs more."""
    growth = 4
    """How many times as large as the chunk before a further one of its stream is."""
    path: Path | None = None
    """The file, where there is one."""

    def take(self, size: int) -> Buffer:
        """Memory for a chunk, all zeros, of so many bytes or some more."""
        raise NotImplementedError

    def give_back(self, buffer: Buffer) -> None:
        """The chunk is not needed any more; it may be another home's."""

    def filled(self, buffer: Buffer) -> None:
        """Nothing more will be appended to the chunk."""

    def touched(self, buffer: Buffer, at: int, length: int) -> None:
        """Bytes of a chunk that was filled have changed."""

    def close(self) -> None:
        """Let go of everything; what was written to a file stays there. Never raises."""


_zeros: Callable[[int], bytearray] = getattr(extension, "zeros", bytearray)
"""C uses the memory of recordings that are gone again (capture/engine/fast/memory.c)."""


class Memory(Home):
    """The process's own memory."""

    growth = 2
    """What a short recording has no use for is filled with zeros in vain, and takes the place of what the program has
    in the processor's caches. In files a chunk costs more than its zeros."""

    def take(self, size: int) -> Buffer:
        return _zeros(size)


class _File:
    """A new file that begins with a page that says what it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.owned = Owned(self.file)
        self.end = PAGE
        try:
            write_all(self.file, file_header(os.getpid()), 0)
        except BaseException:
            os.close(self.file)
            path.unlink()
            raise

    def reserve(self, size: int) -> int:
        """Room at the end of the file; returns where it begins."""
        self.end += size
        return self.end - size

    def allocate(self, size: int) -> int:
        """The same, and the disk has promised it."""
        self.owned.check()
        os.posix_fallocate(self.file, self.end, size)
        return self.reserve(size)

    def close(self) -> None:
        self.owned.close(self.file)


class MappedFile(Home):
    """Chunks as shared mappings of one file; memory that comes back is used again, so a bounded journal stays so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _File(path)
        self._free: list[mmap.mmap] = []
        self._taken: list[mmap.mmap] = []

    def take(self, size: int) -> Buffer:
        size = _pages(size)
        fitting = [each for each in self._free if size <= len(each) <= 2 * size]
        if fitting:
            found = min(fitting, key=len)
            self._free.remove(found)
            found[:] = bytes(len(found))
            return found
        at = self._file.allocate(size)
        mapping = mmap.mmap(self._file.file, size, offset=at)
        self._file.owned.add_copy(self._file.file)  # some Pythons keep a descriptor with each mapping
        self._taken.append(mapping)
        return mapping

    def give_back(self, buffer: Buffer) -> None:
        if isinstance(buffer, mmap.mmap):  # what was begun before the journal had a file is in memory
            buffer[:8] = bytes(8)  # no chunk begins here any more
            self._free.append(buffer)

    def close(self) -> None:
        """Mappings go when nobody refers to them; never where that would close a file of the program's."""
        ours = self._file.owned.are_ours  # asked before the first: some Pythons keep a descriptor with each mapping
        for mapping in self._taken:
            close_mapping(mapping, ours)
        self._taken, self._free = [], []
        self._file.close()


class PlainFile(Home):
    """Chunks in memory, each written to the file when it is full: for file systems that must not be mapped."""

    largest = PIECE

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _File(path)
        self._places: dict[int, tuple[bytearray, int]] = {}
        """By ``id`` of a chunk: the chunk, and where it lies in the file."""
        self._full: set[int] = set()
        """Those that are written and only change by what ``touched`` says."""
        self._free: list[tuple[int, int]] = []
        """Bytes and place of those that came back."""

    def take(self, size: int) -> Buffer:
        size = _pages(size)
        fitting = [each for each in self._free if size <= each[0] <= 2 * size]
        if fitting:
            size, place = min(fitting)
            self._free.remove((size, place))
        else:
            place = self._file.reserve(size)
        buffer = bytearray(size)
        self._places[id(buffer)] = (buffer, place)
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        if id(buffer) in self._places:  # else it was begun before the journal had a file
            _, place = self._places.pop(id(buffer))
            self._full.discard(id(buffer))
            self._free.append((len(buffer), place))
            self._write(bytes(8), place)  # no chunk begins here any more

    def filled(self, buffer: Buffer) -> None:
        """Also all that others have begun: what an entry refers to must not be lost when the entry is not."""
        if id(buffer) in self._places:
            self._write_begun()
            self._full.add(id(buffer))

    def touched(self, buffer: Buffer, at: int, length: int) -> None:
        if id(buffer) in self._full:
            self._write(memoryview(buffer)[at : at + length], self._places[id(buffer)][1] + at)

    def _write_begun(self) -> None:
        """Records last: a process that dies meanwhile leaves none without what it refers to."""
        begun = [found for number, found in self._places.items() if number not in self._full]
        for content, place in sorted(begun, key=lambda found: _is_of_records(found[0])):
            self._write(content, place)

    def _write(self, content: bytes | bytearray | memoryview, place: int) -> None:
        self._file.owned.check()
        write_all(self._file.file, content, place)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._write_begun()
        self._places.clear()
        self._full.clear()
        self._file.close()


def _is_of_records(chunk: bytearray) -> bool:
    head = read_chunk_header(memoryview(chunk))
    return head is not None and head[0] == RECORDS


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def write_all(file: int, content: Any, offset: int) -> None:
    """Write every byte; the system may take fewer at a time."""
    view = memoryview(content).cast("B")
    while len(view):
        done = os.pwrite(file, view[:LONGEST_WRITE], offset)
        view, offset = view[done:], offset + done


def file_home(path: Path) -> Home:
    """A journal's file in this folder, mapped where that is safe."""
    return MappedFile(path) if file_system(path.parent) in MAPPED_SYSTEMS else PlainFile(path)


def file_system(folder: Path) -> str | None:
    """The kind of file system that a folder is on; None where the system does not say."""
    try:
        device = folder.stat().st_dev
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        mount, _, rest = line.partition(" - ")
        if mount.split(" ")[2:3] == [wanted]:
            return rest.split(" ")[0]
    return None


# ---------------------------------------------------------------- descriptors

# Whether the files that we write are still ours: a program may close descriptors that it did not open.

CLOSED = "the program closed a file that it did not open (os.closerange does)"

MOST_LIKELY = 1024
"""Numbers of descriptors that are looked at for a copy."""
Identity = tuple[int, int]


def identity(file: int) -> Identity | None:
    """What a descriptor stands for; None when it is closed."""
    try:
        found = os.fstat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Owned:
    """Descriptors, each with the file that it stood for when it was ours."""

    def __init__(self, *files: int) -> None:
        self._known = {file: identity(file) for file in files}
        self._is_closed = False

    def add_copy(self, file: int) -> None:
        """Also a copy of this descriptor that was just made out of our sight: it has the lowest free number."""
        wanted = self._known[file]
        for number in range(MOST_LIKELY):
            if number not in self._known and identity(number) == wanted:
                self._known[number] = wanted
                return

    @property
    def are_ours(self) -> bool:
        return not self._is_closed and all(identity(file) == known for file, known in self._known.items())

    def check(self) -> None:
        """Raise where a file is no longer ours."""
        if not self.are_ours:
            raise OSError(CLOSED)

    def close(self, file: int) -> None:
        """Close one of them, if it is still ours; from then on none is."""
        is_ours = not self._is_closed and identity(file) == self._known.get(file)
        self._is_closed = True
        if is_ours:
            with contextlib.suppress(OSError):
                os.close(file)


def close_mapping(mapping: mmap.mmap, is_ours: bool) -> None:
    """Let go of a mapping, but never of one that would close, and write into, a file of the program's."""
    try:
        if not is_ours:
            raise BufferError
        mapping.close()
    except BufferError:  # or somebody reads it just now: it stays, also when Python ends
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapping))
