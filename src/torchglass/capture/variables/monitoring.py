"""Watching by ``sys.monitoring``: Python tells before chosen instructions, so each store is seen by itself.

Events of instructions are switched on for watched code when it is first called; at all places where nothing is to
be looked at the first event is also the last. Events of lines would cost more the longer the function is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from torchglass.capture.variables.activation import Activation
from torchglass.capture.variables.bytecode import Mutator
from torchglass.capture.variables.plan import Plan

if TYPE_CHECKING:
    from torchglass.capture.variables.engine import Engine

_monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.11 has none
_FIRST_CHOICES = (4, 3)
"""0, 1, 2 and 5 are by convention a debugger's, coverage's, a profiler's and an optimizer's."""
_IDS = range(6)
_UNKNOWN: Any = object()
_NOWHERE: frozenset[str] = frozenset()


def has_free_id() -> bool:
    """Whether another tool can begin."""
    return any(_monitoring.get_tool(number) is None for number in _IDS)


class MonitoringCore:
    """One tool of ``sys.monitoring``."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.alone: set[Callable[..., Any]] = set()
        self._tool: int | None = None
        self._on: dict[int, CodeType] = {}
        self._local_events = 0
        self._block = 0

    def start(self, frame: FrameType) -> None:
        self._tool = _take_id()
        events = _monitoring.events
        callbacks = _callbacks(self)
        for event, callback in callbacks.items():
            _monitoring.register_callback(self._tool, event, callback)
        self._local_events = events.INSTRUCTION | events.PY_RETURN
        plan = self.engine.plan_for(frame)
        if plan is not None:
            self.engine.begin(frame, plan, silent=True).skipped_line = frame.f_lineno
            self._block = id(frame)
            self.switch_on(plan)
        _monitoring.set_events(self._tool, events.PY_START | events.PY_RESUME | events.PY_UNWIND)

    def stop(self) -> None:
        if self._tool is not None:
            _monitoring.set_events(self._tool, 0)
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

    def abandon(self) -> None:
        """Every event and callback by itself: freeing the id alone would leave them."""
        tool, self._tool = self._tool, None
        if tool is None:
            return
        _monitoring.set_events(tool, 0)
        while self._on:
            _monitoring.set_local_events(tool, self._on.popitem()[1], 0)
        for event in _callbacks(self):
            _monitoring.register_callback(tool, event, None)
        _monitoring.free_tool_id(tool)

    def switch_on(self, plan: Plan) -> None:
        """Ask for the instructions of a code object."""
        if not plan.is_on and self._tool is not None:
            plan.is_on = True
            self._ask(plan.code, self._local_events)

    def ask_for_end(self, code: CodeType) -> None:
        """Only of a return; Python tells of all calls that an exception ends."""
        self._ask(code, _monitoring.events.PY_RETURN)

    def _ask(self, code: CodeType, events: int) -> None:
        if self._tool is not None:
            self._on[id(code)] = code
            _monitoring.set_local_events(self._tool, code, events)

    def unmute(self, plan: Plan) -> None:
        plan.is_muted, plan.is_loud = False, True
        if self._tool is not None:
            _monitoring.set_local_events(self._tool, plan.code, 0)
            _monitoring.set_local_events(self._tool, plan.code, self._local_events)


def _take_id() -> int:
    for number in (*_FIRST_CHOICES, *_IDS):
        try:
            _monitoring.use_tool_id(number, "torchglass")
        except ValueError:
            continue
        return number
    raise RuntimeError("all ids of sys.monitoring are taken")


def _callbacks(core: MonitoringCore) -> dict[int, Callable[..., Any]]:
    events = _monitoring.events
    return {
        events.PY_START: _make_start(core, silent=False),
        events.PY_RESUME: _make_start(core, silent=True),
        events.INSTRUCTION: _make_instruction(core),
        events.PY_RETURN: _make_return(core),
        events.PY_UNWIND: _make_unwind(core),
    }


def _make_start(core: MonitoringCore, silent: bool) -> Callable[[CodeType, int], Any]:
    engine, disable = core.engine, _monitoring.DISABLE
    plans, running, imports = engine.plans, engine.running, engine.imports

    def start(code: CodeType, offset: int) -> Any:
        try:
            plan = plans.get(id(code), _UNKNOWN)
            if plan is None:
                return disable
            if imports and get_ident() in imports:
                return None
            frame = sys._getframe(1)
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


def _make_instruction(core: MonitoringCore) -> Callable[[CodeType, int], Any]:
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
            frame = get_frame(1)
            activation = running.get(id(frame))
            if activation is None or activation.plan is not plan or engine.closed:
                return None
            if activation.skipped_line and activation.skipped_line == action.line:
                return None
            if action.handles:
                _look_behind(activation, frame, sys.exception())
            activation.done(action, frame)
        except Exception as fault:
            engine.fault(fault)
        return None

    return instruction


def _make_return(core: MonitoringCore) -> Callable[[CodeType, int, Any], Any]:
    engine = core.engine

    def py_return(code: CodeType, offset: int, result: Any) -> None:
        try:
            frame = sys._getframe(1)
            if engine.imports:
                engine.ends_import(frame)
            activation = engine.running.pop(id(frame), None)
            if activation is not None and activation.plan.code is code:
                activation.end(frame, offset, frame.f_lineno)
                engine.left(activation, None)
        except Exception as fault:
            engine.fault(fault)

    return py_return


def _make_unwind(core: MonitoringCore) -> Callable[[CodeType, int, BaseException], Any]:
    engine = core.engine

    def py_unwind(code: CodeType, offset: int, error: BaseException) -> None:
        try:
            frame = sys._getframe(1)
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
