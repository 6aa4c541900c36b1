"""Reports calls with ``sys.monitoring``: the first call of each function, then only calls of recorded functions.

The following of variables uses the same tool (``variables/monitoring_tool.py``), because two tools on the same code
lose each other's events.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from torchglass.capture.calls.probe import CallsProbe
from torchglass.capture.variables.monitoring_tool import TOOL

NO_TOOL = "all ids of sys.monitoring are taken: calls of the program's functions were not recorded"
PROFILED = "a profiler was at work: calls of the program's functions were not recorded"

_monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.11 has none


class MonitoredCalls:
    """Reports calls to one probe, as a member of our ``sys.monitoring`` tool."""

    def __init__(self, probe: CallsProbe) -> None:
        self.probe = probe
        self.asked: set[int] = set()
        """The ``id`` of each code object whose returns are reported; the probe keeps the code objects alive."""

    def start(self) -> str | None:
        if (
            _monitoring.get_tool(_monitoring.PROFILER_ID) is not None
            or sys.getprofile() is not None
        ):
            return PROFILED
        if not TOOL.can_be_had():
            return NO_TOOL
        TOOL.join(self)
        TOOL.begin(self)
        return None

    def stop(self) -> str | None:
        TOOL.leave(self)
        return None

    def abandon(self) -> None:
        """Switch off without a note in a forked child process."""
        TOOL.leave(self)

    def callbacks(self, depth: int) -> dict[int, Callable[..., Any]]:
        """Return the callback for each event; the frame that runs is ``depth`` calls above the callback."""
        events = _monitoring.events
        disable = _monitoring.DISABLE
        return {
            events.PY_START: _make_start(self, depth),
            events.PY_RESUME: lambda code, offset: disable,
            events.INSTRUCTION: lambda code, offset: disable,
            events.PY_RETURN: _make_return(self.probe, depth),
            events.PY_UNWIND: _make_unwind(self.probe, depth),
        }


def _make_start(calls: MonitoredCalls, depth: int) -> Callable[[CodeType, int], Any]:
    probe = calls.probe
    asked = calls.asked
    disable = _monitoring.DISABLE

    def start(code: CodeType, offset: int) -> Any:
        frame = sys._getframe(depth)
        if not probe.is_meant(frame):
            return disable
        if id(code) not in asked:
            asked.add(id(code))
            TOOL.ask(calls, code, _monitoring.events.PY_RETURN)
        probe.begin(frame)
        return None

    return start


def _make_return(probe: CallsProbe, depth: int) -> Callable[[CodeType, int, Any], Any]:
    def py_return(code: CodeType, offset: int, result: Any) -> None:
        if probe.plans.get(id(code)) is not None:
            probe.end(sys._getframe(depth), result)

    return py_return


def _make_unwind(probe: CallsProbe, depth: int) -> Callable[[CodeType, int, BaseException], Any]:
    def py_unwind(code: CodeType, offset: int, error: BaseException) -> None:
        if probe.plans.get(id(code)) is not None:
            probe.fail(sys._getframe(depth), error)

    return py_unwind
