"""The variables probe: each assignment or change of a watched variable as an event, joined to what made the value."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from types import FrameType, NoneType
from typing import TYPE_CHECKING, Any

from torchglass.capture.engine.edges import stack_at
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.engine.memory import owner_of
from torchglass.capture.engine.milestones import NEAR, RESUMED, far_stack
from torchglass.capture.engine.stack import StackTable
from torchglass.capture.session import VARIABLE, Session
from torchglass.capture.torch.names import HANDLER, HAS_TORCH, Parameter, Tensor, count_modes, no_functions
from torchglass.capture.transparency.patches import PatchSet
from torchglass.capture.variables import TOLD, UNBOUND, Engine, Fields, Past, Watch
from torchglass.capture.variables.activation import Activation
from torchglass.capture.variables.bytecode import start_of
from torchglass.capture.variables.compiled import SIZED, Changed, make_sink
from torchglass.capture.variables.scope import INLINED, MARK, InnerStacks
from torchglass.capture.variables.watch import CHANGED
from torchglass.compiled import extension
from torchglass.journal.layout import NONE, RECORD, pack_record

if HAS_TORCH:
    from torchglass.capture.torch.conversions import SET_PATCHES
else:
    SET_PATCHES = PatchSet(list[Any])


OURS = "torchglass.capture."
"""How the names of the modules begin whose frames are none of the program's."""
MOST_CALLS = 10_000
"""Calls under way whose variables are remembered: more are a program that never returns from any."""

_PLAIN = frozenset(map(id, (NoneType, bool, int, float, complex, str, bytes, type(UNBOUND))))
"""Types of which nothing is read that torch could notice; by ``id``, as a metaclass may have a hash of its own."""

Key = str | tuple[str, str]
"""Of a variable in its call: the name; in a comprehension that has no frame of its own, with the scope before it."""
Told = tuple[int, tuple[int, ...], int, int, tuple[Any, ...]]
"""What a variable held: the number of its form, the values in that, and the ``id`` of the tensor, if it was one; then
the generation of that number, and the form itself."""
Write = Callable[[ThreadLog, Fields, int, dict[Key, Told], bool], None]
Left = Callable[[int, BaseException | str | None], None]
CHANGES = -2
"""In the place of the stack above a call: not known, or another each time."""


class _ToldCall:
    """What is known of a call under way whose variables were told."""

    __slots__ = ("above", "starts", "told")

    def __init__(self) -> None:
        self.above = CHANGES
        """The stack of its callers."""
        self.told: dict[Key, Told] = {}
        """What was told last of each variable."""
        self.starts: dict[str, int] = {}
        """Where the last comprehension of a scope began."""


ToldCall = _ToldCall
if not TYPE_CHECKING and extension is not None:
    ToldCall = extension.ToldCall  # with fields of the same names


class ToldCalls(dict[int, ToldCall]):
    """The calls under way, by the engine's number for them; from their first event on."""

    def __init__(self, stacks: StackTable) -> None:
        self.stacks = stacks
        self.running: dict[int, Activation] = {}
        """The engine's own table, by ``id`` of the frame."""

    def begin(self, serial: int, log: ThreadLog, frame: FrameType) -> ToldCall:
        """A variable of this call, which is that of the frame, is told for the first time."""
        if len(self) >= MOST_CALLS:
            self.clear()
        call = self[serial] = ToldCall()
        call.above = self._above(log, frame)
        return call

    def _above(self, log: ThreadLog, frame: FrameType) -> int:
        """The stack of a call's callers: walked once a call, to the nearest place above whose stack is known.

        It stays while the call is under way, unless the call can be suspended and go on elsewhere.
        """
        if frame.f_code.co_flags & RESUMED:
            return CHANGES
        frames: list[FrameType] = []
        each = frame.f_back
        for _ in NEAR:
            if each is None or id(each) == log.anchor:
                base = NONE if each is None else log.base
                break
            frames.append(each)
            base = self._known_above(each)
            if base != CHANGES:
                break
            each = each.f_back
        else:
            return far_stack(self.stacks, log.anchor, log.base, frame.f_back)
        return self.stacks.intern_part(base, frames) if frames else base

    def _known_above(self, frame: FrameType) -> int:
        """The stack above a frame, if it is of a watched call; ``CHANGES`` where it is not known."""
        known = self.running.get(id(frame))
        if known is None or known.plan.code is not frame.f_code:
            return CHANGES
        call = self.get(known.serial)
        return CHANGES if call is None else call.above


