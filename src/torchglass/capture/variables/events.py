"""The variables probe: records each assignment or change of a watched variable as an event.

The event holds the number of the value, which joins it to the event that made the value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType, NoneType
from typing import TYPE_CHECKING, Any

from torchglass.capture.engine.edges import stack_at
from torchglass.capture.engine.jit import TRACES, pause_trace, resume_trace
from torchglass.capture.engine.log import LOGS, ThreadLog
from torchglass.capture.engine.memory import owner_of
from torchglass.capture.engine.milestones import NEAR, RESUMED, far_stack
from torchglass.capture.engine.stack import StackTable
from torchglass.capture.session import VARIABLE, Session
from torchglass.capture.torch.names import (
    HANDLER,
    HAS_TORCH,
    Parameter,
    Tensor,
    count_modes,
    no_functions,
)
from torchglass.capture.transparency.patches import SharedFeatures
from torchglass.capture.variables import REPORTED, UNBOUND, Engine, Fields, PreviousValue, Watch
from torchglass.capture.variables.activation import Activation
from torchglass.capture.variables.bytecode import comprehension_start
from torchglass.capture.variables.compiled import SIZED, Changed, make_sink
from torchglass.capture.variables.scope import INLINED, MARK, InnerStacks
from torchglass.capture.variables.watch import CHANGED
from torchglass.compiled import extension
from torchglass.events.notes import NEVER_APPEARED
from torchglass.journal.forks import leave_parent, owns_journal
from torchglass.journal.layout import NONE, RECORD, pack_record
from torchglass.system import get_ident, perf_counter_ns

if HAS_TORCH:
    from torchglass.capture.torch.conversions import SET_PATCHES
else:
    SET_PATCHES = SharedFeatures(list[Any])


OURS = "torchglass.capture."
"""The names of our modules, whose frames do not belong to the program, begin with this."""
MOST_CALLS = 10_000
"""The most running calls whose variables are remembered; more means that the ends of calls were not seen."""

_PLAIN = frozenset(map(id, (NoneType, bool, int, float, complex, str, bytes, type(UNBOUND))))
"""The types whose values can be read without torch noticing, by ``id``: a metaclass may define its own hash."""

Key = str | tuple[str, str]
"""The key of a variable in its call: the name, or (scope, name) in a comprehension that has no frame."""
Left = Callable[[int, BaseException | str | None], None]
CHANGES = -2
"""Replaces the stack above a call if that stack is not known or may differ each time."""


class _LastReport:
    """What was recorded last of a variable, so that the next change need not read the old value."""

    __slots__ = ("described", "form", "generation", "tensor_id", "values")

    def __init__(
        self,
        form: int,
        values: tuple[int, ...],
        tensor_id: int,
        generation: int,
        described: tuple[Any, ...],
    ) -> None:
        self.form = form
        """The number of its form."""
        self.values = values
        """The ids of the tensors in it."""
        self.tensor_id = tensor_id
        """The ``id`` of the tensor, or 0 if it is none."""
        self.generation = generation
        """The generation in which the number of the form was valid."""
        self.described = described
        """The form itself."""


class _ReportedCall:
    """A running call that has reported a variable."""

    __slots__ = ("above", "last", "starts")

    def __init__(self) -> None:
        self.above = CHANGES
        """The stack of its callers."""
        self.last: dict[Key, LastReport] = {}
        """What was recorded last of each variable."""
        self.starts: dict[str, int] = {}
        """Where the last comprehension of a scope began."""


LastReport = _LastReport
ReportedCall = _ReportedCall
if not TYPE_CHECKING and extension is not None:
    # Classes with fields of the same names, which C fills.
    LastReport = extension.LastReport
    ReportedCall = extension.ReportedCall

Write = Callable[[ThreadLog, Fields, int, dict[Key, LastReport], bool], None]


class ReportedCalls(dict[int, ReportedCall]):
    """The running calls that have reported a variable, keyed by the engine's serial number of the call."""

    def __init__(self, stacks: StackTable) -> None:
        self.stacks = stacks
        self.running: dict[int, Activation] = {}
        """The engine's table of running calls, keyed by the ``id`` of the frame."""

    def begin(self, serial: int, log: ThreadLog, frame: FrameType) -> ReportedCall:
        """Add a call, when one of its variables is reported for the first time."""
        if len(self) >= MOST_CALLS:
            self.clear()
        call = self[serial] = ReportedCall()
        call.above = self._above(log, frame)
        return call

    def _above(self, log: ThreadLog, frame: FrameType) -> int:
        """Return the stack of a call's callers, walked once to the nearest frame whose stack is known.

        It stays while the call is running, unless the call can be suspended and go on elsewhere.
        """
        if frame.f_code.co_flags & RESUMED:
            return CHANGES
        frames: list[FrameType] = []
        each = frame.f_back
        for _ in NEAR:
            if each is None or id(each) == log.anchor:
                base = NONE
                if each is not None:
                    base = log.base
                break
            frames.append(each)
            base = self._known_above(each)
            if base != CHANGES:
                break
            each = each.f_back
        else:
            return far_stack(self.stacks, log.anchor, log.base, frame.f_back)
        if frames:
            return self.stacks.intern_part(base, frames)
        return base

    def _known_above(self, frame: FrameType) -> int:
        """Return the stack above a frame of a watched call; ``CHANGES`` if it is not known."""
        known = self.running.get(id(frame))
        if known is None or known.plan.code is not frame.f_code:
            return CHANGES
        call = self.get(known.serial)
        if call is None:
            return CHANGES
        return call.above


