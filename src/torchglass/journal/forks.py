"""Detects that this process is a forked child, even if a C library forked without Python's knowledge.

A child shares the parent's mapped files: whatever it wrote there would destroy events of the parent. So everything that
writes to a journal first checks that its process owns it::

    if not owns_journal[0]:
        leave_parent()

The kernel clears one page of memory in every child, so reading one byte is enough to know.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable

from torchglass.compiled import extension

WIPE_ON_FORK = 18
"""MADV_WIPEONFORK of Linux, for which Python has no name. On other systems only ``os.fork`` is detected."""
_page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
with contextlib.suppress(OSError, ValueError):
    _page.madvise(WIPE_ON_FORK)
owns_journal = memoryview(_page)
"""The first byte is 1 in a process that writes only to a journal of its own. It is 0 in a new child."""
owns_journal[0] = 1
_callbacks: list[Callable[[], None]] = []


def in_child(callback: Callable[[], None]) -> None:
    """Register a function to call in each forked child, before any other code of torchglass runs there."""
    _callbacks.append(callback)


def leave_parent() -> None:
    """Forget the journals and recordings of the parent. Called in a forked child before it writes anything."""
    owns_journal[0] = 1
    for callback in _callbacks:
        callback()


os.register_at_fork(after_in_child=leave_parent)
# It is missing without the extension, and in one that was built by an older version.
_watch_forks = getattr(extension, "watch_forks", None)
if _watch_forks is not None:
    _watch_forks(owns_journal, leave_parent)
