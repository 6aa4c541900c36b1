"""Whether the files that we write are still ours: a program may close descriptors that it did not open.

``os.closerange`` is the usual way to become a daemon. The next files that the program opens get the same numbers, and
what we, or SQLite, write there would destroy them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Any

LISTS = ("/proc/self/fd", "/dev/fd")
"""Where systems list the descriptors of a process."""
CLOSED = "the program closed a file that it did not open (os.closerange does)"

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

    def add_below(self, path: Path) -> None:
        """Also those of the files whose names begin so, which a library opened."""
        beginning = os.path.realpath(path)
        for file in _open_files():
            try:
                target = str(Path(_listed(), str(file)).readlink())
            except OSError:
                continue
            if target.startswith(beginning):
                self._known[file] = identity(file)

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


def _listed() -> str:
    return next((each for each in LISTS if os.path.isdir(each)), "")  # noqa: PTH112 (asked at each start)


def _open_files() -> list[int]:
    folder = _listed()
    try:
        return [int(name) for name in os.listdir(folder)] if folder else []  # noqa: PTH208
    except OSError:
        return []
