"""Memory for large copies on their way to a file, used again as soon as they have arrived."""

from __future__ import annotations

import mmap
import weakref

SMALLEST = 1 << 20
"""Bytes from which on a copy gets a room: below, memory comes from what the process has anyway."""
MOST = 200_000_000
"""Bytes of all rooms, as long as no more are taken at once."""
KEPT = 1 << 25
"""Bytes that may lie idle when nothing is on its way."""


class Rooms:
    """Whole pages, which the system gives and takes slowly: a copy into new ones takes up to three times as long.

    A room is taken by its size and comes back when nobody refers to it any more: whoever writes it knows nothing of
    rooms. It may come back in any thread and at any moment, also in a forked child, so there is no lock: each step is
    one operation on a list or dict.
    """

    def __init__(self) -> None:
        self.free: list[mmap.mmap] = []
        self.taken: dict[int, int] = {}
        """The sizes of the rooms that are taken, by their ids."""

    def take(self, size: int) -> memoryview:
        """So many bytes or some more, beginning with a page; what they hold is of no meaning.

        The room is taken for as long as this very view is referred to; a slice of it does not count.
        """
        room = self._fitting(size) or self._another(size)
        self.taken[id(room)] = len(room)
        view = memoryview(room)
        weakref.finalize(view, self._come_back, room).atexit = False
        return view

    def _fitting(self, size: int) -> mmap.mmap | None:
        """The smallest room that is not far too large; of equal ones the last used, which caches still know."""
        fitting = [room for room in reversed(self.free[:]) if size <= len(room) <= 2 * size]
        for room in sorted(fitting, key=len):
            try:
                self.free.remove(room)
            except ValueError:
                continue  # another thread was quicker
            return room
        return None

    def _another(self, size: int) -> mmap.mmap:
        if sum(list(self.taken.values())) + sum(map(len, list(self.free))) + size > MOST:
            self.free.clear()
        return mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)

    def _come_back(self, room: mmap.mmap) -> None:
        self.taken.pop(id(room), None)
        self.free.append(room)
        if not self.taken and sum(map(len, list(self.free))) > KEPT:
            self.free.clear()