class VariableEvents:
    """Writes what the engine tells into the logs of one session.

    Changes of tensors in place are not looked for: the functions probe sees them happen, and says so (``written``).
    """

    remembers = True

    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls = ToldCalls(session.stacks)
        self._inner = InnerStacks(session.stacks)
        numbers = session.call_numbers()
        self._write = _make_write(session, numbers)
        changed = _make_changed(session, self.calls, self._write, self._inner)
        sink = make_sink(session, self.calls, changed, numbers)
        self.changed: Changed = sink or changed
        """Called on the thread where it happened, right after the store."""
        self.left: Left = _make_left(self.calls) if sink is None else sink.left
        """A call has ended: its variables hold nothing any more."""

    def ended(self, serial: int, scope: str, name: str) -> None:
        """So has a comprehension in a call."""
        call = self.calls.get(serial)
        if call is not None:
            call.told.pop((scope, name), None)

    def written(self, found: Any) -> None:
        """A torch function has changed a tensor, or each of a list: so have the variables that hold it."""
        log = LOGS.get(get_ident())
        if log is None or not log.on or not self.calls:
            return
        frame = _caller()
        tensors = found if isinstance(found, (list, tuple)) else (found,)
        holders: dict[int, list[tuple[int, Key]]] = {id(tensor): [] for tensor in tensors}
        for serial, call in list(self.calls.items()):
            for key, told in list(call.told.items()):
                if told[2] in holders:
                    holders[told[2]].append((serial, key))
        log.on = False
        try:
            for tensor in tensors:
                for serial, key in holders[id(tensor)]:
                    scope, name = key if isinstance(key, tuple) else ("", key)
                    change = (name, frame.f_code, frame.f_lasti, 0, scope, CHANGED, TOLD, tensor, serial)
                    with no_functions():
                        self._write(log, change, self._place(log, frame, scope, serial), self.calls[serial].told, False)
        finally:
            log.on = True

    def _place(self, log: ThreadLog, frame: FrameType, scope: str, serial: int) -> int:
        """The stack of a torch function that has changed a variable of this scope."""
        running = self.calls.running.get(id(frame))
        if not scope or running is None or running.serial != serial:
            return stack_at(log, frame, frame.f_lasti)
        start = self.calls[serial].starts.get(scope, frame.f_lasti)
        return self._inner.below(stack_at(log, frame, start), frame, scope, frame.f_lasti)


def _caller() -> FrameType:
    """Who called the function that has changed something: above the handler, which may have no frame."""
    frame = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(OURS):
        frame = frame.f_back
    return frame.f_back if frame.f_code is HANDLER and frame.f_back is not None else frame


def _make_left(calls: ToldCalls) -> Left:
    def left(serial: int, error: BaseException | str | None) -> None:
        calls.pop(serial, None)

    return left


def _make_changed(
    session: Session, calls: ToldCalls, write: Write, inner: InnerStacks
) -> Callable[[Fields, FrameType], bool]:
    """The hot path of the probe, with what ``_make_write`` makes: closures, and few calls, as in edges.py."""
    stack_ids, plain = session.stacks.ids, _PLAIN

    def changed(change: Fields, frame: FrameType) -> bool:
        log = LOGS.get(get_ident())
        if log is None or not log.on or log.session is not session:
            return False
        log.on = False  # what is read here is not the program's doing
        try:
            call = calls.get(change[8])
            if call is None:
                call = calls.begin(change[8], log, frame)
            above = call.above
            if INLINED and change[4][-5:] == MARK and start_of(frame.f_code, change[2]) is not None:
                stack = inside(log, call, change, frame)
            elif above == CHANGES:
                stack = stack_at(log, frame, change[2])
            else:
                stack = stack_ids.get((above, id(frame.f_code), change[2]))
                if stack is None:
                    stack = session.stacks.intern_one(above, frame, change[2])
            # Entering takes as long as half of the rest: only where tensors are read and somebody listens.
            is_plain = id(type(change[7])) in plain
            if is_plain or not count_modes():
                write(log, change, stack, call.told, is_plain)
            else:
                with no_functions():
                    write(log, change, stack, call.told, False)
        finally:
            log.on = True
        return True

    def inside(log: ThreadLog, call: ToldCall, change: Fields, frame: FrameType) -> int:
        """The stack of a store in a comprehension that has no frame of its own."""
        start = call.starts[change[4]] = start_of(frame.f_code, change[2]) or 0
        above = call.above
        outer = stack_at(log, frame, start) if above == CHANGES else session.stacks.intern_one(above, frame, start)
        return inner.below(outer, frame, change[4], change[2])

    return changed


