"""Writing bytes to a file: through the page cache, or past it where that is quicker."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from torchglass.store.descriptors import identity

LARGE = 1 << 20
"""Bytes from which on it may pay to go past the page cache."""
PAGE = 4096
"""What begins, ends and lies in memory at multiples of this can be written past the page cache."""
TRYING = 1 / 32
"""The part of the time that may go into trying the way that was slower once more."""
LONGEST = 1000
"""Pieces after which it is tried in any case."""


def write_all(file: int, content: bytes | memoryview, offset: int) -> None:
    """Write every byte; the system may take fewer at a time."""
    view = memoryview(content).cast("B")
    while len(view):
        done = os.pwrite(file, view[: 1 << 26], offset)
        view, offset = view[done:], offset + done


class Ways:
    """Which of the two ways is quicker here, found by trying both.

    A file system may take twenty times as long to find pages for two gigabytes as to write them; a slow disk behind
    much memory is the other way round.
    """

    def __init__(self) -> None:
        self._pace: dict[bool, float] = {}
        """Seconds a byte through the page cache (False) and past it (True), of the last piece."""
        self._left = 0
        """Pieces before the slower way is tried again."""

    def past_cache(self) -> bool:
        """Whether the next piece should go past the page cache."""
        if len(self._pace) < 2:
            return True not in self._pace
        best = self._pace[True] <= self._pace[False]
        self._left -= 1
        return best if self._left > 0 else not best

    def took(self, past_cache: bool, seconds: float) -> None:
        """A byte took so long; ``inf``: it cannot be written so."""
        self._pace[past_cache] = seconds
        if self._left <= 0 and len(self._pace) == 2:
            quick, slow = sorted(self._pace.values())
            self._left = int(min(slow / max(quick, 1e-15) / TRYING, LONGEST))


class PastCache:
    """A file that also takes pieces past the page cache."""

    def __init__(self, path: Path, file: int, ways: Ways) -> None:
        self._path = path
        self._file = file
        self._ways = ways
        self._direct: int | None = None

    def write(self, content: memoryview, offset: int) -> None:
        """Write a large piece that begins at a whole page; nothing but itself may be in its last page."""
        past_cache = self._ways.past_cache()
        start = time.perf_counter()
        whole = len(content) - len(content) % PAGE if past_cache else 0
        try:
            if whole:
                write_all(self._opened(), content[:whole], offset)
        except OSError as error:
            # EINVAL, where file system or memory do not suit; whatever else is wrong, the page cache may not mind.
            if error.errno == errno.ENOSPC:
                raise
            whole = 0
        write_all(self._file, content[whole:], offset + whole)
        possible = bool(whole) or not past_cache
        self._ways.took(past_cache, (time.perf_counter() - start) / len(content) if possible else float("inf"))

    def _opened(self) -> int:
        if not self._is_ours():
            self._direct = None
        if self._direct is None:
            if not hasattr(os, "O_DIRECT"):
                raise OSError(errno.EINVAL, "there is only one way here")
            self._direct = os.open(self._path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
        return self._direct

    def close(self) -> None:
        """No more large pieces."""
        if self._direct is not None and self._is_ours():
            os.close(self._direct)
        self._direct = None

    def _is_ours(self) -> bool:
        """Whether the second descriptor still stands for the same file as the first (see descriptors.py)."""
        return self._direct is None or identity(self._direct) == identity(self._file)
