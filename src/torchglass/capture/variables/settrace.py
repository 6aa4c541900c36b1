"""Watches code with ``sys.settrace``: Python reports each line before it runs, so we then look at the line before.

A line that stores a name twice is followed instruction by instruction (on Python 3.12 only the last store is reported).
If a debugger or coverage traces already, its trace function is called first and works as if we were not there.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

from torchglass.capture.variables.activation import Activation, after_step
from torchglass.capture.variables.following import ENDED, Following
from torchglass.capture.variables.plan import NOTHING, Plan
from torchglass.compiled import extension
from torchglass.system import get_ident

Trace = Callable[..., Any]

REPLACED = (
    "the program changed sys.settrace inside the block: variables were not followed from there on"
)
TAKEN_AWAY = (
    "the trace function was taken away inside the block, by the program or by an exception of a signal handler: "
    "variables were not followed from there on"
)
INTERRUPTED = (
    "a signal handler raised an exception while variables were followed: what was assigned from there to the next "
    "call of torch is not known"
)

_UNKNOWN: Any = object()
_TRACERS = (FunctionType,) if extension is None else (FunctionType, extension.Tracer)
_FOR_THREADS = threading.RLock()
"""Held while the trace function for future threads changes, because engines may start and stop in several threads."""


class SettraceCore:
    """Traces the thread that starts it, and the threads that begin while it is on."""

    def __init__(self, engine: Following) -> None:
        self.engine = engine
        self.tracers: dict[Trace, Any] = {}
        """Our trace functions, each with the trace function that it replaced."""
        self.unchained: set[Trace] = set()
        """Our trace functions that replaced no other one, so switching them off silences no debugger."""
        self._thread_tracer: Trace | None = None
        self.has_left = False
        """Whether this core no longer traces new threads, so its trace functions can be skipped."""
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
            self._block = (frame, before, frame.f_trace_opcodes)
            self._block_line = frame.f_lineno
            ours = _make_local(self, engine.begin(frame, plan, silent=True))
            if before is None:
                frame.f_trace = ours
            else:
                frame.f_trace = _Chain(self, tracer, (ours, before), frame)
        sys.settrace(tracer)

    def stop(self) -> None:
        current = sys.gettrace()
        if current is not None and current in self.tracers:
            sys.settrace(_at_work(self.tracers[current]))
        elif current is None and self._is_interrupted:
            pass  # a note says so already
        elif not any(_stands_before(current, each) for each in self.tracers):
            # A signal handler can interrupt a trace function in Python before its first instruction, unnoticed.
            self.engine.note(TAKEN_AWAY if current is None and extension is None else REPLACED)
        self._leave_threads()
        self._leave_block()

    def unmute(self, plan: Plan) -> None:
        """Do nothing, because line events are never switched off."""

    def interrupted(self) -> None:
        """Ask the probe to put our trace function back, because Python removes one that raises an exception."""
        current = sys.gettrace()
        self.engine.note(INTERRUPTED)
        self._is_interrupted = True
        if current is not None and current in self.unchained:
            self.engine.on_interrupt(current)

    def abandon(self) -> None:
        self._block = None
        self.release_thread()
        self._leave_threads()

    def release(self) -> None:
        self.engine = ENDED
        self.tracers.clear()
        self.unchained.clear()

    def release_thread(self) -> None:
        """Stop tracing the calling thread if its trace function is still ours, even after ``release``."""
        current = sys.gettrace()
        if _core_of(current) is self:
            sys.settrace(_at_work(_before(current)))

    def _leave_threads(self) -> None:
        """Do not trace threads that begin from now on."""
        with _FOR_THREADS:
            self.has_left = True
            if threading.gettrace() is self._thread_tracer and self._thread_tracer is not None:
                threading.settrace(_at_work(self.tracers[self._thread_tracer]))
            self._thread_tracer = None

    def make_tracer(self, previous: Trace | None) -> Trace:
        tracer: Any
        if previous is None:
            tracer = _make_tracer(self)
        else:
            tracer = _make_chained(self, previous)
        tracer.core = self
        tracer.previous = previous
        self.tracers[tracer] = previous
        if previous is None:
            self.unchained.add(tracer)
        return tracer

    def _leave_block(self) -> None:
        """Restore the frame of the block. Its last line has run, but no event has reported that, so look at it now."""
        if self._block is None:
            return
        frame, before, opcodes = self._block
        self._block = None
        frame.f_trace = before
        frame.f_trace_opcodes = opcodes
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
    """Return the trace function to go back to, skipping those of engines that have ended since, in any order."""
    while (core := _core_of(tracer)) is not None and core.has_left:
        tracer = _before(tracer)
    return tracer


def _core_of(tracer: Any) -> SettraceCore | None:
    """Return the core that a trace function belongs to, or None if it is not ours.

    It reads ``__dict__``, because reading attributes of a foreign object could run the program's code.
    """
    core = None
    if type(tracer) in _TRACERS:
        core = tracer.__dict__.get("core")
    if isinstance(core, SettraceCore):
        return core
    return None


def _before(tracer: Any) -> Trace | None:
    """Return the trace function that this one of ours has replaced."""
    return tracer.__dict__["previous"]


def _make_tracer(core: SettraceCore) -> Trace:
    """Return the function for ``sys.settrace`` if there is no other tracer; Python calls it only for calls."""
    engine = core.engine
    plans = engine.plans
    if extension is not None:
        return extension.Tracer(core, engine, plans, _begin, _UNKNOWN)

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
    """Return the local trace function for a call that begins or a generator that is resumed."""
    engine = core.engine
    if engine.closed:
        core.release_thread()
        return None
    if engine.imports and get_ident() in engine.imports:
        return None
    if plan is _UNKNOWN:
        if engine.begins_import(frame):
            # We need only the end of the call; another tracer may want the lines.
            frame.f_trace_lines = sys.gettrace() not in core.unchained
            return _make_import_local(engine)
        plan = engine.plan_for(frame)
    if plan is None:
        return None
    is_new = not plan.suspends or frame.f_lasti <= plan.start
    known = None
    if not is_new:
        known = engine.running.get(id(frame))
    if known is not None and known.plan is plan:
        return known.local
    local = _make_local(core, engine.begin(frame, plan, silent=not is_new))
    if not plan.lines and sys.gettrace() in core.unchained:
        # We need only the end of the call, and there is no other tracer that wants the lines.
        frame.f_trace_lines = False
    return local


def _make_import_local(engine: Following) -> Trace:
    """Return the local trace function for a call that imports something installed."""

    def on_import(frame: FrameType, event: str, argument: Any) -> None:
        if event == "return":
            engine.ends_import(frame)

    return on_import


def _make_chained(core: SettraceCore, previous: Trace) -> Trace:
    """Return the function for ``sys.settrace`` if there is another tracer already."""
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
    """Make ours the thread's trace function again after the previous one was called, and return it.

    The C tracer of coverage installs itself whenever it is called. In a new thread, coverage first installs a function
    that makes the real tracer. A debugger that has nothing more to do installs None.
    """
    current = sys.gettrace()
    if (
        current is tracer
        or current in core.tracers
        or core.engine.closed
        or _stands_before(current, tracer)
    ):
        return tracer
    if current is not core.tracers[tracer]:
        tracer = core.make_tracer(current)
    sys.settrace(tracer)
    return tracer


def _stands_before(current: Any, tracer: Trace) -> bool:
    """Return whether the thread's trace function (``current``) is ours and calls ``tracer``, perhaps through others.

    That is so for a recording inside this one.
    """
    while current is not tracer and _core_of(current) is not None:
        current = _before(current)
    return current is tracer


class _Chain:
    """Calls two local trace functions on one frame: the other tracer's, then ours."""

    __slots__ = ("activation", "core", "ours", "theirs", "tracer")

    def __init__(
        self, core: SettraceCore, tracer: Trace, both: tuple[Trace, Trace], frame: FrameType
    ) -> None:
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
    """Return the local trace function of one call. Most lines run only the part before its first ``return``."""
    engine = core.engine
    plan = activation.plan
    if extension is not None:
        activation.local = extension.Local(
            core, activation, plan.lines, plan.always, _on_other, _follow
        )
        return activation.local
    action_on = plan.lines.get
    always = plan.always

    def local(frame: FrameType, event: str, argument: Any) -> None:
        if event != "line":
            _on_other(core, activation, frame, (event, argument))
            return
        try:
            todo = activation.pending
            now = activation.pending = action_on(frame.f_lineno)
            is_idle = todo is None or (
                todo.is_quiet and not (activation.open or activation.alone or always)
            )
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


