"""Watching by ``sys.monitoring``: Python tells before chosen instructions, so each store is seen by itself.

Events of instructions are switched on for watched code when it is first called; at all places where nothing is to
be looked at the first event is also the last. Events of lines would cost more the longer the function is.

All engines of the process are one tool (``monitoring_tool.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.variables.activation import Activation, look_behind
from torchglass.capture.variables.bytecode import Mutator
from torchglass.capture.variables.following import ENDED, Following
from torchglass.capture.variables.monitoring_tool import TOOL
from torchglass.capture.variables.plan import Plan
from torchglass.compiled import extension

_monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.11 has none
_UNKNOWN: Any = object()
_NOWHERE: frozenset[str] = frozenset()


class MonitoringCore:
    """One engine's part in our tool of ``sys.monitoring``."""

    def __init__(self, engine: Following) -> None:
        self.engine = engine
        self.alone: set[Callable[..., Any]] = set()
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
        """What is to be called for each event; the frame that it is of is so many calls away."""
        events = _monitoring.events
        return {
            events.PY_START: self._compiled("start", _make_start(self, depth, silent=False), depth),
            events.PY_RESUME: self._compiled("resume", _make_start(self, depth, silent=True), depth),
            events.INSTRUCTION: self._compiled("instruction", _make_instruction(self, depth), depth),
            events.PY_RETURN: self._compiled("return", _make_return(self, depth), depth),
            events.PY_UNWIND: self._compiled("unwind", _make_unwind(self, depth), depth),
        }

    def _compiled(self, event: str, callback: Callable[..., Any], depth: int) -> Callable[..., Any]:
        """The callback in C where it can be (``capture/engine/fast/monitoring.c``); this one does what is unusual."""
        if extension is None:
            return callback
        engine = self.engine
        shared = (engine, engine.plans, engine.running, engine.imports)
        return extension.Callback(event, *shared, _monitoring.DISABLE, callback, depth)

    def stop(self) -> None:
        TOOL.end(self)
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
        """Callbacks stay when an exception leaves them."""

    def abandon(self) -> None:
        TOOL.leave(self)

    def let_go(self) -> None:
        self.engine = ENDED

    def switch_on(self, plan: Plan) -> None:
        """Ask for the instructions of a code object."""
        if not plan.is_on:
            plan.is_on = True
            TOOL.ask(self, plan.code, self._events)

    def ask_for_end(self, code: CodeType) -> None:
        """Only of a return; Python tells of all calls that an exception ends."""
        TOOL.ask(self, code, _monitoring.events.PY_RETURN)

    def unmute(self, plan: Plan) -> None:
        plan.is_muted, plan.is_loud = False, True
        TOOL.ask_again(plan.code)


def _make_start(core: MonitoringCore, depth: int, silent: bool) -> Callable[[CodeType, int], Any]:
    engine, disable = core.engine, _monitoring.DISABLE
    plans, running, imports = engine.plans, engine.running, engine.imports

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
            known = running.get(id(frame)) if silent else None
            if (known is None or known.plan is not plan) and not engine.closed and engine.owns_thread():
                core.switch_on(plan)
                engine.begin(frame, plan, silent)
        except Exception as fault:
            engine.fault(fault)
        return None

    return start


def _make_instruction(core: MonitoringCore, depth: int) -> Callable[[CodeType, int], Any]:
    engine, disable, get_frame = core.engine, _monitoring.DISABLE, sys._getframe
    plans, running = engine.plans, engine.running

    def instruction(code: CodeType, offset: int) -> Any:
        try:
            plan = plans.get(id(code))
            action = plan.after.get(offset) if plan is not None else None
            if plan is None or action is None:
                return disable
            if action.mentioned == () and action.is_quiet and not plan.alert:
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
                _look_behind(activation, frame, sys.exception())
            look_behind(activation, action, frame)
        except Exception as fault:
            engine.fault(fault)
        return None

    return instruction


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
                _look_behind(activation, frame, error)
                activation.end(frame, offset, frame.f_lineno)
                engine.left(activation, error)
        except Exception as fault:
            engine.fault(fault)

    return py_unwind


def _look_behind(activation: Activation, frame: FrameType, error: BaseException | None) -> None:
    """What was interrupted may have changed values: the exception knows where this frame stood."""
    place = error.__traceback__ if error is not None else None
    while place is not None:
        if place.tb_frame is frame:
            mutator = activation.plan.mutator_at.get(place.tb_lasti)
            where = Mutator(place.tb_lasti, place.tb_lineno, None, _NOWHERE, None)
            activation.look(mutator or where, None, frame)
            return
        place = place.tb_next
