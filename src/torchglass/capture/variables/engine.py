"""Switches the watching on and off, and holds what all watched calls share."""

from __future__ import annotations

import difflib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import count
from threading import get_ident
from types import CodeType, FrameType, TracebackType
from typing import Any, Protocol

from torchglass.capture.transparency.ours import is_signals
from torchglass.capture.variables.activation import Activation
from torchglass.capture.variables.following import ENDED
from torchglass.capture.variables.frames import SLOTS_ARE_READABLE
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
from torchglass.capture.variables.watch import Fields, PathStep, RememberingSink, Sink, VariableChange, Watch, call_sink
from torchglass.compiled import extension
from torchglass.source.sites import origin_of
from torchglass.source.text import codes_of

_MOST_SHARED = 20_000
_MOST_FAULTS, _LONGEST_FAULT = 100, 200

LOCALS_BY_COPY = (
    "locals are read through frame.f_locals on this interpreter: values may live a little longer, and a closure's "
    "variable that another thread writes at that moment may keep its old value"
)
NO_TOOL_ID = "all ids of sys.monitoring are taken: sys.settrace is used, which costs more in long functions"


class Core(Protocol):
    """One way of being told what runs."""

    alone: set[Callable[..., Any]]
    """Its trace functions, of those that stand before nobody's."""

    def start(self, frame: FrameType) -> None:
        """Begin, with this frame as the first one watched; it is under way."""
        ...

    def stop(self) -> None:
        """Put back what was there before."""
        ...

    def unmute(self, plan: Plan) -> None:
        """Tell again of the places in a code object that were switched off for having nothing to look at."""
        ...

    def interrupted(self) -> None:
        """An exception of the program's is about to leave the function that Python tells."""
        ...

    def abandon(self) -> None:
        """The same in a forked child, which is not watched."""
        ...

    def let_go(self) -> None:
        """It has stopped: cut what leads from its parts back to it and to the engine."""
        ...


