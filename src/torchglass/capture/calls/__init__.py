"""Records calls of the program's functions as events, for ``record(calls="user")``."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Protocol

from torchglass.capture.calls.probe import CallsProbe
from torchglass.capture.session import Session


class _Teller(Protocol):
    """Reports calls to the probe, with ``sys.monitoring`` or ``sys.setprofile``."""

    def start(self) -> str | None:
        """Begin; return None, or the reason why that is not possible."""
        ...

    def stop(self) -> str | None:
        """Stop and undo ``start``; return None, or the problem that occurred in between."""
        ...

    def abandon(self) -> None:
        """Stop in a forked child process, which is not recorded."""
        ...


class FunctionCalls:
    """Starts and stops the probe and its source of calls; adds a note if another profiler prevents that."""

    def __init__(self, session: Session, packages: tuple[str, ...]) -> None:
        self._session = session
        self._probe = CallsProbe(session, packages)
        self._teller = _teller(self._probe)

    def start(self) -> None:
        """Record calls from now on."""
        _running.add(self)
        self._note(self._teller.start())

    def stop(self) -> None:
        """Stop recording calls."""
        _running.discard(self)
        self._note(self._teller.stop())
        self._probe.forget()

    def abandon(self) -> None:
        """Switch off without a note in a forked child process."""
        self._teller.abandon()

    def release(self) -> None:
        """Break the reference cycle between the probe and its source of calls, after ``stop``."""
        vars(self._teller).clear()

    def _note(self, problem: str | None) -> None:
        if problem is not None:
            self._session.note(problem)


def _teller(probe: CallsProbe) -> _Teller:
    if hasattr(sys, "monitoring"):
        from torchglass.capture.calls.monitoring import MonitoredCalls

        return MonitoredCalls(probe)
    from torchglass.capture.calls.profiling import ProfiledCalls

    return ProfiledCalls(probe)


_running: weakref.WeakSet[FunctionCalls] = weakref.WeakSet()


def _abandon_all() -> None:
    for calls in tuple(_running):
        calls.abandon()
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
