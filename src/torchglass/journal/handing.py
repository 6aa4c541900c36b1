"""Hands out the chunks of a journal, and knows where they lie; when a file can take no more, that is in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from sys import maxsize

from torchglass.journal.chunks import COPY, WIDTHS, Chunk, Streams
from torchglass.journal.homes import Buffer, Home, Memory
from torchglass.journal.layout import HEADER, IDS, KEPT, MEASURED, PASSING, RECORDS, ROWS, SKETCHED, VALUES

SMALLEST = {
    RECORDS: 1 << 13, IDS: 1 << 12, VALUES: 1 << 15, ROWS: 1 << 16, PASSING: 1 << 14, MEASURED: 1 << 16,
    SKETCHED: 1 << 17, KEPT: 1 << 15,
}  # fmt: skip
"""Bytes of the first chunk of a stream, of the first thread's some more; each further one has four times as many as the
one before …"""
LARGEST = 1 << 24
"""… up to this."""
FIRST_THREAD = 8
"""So many times as much room the first thread gets: others may be hundreds, and live for a moment."""


class Chunks:
    """The chunks of one journal; they are handed out one thread at a time."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.former: list[Home] = []
        """Homes that could take no more; some chunks still lie there."""
        self.streams = Streams()
        self.lock = threading.RLock()  # one: a `__del__` that calls torch may run while it is held
        self.dead = False
        """Nothing may be written any more: it is closed, or this is a forked child."""
        self.ends: dict[tuple[int, int], int] = {}
        """By stream and owner: behind the last number that there is room for."""
        self.most_bytes: Callable[[int], int] = _no_bound
        """Bytes of a chunk of a stream, at most."""
        self.on_full: Callable[[OSError], None] = ignore
        """Told once when the file can take no more: chunks are in memory from then on."""

    def new_chunk(self, stream: int, owner: int, size: int, copies: int = 0) -> Chunk:
        """A chunk with room for so many bytes of entries; it has no place in its stream before it is begun."""
        wanted = HEADER + copies * COPY + size
        try:
            buffer = self.home.take(wanted)
        except OSError as problem:
            self._leave_home(problem)
            buffer = self.home.take(wanted)
        return Chunk(buffer, stream, owner, 0, copies)

    def begin(self, chunk: Chunk, first: int | None = None) -> None:
        """Put a chunk at the end of its stream; ``first`` is the number of its first entry, if that is known."""
        key = (chunk.stream, chunk.owner)
        begins = self.ends.get(key, 0) if first is None else first
        chunk.last, chunk.first = begins + chunk.last, begins
        self.ends[key] = chunk.last
        chunk.begin()
        self.streams.add(chunk)

    def next_size(self, stream: int, owner: int) -> int:
        """Bytes of the next chunk of a stream, if nothing else bounds it."""
        before = self.streams.newest(stream, owner)
        if before is not None:
            size = 4 * (len(before.buffer) - before.start)
        else:
            size = SMALLEST[stream] * (FIRST_THREAD if stream in (RECORDS, IDS) and owner == 0 else 1)
        return max(min(size, LARGEST, self.most_bytes(stream), self.home.largest - HEADER), WIDTHS[stream])

    # What the home is told; where it fails, the journal goes on in memory

    def filled(self, chunk: Chunk) -> None:
        """Nothing more will be appended to a chunk."""
        try:
            self.home.filled(chunk.buffer)
        except OSError as problem:
            self._leave_home(problem)

    def touched(self, buffer: Buffer, at: int, length: int) -> None:
        """Some bytes of a chunk have changed."""
        try:
            self.home.touched(buffer, at, length)
        except OSError as problem:
            self._leave_home(problem)

    def drop(self, chunk: Chunk) -> None:
        """Give up a chunk and what it holds."""
        self.streams.remove(chunk)
        try:
            self.home.give_back(chunk.buffer)
        except OSError as problem:
            self._leave_home(problem)

    def end_chunks(self) -> None:
        """Have the next entry of every stream begin a new chunk."""

    def _leave_home(self, problem: OSError) -> None:
        """Go on in memory. The file stays as it is now: what comes later must not be half in it."""
        with self.lock:
            if isinstance(self.home, Memory):
                return  # another thread was first
            self.former.append(self.home)
            self.home = Memory()
            self.end_chunks()
        self.on_full(problem)


def ignore(*_: object) -> None:
    """Nobody is to be told."""


def _no_bound(stream: int) -> int:
    return maxsize