class Engine:
    """Tells a sink of every assignment and change of the watched variables between ``start`` and ``stop``.

    Also a context manager. ``core`` is ``"settrace"`` or ``"monitoring"``; by default what this Python does best.
    ``owns`` says whether the calling thread is watched; by default all that were started since ``start`` are,
    and the one that called it.
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
        self.tell_left: Callable[[int, BaseException | str | None], None] | None = getattr(sink, "left", None)
        self._tell_ended: Callable[[int, str, str], None] | None = getattr(sink, "ended", None)
        self.notes: list[str] = []
        self.faults: list[str] = []
        self.fault_count = 0
        self.closed = True
        self.snapshots = Snapshots(watch.depth, watch.stamp, watch.in_place)
        self._is_usual = watch.code is is_user_code
        self.plans: dict[int, Plan | None] = dict.fromkeys(REFUSED) if self._is_usual else {}
        self._meant = ACCEPTED if self._is_usual else dict[int, CodeType]()
        self.running: dict[int, Activation] = {}
        """By ``id`` of the frame; only while the frame runs or is suspended."""
        self.imports: dict[int, int] = {}
        """By thread: the ``id`` of the frame that imports something installed. Until it ends nothing is watched."""
        self._codes: list[CodeType] = []
        self._outer: dict[int, CodeType] = {}
        self._planned: list[Plan] = []  # of all code that was met, watched or not
        self._members: set[str] = set()
        """Names of attributes, and texts that may be keys, in the code that has the root of a path."""
        self.found_paths: set[str] = set()
        """The attributes and items that were there at some time."""
        self._texts: set[int] = set()
        self._spaces: dict[int, Names] = {}
        self._cells: dict[int, Known] = {}
        self._path_entries: dict[Any, tuple[Any, Known]] = {}
        self.serials = count()
        self.on_interrupt: Callable[[Callable[..., Any]], None] = _ignore
        """Told of a trace function that Python is about to take away, since an exception leaves it."""
        self._others: frozenset[int] = frozenset()
        self._owns = owns
        self._core = _choose(core)(self)

    def __enter__(self) -> Engine:
        self.start(sys._getframe(1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, frame: FrameType | None = None) -> None:
        """Begin; ``frame`` is the one whose block is watched, by default the caller's."""
        frame = frame or sys._getframe(1)
        # Not sys._current_frames(): on Python 3.11 a garbage collection inside of it can stop all threads for ever.
        self._others = frozenset(thread.ident or 0 for thread in threading.enumerate()) - {get_ident()}
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
            self.closed = True  # not before: a trace function that finds it set takes itself away
            for activation in tuple(self.running.values()):
                activation.local = activation.error = None  # which know the call
            self.running.clear()

    def let_go(self) -> None:
        """Cut whatever leads from its parts back to it, and from it to the sink: a generator may still have parts."""
        self._core.let_go()
        self.on_interrupt = _ignore
        self.sink = self.tell = ENDED
        self.calls = self.tell_left = self._tell_ended = None
        self.plans.clear()
        self._planned.clear()

    def abandon(self) -> None:
        """In a forked child: switch off, in silence."""
        self.closed = True
        self.running.clear()
        self._core.abandon()

    @property
    def tracers(self) -> set[Callable[..., Any]]:
        """The trace functions of this engine that stand before nobody's: while they are off nothing else is missed."""
        return set(self._core.alone)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def fault(self, error: BaseException) -> None:
        """A fault of our own costs an event, never the program: count it, keep one line about it.

        What a signal handler of the program's has raised while we looked goes on.
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
        """The watched names that no code had which ran, each with names that look like it."""
        if self.watch.names == ("*",) and any(plan.slots or plan.stored for plan in self._planned):
            return {}  # mostly all are watched: then any will do
        paths = {path.name: path for path in self.watch.paths}
        met = set[str]().union(*((*plan.slots, *plan.stored) for plan in self._planned))
        never: dict[str, list[str]] = {}
        for name in self.watch.names:
            root = paths[name].root if name in paths else name
            if not any(fnmatchcase(each, root) for each in met):
                never[name] = difflib.get_close_matches(root, sorted(met), n=3)
            elif name in paths and name not in self.found_paths:
                never[name] = paths[name].near(self._members)
        return never

    def unmute(self, plan: Plan) -> None:
        """Places where there was nothing to look at have something now."""
        self._core.unmute(plan)

    def owns_thread(self) -> bool:
        """Whether what the calling thread does is watched."""
        return self._owns() if self._owns is not None else get_ident() not in self._others

    def begins_import(self, frame: FrameType) -> bool:
        """Whether a call that begins, of code not yet known, imports something installed; then that is noted."""
        if self._meant.get(id(frame.f_code)) is frame.f_code or not is_of_an_import(frame):
            return False
        self.imports[get_ident()] = id(frame)
        return True

    def ends_import(self, frame: FrameType) -> None:
        """A call has ended: if it was such an import, the thread is watched again."""
        if self.imports.get(get_ident()) == id(frame):
            del self.imports[get_ident()]

    # ------------------------------------------------------------ plans

    def plan_for(self, frame: FrameType) -> Plan | None:
        """What to watch in the frame's code; None when nothing is."""
        code = frame.f_code
        plan, is_remembered = None, self._meant.get(id(code)) is code
        if is_remembered or self._is_in_scope(code, frame):
            plan = plan_of(code, self.watch, self._outer_of)
            for each in plan.inner:
                self._outer[id(each)] = code
            self._planned.append(plan)
            if plan.paths:
                self._members.update(code.co_names, (each for each in code.co_consts if isinstance(each, str)))
            if not plan.watches and self.calls is None:
                plan = None
            if self._is_usual and not is_remembered:
                remember(code, ACCEPTED)
        elif self._is_usual and origin_of(code.co_filename) in INSTALLED:
            remember(code, REFUSED)
        self._codes.append(code)  # kept, or another code could get its id
        return self.plans.setdefault(id(code), plan)  # another thread may have been first, and use its own

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
        # Text that watched code executes is watched, with the functions in it; what libraries make is not.
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
        """A call of watched code begins or, silently, is found under way."""
        begun = None if extension is None or silent else extension.begin_followed(self, self.running, plan, frame)
        if begun is not None:
            return begun
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
        """A comprehension that has no frame of its own is over: its variable holds nothing any more."""
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
        """What is known of a module's variables, for all its frames."""
        return self._spaces.setdefault(id(namespace), Names())

    def cell_entry(self, cell: Any, is_new: bool) -> Known:
        """What is known of a closure's variable, for all functions that see it."""
        if cell is None:
            return Known()
        if len(self._cells) > _MOST_SHARED:
            self._cells.clear()
        entry = None if is_new else self._cells.get(id(cell))
        if entry is None:
            entry = self._cells[id(cell)] = Known()
        return entry

    def path_entry(self, owner: Any, step: PathStep) -> tuple[Known, bool]:
        """What is known of an attribute or item, whoever looks at it; and whether nobody has before."""
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
    """Tells a sink, and says whether it remembers."""
    if getattr(sink, "remembers", False):
        return sink.changed
    changed, new = sink.changed, tuple.__new__  # half the price of Change(…)

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
