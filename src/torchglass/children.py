"""Lets child processes of a program that is recorded into a bundle write to it, each into a part of its own.

A forked child goes on in its own part at once. One that multiprocessing starts anew (spawn, forkserver) is told by
what its parent sends it first: that is unpickled before anything of the program runs. So nothing has to be changed in
the program or in its environment, and a process that a forkserver starts after the recording knows nothing of it.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from torchglass.store import BundleFull, rank

JOIN = "try:\n    from torchglass.recording import join\n    join(told)\nexcept ImportError:\n    pass\n"
"""Run by the child. The builtin ``exec`` is there whether or not the child can import torchglass."""

Told = dict[str, Any]
"""What a child must know: the path, the options, and the run whose bundle it may join."""


class Parent(Protocol):
    """A recording that child processes may join."""

    def go_on_in_child(self) -> None: ...

    def stop(self, error: BaseException | None) -> None: ...


_standing: list[tuple[Parent, Told]] = []
"""The recordings of this process that write to a bundle, and what children are told of each."""
_following: list[bool] = []
_said: list[bool] = []
"""Whether this rank has said that it is recorded into memory only."""
_patched: list[Callable[..., Any]] = []
"""The original of ``multiprocessing.spawn.get_preparation_data``, while ours is in its place."""


class _Joins:
    """Pickles to a call that makes the child join."""

    def __init__(self, told: Told) -> None:
        self.told = told

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (JOIN, {"told": self.told})


def invite(recording: Parent, told: Told) -> None:
    """Let processes that are started from now on write to the same bundle."""
    if not _standing:
        _tell_new_processes()
    _standing.append((recording, told))
    if not _following:  # once in a process, after the recorder's own hook: that one forgets what the parent recorded
        _following.append(True)
        os.register_at_fork(after_in_child=_go_on_in_child)


def uninvite(recording: Parent) -> None:
    """No longer; recordings may end in another order than they began."""
    _standing[:] = [each for each in _standing if each[0] is not recording]
    if not _standing:
        _tell_no_more()


def told() -> Told | None:
    """What child processes of the innermost recording are told; None where they are not recorded."""
    return _standing[-1][1] if _standing else None


# ---------------------------------------------------------------- spawn, forkserver


def _tell_new_processes() -> None:
    from multiprocessing import spawn

    original = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        data = original(name)
        if _standing:
            data["torchglass"] = _Joins(_standing[-1][1])
        return data

    _patched.append(original)
    spawn.get_preparation_data = get_preparation_data


def _tell_no_more() -> None:
    if _patched:
        from multiprocessing import spawn

        spawn.get_preparation_data = _patched.pop()


# ---------------------------------------------------------------- fork


def _go_on_in_child() -> None:
    inherited, _standing[:] = list(_standing), []
    _tell_no_more()
    for recording, _ in inherited:
        try:
            recording.go_on_in_child()
        except Exception as fault:  # the child's program must run, recorded or not
            say_not_recorded(fault)


def say_not_recorded(fault: Exception) -> None:
    """One line, since there is no trace to say it in; of all that find the bundle full, the first says it."""
    if isinstance(fault, BundleFull) and not fault.first:
        return
    sys.stderr.write(f"torchglass: the child process {os.getpid()} is not recorded: {fault}\n")


def say_in_memory(fault: Exception) -> None:
    """One line of a rank that may not write to the bundle, however often that happens to it."""
    if not _said and sys.stderr is not None:
        _said.append(True)
        sys.stderr.write(f"torchglass: rank {rank()} is recorded into memory only: {fault}\n")


def stop_at_exit(recording: Parent) -> None:
    """End a recording when its process does; processes of multiprocessing leave without the usual handlers."""
    atexit.register(recording.stop, None)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        _finalize(recording)
        util.register_after_fork(recording, _finalize)  # a process that has just begun forgets its finalizers


def _finalize(recording: Parent) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, recording.stop, args=(None,), exitpriority=-100)
