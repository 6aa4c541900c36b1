"""Copies the contents of values into large regions, and copies memory only once while it is unchanged.

This is the reference implementation; ``engine/fast/saved.c`` does the same in C. To find out whether memory has
changed since its last copy, the bytes are compared: no version counter sees what numpy writes, and comparing costs
less than copying.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from torchglass.capture.statistics.memory import bytes_at
from torchglass.compiled import extension

Region = tuple[Any, int, int, int, int]
"""A piece of memory that holds copies. Its fields are:

0. a writable buffer,
1. the place of the region as the journal names it (negative in memory),
2. the number to add to offsets in the buffer,
3. how many copies the region may hold,
4. the descriptor of the mapped file, or -1 for a region in memory. The compiled engine writes large values with it,
   because that is cheaper than copying them into the mapping.
"""
More = Callable[[int, int], Region | None]
"""A function that returns a new region of at least so many bytes, or None if there are no more regions.

Its second argument is the offset at which the unused rest of the current region begins, so that the rest can be given
back. It is -1 if the current region stays in use.
"""
Words = tuple[int, int, int, int]
"""The words of a kept value in the journal (journal/layout.py, KEPT).

They are the offset of the copy, its length, the number of bytes before the value in the copy, and the place of the
region.
"""
ALIGNMENT = 16
"""The offset of each copy in its region is a multiple of so many bytes."""


class Copied(NamedTuple):
    """The last copy that was made of one storage."""

    address: int
    length: int
    region: int
    offset: int


class PythonSavedBytes:
    """Keeps copies of the contents of values, up to a number of bytes."""

    def __init__(self, more: More, most: int) -> None:
        self._more = more
        self.most = most
        """The most bytes to keep."""
        self.used = self.kept = 0
        """The number of bytes that were copied, and the number of values that have a copy."""
        self.is_full = False
        self._regions: list[Region | None] = []
        # The next four lists have one entry for each region.
        self._ends: list[int] = []
        """The offset at which the used bytes end."""
        self._rooms: list[int] = []
        """How many more copies the region may hold."""
        self._newest: list[int] = []
        """The newest value that refers to a copy in the region."""
        self._bytes: list[int] = []
        """The number of bytes of all copies in the region."""
        self._current = -1
        self._copied: dict[int, Copied] = {}
        """The last copy of each storage, keyed by the address of the storage."""

    def keep(
        self, number: int, storage: int, address: int, length: int, item: int, has_gaps: bool
    ) -> Words | bool | None:
        """Keep a copy of ``length`` bytes at ``address``, and return where it is.

        Return True if the bytes cannot be kept here: with ``has_gaps`` most of them do not belong to the value, or
        there is no region for them. The caller then keeps the value in another way. Return None if the limit of bytes
        is reached.
        """
        known = self._copied.get(storage)
        if known is not None and self._holds(known, address, length, item):
            return self._told(number, known, address - known.address)
        if has_gaps:
            return True
        if self.used + length > self.most:
            self.is_full = True
            return None
        at = self._find_region(length)
        region = None
        if at >= 0:
            region = self._regions[at]
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
        first = address - known.address
        region = self._regions[known.region]
        if (
            region is None
            or first < 0
            or first + length > known.length
            or first % item
            or known.length % item
        ):
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
        region = None
        if now >= 0:
            region = self._regions[now]
        if (
            region is not None
            and self._ends[now] + length <= len(region[0])
            and self._rooms[now] > 0
        ):
            return now
        unused = -1
        # A larger value gets a region for itself, and the current region stays in use.
        if region is not None and length <= len(region[0]) // 4:
            unused = region[2] + self._ends[now]
            self._current = -1
            now = -1
        region = self._more(length, unused)
        if region is None:
            return -1
        self._regions.append(region)
        for column, begin in (
            (self._ends, 0),
            (self._rooms, region[3]),
            (self._newest, -1),
            (self._bytes, 0),
        ):
            column.append(begin)
        fresh = len(self._regions) - 1
        # Do not make a region current that this value nearly fills.
        if now < 0 or len(region[0]) - length > len(region[0]) // 4:
            self._current = fresh
        return fresh

    def forget(self, before: int) -> list[int]:
        """Release the regions to which only values before this one refer, and return their places."""
        gone: list[int] = []
        for at, region in enumerate(self._regions):
            if region is not None and at != self._current and self._newest[at] < before:
                gone.append(region[1])
                # Copies in a file stay there, so they still count as used.
                if region[1] < 0:
                    self.used -= self._bytes[at]
                self._regions[at] = None
        return gone

    def drop(self, place: int, base: int) -> bool:
        """Stop comparing with copies in a region, and return whether that is possible.

        It is not possible for the region that is being filled.
        """
        for at, region in enumerate(self._regions):
            if region is not None and region[1:3] == (place, base):
                if at == self._current:
                    return False
                self._regions[at] = None
        return True

    def close(self) -> None:
        """Release all regions when the recording ends."""
        self._regions = [None] * len(self._regions)
        self._current = -1


SavedBytes: Any = getattr(extension, "SavedBytes", PythonSavedBytes)
Block: Any = getattr(extension, "Block", bytearray)
"""Allocates the memory of a region; the compiled version does not clear it, which saves time."""
