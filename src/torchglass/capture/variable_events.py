"""The variables probe: each assignment or change of a watched variable as an event, joined to what made the value."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.log import LOGS, NONE, ThreadLog
from torchglass.capture.notes import stack_at, write_note
from torchglass.capture.session import VARIABLE, Session
from torchglass.capture.torch_names import Parameter, Tensor, no_functions
from torchglass.capture.variables import UNBOUND, Change, Engine, Past, Watch
from torchglass.capture.variables.watch import CHANGED

MOST_CALLS = 10_000
"""Calls under way whose variables are remembered: more are a program that never returns from any."""

Told = tuple[int, tuple[int, ...], int]
"""What a variable held: the form of it, the values in that, and the ``id`` of the tensor, if it was one."""
Write = Callable[[ThreadLog, Change, FrameType], None]


class VariableEvents:
    """Writes what the engine tells into the logs of one session.

    Changes of tensors in place are not looked for: the functions probe sees them happen, and says so (``written``).
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.last: dict[int, dict[str, Told]] = {}
        """What was told last of each variable, by the call that it lives in."""
        self._write = _make_write(session, self.last)

    def entered(self, code: CodeType, serial: int, caller: int | None) -> None:
        """Calls have no events of their own."""

    def left(self, serial: int, error: BaseException | str | None) -> None:
        """A call has ended: its variables hold nothing any more."""
        self.last.pop(serial, None)

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

    def written(self, found: Any) -> None:
        """A torch function has changed a tensor, or each of a list: so have the variables that hold it."""
        log = LOGS.get(get_ident())
        if log is None or not log.on or not self.last:
            return
        frame = sys._getframe(3)  # above the handler: who called the function
        for tensor in found if isinstance(found, (list, tuple)) else (found,):
            holders = [
                (serial, name)
                for serial, names in list(self.last.items())
                for name, told in list(names.items())
                if told[2] == id(tensor)
            ]
            for serial, name in holders:
                change = Change(name, frame.f_code, frame.f_lasti, 0, "", CHANGED, None, tensor, serial)
                with no_functions():
                    self._write(log, change, frame)


def _make_write(session: Session, last: dict[int, dict[str, Told]]) -> Write:
    """The hot path of the probe: a closure, and few calls, as in edges.py."""
    forms, describe, intern = session.forms.ids, session.forms.describe, session.forms.intern
    value_of = session.values.value_of
    nothing, one_tensor = intern((0,)), intern((1, None))
    whats: dict[tuple[str, str], int] = {}

    def write(log: ThreadLog, change: Change, frame: FrameType) -> None:
        name, _, offset, _, _, how, old, new, serial = change
        values = log.values
        told = last.get(serial)
        if told is None:
            if len(last) >= MOST_CALLS:
                last.clear()
            told = last[serial] = {}
        took = len(values)
        known = told.get(name)
        if known is not None:
            args = known[0]
            values.extend(known[1])
        else:
            args = nothing if old is UNBOUND else before(log, old)
        gave, held = len(values), 0
        if issubclass(type(new), Tensor):
            values.append(value_of(new))
            result, held = one_tensor, id(new)
        elif new is UNBOUND:
            result = gave = NONE
        else:
            if how == CHANGED and _is_array(new):
                session.values.forget_all(new)  # a tensor counts its changes itself
            described = (1, describe(new, values))
            found = forms.get(described)
            result = intern(described) if found is None else found
        what = whats.get((name, how))
        if what is None:
            what = whats[name, how] = session.what(VARIABLE, name, detail=how)
        write_note(log, what, stack_at(log, frame, offset), (args, took), (result, gave))
        if new is UNBOUND:
            told.pop(name, None)
        else:
            told[name] = (result, tuple(values[gave:]), held)

    def before(log: ThreadLog, old: Any) -> int:
        """The form of what a variable held when it was first looked at."""
        text = f"<{old.type}>" if isinstance(old, Past) else describe(old, log.values)
        return intern((1, text))

    return write


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
        self._names = names
        self._events = VariableEvents(session)
        watch = Watch(names=names, stamp=None if session.records_functions else _stamp)
        self._engine = Engine(watch, self._events, owns=lambda: get_ident() in LOGS)

    def start(self, frame: FrameType | None) -> None:
        session = self._events.session
        session.watched.update(self._names)
        if session.records_functions:
            session.on_write.append(self._events.written)
        self._engine.start(frame)

    def stop(self) -> None:
        """End; what the engine had to say goes into the notes of the trace."""
        engine, session = self._engine, self._events.session
        engine.stop()
        session.watched.difference_update(self._names)
        if self._events.written in session.on_write:
            session.on_write.remove(self._events.written)
        for note in engine.notes:
            session.notes[note] = None
        for fault in engine.faults:
            session.faults[fault] = session.faults.get(fault, 0) + 1
        for name, near in engine.never_seen().items():
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            session.notes[f"the variable {name!r} never appeared in the block{hint}"] = None