class VariableEvents:
    """Writes the changes that the engine reports into the logs of one session.

    In-place changes of tensors are not searched for: the functions probe sees them happen and reports them
    (``written``).
    """

    remembers = True

    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls = ReportedCalls(session.stacks)
        self._inner = InnerStacks(session.stacks)
        numbers = session.call_numbers()
        self._write = _make_write(session, numbers)
        changed = _make_changed(session, self.calls, self._write, self._inner)
        sink = make_sink(session, self.calls, changed, numbers)
        self.changed: Changed = sink or changed
        """Called on the thread where it happened, right after the store."""
        self.left: Left = _make_left(self.calls) if sink is None else sink.left
        """Called when a call has ended, to forget its variables."""

    def ended(self, serial: int, scope: str, name: str) -> None:
        """Forget the variables of a comprehension that has ended."""
        call = self.calls.get(serial)
        if call is not None:
            call.last.pop((scope, name), None)

    def written(self, found: Any) -> None:
        """Report the variables that hold a tensor, or each of a list, that a torch function has changed."""
        log = LOGS.get(get_ident())
        if log is None or not log.on or not self.calls:
            return
        frame = _caller()
        tensors = found
        if not isinstance(found, (list, tuple)):
            tensors = (found,)
        holders = self._holders(tensors)
        traced = None
        if TRACES:
            traced = pause_trace()
        log.on = False
        try:
            for tensor in tensors:
                for serial, key in holders[id(tensor)]:
                    self._report_written(log, frame, serial, key, tensor)
        finally:
            # First, because a signal handler may raise an exception in any call.
            log.on = True
            if traced is not None:
                resume_trace(traced)

    def _holders(self, tensors: Sequence[Any]) -> dict[int, list[tuple[int, Key]]]:
        """Return the variables that hold each tensor, as (call, key of the variable), by ``id`` of the tensor."""
        holders: dict[int, list[tuple[int, Key]]] = {id(tensor): [] for tensor in tensors}
        # Copies, because other threads may add calls and variables meanwhile.
        for serial, call in list(self.calls.items()):
            for key, report in list(call.last.items()):
                if report.tensor_id in holders:
                    holders[report.tensor_id].append((serial, key))
        return holders

    def _report_written(
        self, log: ThreadLog, frame: FrameType, serial: int, key: Key, tensor: Any
    ) -> None:
        """Report that a torch function has changed the tensor of one variable."""
        call = self.calls.get(serial)
        if call is None:
            return  # another thread has ended the call since
        if isinstance(key, tuple):
            scope, name = key
        else:
            scope = ""
            name = key
        code = frame.f_code
        offset = frame.f_lasti
        change = (name, code, offset, 0, scope, CHANGED, REPORTED, tensor, serial)
        with no_functions():
            place = self._place(log, frame, scope, serial, call)
            self._write(log, change, place, call.last, False)

    def _place(
        self, log: ThreadLog, frame: FrameType, scope: str, serial: int, call: ReportedCall
    ) -> int:
        """Return the stack of a torch function that has changed a variable of this scope."""
        running = self.calls.running.get(id(frame))
        if not scope or running is None or running.serial != serial:
            return stack_at(log, frame, frame.f_lasti)
        start = call.starts.get(scope, frame.f_lasti)
        return self._inner.below(stack_at(log, frame, start), frame, scope, frame.f_lasti)


