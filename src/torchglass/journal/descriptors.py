"""Notice when file descriptors are no longer ours, since a program may close descriptors that it did not open.

``os.closerange`` does that. The system may then give the number of our descriptor to a file of the program, and writing
to it would destroy that file.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import sys

CLOSED = "the program closed a file that it did not open (os.closerange does)"

Identity = tuple[int, int]
"""Device and inode of a file."""


def identity(file: int) -> Identity | None:
    """Return which file a descriptor refers to, or None if it is closed."""
    try:
        status = os.fstat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Owned:
    """Descriptors that we opened, each with the file that it referred to then."""

    def __init__(self, *files: int) -> None:
        self._identities = {file: identity(file) for file in files}
        self._is_closed = False

    def add(self, *files: int) -> None:
        """Add more descriptors."""
        for file in files:
            self._identities[file] = identity(file)

    @property
    def are_ours(self) -> bool:
        """Whether all of them still refer to our files."""
        return not self._is_closed and all(
            identity(file) == own for file, own in self._identities.items()
        )

    def check(self) -> None:
        """Raise OSError if one of them no longer refers to our file."""
        if not self.are_ours:
            raise OSError(CLOSED)

    def close(self, file: int) -> None:
        """Close one of them if it still refers to our file. From then on none of them counts as ours."""
        is_ours = not self._is_closed and identity(file) == self._identities.get(file)
        self._is_closed = True
        if is_ours:
            with contextlib.suppress(OSError):
                os.close(file)


MAX_TRIES = 100
"""How often map_shared tries to predict the number of a descriptor."""


def map_shared(file: int, size: int, offset: int) -> tuple[mmap.mmap, tuple[int, ...]]:
    """Map a piece of a file. Return the mapping, and the copy of the descriptor that it holds, if it holds one.

    Before Python 3.13, mmap copies the descriptor and does not tell its number. It takes the lowest free number, which
    is predicted here. Raise OSError if other threads take that number each time: such a mapping could never be closed.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(file, size, offset=offset, trackfd=False), ()
    for _ in range(MAX_TRIES):
        copy = os.dup(file)
        os.close(copy)
        mapping = mmap.mmap(file, size, offset=offset)
        if identity(copy) == identity(file):
            return mapping, (copy,)
        mapping.close()
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def close_mapping(mapping: mmap.mmap, is_ours: bool) -> None:
    """Close a mapping and its copy of the descriptor. Leak the mapping if it cannot be closed.

    It cannot be closed while it is being read, nor if the number of its descriptor now belongs to a file of the program
    (``is_ours`` is False), which would be closed, too. A reference that is never released keeps even the end of Python
    from closing it.
    """
    if is_ours:
        try:
            mapping.close()
        except BufferError:
            pass  # a reader holds it
        else:
            return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapping))
