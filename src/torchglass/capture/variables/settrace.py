"""Watching by ``sys.settrace``: Python tells before each line, so what the line before it has stored is looked at.

A line that stores a name twice is followed by the instruction (not on Python 3.12, which then tells the last only).
Whoever traced before, a debugger or coverage, is called first and goes on as if alone.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from types import FrameType, FunctionType
from typing import Any

from torchglass.capture.variables.activation import Activation, look_behind
from torchglass.capture.variables.following import ENDED, Following
from torchglass.capture.variables.plan import NOTHING, Plan
from torchglass.compiled import extension

Trace = Callable[..., Any]

REPLACED = "the program changed sys.settrace inside the block: variables were not followed from there on"
TAKEN_AWAY = (
    "the trace function was taken away inside the block, by the program or by an exception of a signal handler: "
    "variables were not followed from there on"
)
INTERRUPTED = (
    "an exception of a signal handler fell into the following of variables: what was assigned from there to the next "
    "call of torch is not known"
)

_UNKNOWN: Any = object()
_TRACERS = (FunctionType,) if extension is None else (FunctionType, extension.Tracer)
_FOR_THREADS = threading.RLock()
"""Held while the trace function of threads to come is changed: engines may begin and end in several threads at once."""


class SettraceCore:
    """Traces the thread that starts it and those that begin while it is on."""

    def __init__(self, engine: Following) -> None:
        self.engine = engine
        self.tracers: dict[Trace, Any] = {}
        """Our trace functions, each with the one that it stands before."""
        self.alone: set[Trace] = set()
        """Those of them that stand before nobody's."""
        self._thread_tracer: Trace | None = None
        self.has_left = False
        """Whether what it stands before need not come back to it any more."""
        self._block: tuple[FrameType, Any, bool] | None = None
        self._block_line = 0
        self._is_interrupted = False

    def start(self, frame: FrameType) -> None:
        engine = self.engine
        tracer = self.make_tracer(sys.gettrace())
        with _FOR_THREADS:
            self._thread_tracer = self.make_tracer(threading.gettrace())
            threading.settrace(self._thread_tracer)
        plan = engine.plan_for(frame)
        if plan is not None:
            before = frame.f_trace
            self._block, self._block_line = (frame, before, frame.f_trace_opcodes), frame.f_lineno
            ours = _make_local(self, engine.begin(frame, plan, silent=True))
            frame.f_trace = ours if before is None else _Chain(self, tracer, (ours, before), frame)
        sys.settrace(tracer)

    def stop(self) -> None:
        current = sys.gettrace()
        if current is not None and current in self.tracers:
            sys.settrace(_at_work(self.tracers[current]))
        elif current is None and self._is_interrupted:
            pass  # said already
        elif not any(_stands_before(current, each) for each in self.tracers):
            # One written in Python can be interrupted before its first instruction, where nothing of it notices.
            self.engine.note(TAKEN_AWAY if current is None and extension is None else REPLACED)
        self._leave_threads()
        self._leave_block()

    def unmute(self, plan: Plan) -> None:
        """Lines are never switched off."""

    def interrupted(self) -> None:
        """Python takes away a trace function that an exception leaves: somebody else has to put it back."""
        current = sys.gettrace()
        self.engine.note(INTERRUPTED)
        self._is_interrupted = True
        if current is not None and current in self.alone:
            self.engine.on_interrupt(current)

    def abandon(self) -> None:
        self._block = None
        self.release_thread()
        self._leave_threads()

    def let_go(self) -> None:
        self.engine = ENDED
        self.tracers.clear()
        self.alone.clear()

    def release_thread(self) -> None:
        """Stop tracing the calling thread, if that is still our doing; also when this was let go of."""
        current = sys.gettrace()
        if _core_of(current) is self:
            sys.settrace(_at_work(_before(current)))

    def _leave_threads(self) -> None:
        """Threads that begin from now on are not traced by us."""
        with _FOR_THREADS:
            self.has_left = True
            if threading.gettrace() is self._thread_tracer and self._thread_tracer is not None:
                threading.settrace(_at_work(self.tracers[self._thread_tracer]))
            self._thread_tracer = None

    def make_tracer(self, previous: Trace | None) -> Trace:
        tracer: Any = _make_tracer(self) if previous is None else _make_chained(self, previous)
        tracer.core, tracer.previous = self, previous
        self.tracers[tracer] = previous
        if previous is None:
            self.alone.add(tracer)
        return tracer

    def _leave_block(self) -> None:
        """Give the block's frame back; the last line has been done, but no event has told so."""
        if self._block is None:
            return
        frame, before, opcodes = self._block
        self._block = None
        frame.f_trace, frame.f_trace_opcodes = before, opcodes
        activation = self.engine.running.get(id(frame))
        if activation is None:
            return
        try:
            if frame.f_lineno != self._block_line:
                activation.done(activation.pending or NOTHING, frame)
            activation.end(frame, frame.f_lasti, frame.f_lineno)
        except Exception as fault:
            self.engine.fault(fault)


