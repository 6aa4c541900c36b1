"""Hand out the chunks of a journal from its backing, and continue in memory when a file can take no more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from sys import maxsize

from torchglass.journal import layout
from torchglass.journal.backing import Backing, Buffer, Memory
from torchglass.journal.layout import Chunk, Streams

FIRST_CHUNK_BYTES = {
    layout.RECORDS: 1 << 13, layout.IDS: 1 << 12, layout.VALUES: 1 << 15, layout.ROWS: 1 << 15,
    layout.PASSING: 1 << 14, layout.MEASURED: 1 << 16, layout.SKETCHED: 1 << 17, layout.KEPT: 1 << 15,
}  # fmt: skip
"""Bytes of the first chunk of a stream. Each further one is larger by the factor ``Backing.growth``."""
MAX_CHUNK_BYTES = 1 << 24
FIRST_THREAD_FACTOR = 4
"""The first chunks of the first thread are larger by this factor. There may be hundreds of short-lived others."""
MANY_THREADS = 16
"""Number of threads from which on each further one begins with a chunk of MANY_THREADS_CHUNK_BYTES."""
MANY_THREADS_CHUNK_BYTES = layout.PAGE - layout.HEADER
"""One page of a file."""
MAX_FIRST_CHUNK_BYTES = 1 << 18
"""Bytes of a first chunk at most, also if the recording before needed more."""


class Chunks:
    """Hands out the chunks of one journal to one thread at a time."""

    def __init__(self, backing: Backing) -> None:
        self.backing = backing
        self.former_backings: list[Backing] = []
        """Backings that cannot grow any more, in which some chunks still are."""
        self.streams = Streams()
        # A reentrant lock, since a `__del__` that calls torch may run while it is held.
        self.lock = threading.RLock()
        self.dead = False
        """Whether nothing may be written any more, since the journal is closed or this is a forked child."""
        self.ends: dict[tuple[int, int], int] = {}
        """Keyed by stream and owner: the end of the numbers for which there is room."""
        self.expected: dict[int, int] = {}
        """Keyed by stream: the bytes that it will probably need. For records and ids, those of the first thread."""
        self.on_full: Callable[[OSError], None] = ignore
        """Called once when the file cannot grow any more, so that further chunks are in memory."""

    def new_chunk(self, stream: int, owner: int, size: int, copies: int = 0) -> Chunk:
        """Return a chunk with room for this many bytes of entries. It becomes part of its stream with ``begin``."""
        total = layout.HEADER + copies * layout.COPY + size
        try:
            buffer = self.backing.take(total)
        except OSError as problem:
            self._leave_backing(problem)
            buffer = self.backing.take(total)
        return Chunk(buffer, stream, owner, 0, copies)

    def begin(self, chunk: Chunk, first: int | None = None) -> None:
        """Append a new chunk to its stream. ``first`` is the number of its first entry, by default the next one."""
        key = (chunk.stream, chunk.owner)
        if first is None:
            first = self.ends.get(key, 0)
        chunk.last = first + chunk.last
        chunk.first = first
        self.ends[key] = chunk.last
        chunk.begin()
        self.streams.add(chunk)

    def next_size(self, stream: int, owner: int) -> int:
        """Return the bytes for the entries of the next chunk of a stream."""
        chunks = self.streams.chunks.get((stream, owner))
        if chunks:
            size = self.backing.growth * (len(chunks[-1].buffer) - chunks[-1].start)
        else:
            size = self._first_size(stream, owner)
        largest = min(MAX_CHUNK_BYTES, self.max_bytes(stream), self.backing.largest - layout.HEADER)
        return max(min(size, largest), layout.WIDTHS[stream])

    def _first_size(self, stream: int, owner: int) -> int:
        if owner >= MANY_THREADS:
            return MANY_THREADS_CHUNK_BYTES
        size = FIRST_CHUNK_BYTES[stream]
        if owner == 0:
            if stream in (layout.RECORDS, layout.IDS):
                size *= FIRST_THREAD_FACTOR
            size = max(size, self.expected.get(stream, 0))
        return size

    def max_bytes(self, stream: int) -> int:
        """Return how many bytes a chunk of a stream may have at most."""
        return maxsize

    # The next methods report to the backing. Where it fails, the journal continues in memory.

    def note_full(self, chunk: Chunk) -> None:
        """Note that nothing more will be appended to a chunk."""
        try:
            self.backing.filled(chunk.buffer)
        except OSError as problem:
            self._leave_backing(problem)

    def check(self) -> None:
        """Continue in memory if the file is no longer ours. Called before it is read or written at the end."""
        try:
            self.backing.check()
        except OSError as problem:
            self._leave_backing(problem)

    def note_change(self, buffer: Buffer, at: int, length: int) -> None:
        """Note that some bytes of a chunk have changed."""
        try:
            self.backing.touched(buffer, at, length)
        except OSError as problem:
            self._leave_backing(problem)

    def drop(self, chunk: Chunk) -> None:
        """Drop a chunk with its entries."""
        self.streams.remove(chunk)
        try:
            self.backing.give_back(chunk.buffer)
        except OSError as problem:
            self._leave_backing(problem)

    def end_chunks(self) -> None:
        """Make the next entry of every stream begin a new chunk."""

    def _leave_backing(self, problem: OSError) -> None:
        """Continue in memory. All streams begin new chunks there, so that the file stays complete up to this point."""
        with self.lock:
            if isinstance(self.backing, Memory):
                return  # another thread was faster
            self.backing.write_note(layout.STOPPED, problem.errno or 0)
            self.former_backings.append(self.backing)
            self.backing = Memory()
            self.end_chunks()
        self.on_full(problem)


def ignore(*_: object) -> None:
    """Do nothing."""
