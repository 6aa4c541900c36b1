"""Calls of the program's own functions as events: ``record(calls="user")``."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Protocol

from torchglass.capture.calls.probe import CallsProbe
from torchglass.capture.session import Session


class _Teller(Protocol):
    """One way of being told of calls."""

    def start(self) -> str | None:
        """Begin; or why not."""
        ...

    def stop(self) -> str | None:
        """Put back what was there; or what went wrong in between."""
        ...

    def abandon(self) -> None:
        """The same in a forked child, which is not recorded."""
        ...


class FunctionCalls:
    """The probe, and what tells it; a note says where something else is told already."""

    def __init__(self, session: Session, packages: tuple[str, ...]) -> None:
        self._session = session
        self._probe = CallsProbe(session, packages)
        self._teller = _teller(self._probe)

    def start(self) -> None:
        """Record calls from now on."""
        _running.add(self)
        self._note(self._teller.start())

    def stop(self) -> None:
        """Put back what was there."""
        _running.discard(self)
        self._note(self._teller.stop())
        self._probe.forget()

    def abandon(self) -> None:
        """In a forked child: switch off, in silence."""
        self._teller.abandon()

    def let_go(self) -> None:
        """It has stopped, and nobody can call it any more: it and what tells it need not know each other."""
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
