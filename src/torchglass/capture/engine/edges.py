"""Opens and closes events: the hot path that all probes share.

The functions are closures over the session's tables and make few calls, because they run for every event while the
program waits. docs/how-it-works.md lists the steps in order.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import gettrace, settrace
from types import FrameType
from typing import Any

from torchglass.capture.engine.forms import Describe, form_of_result
from torchglass.capture.engine.host import SessionLike
from torchglass.capture.engine.jit import TRACES, pause_trace, resume_trace
from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.engine.milestones import far_stack, find_stack, near_stack
from torchglass.capture.engine.value_table import ValueOf
from torchglass.capture.torch.names import (
    HANDLER,
    Parameter,
    Tensor,
    current_node,
    next_node,
    no_functions,
)
from torchglass.journal.forks import leave_parent, owns_journal
from torchglass.journal.layout import (
    CLOSING,
    MOST_NODES,
    NODE_BITS,
    NODE_MASK,
    NONE,
    RECORD,
    pack_closing,
    pack_record,
)
from torchglass.system import perf_counter_ns

Open = Callable[[ThreadLog, int, FrameType | None, tuple[Any, ...], dict[str, Any] | None], int]
Close = Callable[[ThreadLog, int, Any], None]
SPARE = 8
"""How many ids to reserve when an event opens, beyond one for each argument. Tensors nested in an argument use them.
If they are not enough, the log makes more room."""


def make_open(session: SessionLike) -> Open:
    """Make the function that opens an event.

    The function writes a record, makes it the innermost open record and returns its number. It returns NONE if the log
    is full.
    """
    stacks = session.stacks
    put_arguments = _make_put_arguments(session)
    clock = perf_counter_ns
    tracers, stack_ids = stacks.tracers, stacks.ids
    watched, look = stacks.rounds.watched, stacks.rounds.look

    def open_event(
        log: ThreadLog,
        what: int,
        frame: FrameType | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
    ) -> int:
        if not owns_journal[0]:
            leave_parent()
            return NONE
        tracer = None
        if tracers:
            tracer = tracers.get(gettrace())
        traced = None
        if TRACES:
            traced = pause_trace()
        # Python may run code of the program in between (`__del__`, a signal handler). It must not write to this log.
        log.on = False
        try:
            if tracer is not None:
                # inside the `try`, because Ctrl-C may arrive right after it
                settrace(None)
            at = log.at
            if at >= log.end and not log.more():
                log.lost += 1
                return NONE
            if log.id_at + len(args) + SPARE > log.id_end and not log.more_ids(len(args) + SPARE):
                return NONE
            form, first, free = put_arguments(log, args, kwargs)
            if frame is not None and frame.f_code is HANDLER:
                frame = frame.f_back.f_back  # type: ignore[union-attr]
            anchor = log.anchor
            base = log.base
            stack = None
            if id(frame) == anchor:
                stack = base  # the function of the open event dispatched an op: both have the same stack
            elif frame is not None:
                # Most callers are one or two frames below the open event. Checking these two cases without a loop
                # halves the cost.
                code, above = frame.f_code, frame.f_back
                if id(above) == anchor:
                    stack = stack_ids.get((base, id(code), frame.f_lasti))
                elif above is not None and id(above.f_back) == anchor:
                    stack = stack_ids.get(
                        (base, id(code), frame.f_lasti, id(above.f_code), above.f_lasti)
                    )
            if stack is None:
                stack = find_stack(stacks, anchor, base, frame)
            if stack in watched and id(frame) != anchor:
                look(log, frame, stack, at)
            log.id_at = free
            pack_record(
                log.buffer, at * RECORD + log.shift, what, log.parent, stack, form, log.id_base + first,
                -2 - next_node(), NONE, NONE, NONE, NONE, NONE, clock(),
            )  # fmt: skip
            log.at = at + 1
            log.parent = at
            log.stack = stack
            if session.measurer is not None:
                session.measurer.took(log, at, args, kwargs)
            if log.listening:
                session.tell(log, at, "open")
        except BaseException:
            log.found.clear()
            raise
        finally:
            log.on = True
            if traced is not None:
                resume_trace(traced)
            if tracer is not None:
                settrace(tracer)
        return at

    return open_event


def _make_put_arguments(session: SessionLike) -> Callable[..., tuple[int, int, int]]:
    """Make the function that returns the form of an event's arguments, and where their values begin and end in the
    ids of the log.
    """
    forms = session.forms
    value_of = session.values.plain_value_of
    form_ids, describe = forms.ids, forms.describe

    def put_arguments(
        log: ThreadLog, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> tuple[int, int, int]:
        ids, first = log.ids, log.id_at
        free, found = first, log.found
        described: list[Any] = [len(args)]
        for arg in args:
            cls = type(arg)
            if cls is Tensor or cls is Parameter:
                ids[free] = value_of(arg)
                free += 1
                described.append(None)
            elif cls is int:
                described.append(arg)
            else:
                described.append(describe(arg, found))
                if found:
                    first, free = log.put_ids(first, free, found, len(args) + SPARE)
                    ids = log.ids
                    found.clear()
        if kwargs:
            forms.describe_named(kwargs, described, found)
            if found:
                first, free = log.put_ids(first, free, found, 0)
                found.clear()
        form = form_ids.get(key := tuple(described))
        return (forms.intern(key) if form is None else form), first, free

    return put_arguments


def make_close(session: SessionLike, value_of: ValueOf, describe: Describe) -> Close:
    """Make the function that closes an event.

    The function writes the end time and the outputs to the record, measures the outputs if values are measured, and
    calls the listeners.
    """
    form_ids = session.forms.ids
    intern_form = session.forms.intern
    clock = perf_counter_ns
    tracers = session.stacks.tracers
    one_tensor = session.forms.pin(form_of_result(None))
    from_op = describe is session.forms.describe_made

    def close_event(log: ThreadLog, at: int, result: Any) -> None:
        if not owns_journal[0]:
            leave_parent()
            return
        tracer = None
        if tracers:
            tracer = tracers.get(gettrace())
        traced = None
        if TRACES:
            traced = pause_trace()
        # Recording pauses here, as when an event opens. After a compiled region it was paused already.
        was_on = log.on
        log.on = False
        try:
            if tracer is not None:
                settrace(None)
            end = clock()
            value = NONE
            if type(result) is Tensor:
                if log.id_at >= log.id_end:
                    log.more_ids(1)
                free = log.id_at
                value = log.ids[free] = value_of(result)
                log.id_at = free + 1
                outputs = log.id_base + free
                form_id = one_tensor
            else:
                found = log.found
                form_key = (1, describe(result, found))  # form_of_result, without a call
                form_id = form_ids.get(form_key)
                if form_id is None:
                    form_id = intern_form(form_key)
                outputs = NONE
                if found:
                    outputs = log.add_ids(found)
                    found.clear()
            if session.in_backward is None:
                nodes = next_node() & NODE_MASK
            else:
                nodes = nodes_in_backward()
            if at >= log.first:
                pack_closing(
                    log.buffer,
                    at * RECORD + log.shift + CLOSING,
                    form_id,
                    outputs,
                    NONE,
                    nodes,
                    end,
                )
            else:
                log.close(at, form_id, outputs, NONE, nodes, end)
            if session.measurer is not None:
                if value != NONE:
                    session.measurer.gave(log, at, result, value)
                else:
                    session.measurer.gave_several(log, at, result, from_op)
            if log.listening:
                session.tell(log, at, "close")
        except BaseException:
            log.found.clear()
            raise
        finally:
            log.on = was_on
            if traced is not None:
                resume_trace(traced)
            if tracer is not None:
                settrace(tracer)

    return close_event


def nodes_in_backward() -> int:
    """Return the word NODES of an event that ran in the autograd engine. It includes the node that was running."""
    node = current_node()
    number = MOST_NODES
    if node is not None:
        number = min(node._sequence_nr(), MOST_NODES)
    return next_node() & NODE_MASK | (number + 1) << NODE_BITS


# ---------------------------------------------------------------- calls

# Records a call that one of our wrappers makes for the program.

__tracebackhide__ = True  # makes pytest leave our frames out of its reports


def recorded_call(
    log: ThreadLog, what: int, frame: FrameType, call: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """Call a function as an event. If recording fails, only the event is lost: the function is still called once."""
    session = log.session
    parent = log.parent
    at = NONE
    try:
        with no_functions():
            at = session.open_event(log, what, frame, args, kwargs)
    except BaseException as fault:
        log.parent = parent
        session.forgive(fault)
    if at < 0:
        return call(*args, **kwargs)
    try:
        result = call(*args, **kwargs)
    except BaseException as error:
        log.parent = parent
        session.fail_event(log, at, error)
        args = kwargs = None  # the traceback must not keep tensors alive
        raise
    log.parent = parent
    try:
        with no_functions():
            session.close_event(log, at, result)
    except BaseException as fault:
        session.forgive(fault)
    return result


# ---------------------------------------------------------------- instants

# Events that have no duration, and for which the probe already knows everything: marks and changes of variables.

Held = tuple[int, int]
"""The number of a form, and where its values begin in the ids of the log."""
NOTHING: Held = (NONE, NONE)
"""No form and no values."""


def write_note(log: ThreadLog, what: int, stack: int, took: Held, gave: Held = NOTHING) -> int:
    """Write a record that opens and closes at the same time, and return its number.

    The caller makes room for the record with ``has_room`` before the forms get their numbers.
    """
    at = log.at
    now = perf_counter_ns()
    pack_record(
        log.buffer, at * RECORD + log.shift, what, log.parent, stack, *took, NONE, *gave, NONE, NONE, now, now,
    )  # fmt: skip
    log.at = at + 1
    if log.listening:
        log.session.tell(log, at, "open")
        log.session.tell(log, at, "close")
    return at


def has_room(log: ThreadLog) -> bool:
    """Return whether one more record can be written. Count the event as lost if it cannot."""
    if not owns_journal[0]:
        leave_parent()
        return False
    if log.at < log.end or log.more():
        return True
    log.lost += 1
    return False


def hold(log: ThreadLog, described: Any, found: list[int]) -> Held:
    """Return the form of one described value, and where its tensors begin in the ids of the log."""
    form = form_of_result(described)
    number = log.session.forms.ids.get(form)
    return (log.session.forms.intern(form) if number is None else number), log.add_ids(
        found
    ) if found else NONE


def stack_at(log: ThreadLog, frame: FrameType, offset: int) -> int:
    """Return the number of a frame's stack at ``offset``, the instruction that the frame has just left."""
    stacks = log.session.stacks
    anchor = log.anchor
    number = near_stack(stacks, [log.base, id(frame.f_code), offset], frame.f_back, (frame, anchor))
    if number is None:
        number = stacks.intern_one(far_stack(stacks, anchor, log.base, frame.f_back), frame, offset)
    return number