def _on_other(
    core: SettraceCore, activation: Activation, frame: FrameType, what: tuple[str, Any]
) -> None:
    """Handle an event that is not a line event."""
    try:
        if core.engine.closed:
            core.release_thread()
        else:
            _EVENTS[what[0]](core.engine, activation, frame, what[1])
    except BaseException as fault:
        core.engine.fault(fault)


def _follow(activation: Activation, frame: FrameType, exact: bool) -> None:
    """Switch between lines and instructions.

    An exception before this line has been handled by the program, so only the name of its type is kept.
    """
    if exact and not activation.is_exact:
        activation.opcodes_before = frame.f_trace_opcodes
        frame.f_trace_opcodes = True
    elif activation.is_exact and not exact:
        frame.f_trace_opcodes = activation.opcodes_before
    activation.is_exact = exact
    if isinstance(activation.error, BaseException):
        activation.error = type(activation.error).__name__


def _on_opcode(engine: Following, activation: Activation, frame: FrameType, argument: Any) -> None:
    plan = activation.plan
    offset = frame.f_lasti
    for target in plan.before.get(offset, ()):
        activation.unbound_before(target, frame)
    action = None
    if activation.is_exact:
        action = plan.after.get(offset)
    if action is None:
        return
    if activation.pending is None or not activation.pending.is_shared:
        action = action._replace(mutator=None)
    if action.fast or action.targets or action.roots or action.mutator is not None:
        after_step(activation, action, frame)


