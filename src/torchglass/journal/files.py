"""Write to files without being killed: reserve disk space, refuse large files with an error, notice truncation."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

MAX_WRITE = 1 << 26
"""Bytes that one system call writes at most."""


def write_all(file: int, content: Any, offset: int) -> None:
    """Write all bytes, with as many system calls as it takes."""
    view = memoryview(content).cast("B")
    with refusing_large_files():
        while len(view):
            written = os.pwrite(file, view[:MAX_WRITE], offset)
            view = view[written:]
            offset += written


def allocate(file: int, offset: int, size: int) -> None:
    """Allocate room on the disk. Raise OSError if there is none."""
    with refusing_large_files():
        os.posix_fallocate(file, offset, size)


TRUNCATED = "somebody cut it off while it was being written"


def check_length(file: int, end: int) -> None:
    """Raise OSError if a file that is mapped up to ``end`` was truncated, and extend it to its former length.

    A store beyond the end of a mapped file would kill the process with SIGBUS. The truncated content is lost.
    """
    length = os.fstat(file).st_size
    if length < end:
        allocate(file, length, end - length)
        raise OSError(TRUNCATED)


@contextlib.contextmanager
def refusing_large_files() -> Generator[None]:
    """Raise an error where a write in the block exceeds RLIMIT_FSIZE. Its signal SIGXFSZ would kill the process.

    Python ignores that signal, but the program may have changed that. The signal is sent to the thread that writes, so
    it is enough to block it there.
    """
    if not hasattr(signal, "sigtimedwait"):
        yield
        return
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXFSZ])
    try:
        yield
    finally:
        if signal.SIGXFSZ not in blocked:
            signal.sigtimedwait([signal.SIGXFSZ], 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGXFSZ])


def file_system(folder: Path) -> str | None:
    """Return the type of the file system of a folder, or None if the system does not say."""
    try:
        device = folder.stat().st_dev
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    device_number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        if mount.split(" ")[2:3] == [device_number]:
            return rest.split(" ")[0]
    return None
