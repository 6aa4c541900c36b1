"""The open and the close of an event: the hot path that all probes share.

Closures over the session's tables, and few calls: this runs for every event while the program waits. The order of
the work is in docs/how-it-works.md.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import gettrace, settrace
from time import perf_counter_ns
from types import FrameType
from typing import Any

from torchglass.capture.engine.forms import Describe
from torchglass.capture.engine.host import Host
from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.engine.milestones import far_stack, find_stack, near_stack
from torchglass.capture.engine.values import ValueOf
from torchglass.capture.torch.names import HANDLER, Parameter, Tensor, current_node, next_node, no_functions
from torchglass.journal.layout import CLOSING, MOST_NODES, NODE_BITS, NODE_MASK, NONE, RECORD, pack_closing, pack_record

Open = Callable[[ThreadLog, int, FrameType | None, tuple[Any, ...], dict[str, Any] | None], int]
Close = Callable[[ThreadLog, int, Any], None]
SPARE = 8
"""Ids for which there is room when an event opens, beyond its arguments: for what is nested in them."""


def make_open(session: Host) -> Open:
    """Write a record and make it the innermost open one; returns its number, NONE when the log is full."""
    stacks, put_arguments, clock = session.stacks, _make_put_arguments(session), perf_counter_ns
    tracers, stack_ids = stacks.tracers, stacks.ids

    def open_event(
        log: ThreadLog,
        what: int,
        frame: FrameType | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
    ) -> int:
        tracer = tracers.get(gettrace()) if tracers else None
        log.on = False  # what Python runs in between (`__del__`, a signal handler) must not write here
        try:
            if tracer is not None:
                settrace(None)  # in here, since Ctrl-C may fall right behind it
            at = log.at
            if at >= log.end and not log.more():
                log.lost += 1
                return NONE
            if log.id_at + len(args) + SPARE > log.id_end and not log.more_ids(len(args) + SPARE):
                return NONE
            form, first, free = put_arguments(log, args, kwargs)
            if frame is not None and frame.f_code is HANDLER:
                frame = frame.f_back.f_back  # type: ignore[union-attr]
            anchor, base, stack = log.anchor, log.base, None
            if id(frame) == anchor:
                stack = base  # an op that a function made: the function's own place
            elif frame is not None:
                # Most stand one or two frames below the open event: written out, that costs half as much as a loop.
                code, above = frame.f_code, frame.f_back
                if id(above) == anchor:
                    stack = stack_ids.get((base, id(code), frame.f_lasti))
                elif above is not None and id(above.f_back) == anchor:
                    stack = stack_ids.get((base, id(code), frame.f_lasti, id(above.f_code), above.f_lasti))
            if stack is None:
                stack = find_stack(stacks, anchor, base, frame)
            log.id_at = free
            pack_record(
                log.buffer, at * RECORD + log.shift, what, log.parent, stack, form, log.id_base + first,
                -2 - next_node(), NONE, NONE, NONE, NONE, NONE, clock(),
            )  # fmt: skip
            log.at = at + 1
            log.parent, log.stack = at, stack
            if session.measurer is not None:
                session.measurer.took(log, at, args, kwargs)
            if log.listening:
                session.tell(log, at, "open")
        except BaseException:
            log.found.clear()
            raise
        finally:
            log.on = True
            if tracer is not None:
                settrace(tracer)
        return at

    return open_event


def _make_put_arguments(session: Host) -> Callable[..., tuple[int, int, int]]:
    """Gives the form of an event's arguments, and where in the log's ids the values in them begin and end."""
    forms, value_of = session.forms, session.values.plain_value_of
    form_ids, describe = forms.ids, forms.describe

    def put_arguments(log: ThreadLog, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[int, int, int]:
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


def make_close(session: Host, value_of: ValueOf, describe: Describe) -> Close:
    """Fill in the end and the outputs of a record, have them measured, and tell the listeners."""
    form_ids, intern_form, clock = session.forms.ids, session.forms.intern, perf_counter_ns
    tracers, one_tensor = session.stacks.tracers, session.forms.pin((1, None))
    from_op = describe is session.forms.describe_made

    def close_event(log: ThreadLog, at: int, result: Any) -> None:
        tracer = tracers.get(gettrace()) if tracers else None
        was_on, log.on = log.on, False  # as above; after a compiled region it was off
        try:
            if tracer is not None:
                settrace(None)
            end, value = clock(), NONE
            if type(result) is Tensor:
                if log.id_at >= log.id_end:
                    log.more_ids(1)
                free = log.id_at
                value = log.ids[free] = value_of(result)
                log.id_at = free + 1
                outputs, form_id = log.id_base + free, one_tensor
            else:
                found = log.found
                form_key = (1, describe(result, found))
                form_id = form_ids.get(form_key)
                if form_id is None:
                    form_id = intern_form(form_key)
                outputs = NONE
                if found:
                    outputs = log.add_ids(found)
                    found.clear()
            nodes = next_node() & NODE_MASK if session.in_backward is None else nodes_in_backward()
            if at >= log.first:
                pack_closing(log.buffer, at * RECORD + log.shift + CLOSING, form_id, outputs, NONE, nodes, end)
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
            if tracer is not None:
                settrace(tracer)

    return close_event


def nodes_in_backward() -> int:
    """The word NODES of an event that the autograd engine made: which node was being run, too."""
    node = current_node()
    number = MOST_NODES if node is None else min(node._sequence_nr(), MOST_NODES)
    return next_node() & NODE_MASK | (number + 1) << NODE_BITS


# ---------------------------------------------------------------- calls

# A call that a wrapper of ours makes for the program, as an event.

__tracebackhide__ = True  # pytest leaves our frames out of its reports


def recorded_call(log: ThreadLog, what: int, frame: FrameType, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Open an event, call, close it; a fault of ours costs the event only."""
    session, parent, at = log.session, log.parent, NONE
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

# Events that are over at once and of which a probe knows everything already: marks, and changes of variables.

Held = tuple[int, int]
"""The number of a form, and where the values in it begin in the log."""
NOTHING: Held = (NONE, NONE)


def write_note(log: ThreadLog, what: int, stack: int, took: Held, gave: Held = NOTHING) -> int:
    """Write a record that is closed when it opens; returns its number, NONE when the log is full.

    Room for it is made before its forms get their numbers (``has_room``).
    """
    at, now = log.at, perf_counter_ns()
    pack_record(
        log.buffer, at * RECORD + log.shift, what, log.parent, stack, *took, NONE, *gave, NONE, NONE, now, now,
    )  # fmt: skip
    log.at = at + 1
    if log.listening:
        log.session.tell(log, at, "open")
        log.session.tell(log, at, "close")
    return at


def has_room(log: ThreadLog) -> bool:
    """Whether one more record can be written; it is counted as lost if not."""
    if log.at < log.end or log.more():
        return True
    log.lost += 1
    return False


def hold(log: ThreadLog, described: Any, found: list[int]) -> Held:
    """The form of one described value and where its tensors stand."""
    form = (1, described)
    number = log.session.forms.ids.get(form)
    return (log.session.forms.intern(form) if number is None else number), log.add_ids(found) if found else NONE


def stack_at(log: ThreadLog, frame: FrameType, offset: int) -> int:
    """The stack of a frame as it was at an instruction that it has just left."""
    stacks, anchor = log.session.stacks, log.anchor
    number = near_stack(stacks, [log.base, id(frame.f_code), offset], frame.f_back, (frame, anchor))
    if number is None:
        number = stacks.intern_one(far_stack(stacks, anchor, log.base, frame.f_back), frame, offset)
    return number