def _caller() -> FrameType:
    """Return the frame of the program that called the torch function, past the frames of our handlers."""
    frame = sys._getframe(2)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(OURS):
        frame = frame.f_back
    if frame.f_code is HANDLER and frame.f_back is not None:
        return frame.f_back
    return frame


def _make_left(calls: ReportedCalls) -> Left:
    def left(serial: int, error: BaseException | str | None) -> None:
        calls.pop(serial, None)

    return left


def _make_changed(
    session: Session, calls: ReportedCalls, write: Write, inner: InnerStacks
) -> Callable[[Fields, FrameType], bool]:
    """Make the hot path of the probe, together with ``_make_write``: closures, and few calls, as in edges.py."""
    stack_ids = session.stacks.ids
    plain = _PLAIN

    def changed(change: Fields, frame: FrameType) -> bool:
        log = LOGS.get(get_ident())
        if log is None or not log.on or log.session is not session:
            return False
        traced = None
        if TRACES:
            traced = pause_trace()
        log.on = False  # do not record what we read here
        try:
            _, _, offset, _, scope, _, _, new, serial = change
            call = calls.get(serial)
            if call is None:
                call = calls.begin(serial, log, frame)
            above = call.above
            if (
                INLINED
                and scope[-5:] == MARK
                and comprehension_start(frame.f_code, offset) is not None
            ):
                stack = inside(log, call, scope, offset, frame)
            elif above == CHANGES:
                stack = stack_at(log, frame, offset)
            else:
                stack = stack_ids.get((above, id(frame.f_code), offset))
                if stack is None:
                    stack = session.stacks.intern_one(above, frame, offset)
            # Entering takes as long as half of the rest, so do it only if tensors are read and a mode is active.
            is_plain = id(type(new)) in plain
            if is_plain or not count_modes():
                write(log, change, stack, call.last, is_plain)
            else:
                with no_functions():
                    write(log, change, stack, call.last, False)
        finally:
            # First, because a signal handler may raise an exception in any call.
            log.on = True
            if traced is not None:
                resume_trace(traced)
        return True

    def inside(
        log: ThreadLog, call: ReportedCall, scope: str, offset: int, frame: FrameType
    ) -> int:
        """Return the stack of a store in a comprehension that has no frame."""
        start = call.starts[scope] = comprehension_start(frame.f_code, offset) or 0
        above = call.above
        if above == CHANGES:
            outer = stack_at(log, frame, start)
        else:
            outer = session.stacks.intern_one(above, frame, start)
        return inner.below(outer, frame, scope, offset)

    return changed


