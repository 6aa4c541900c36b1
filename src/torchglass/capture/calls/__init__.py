"""Calls of the program's own functions as events: ``record(calls="user")``."""

from __future__ import annotations

import sys
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


class FunctionCalls:
    """The probe, and what tells it; a note says where something else is told already."""

    def __init__(self, session: Session, packages: tuple[str, ...]) -> None:
        self._session = session
        self._probe = CallsProbe(session, packages)
        self._teller = _teller(self._probe)

    def start(self) -> None:
        """Record calls from now on."""
        self._note(self._teller.start())

    def stop(self) -> None:
        """Put back what was there."""
        self._note(self._teller.stop())
        self._probe.forget()

    def _note(self, problem: str | None) -> None:
        if problem is not None:
            self._session.note(problem)


def _teller(probe: CallsProbe) -> _Teller:
    if hasattr(sys, "monitoring"):
        from torchglass.capture.calls.monitoring import MonitoredCalls

        return MonitoredCalls(probe)
    from torchglass.capture.calls.profiling import ProfiledCalls

    return ProfiledCalls(probe)