def _make_write(session: Session, calls: int) -> Write:
    """Writes a change of which the stack is known; the call that it is of has its serial number, from ``calls`` on.

    Its last arguments: what was told last of each variable, and whether the new value is of a type in ``_PLAIN``.
    """
    table, forms, describe, intern = session.forms, session.forms.ids, session.forms.describe, session.forms.intern
    value_of, clock = session.values.value_of, perf_counter_ns
    one_form: tuple[Any, ...] = (1, None)
    nothing, one_tensor = table.pin((0,)), table.pin(one_form)
    whats: dict[tuple[str, str], int] = {}

    def write(log: ThreadLog, change: Fields, stack: int, told: dict[Key, Told], is_plain: bool) -> None:
        name, _, _, _, scope, how, old, new, serial = change
        at = log.at
        if at >= log.end and not log.more():
            log.lost += 1
            return
        key = (scope, name) if INLINED and scope[-5:] == MARK else name
        known = told.get(key)
        ids: list[int] = []
        if known is None:
            args = nothing if old is UNBOUND or old is TOLD else _form_before(session, old, ids)
        else:
            args = known[0] if known[3] == table.generation else intern(known[4])
            ids.extend(known[1])
        took, cls = len(ids), type(new)
        # issubclass asks the class of torch's classes, which takes as long as three comparisons.
        if cls is Tensor or cls is Parameter or (not is_plain and issubclass(cls, Tensor)):
            number = value_of(new)
            ids.append(number)
            result = one_tensor
            told[key] = (result, (number,), id(new), table.generation, one_form)
        elif new is UNBOUND:
            result = NONE
            told.pop(key, None)
        else:
            if is_plain or cls is list or cls is tuple or cls is dict:
                described = (1, describe(new, ids))
            else:
                described = (1, _describe_other(session, new, how, ids))
            found = forms.get(described)
            result = intern(described) if found is None else found
            told[key] = (result, tuple(ids[took:]), 0, table.generation, described)
        what = whats.get((name, how))
        if what is None:
            what = whats[name, how] = session.what(VARIABLE, name, detail=how)
        first, now = log.add_ids(ids) if ids else NONE, clock()
        pack_record(
            log.buffer, at * RECORD + log.shift, what, log.parent, stack, args, first, calls + serial, result,
            first + took if len(ids) > took else NONE, NONE, NONE, now, now,
        )  # fmt: skip
        log.at = at + 1
        if log.listening:
            session.tell(log, at, "open")
            session.tell(log, at, "close")

    return write


def _form_before(session: Session, old: Any, ids: list[int]) -> int:
    """The form of what a variable held when it was first looked at."""
    with no_functions():
        text = _sized(old.type, old.length) if isinstance(old, Past) else session.forms.describe(old, ids)
    return session.forms.intern((1, text))


def _describe_other(session: Session, new: Any, how: str, values: list[int]) -> Any:
    """The form of what is neither a tensor nor a number nor text."""
    if id(type(new)) in SIZED:
        return _sized(type(new).__name__, len(new))
    if _is_array(new):
        if how == CHANGED:
            session.values.forget_all(new)  # a tensor counts its changes itself
        else:
            _share(session, new)
    return session.forms.describe(new, values)


def _sized(name: str, length: int | None) -> str:
    """A container of which only the length is told."""
    return f"<{name}>" if length is None else f"<{name} of {length}>"


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), numpy.ndarray)


def _share(session: Session, array: Any) -> None:
    """An array over memory that a known tensor or array has says so when it is first told."""
    values = session.values
    if values.is_known(array):
        return
    owner = owner_of(values, array)
    if owner is not None:
        values.lies_in(array, owner)


def _stamp(value: Any) -> Any:
    """Where no functions are recorded: something that differs after a tensor was changed in place."""
    cls = type(value)
    if cls is not Tensor and cls is not Parameter:
        return None
    try:
        if not count_modes():
            return value._version, value.data_ptr(), value.shape
        with no_functions():
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
        self._events.calls.running = self._engine.running

    def start(self, frame: FrameType | None) -> None:
        session = self._events.session
        session.watched.update(self._names)
        if session.records_functions:
            session.on_write.append(self._events.written)
            SET_PATCHES.acquire()
        self._engine.on_interrupt = self._put_back
        self._engine.start(frame)
        session.stacks.tracers.update({tracer: tracer for tracer in self._engine.tracers})

    def _put_back(self, tracer: Any) -> None:
        """Have the next event that finds no trace function put ours back, as it does where it has paused ours."""
        self._events.session.stacks.tracers[None] = tracer

    def let_go(self) -> None:
        """It has stopped, and nobody calls what it made any more."""
        self._engine.let_go()

    def stop(self) -> None:
        """End; what the engine had to say goes into the notes of the trace."""
        engine, session = self._engine, self._events.session
        for tracer in (*engine.tracers, None):
            session.stacks.tracers.pop(tracer, None)
        engine.stop()
        session.watched.difference_update(self._names)
        if self._events.written in session.on_write:
            session.on_write.remove(self._events.written)
            SET_PATCHES.release()
        for note in engine.notes:
            session.note(note)
        for fault in engine.faults:
            session.count_fault(fault)
        for name, near in engine.never_seen().items():
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            session.note(f"the variable {name!r} never appeared in the block{hint}")
