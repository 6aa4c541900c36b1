"""Switches the following of variables on and off, and holds the state that all watched calls share."""

from __future__ import annotations

import difflib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import count
from types import CodeType, FrameType, TracebackType
from typing import Any, Protocol

from torchglass.capture.slots import SLOTS_ARE_READABLE
from torchglass.capture.transparency.ours import is_signals
from torchglass.capture.variables.activation import Activation
from torchglass.capture.variables.following import ENDED
from torchglass.capture.variables.plan import Plan, plan_of
from torchglass.capture.variables.reading import Names
from torchglass.capture.variables.scope import (
    ACCEPTED,
    ATTRIBUTE_METHODS,
    INSTALLED,
    REFUSED,
    is_of_an_import,
    is_text,
    is_user_code,
    remember,
)
from torchglass.capture.variables.snapshots import Known, Snapshots
from torchglass.capture.variables.watch import (
    Fields,
    PathStep,
    RememberingSink,
    Sink,
    VariableChange,
    Watch,
    call_sink,
)
from torchglass.source.compiling import codes_of
from torchglass.source.origins import origin_of
from torchglass.system import get_ident

_MOST_SHARED = 20_000
"""The most closure variables, and the most attributes and items, to remember; then all of them are forgotten."""
_MOST_FAULTS, _LONGEST_FAULT = 100, 200
"""The most faults to keep, and the most characters of each message."""

LOCALS_BY_COPY = (
    "locals are read through frame.f_locals on this interpreter: values may live a little longer, and a closure's "
    "variable that another thread writes at that moment may keep its old value"
)
NO_TOOL_ID = (
    "all ids of sys.monitoring are taken: sys.settrace is used, which costs more in long functions"
)


class Core(Protocol):
    """Reports what runs: SettraceCore or MonitoringCore."""

    unchained: set[Callable[..., Any]]
    """Our trace functions that replaced no other one, so switching them off silences no debugger."""

    def start(self, frame: FrameType) -> None:
        """Begin; this frame, which is running, is the first one that is watched."""
        ...

    def stop(self) -> None:
        """Stop, and restore the state from before ``start``."""
        ...

    def unmute(self, plan: Plan) -> None:
        """Report again the places in a code object that were switched off because nothing was to be seen there."""
        ...

    def interrupted(self) -> None:
        """Prepare for an exception of the program that is about to leave our trace function."""
        ...

    def abandon(self) -> None:
        """Stop in a forked child process, which is not watched."""
        ...

    def release(self) -> None:
        """Break the reference cycles with the engine and with our trace functions, after ``stop``."""
        ...