def _at_work(tracer: Trace | None) -> Trace | None:
    """The trace function to go back to: engines that have ended since, in whatever order, are passed over."""
    while (core := _core_of(tracer)) is not None and core.has_left:
        tracer = _before(tracer)
    return tracer


def _core_of(tracer: Any) -> SettraceCore | None:
    """Whose trace function it is; None: not ours. A dictionary is asked, and no attribute, which could be code."""
    core = tracer.__dict__.get("core") if type(tracer) in _TRACERS else None
    return core if isinstance(core, SettraceCore) else None


def _before(tracer: Any) -> Trace | None:
    """The trace function that one of ours stands before."""
    return tracer.__dict__["previous"]


def _make_tracer(core: SettraceCore) -> Trace:
    """The function for ``sys.settrace`` where nobody else traces; Python tells it of calls only."""
    engine = core.engine
    plans = engine.plans
    if extension is not None:
        shared = (engine, plans, engine.running, engine.imports)
        return extension.Tracer(core, *shared, _begin, _UNKNOWN, _on_other, _follow)

    def tracer(frame: FrameType, event: str, argument: Any) -> Any:
        try:
            plan = plans.get(id(frame.f_code), _UNKNOWN)
            if plan is None and not engine.closed:
                return None
            return _begin(core, frame, plan)
        except BaseException as fault:
            engine.fault(fault)
            return None

    return tracer


def _begin(core: SettraceCore, frame: FrameType, plan: Plan | None) -> Any:
    """The local trace function for a call that begins, or for a generator that goes on."""
    engine = core.engine
    if engine.closed:
        core.release_thread()
        return None
    if engine.imports and get_ident() in engine.imports:
        return None
    if plan is _UNKNOWN:
        if engine.begins_import(frame):
            frame.f_trace_lines = sys.gettrace() not in core.alone  # only the end matters
            return _make_import_local(engine)
        plan = engine.plan_for(frame)
    if plan is None:
        return None
    is_new = not plan.suspends or frame.f_lasti <= plan.start
    known = None if is_new else engine.running.get(id(frame))
    if known is not None and known.plan is plan:
        return known.local
    local = _make_local(core, engine.begin(frame, plan, silent=not is_new))
    if not plan.lines and sys.gettrace() in core.alone:
        frame.f_trace_lines = False  # only the end of the call matters, and nobody else wants the lines
    return local


def _make_import_local(engine: Following) -> Trace:
    """The local trace function of a call that imports something installed."""

    def on_import(frame: FrameType, event: str, argument: Any) -> None:
        if event == "return":
            engine.ends_import(frame)

    return on_import


def _make_chained(core: SettraceCore, previous: Trace) -> Trace:
    """The function for ``sys.settrace`` where somebody traces already."""
    ours = _make_tracer(core)

    def chained(frame: FrameType, event: str, argument: Any) -> Any:
        theirs = previous(frame, event, argument)
        local = ours(frame, event, argument)
        tracer = _stay(core, chained)
        if local is None or theirs is None:
            return local or theirs
        return _Chain(core, tracer, (local, theirs), frame)

    return chained


def _stay(core: SettraceCore, tracer: Trace) -> Trace:
    """Be the thread's trace function again after the previous one was called.

    coverage's C tracer installs itself whenever it is called; in a new thread coverage first installs a function
    that makes the real tracer; a debugger that has nothing more to do installs None.
    """
    current = sys.gettrace()
    if current is tracer or current in core.tracers or core.engine.closed or _stands_before(current, tracer):
        return tracer
    if current is not core.tracers[tracer]:
        tracer = core.make_tracer(current)
    sys.settrace(tracer)
    return tracer


def _stands_before(current: Any, tracer: Trace) -> bool:
    """Whether the thread's trace function is that of a recording inside of this one, which calls this one."""
    while current is not tracer and _core_of(current) is not None:
        current = _before(current)
    return current is tracer


