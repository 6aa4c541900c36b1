"""Whether the files that we write are still ours: a program may close descriptors that it did not open.

``os.closerange`` is the usual way to become a daemon. The next files that the program opens get the same numbers, and
what we write there would destroy them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any

CLOSED = "the program closed a file that it did not open (os.closerange does)"

MOST_LIKELY = 1024
"""Numbers of descriptors that are looked at for a copy."""
Identity = tuple[int, int]


class LostFile(OSError):
    """A descriptor of ours is closed, or somebody else's by now."""

    def __init__(self) -> None:
        super().__init__(CLOSED)


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
            raise LostFile

    def close(self, file: int) -> None:
        """Close one of them, if it is still ours; from then on none is."""
        is_ours = not self._is_closed and identity(file) == self._known.get(file)
        self._is_closed = True
        if is_ours:
            with contextlib.suppress(OSError):
                os.close(file)


def keep_for_ever(holder: Any) -> None:
    """Never let go of what would close, and write into, a file that is no longer ours; not when Python ends either."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