class Engine:
    """Reports every assignment and change of the watched variables to a sink, between ``start`` and ``stop``.

    The engine is also a context manager. ``core`` is ``"settrace"`` or ``"monitoring"``; the default is the best for
    this Python version. ``owns`` returns whether the calling thread is watched. By default the thread that calls
    ``start`` is watched, and all threads that begin after that.
    """

    def __init__(
        self,
        watch: Watch,
        sink: Sink | RememberingSink,
        *,
        core: str | None = None,
        owns: Callable[[], bool] | None = None,
    ) -> None:
        self.watch = watch
        self.sink = sink
        self.tell = _telling(sink)
        self.calls = call_sink(sink)
        self.tell_left: Callable[[int, BaseException | str | None], None] | None = getattr(
            sink, "left", None
        )
        self._tell_ended: Callable[[int, str, str], None] | None = getattr(sink, "ended", None)
        self.notes: list[str] = []
        self.faults: list[str] = []
        self.fault_count = 0
        self.closed = True
        self.snapshots = Snapshots(watch.depth, watch.stamp, watch.in_place)
        self._is_usual = watch.code is is_user_code
        self.plans: dict[int, Plan | None] = dict.fromkeys(REFUSED) if self._is_usual else {}
        if self._is_usual:
            self._meant = ACCEPTED
        else:
            self._meant = dict[int, CodeType]()
        self.running: dict[int, Activation] = {}
        """The watched calls, keyed by the ``id`` of their frame, while the frame runs or is suspended."""
        self.imports: dict[int, int] = {}
        """Keyed by thread: the ``id`` of the frame that imports something installed.

        Nothing is watched on the thread until that frame ends.
        """
        self._codes: list[CodeType] = []
        """Code that the tables below know by ``id``; kept, so that no other code gets such an ``id``."""
        self._outer: dict[int, CodeType] = {}
        """Keyed by the ``id`` of a function's code: the code in which the function is defined."""
        self._planned: list[Plan] = []
        """The plans of all code in scope that ran, even of code without watched variables."""
        self._members: set[str] = set()
        """Attribute names, and texts that may be keys, in code that uses the root of a path; for suggestions."""
        self.found_paths: set[str] = set()
        """The watched attributes and items that existed at some time."""
        self._texts: set[int] = set()
        """The ``id`` of code that watched code executes from text (``exec``)."""
        self._spaces: dict[int, Names] = {}
        """Keyed by the ``id`` of a module's globals."""
        self._cells: dict[int, Known] = {}
        """Keyed by the ``id`` of a closure's cell."""
        self._path_entries: dict[Any, tuple[Any, Known]] = {}
        """Keyed by the owner's ``id`` and the step: a weak reference to the owner (or None), and the entry."""
        self.serials = count()
        self.on_interrupt: Callable[[Callable[..., Any]], None] = _ignore
        """Called with a trace function that Python is about to remove, because it raises an exception."""
        self._others: frozenset[int] = frozenset()
        """The threads that ran before ``start``, which are not watched."""
        self._owns = owns
        self._core = _choose(core)(self)

    def __enter__(self) -> Engine:
        self.start(sys._getframe(1))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, frame: FrameType | None = None) -> None:
        """Begin; ``frame`` is the frame with the watched block, by default the caller's."""
        frame = frame or sys._getframe(1)
        # Do not use sys._current_frames(): on Python 3.11 a garbage collection in it can stop all threads for ever.
        self._others = frozenset(thread.ident or 0 for thread in threading.enumerate()) - {
            get_ident()
        }
        if not SLOTS_ARE_READABLE:
            self.note(LOCALS_BY_COPY)
        self.closed = False
        _running.add(self)
        self._core.start(frame)

    def stop(self) -> None:
        """End; safe to call twice."""
        if self.closed:
            return
        try:
            self._core.stop()
        finally:
            _running.discard(self)
            # Set it last, because a trace function that finds the engine closed removes itself.
            self.closed = True
            for activation in tuple(self.running.values()):
                activation.local = activation.error = None  # they refer back to the call
            self.running.clear()

    def release(self) -> None:
        """Break the reference cycles between the engine, its parts and the sink, after ``stop``.

        A suspended generator may still refer to parts of the engine.
        """
        self._core.release()
        self.on_interrupt = _ignore
        self.sink = self.tell = ENDED
        self.calls = self.tell_left = self._tell_ended = None
        self.plans.clear()
        self._planned.clear()

    def abandon(self) -> None:
        """Switch off without a note in a forked child process."""
        self.closed = True
        self.running.clear()
        self._core.abandon()

    @property
    def tracers(self) -> set[Callable[..., Any]]:
        """The trace functions of this engine that may be switched off, because they replaced no other one."""
        return set(self._core.unchained)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def fault(self, error: BaseException) -> None:
        """Count a fault of our code and keep one line about it, so that it costs an event and never the program.

        An exception that a signal handler of the program has raised while we looked is raised again.
        """
        if is_signals(error):
            self._core.interrupted()
            raise error
        self.fault_count += 1
        where, trace = "", error.__traceback__
        while trace is not None:
            where = f" at {trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
            trace = trace.tb_next
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(f"{type(error).__name__}: {str(error)[:_LONGEST_FAULT]}{where}")

    def never_seen(self) -> dict[str, list[str]]:
        """Return the watched names that do not occur in the code that ran, each with similar names."""
        if self.watch.names == ("*",) and any(plan.slots or plan.stored for plan in self._planned):
            return {}  # the usual case: all names are watched, and there was at least one
        paths = {path.name: path for path in self.watch.paths}
        met = set[str]().union(*((*plan.slots, *plan.stored) for plan in self._planned))
        never: dict[str, list[str]] = {}
        for name in self.watch.names:
            root = name
            if name in paths:
                root = paths[name].root
            if not any(fnmatchcase(each, root) for each in met):
                never[name] = difflib.get_close_matches(root, sorted(met), n=3)
            elif name in paths and name not in self.found_paths:
                never[name] = paths[name].near(self._members)
        return never

    def unmute(self, plan: Plan) -> None:
        """Look again at places that were switched off because there was nothing to see."""
        self._core.unmute(plan)

    def owns_thread(self) -> bool:
        """Return whether the calling thread is watched."""
        if self._owns is not None:
            return self._owns()
        return get_ident() not in self._others

    def begins_import(self, frame: FrameType) -> bool:
        """Return whether a call of unknown code imports something installed.

        If it does, nothing is watched on this thread until ``ends_import``.
        """
        if self._meant.get(id(frame.f_code)) is frame.f_code or not is_of_an_import(frame):
            return False
        self.imports[get_ident()] = id(frame)
        return True

    def ends_import(self, frame: FrameType) -> None:
        """Watch the thread again if the call that ends is the one that began the import."""
        if self.imports.get(get_ident()) == id(frame):
            del self.imports[get_ident()]

    # ------------------------------------------------------------ plans

    def plan_for(self, frame: FrameType) -> Plan | None:
        """Return the plan for the code of a frame, or None if nothing is watched in this code."""
        code = frame.f_code
        plan = None
        is_remembered = self._meant.get(id(code)) is code
        if is_remembered or self._is_in_scope(code, frame):
            plan = plan_of(code, self.watch, self._outer_of)
            for each in plan.inner:
                self._outer[id(each)] = code
            self._planned.append(plan)
            if plan.paths:
                self._members.update(
                    code.co_names, (each for each in code.co_consts if isinstance(each, str))
                )
            if not plan.watches and self.calls is None:
                plan = None
            if self._is_usual and not is_remembered:
                remember(code, ACCEPTED)
        elif self._is_usual and origin_of(code.co_filename) in INSTALLED:
            remember(code, REFUSED)
        self._codes.append(code)
        # Another thread may have been faster, and use its own plan already.
        return self.plans.setdefault(id(code), plan)

    def _outer_of(self, inner: CodeType) -> CodeType | None:
        return self._outer.get(id(inner))

    def _is_in_scope(self, code: CodeType, frame: FrameType) -> bool:
        if code.co_name in ATTRIBUTE_METHODS and self.watch.is_general:
            return False
        if not is_text(code):
            return origin_of(code.co_filename) != "ours" and self.watch.code(code)
        if self.watch.code(code):
            return True
        if id(code) in self._texts:
            return True
        # Text that watched code executes is watched, with the functions in it. Text that libraries execute is not.
        caller = frame.f_back
        if code.co_name != "<module>" or caller is None or not self._is_known(caller):
            return False
        self._codes += codes_of(code)
        self._texts.update(id(each) for each in codes_of(code))
        return True

    def _is_known(self, frame: FrameType) -> bool:
        code = frame.f_code
        return bool(self.plans.get(id(code))) or self.watch.code(code) or id(code) in self._texts

    # ------------------------------------------------------------ calls

    def begin(self, frame: FrameType, plan: Plan, silent: bool) -> Activation:
        """Begin to follow a call of watched code; ``silent`` means that the call was running already."""
        activation = Activation(self, plan, frame, next(self.serials))
        self.running[id(frame)] = activation
        if self.calls is not None and not silent:
            self.calls.entered(plan.code, activation.serial, self._caller(frame))
        activation.begin(frame, silent)
        return activation

    def left(self, activation: Activation, error: BaseException | str | None) -> None:
        activation.plan.alert.discard(activation.serial)
        if self.tell_left is not None:
            self.tell_left(activation.serial, error)

    def ended(self, serial: int, scope: str, name: str) -> None:
        """Report that a comprehension without a frame has ended, so its variable of this name is no longer bound."""
        if self._tell_ended is not None:
            self._tell_ended(serial, scope, name)

    def _caller(self, frame: FrameType) -> int | None:
        outer = frame.f_back
        while outer is not None:
            known = self.running.get(id(outer))
            if known is not None and known.plan.code is outer.f_code:
                return known.serial
            outer = outer.f_back
        return None

    # ------------------------------------------------------------ what calls share

    def space_of(self, namespace: dict[str, Any]) -> Names:
        """Return the watched names of a module's globals, which all frames of the module share."""
        return self._spaces.setdefault(id(namespace), Names())

    def cell_entry(self, cell: Any, is_new: bool) -> Known:
        """Return the entry of a closure's variable, which all functions that use the variable share."""
        if cell is None:
            return Known()
        if len(self._cells) > _MOST_SHARED:
            self._cells.clear()
        entry = None
        if not is_new:
            entry = self._cells.get(id(cell))
        if entry is None:
            entry = self._cells[id(cell)] = Known()
        return entry

    def path_entry(self, owner: Any, step: PathStep) -> tuple[Known, bool]:
        """Return the entry of an attribute or item, which all calls share, and whether the entry is new."""
        key = (id(owner), step.is_item, type(step.key), step.key)
        known = self._path_entries.get(key)
        if known is not None and (known[0] is None or known[0]() is owner):
            return known[1], False
        if len(self._path_entries) > _MOST_SHARED:
            self._path_entries.clear()
        try:
            reference = weakref.ref(owner)
        except TypeError:
            reference = None
        known = self._path_entries[key] = (reference, Known())
        return known[1], True


def _ignore(tracer: Callable[..., Any]) -> None:
    return


def _telling(sink: Any) -> Callable[[Fields, FrameType], bool]:
    """Return a function that reports a change to a sink, and returns whether the sink remembers the value."""
    if getattr(sink, "remembers", False):
        return sink.changed
    changed, new = sink.changed, tuple.__new__  # takes half the time of VariableChange(…)

    def tell(fields: Fields, frame: FrameType) -> bool:
        changed(new(VariableChange, fields), frame)
        return False

    return tell


def _choose(name: str | None) -> Callable[[Engine], Core]:
    from torchglass.capture.variables.settrace import SettraceCore

    has_monitoring = sys.version_info >= (3, 12)
    if name == "settrace" or not has_monitoring:
        return SettraceCore
    from torchglass.capture.variables.monitoring import MonitoringCore
    from torchglass.capture.variables.monitoring_tool import TOOL

    def make(engine: Engine) -> Core:
        if TOOL.can_be_had():
            return MonitoringCore(engine)
        engine.note(NO_TOOL_ID)
        return SettraceCore(engine)

    return make


_running: weakref.WeakSet[Engine] = weakref.WeakSet()


def _abandon_all() -> None:
    for engine in tuple(_running):
        engine.abandon()
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
