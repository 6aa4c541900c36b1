"""Where copies of values lie: side by side in large regions, each piece of memory once as long as it is the same.

The definition; ``engine/fast/saved.c`` does the same. Whether memory was copied before is asked of the bytes: no count
of versions knows of what numpy writes, and to compare costs less than to copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from torchglass.capture.statistics.memory import bytes_at
from torchglass.compiled import extension

Region = tuple[Any, int, int, int, int]
"""A writable buffer, its place as the journal names it, what to add to offsets in it, how many copies it may take, and
the descriptor of what is mapped there, or -1: the compiled one writes what is large to that, which is cheaper."""
More = Callable[[int, int], Region | None]
"""Asked for a region of so many bytes at least; None: there is no more. The second number says where the rest begins
of the region before, which may be given back; -1: it stays in use."""
Words = tuple[int, int, int, int]
"""Where the copy begins, its length, what is before the value in it, and its place (journal/layout.py, KEPT)."""
ALIGNMENT = 16


class Copied(NamedTuple):
    """The last copy that was made of some memory."""

    address: int
    length: int
    region: int
    offset: int


class PythonSavedBytes:
    """Copies of what values hold."""

    def __init__(self, more: More, most: int) -> None:
        self._more = more
        self.most = most
        """So many bytes are kept at the most."""
        self.used = self.kept = 0
        """Bytes that were copied, and values that have a copy."""
        self.is_full = False
        self._regions: list[Region | None] = []
        self._ends: list[int] = []
        self._rooms: list[int] = []
        self._newest: list[int] = []
        self._bytes: list[int] = []
        """By region: behind its last byte, how many copies more it may take, the last value that refers to it, and the
        bytes of all copies in it."""
        self._current = -1
        self._copied: dict[int, Copied] = {}
        """By the address of a storage."""

    def keep(
        self, number: int, storage: int, address: int, length: int, item: int, has_gaps: bool
    ) -> Words | bool | None:
        """Keep these bytes of a storage; True: not here, most of them are not the value's; None: there is no room."""
        known = self._copied.get(storage)
        if known is not None and self._holds(known, address, length, item):
            return self._told(number, known, address - known.address)
        if has_gaps:
            return True
        if self.used + length > self.most:
            self.is_full = True
            return None
        at = self._find_region(length)
        region = self._regions[at] if at >= 0 else None
        if region is None:
            return True
        offset = self._ends[at]
        self._ends[at] += -(-length // ALIGNMENT) * ALIGNMENT
        self._rooms[at] -= 1
        self._bytes[at] += length
        self.used += length
        np.frombuffer(region[0], np.uint8, length, offset)[:] = bytes_at(address, length)
        known = self._copied[storage] = Copied(address, length, at, offset)
        return self._told(number, known, 0)

    def _holds(self, known: Copied, address: int, length: int, item: int) -> bool:
        first, region = address - known.address, self._regions[known.region]
        if region is None or first < 0 or first + length > known.length or first % item or known.length % item:
            return False
        copy = np.frombuffer(region[0], np.uint8, length, known.offset + first)
        return bool(np.array_equal(copy, bytes_at(address, length)))

    def _told(self, number: int, known: Copied, first: int) -> Words:
        region = self._regions[known.region]
        assert region is not None
        self._newest[known.region] = max(self._newest[known.region], number)
        self.kept += 1
        return region[2] + known.offset, known.length, first, region[1]

    def _find_region(self, length: int) -> int:
        now = self._current
        region = self._regions[now] if now >= 0 else None
        if region is not None and self._ends[now] + length <= len(region[0]) and self._rooms[now] > 0:
            return now
        unused = -1
        if region is not None and length <= len(region[0]) // 4:  # else it gets one for itself
            unused, self._current, now = region[2] + self._ends[now], -1, -1
        region = self._more(length, unused)
        if region is None:
            return -1
        self._regions.append(region)
        for column, begin in ((self._ends, 0), (self._rooms, region[3]), (self._newest, -1), (self._bytes, 0)):
            column.append(begin)
        fresh = len(self._regions) - 1
        if now < 0 or len(region[0]) - length > len(region[0]) // 4:  # not one that it fills
            self._current = fresh
        return fresh

    def forget(self, before: int) -> list[int]:
        """Let go of the regions to which only values before this one refer; returns their places."""
        gone: list[int] = []
        for at, region in enumerate(self._regions):
            if region is not None and at != self._current and self._newest[at] < before:
                gone.append(region[1])
                if region[1] < 0:  # what lies in a file stays there
                    self.used -= self._bytes[at]
                self._regions[at] = None
        return gone

    def drop(self, place: int, base: int) -> bool:
        """Look at a region no more; False: it is in use."""
        for at, region in enumerate(self._regions):
            if region is not None and region[1:3] == (place, base):
                if at == self._current:
                    return False
                self._regions[at] = None
        return True

    def close(self) -> None:
        """Keep nothing more, and hold on to no region."""
        self._regions = [None] * len(self._regions)
        self._current = -1


SavedBytes: Any = getattr(extension, "SavedBytes", PythonSavedBytes)
Block: Any = getattr(extension, "Block", bytearray)
"""Memory for a region: where it can be had so, without being cleared."""