def _make_write(session: Session, calls: int) -> Write:
    """Return the function that writes a change whose stack is known; calls are numbered from ``calls`` on.

    The last arguments of the function are the last reported values of the variables, and whether the type of the new
    value is in ``_PLAIN``.
    """
    table = session.forms
    forms = session.forms.ids
    describe = session.forms.describe
    intern = session.forms.intern
    value_of = session.values.value_of
    clock = perf_counter_ns
    one_form: tuple[Any, ...] = (1, None)
    nothing = table.pin((0,))
    one_tensor = table.pin(one_form)
    whats: dict[tuple[str, str], int] = {}

    def write(
        log: ThreadLog, change: Fields, stack: int, last: dict[Key, LastReport], is_plain: bool
    ) -> None:
        name, _, _, _, scope, how, old, new, serial = change
        if not owns_journal[0]:
            leave_parent()
            return
        at = log.at
        if at >= log.end and not log.more():
            log.lost += 1
            return
        key = name
        if INLINED and scope[-5:] == MARK:
            key = (scope, name)
        before = last.get(key)
        ids: list[int] = []
        if before is not None:
            args = before.form
            if before.generation != table.generation:
                args = intern(before.described)
            ids.extend(before.values)
        elif old is UNBOUND or old is REPORTED:
            args = nothing
        else:
            args = _form_before(session, old, ids)
        took = len(ids)
        cls = type(new)
        # issubclass asks the class of torch's classes, which takes as long as three comparisons.
        if cls is Tensor or cls is Parameter or (not is_plain and issubclass(cls, Tensor)):
            number = value_of(new)
            ids.append(number)
            result = one_tensor
            last[key] = LastReport(result, (number,), id(new), table.generation, one_form)
        elif new is UNBOUND:
            result = NONE
            last.pop(key, None)
        else:
            if is_plain or cls is list or cls is tuple or cls is dict:
                described = (1, describe(new, ids))
            else:
                described = (1, _describe_other(session, new, how, ids))
            found = forms.get(described)
            if found is None:
                found = intern(described)
            result = found
            last[key] = LastReport(result, tuple(ids[took:]), 0, table.generation, described)
        what = whats.get((name, how))
        if what is None:
            what = whats[name, how] = session.what(VARIABLE, name, detail=how)
        first = NONE
        outputs = NONE
        if ids:
            first = log.add_ids(ids)
        if len(ids) > took and first != NONE:
            outputs = first + took
        now = clock()
        pack_record(
            log.buffer, at * RECORD + log.shift, what, log.parent, stack, args, first, calls + serial, result,
            outputs, NONE, NONE, now, now,
        )  # fmt: skip
        log.at = at + 1
        if log.listening:
            session.tell(log, at, "open")
            session.tell(log, at, "close")

    return write


def _form_before(session: Session, old: Any, ids: list[int]) -> int:
    """Return the form of the value that a variable had before its first report."""
    with no_functions():
        if isinstance(old, PreviousValue):
            text = _sized(old.type, old.length)
        else:
            text = session.forms.describe(old, ids)
    return session.forms.intern((1, text))


def _describe_other(session: Session, new: Any, how: str, values: list[int]) -> Any:
    """Return the form of a value that is neither a tensor nor a number nor text."""
    if id(type(new)) in SIZED:
        return _sized(type(new).__name__, len(new))
    if _is_array(new):
        if how == CHANGED:
            session.values.mark_all_changed(new)  # a tensor counts its changes itself
        else:
            _share(session, new)
    return session.forms.describe(new, values)


def _sized(name: str, length: int | None) -> str:
    """Return a container as text with only its length."""
    if length is None:
        return f"<{name}>"
    return f"<{name} of {length}>"


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), numpy.ndarray)


def _share(session: Session, array: Any) -> None:
    """Mark an array that shares the memory of a known tensor or array, when it is first reported."""
    values = session.values
    if values.is_known(array):
        return
    owner = owner_of(values, array)
    if owner is not None:
        values.lies_in(array, owner)


def _stamp(value: Any) -> Any:
    """Return something that differs after a tensor was changed in place, if no functions are recorded."""
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
    """Runs the engine and its sink for one recording that follows variables."""

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
            SET_PATCHES.acquire()
            session.on_write.append(self._events.written)
            for problem in SET_PATCHES.problems():
                session.note(problem)
        self._engine.on_interrupt = self._put_back
        self._engine.start(frame)
        session.stacks.tracers.update({tracer: tracer for tracer in self._engine.tracers})

    def _put_back(self, tracer: Any) -> None:
        """Put our trace function back at the next event that finds none."""
        self._events.session.stacks.tracers[None] = tracer

    def release(self) -> None:
        """Release the engine after it has stopped."""
        self._engine.release()

    def take_down(self) -> None:
        """Undo ``start``, even if it has failed halfway."""
        engine = self._engine
        session = self._events.session
        for tracer in (*engine.tracers, None):
            session.stacks.tracers.pop(tracer, None)
        try:
            engine.stop()
        finally:
            session.watched.difference_update(self._names)
            if self._events.written in session.on_write:
                session.on_write.remove(self._events.written)
                SET_PATCHES.release()

    def stop(self) -> None:
        """Stop, and add the engine's notes and faults to the trace."""
        self.take_down()
        engine = self._engine
        session = self._events.session
        for note in engine.notes:
            session.note(note)
        for fault in engine.faults:
            session.count_fault(fault)
        for name, near in engine.never_seen().items():
            hint = ""
            if near:
                hint = f"; did you mean {' or '.join(map(repr, near))}?"
            session.note(NEVER_APPEARED.format(name=repr(name)) + hint)
