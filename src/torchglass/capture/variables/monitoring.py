"""Watches code with ``sys.monitoring``: Python reports single instructions, so each store is seen separately.

Instruction events are switched on for watched code when it is first called. At an instruction with nothing to look at,
they are switched off again after the first event. Line events are not used: Python would report every line of a
function, while we need only the instructions that store or call something.

Most calls can only change variables in place, and mostly there is no variable that they could change. Their events are
switched off as well (the plan is *muted*). When a call of the code gets such a variable (the call is *alert*, see
``Activation``), all events of the code are switched on again and stay on (the plan is *loud*).

All engines of the process share one tool (``monitoring_tool.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.variables.activation import Activation, after_step
from torchglass.capture.variables.bytecode import Mutator
from torchglass.capture.variables.following import ENDED, Following
from torchglass.capture.variables.monitoring_tool import TOOL
from torchglass.capture.variables.plan import Action, Plan
from torchglass.compiled import extension
from torchglass.system import get_ident

_monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.11 has none
_UNKNOWN: Any = object()
_NOTHING_SHADOWED: frozenset[str] = frozenset()


class MonitoringCore:
    """Reports what runs to one engine, as a member of our ``sys.monitoring`` tool."""

    def __init__(self, engine: Following) -> None:
        self.engine = engine
        self.unchained: set[Callable[..., Any]] = set()
        """Required by ``engine.Core``; only settrace.py adds to it."""
        self._events = _monitoring.events.INSTRUCTION | _monitoring.events.PY_RETURN
        self._block = 0

    def start(self, frame: FrameType) -> None:
        TOOL.join(self)
        plan = self.engine.plan_for(frame)
        if plan is not None:
            self.engine.begin(frame, plan, silent=True).skipped_line = frame.f_lineno
            self._block = id(frame)
            self.switch_on(plan)
        TOOL.begin(self)

    def callbacks(self, depth: int) -> dict[int, Callable[..., Any]]:
        """Return the callback for each event; the frame that runs is ``depth`` calls above the callback."""
        events = _monitoring.events
        return {
            events.PY_START: self._compiled("start", _make_start(self, depth, silent=False), depth),
            events.PY_RESUME: self._compiled(
                "resume", _make_start(self, depth, silent=True), depth
            ),
            events.INSTRUCTION: self._compiled(
                "instruction", _make_instruction(self, depth), depth
            ),
            events.PY_RETURN: self._compiled("return", _make_return(self, depth), depth),
            events.PY_UNWIND: self._compiled("unwind", _make_unwind(self, depth), depth),
        }

    def _compiled(self, event: str, callback: Callable[..., Any], depth: int) -> Callable[..., Any]:
        """Return the callback in C if possible (``capture/engine/fast/monitoring.c``), otherwise this callback.

        The callback in C calls this one for unusual cases.
        """
        if extension is None:
            return callback
        engine = self.engine
        shared = (engine, engine.plans, engine.running, engine.imports)
        return extension.Callback(event, *shared, _monitoring.DISABLE, callback, depth)

    def stop(self) -> None:
        TOOL.end(self)
        # The frame of the ``with`` block goes on running, so its last look is taken here.
        activation = self.engine.running.get(self._block)
        frame = sys._getframe(1)
        while frame is not None and id(frame) != self._block:
            frame = frame.f_back
        if activation is not None and frame is not None:
            try:
                activation.end(frame, frame.f_lasti, frame.f_lineno)
            except Exception as fault:
                self.engine.fault(fault)
        self.abandon()

    def interrupted(self) -> None:
        """Do nothing, because Python keeps a callback that raises an exception."""

    def abandon(self) -> None:
        TOOL.leave(self)

    def release(self) -> None:
        self.engine = ENDED

    def switch_on(self, plan: Plan) -> None:
        """Ask for instruction events of a code object."""
        if not plan.is_on:
            plan.is_on = True
            TOOL.ask(self, plan.code, self._events)

    def ask_for_end(self, code: CodeType) -> None:
        """Ask for the returns of a code object. Python reports calls that an exception ends anyway."""
        TOOL.ask(self, code, _monitoring.events.PY_RETURN)

    def unmute(self, plan: Plan) -> None:
        """Switch on all events of a plan's code again, and leave them on from now on."""
        plan.is_muted = False
        plan.is_loud = True
        TOOL.ask_again(plan.code)


