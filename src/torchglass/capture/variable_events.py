"""The variables probe: each assignment or change of a watched variable as an event, joined to what made the value."""

from __future__ import annotations

import sys
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.log import LOGS, ThreadLog
from torchglass.capture.notes import NOTHING, Held, hold, stack_at, write_note
from torchglass.capture.session import VARIABLE, Session
from torchglass.capture.torch_names import Parameter, Tensor, no_functions
from torchglass.capture.variables import UNBOUND, Change, Engine, Past, Watch
from torchglass.capture.variables.watch import CHANGED

Key = tuple[int, str]
"""The activation of a function and the name of a variable."""
MOST_KNOWN = 100_000


class VariableEvents:
    """Writes what the engine tells into the logs of one session.

    Changes of tensors in place are not looked for: the functions probe sees them happen, and says so (``written``).
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._last: dict[Key, tuple[int, tuple[int, ...]]] = {}
        """What a variable held: the form of it, and the values in that."""
        self._holders: dict[int, set[Key]] = {}
        """By ``id`` of a tensor: the variables that hold it."""
        self._held: dict[Key, int] = {}
        """The same the other way round."""
        self._alive: dict[int, set[str]] = {}
        """The variables of each activation under way."""

    # What the engine tells

    def entered(self, code: CodeType, serial: int, caller: int | None) -> None:
        """Calls have no events of their own."""

    def left(self, serial: int, error: BaseException | str | None) -> None:
        """A call has ended: its variables hold nothing any more."""
        for name in self._alive.pop(serial, ()):
            self._last.pop((serial, name), None)
            self._let_go((serial, name))

    def changed(self, change: Change, frame: FrameType) -> None:
        """Called on the thread where it happened, right after the store."""
        log = LOGS.get(get_ident())
        if log is None or not log.on or log.session is not self.session:
            return
        log.on = False  # what is read here is not the program's doing
        try:
            with no_functions():
                self._write(log, change, frame)
        finally:
            log.on = True

    def _write(self, log: ThreadLog, change: Change, frame: FrameType) -> None:
        key = (change.serial, change.name)
        if change.how == CHANGED and _is_array(change.new):
            self.session.values.forget_all(change.new)  # a tensor counts its changes itself
        self._tell(
            log, key, change.how, stack_at(log, frame, change.offset), self._before(log, key, change), change.new
        )
        if issubclass(type(change.new), Tensor):
            self._hold(key, change.new)

    def _tell(self, log: ThreadLog, key: Key, how: str, stack: int, took: Held, new: Any) -> None:
        self._let_go(key)
        gave = NOTHING if new is UNBOUND else self._now(log, key, new)
        write_note(log, self.session.what(VARIABLE, key[1], detail=how), stack, took, gave)
        if new is UNBOUND:
            self._last.pop(key, None)

    def _before(self, log: ThreadLog, key: Key, change: Change) -> Held:
        """What it held: as told last time or, if it was there before us, as it is."""
        if key in self._last:
            return self._as_told(log, key)
        first = len(log.values)
        if change.old is UNBOUND:
            return self.session.forms.intern((0,)), first
        old = f"<{change.old.type}>" if isinstance(change.old, Past) else self._describe(log, change.old)
        return hold(log, old, first)

    def _as_told(self, log: ThreadLog, key: Key) -> Held:
        form, values = self._last[key]
        first = len(log.values)
        log.values.extend(values)
        return form, first

    def _now(self, log: ThreadLog, key: Key, new: Any) -> Held:
        first = len(log.values)
        form, _ = hold(log, self._describe(log, new), first)
        if len(self._last) > MOST_KNOWN:
            self._last.clear()
        self._last[key] = form, tuple(log.values[first:])
        self._alive.setdefault(key[0], set()).add(key[1])
        return form, first

    def _describe(self, log: ThreadLog, value: Any) -> Any:
        return self.session.forms.describe(value, log.values)

    # Tensors that are changed in place

    def _hold(self, key: Key, tensor: Any) -> None:
        self._holders.setdefault(id(tensor), set()).add(key)
        self._held[key] = id(tensor)

    def _let_go(self, key: Key) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            holders = self._holders[held]
            holders.discard(key)
            if not holders:
                del self._holders[held]

    def written(self, found: Any) -> None:
        """A torch function has changed a tensor, or each of a list: so have the variables that hold it."""
        log = LOGS.get(get_ident())
        if log is None or not log.on or not self._holders:
            return
        for tensor in found if isinstance(found, (list, tuple)) else (found,):
            for key in sorted(self._holders.get(id(tensor), ())):
                stack = stack_at(log, sys._getframe(3), sys._getframe(3).f_lasti)
                with no_functions():
                    self._tell(log, key, CHANGED, stack, self._as_told(log, key), tensor)
                self._hold(key, tensor)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), numpy.ndarray)


def _stamp(value: Any) -> Any:
    """Where no functions are recorded: something that differs after a tensor was changed in place."""
    cls = type(value)
    if cls is not Tensor and cls is not Parameter:
        return None
    with no_functions():
        try:
            return value._version, value.data_ptr(), value.shape
        except RuntimeError:  # inference tensors have no version, some others no memory
            return 0


class VariablesProbe:
    """The engine and its sink, for as long as one recording that asked for variables runs."""

    def __init__(self, session: Session, names: tuple[str, ...]) -> None:
        self._events = VariableEvents(session)
        watch = Watch(names=names, stamp=None if session.records_functions else _stamp)
        self._engine = Engine(watch, self._events, owns=lambda: get_ident() in LOGS)

    def start(self, frame: FrameType | None) -> None:
        session = self._events.session
        if session.records_functions:
            session.on_write = self._events.written
        self._engine.start(frame)

    def stop(self) -> None:
        """End; what the engine had to say goes into the notes of the trace."""
        engine, session = self._engine, self._events.session
        engine.stop()
        session.on_write = None
        for note in engine.notes:
            session.notes[note] = None
        for fault in engine.faults:
            session.faults[fault] = session.faults.get(fault, 0) + 1
        for name, near in engine.never_seen().items():
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            session.notes[f"the variable {name!r} never appeared in the block{hint}"] = None
