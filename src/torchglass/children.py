"""Lets child processes write to the bundle of their parent's recording, each into a part of its own.

A forked child continues in its own part at once, by a fork hook. For spawn and forkserver we add an object to the
preparation data that the parent sends: unpickling it in the child calls ``join`` before any code of the program runs.
So neither the program nor its environment has to be changed, and a child that is started after the recording is not
recorded.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torchglass.capture.transparency.features import replaced
from torchglass.store import BundleFull, rank
from torchglass.system import getpid

JOIN = """
try:
    from torchglass.recording import join
except ImportError:
    pass
else:
    join(config)
"""
"""The code that a spawned child runs. It is run by ``exec``, which a child without torchglass has too."""

ChildConfig = dict[str, Any]
"""What a child needs to join: the path, the options, and the id of the run whose bundle it may write to."""


class Parent(Protocol):
    """A recording that child processes may join."""

    def go_on_in_child(self) -> None:
        """Continue in this process, which has just been forked, in a part of its own."""
        ...

    def stop(self, error: BaseException | None) -> None:
        """End the recording."""
        ...


class _Invitation(NamedTuple):
    """A recording that child processes may join, and what they need for that."""

    recording: Parent
    config: ChildConfig


_invitations: list[_Invitation] = []
"""The recordings of this process that write to a bundle, innermost last."""
_has_fork_hook = False
"""Whether the fork hook is registered. It cannot be removed again."""
_warned_in_memory = False
"""Whether it was printed that this rank is recorded into memory only."""


class _Joins:
    """Is unpickled by calling ``join`` in the child."""

    def __init__(self, config: ChildConfig) -> None:
        self.config = config

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (JOIN, {"config": self.config})


def invite(recording: Parent, config: ChildConfig) -> None:
    """Let processes that are started from now on write to the bundle of a recording."""
    global _has_fork_hook
    if not _invitations:
        _SPAWN.install()
    _invitations.append(_Invitation(recording, config))
    if not _has_fork_hook:
        # This comes after the recorder's own fork hook, which clears the parent's state.
        _has_fork_hook = True
        os.register_at_fork(after_in_child=_continue_in_child)


def spawn_problem() -> str | None:
    """Return why spawned processes will not be recorded; None if they will."""
    return _SPAWN.problem


def uninvite(recording: Parent) -> None:
    """Stop inviting child processes to a recording, which need not be the last one that began."""
    _invitations[:] = [each for each in _invitations if each.recording is not recording]
    if not _invitations:
        _SPAWN.remove()


def child_config() -> ChildConfig | None:
    """Return what child processes need to join the innermost recording; None if there is none to join."""
    if _invitations:
        return _invitations[-1].config
    return None


# ---------------------------------------------------------------- spawn, forkserver


def _make_get_preparation_data(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_preparation_data(name: str) -> dict[str, Any]:
        data = original(name)
        if _invitations:
            data["torchglass"] = _Joins(_invitations[-1].config)
        return data

    return get_preparation_data


_SPAWN = replaced(
    "multiprocessing.spawn.get_preparation_data",
    "processes that multiprocessing starts anew",
    _make_get_preparation_data,
)


# ---------------------------------------------------------------- fork


def _continue_in_child() -> None:
    """Continue the parent's recordings in this process, which has just been forked."""
    inherited = list(_invitations)
    _invitations[:] = []
    _SPAWN.remove()
    for recording, _ in inherited:
        try:
            recording.go_on_in_child()
        except Exception as fault:
            # The child's program must run, recorded or not.
            warn_not_recorded(fault)


def warn_not_recorded(fault: Exception) -> None:
    """Print that this process is not recorded. If the bundle is full, only the first process prints that."""
    if isinstance(fault, BundleFull) and not fault.first:
        return
    sys.stderr.write(f"torchglass: the child process {getpid()} is not recorded: {fault}\n")


def warn_in_memory(fault: Exception) -> None:
    """Print once that this rank may not write to the bundle, and so is recorded into memory."""
    global _warned_in_memory
    if not _warned_in_memory and sys.stderr is not None:
        _warned_in_memory = True
        sys.stderr.write(f"torchglass: rank {rank()} is recorded into memory only: {fault}\n")


def stop_at_exit(recording: Parent) -> None:
    """End a recording when its process ends. Processes of multiprocessing do not run the ``atexit`` handlers."""
    atexit.register(recording.stop, None)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        _finalize(recording)
        # A new process clears its finalizers.
        util.register_after_fork(recording, _finalize)


def _finalize(recording: Parent) -> None:
    sys.modules["multiprocessing.util"].Finalize(
        None, recording.stop, args=(None,), exitpriority=-100
    )