def _make_start(core: MonitoringCore, depth: int, silent: bool) -> Callable[[CodeType, int], Any]:
    engine = core.engine
    disable = _monitoring.DISABLE
    plans = engine.plans
    running = engine.running
    imports = engine.imports

    def start(code: CodeType, offset: int) -> Any:
        try:
            plan = plans.get(id(code), _UNKNOWN)
            if plan is None:
                return disable
            if imports and get_ident() in imports:
                return None
            frame = sys._getframe(depth)
            if plan is _UNKNOWN:
                if engine.begins_import(frame):
                    core.ask_for_end(code)
                    return None
                plan = engine.plan_for(frame)
                if plan is None:
                    return disable
            known = None
            if silent:
                known = running.get(id(frame))
            if (
                (known is None or known.plan is not plan)
                and not engine.closed
                and engine.owns_thread()
            ):
                core.switch_on(plan)
                engine.begin(frame, plan, silent)
        except Exception as fault:
            engine.fault(fault)
        return None

    return start


def _make_instruction(core: MonitoringCore, depth: int) -> Callable[[CodeType, int], Any]:
    engine = core.engine
    disable = _monitoring.DISABLE
    get_frame = sys._getframe
    plans = engine.plans
    running = engine.running

    def instruction(code: CodeType, offset: int) -> Any:
        try:
            plan = plans.get(id(code))
            action = None
            if plan is not None:
                action = plan.after.get(offset)
            if plan is None or action is None:
                return disable
            if _sees_nothing(action, plan):
                if plan.is_loud:
                    return None
                plan.is_muted = True
                return disable
            frame = get_frame(depth)
            activation = running.get(id(frame))
            if activation is None or activation.plan is not plan or engine.closed:
                return None
            if activation.skipped_line and activation.skipped_line == action.line:
                return None
            if action.handles:
                _after_exception(activation, frame, sys.exception())
            after_step(activation, action, frame)
        except Exception as fault:
            engine.fault(fault)
        return None

    return instruction


def _sees_nothing(action: Action, plan: Plan) -> bool:
    """Return whether an instruction can change nothing that we follow.

    It only calls something and names no variable, and no call of this code has variables that can change without being
    named.
    """
    return action.mentioned == () and action.is_quiet and not plan.alert


def _make_return(core: MonitoringCore, depth: int) -> Callable[[CodeType, int, Any], Any]:
    engine = core.engine

    def py_return(code: CodeType, offset: int, result: Any) -> None:
        try:
            frame = sys._getframe(depth)
            if engine.imports:
                engine.ends_import(frame)
            activation = engine.running.pop(id(frame), None)
            if activation is not None and activation.plan.code is code:
                activation.end(frame, offset, frame.f_lineno)
                engine.left(activation, None)
        except Exception as fault:
            engine.fault(fault)

    return py_return


def _make_unwind(core: MonitoringCore, depth: int) -> Callable[[CodeType, int, BaseException], Any]:
    engine = core.engine

    def py_unwind(code: CodeType, offset: int, error: BaseException) -> None:
        try:
            frame = sys._getframe(depth)
            if engine.imports:
                engine.ends_import(frame)
            activation = engine.running.pop(id(frame), None)
            if activation is not None and activation.plan.code is code:
                _after_exception(activation, frame, error)
                activation.end(frame, offset, frame.f_lineno)
                engine.left(activation, error)
        except Exception as fault:
            engine.fault(fault)

    return py_unwind


def _after_exception(activation: Activation, frame: FrameType, error: BaseException | None) -> None:
    """Look at what an interrupted step may have changed; the traceback has the instruction in this frame."""
    place = None
    if error is not None:
        place = error.__traceback__
    while place is not None:
        if place.tb_frame is frame:
            mutator = activation.plan.mutator_at.get(place.tb_lasti)
            if mutator is None:
                mutator = Mutator(place.tb_lasti, place.tb_lineno, None, _NOTHING_SHADOWED, None)
            activation.look(mutator, None, frame)
            return
        place = place.tb_next