def _on_exception(
    engine: Following, activation: Activation, frame: FrameType, argument: Any
) -> None:
    if isinstance(argument[1], BaseException):
        activation.error = argument[1]
    else:
        activation.error = argument[0].__name__
    # Not quiet, so that the next line releases the exception.
    activation.pending = (activation.pending or NOTHING)._replace(is_quiet=False)


def _on_return(engine: Following, activation: Activation, frame: FrameType, argument: Any) -> None:
    """Handle a return, a yield, or an exception that leaves the call.

    Python passes None for an exception, as it may for a return; the last instruction tells which of them it was.
    """
    plan = activation.plan
    offset = frame.f_lasti
    last = activation.pending
    if last is not None:
        after_step(activation, last, frame)
    if offset in plan.yields and not isinstance(activation.error, BaseException):
        return
    if activation.open or plan.always:
        looked = last is not None and last.mutator is not None and not last.mutator.shadowed
        activation.end(frame, offset, frame.f_lineno, looked)
    error = None
    if offset not in plan.returns:
        error = activation.error
    activation.local = activation.error = None
    if engine.running.get(id(frame)) is activation:
        del engine.running[id(frame)]
    engine.left(activation, error)


_EVENTS = {"opcode": _on_opcode, "exception": _on_exception, "return": _on_return}

if hasattr(os, "register_at_fork"):
    # If the program forked while another thread held the lock, the child would wait for ever.
    os.register_at_fork(
        before=_FOR_THREADS.acquire,
        after_in_parent=_FOR_THREADS.release,
        after_in_child=_FOR_THREADS.release,
    )