class _Chain:
    """Two local trace functions on one frame."""

    __slots__ = ("activation", "core", "ours", "theirs", "tracer")

    def __init__(self, core: SettraceCore, tracer: Trace, both: tuple[Trace, Trace], frame: FrameType) -> None:
        self.core = core
        self.tracer = tracer
        self.ours, self.theirs = both
        self.activation = core.engine.running.get(id(frame))

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        us = self.activation
        if event != "opcode" or us is None or us.opcodes_before or not us.is_exact:
            self.theirs = self.theirs(frame, event, argument) or self.theirs
            self.tracer = _stay(self.core, self.tracer)
        self.ours(frame, event, argument)
        return self


def _make_local(core: SettraceCore, activation: Activation) -> Trace:
    """The local trace function of one call; what comes before the first ``return`` is all that most lines cost."""
    engine, plan = core.engine, activation.plan
    if extension is not None:
        activation.local = extension.Local(core, activation, plan.lines, plan.always, plan.suspends, _on_other, _follow)
        return activation.local
    action_on, always = plan.lines.get, plan.always

    def local(frame: FrameType, event: str, argument: Any) -> None:
        if event != "line":
            _on_other(core, activation, frame, (event, argument))
            return
        try:
            todo = activation.pending
            now = activation.pending = action_on(frame.f_lineno)
            is_idle = todo is None or (todo.is_quiet and not (activation.open or activation.alone or always))
            if is_idle and (now is None or not now.exact):
                return
            if engine.closed:
                core.release_thread()
                return
            if todo is not None:
                activation.done(todo, frame)
            exact = now is not None and now.exact
            if exact is not activation.is_exact or activation.error is not None:
                _follow(activation, frame, exact)
        except BaseException as fault:
            engine.fault(fault)

    activation.local = local
    return local


def _on_other(core: SettraceCore, activation: Activation, frame: FrameType, what: tuple[str, Any]) -> None:
    """An event that tells of no line."""
    try:
        if core.engine.closed:
            core.release_thread()
        else:
            _EVENTS[what[0]](core.engine, activation, frame, what[1])
    except BaseException as fault:
        core.engine.fault(fault)


def _follow(activation: Activation, frame: FrameType, exact: bool) -> None:
    """Switch from lines to instructions and back; an exception that got here was handled, so it is let go."""
    if exact and not activation.is_exact:
        activation.opcodes_before, frame.f_trace_opcodes = frame.f_trace_opcodes, True
    elif activation.is_exact and not exact:
        frame.f_trace_opcodes = activation.opcodes_before
    activation.is_exact = exact
    if isinstance(activation.error, BaseException):
        activation.error = type(activation.error).__name__


def _on_opcode(engine: Following, activation: Activation, frame: FrameType, argument: Any) -> None:
    plan, offset = activation.plan, frame.f_lasti
    for target in plan.before.get(offset, ()):
        activation.unbound_before(target, frame)
    action = plan.after.get(offset) if activation.is_exact else None
    if action is None:
        return
    if activation.pending is None or not activation.pending.is_shared:
        action = action._replace(mutator=None)
    if action.fast or action.targets or action.roots or action.mutator is not None:
        look_behind(activation, action, frame)


def _on_exception(engine: Following, activation: Activation, frame: FrameType, argument: Any) -> None:
    activation.error = argument[1] if isinstance(argument[1], BaseException) else argument[0].__name__
    activation.pending = (activation.pending or NOTHING)._replace(
        is_quiet=False
    )  # so that the next line lets the exception go


def _on_return(engine: Following, activation: Activation, frame: FrameType, argument: Any) -> None:
    """A return, a yield, or an exception on its way out: then Python gives None, and the last instruction tells."""
    plan, offset, last = activation.plan, frame.f_lasti, activation.pending
    if last is not None:
        look_behind(activation, last, frame)
    if offset in plan.yields and not isinstance(activation.error, BaseException):
        return
    if activation.open or plan.always:
        looked = last is not None and last.mutator is not None and not last.mutator.shadowed
        activation.end(frame, offset, frame.f_lineno, looked)
    error = None if offset in plan.returns else activation.error
    activation.local = activation.error = None
    if engine.running.get(id(frame)) is activation:
        del engine.running[id(frame)]
    engine.left(activation, error)


_EVENTS = {"opcode": _on_opcode, "exception": _on_exception, "return": _on_return}

if hasattr(os, "register_at_fork"):
    # A child whose parent forked while another thread had it would wait for ever.
    os.register_at_fork(
        before=_FOR_THREADS.acquire, after_in_parent=_FOR_THREADS.release, after_in_child=_FOR_THREADS.release
    )
