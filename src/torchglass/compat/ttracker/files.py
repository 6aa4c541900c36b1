"""One text file a process and thread, so that workers never write into each other's lines.

A line that was written is in the kernel's hands: a process that is killed loses none. There is no lock, so none can
be held by a thread that a fork leaves behind. Nothing is made before the first line.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class _OpenFile:
    """A file descriptor that is closed with its thread, whose ``threading.local`` is all that holds it."""

    __slots__ = ("__weakref__", "fd", "pid")

    def __init__(self, fd: int, pid: int) -> None:
        self.fd = fd
        self.pid = pid

    def close(self, close: Callable[[int], None] = os.close) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            try:
                close(fd)
            except OSError:
                pass

    __del__ = close


class LineFiles:
    """Appends text to ``process_<pid>_thread_<tid>.log`` in a folder; faults are told once and cost only lines.

    A folder that is removed while the program runs is not made again: the open files go on without a name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._local = threading.local()
        self._open_files: weakref.WeakSet[_OpenFile] = weakref.WeakSet()
        self._told = False
        _ALL.add(self)

    def write(self, text: str) -> None:
        """Append whole lines (the text ends in a newline) to the calling thread's file."""
        file: _OpenFile | None = getattr(self._local, "file", None)
        if file is None or file.pid != os.getpid():
            file = self._open()
        if file.fd < 0:
            return
        data = text.encode("utf-8", "backslashreplace")
        try:
            while data:  # a nearly full disk, or a signal, can take a part only
                data = data[os.write(file.fd, data) :]
        except OSError as fault:
            self._tell(fault)

    def path(self) -> Path:
        """The calling thread's file, whether it is there or not."""
        return self.folder / f"process_{os.getpid()}_thread_{threading.get_native_id()}.log"

    def forget(self) -> None:
        """Give up all open files, in a forked child; the next line opens a new one.

        They are closed one by one: a thread that was writing does not live on in the child, but what it held does.
        """
        for file in list(self._open_files):
            file.close()
        self._local = threading.local()

    def _open(self) -> _OpenFile:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path(), FLAGS, 0o666)
        except OSError as fault:
            self._tell(fault)
            fd = -1  # not tried again for every line of this thread
        file = self._local.file = _OpenFile(fd, os.getpid())
        self._open_files.add(file)
        return file

    def _tell(self, fault: OSError) -> None:
        if self._told:
            return
        self._told = True
        text = (
            f"torchglass cannot write its log in {str(self.folder)!r} ({fault.strerror or fault}): lines are missing "
            f"there, the program goes on. Run it from a folder that can be written, or leave the log handler out"
        )
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        except RuntimeWarning:  # warnings are errors here, but the program did nothing wrong
            pass


_ALL: weakref.WeakSet[LineFiles] = weakref.WeakSet()


def _forget_the_parents() -> None:
    for files in list(_ALL):
        files.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parents)
