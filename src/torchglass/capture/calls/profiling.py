"""Reports calls with ``sys.setprofile``, before Python 3.12. Python reports all calls; a filter in C drops most.

If a profiler is active already, calls are not recorded. If one starts later, it replaces ours. A note reports both.
"""

from __future__ import annotations

import dis
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.calls.probe import CallsProbe
from torchglass.compiled import extension

PROFILED = "a profiler was at work: calls of the program's functions were not recorded"
REPLACED = "the program changed sys.setprofile inside the block: calls of its functions were not recorded from there on"
_RETURNS = frozenset(number for name, number in dis.opmap.items() if name.startswith("RETURN_"))


class ProfiledCalls:
    """Profiles the thread that starts it, and the threads that begin while it is on."""

    def __init__(self, probe: CallsProbe) -> None:
        self.probe = probe
        self._ours: Any = None
        self._begin_thread: Any = None
        self._is_on = False

    def start(self) -> str | None:
        if sys.getprofile() is not None or threading.getprofile() is not None:
            return PROFILED
        self._ours = self._make()
        self._is_on = True
        self._begin_thread = self._thread_begins
        threading.setprofile(self._begin_thread)
        self._ours.set() if extension is not None else sys.setprofile(self._ours)
        return None

    def stop(self) -> str | None:
        if not self._is_on:
            return None
        is_ours = sys.getprofile() is self._ours
        if is_ours:
            sys.setprofile(None)
        self._turn_off()
        if threading.getprofile() is self._begin_thread:
            threading.setprofile(None)  # type: ignore[arg-type]
        if is_ours:
            return None
        return REPLACED

    def abandon(self) -> None:
        """Switch off without a note in a forked child process."""
        if self._is_on:
            if sys.getprofile() is self._ours:
                sys.setprofile(None)
            self._turn_off()

    def _turn_off(self) -> None:
        """Turn off. The profile function removes itself in other threads when it is next called there."""
        self._is_on = False
        if extension is not None:
            self._ours.on = False

    def _make(self) -> Any:
        probe = self.probe
        if extension is not None:
            return extension.CallFilter(probe.is_meant, probe.begin, self._ended)
        return self._in_python()

    def _ended(self, frame: FrameType, result: Any, failed: bool) -> None:
        if failed:
            self.probe.fail(frame, None)
        else:
            self.probe.end(frame, result)

    def _in_python(self) -> Any:
        probe = self.probe
        plans = self.probe.plans

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            if not self._is_on:
                sys.setprofile(None)
            elif event == "call":
                if probe.is_meant(frame):
                    probe.begin(frame)
            elif event == "return" and plans.get(id(frame.f_code)) is not None:
                self._ended(
                    frame, argument, argument is None and not _returns(frame.f_code, frame.f_lasti)
                )

        return profile

    def _thread_begins(self, frame: FrameType, event: str, argument: Any) -> None:
        """Set our profile function in a thread that has begun, at the first call in the thread."""
        if not self._is_on:
            sys.setprofile(None)
        elif extension is not None:
            self._ours.set()
        else:
            sys.setprofile(self._ours)


def _returns(code: CodeType, at: int) -> bool:
    """Return whether the instruction at an offset is a return; if it is not, an exception has left the call."""
    return at >= 0 and code.co_code[at] in _RETURNS
