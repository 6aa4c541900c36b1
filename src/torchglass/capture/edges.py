"""The open and the close of an event: the hot path that all probes share.

Closures over the session's tables, and few calls: this runs for every event while the program waits. The order of
the work is in docs/how-it-works.md.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import gettrace, settrace
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any

from torchglass.capture.arguments import Describe
from torchglass.capture.log import END, NONE, OUTPUTS, RESULT, ThreadLog
from torchglass.capture.milestones import find_stack
from torchglass.capture.torch_names import HANDLER, Parameter, Tensor
from torchglass.capture.values import ValueOf

if TYPE_CHECKING:
    from torchglass.capture.session import Session

Open = Callable[[ThreadLog, int, FrameType | None, tuple[Any, ...], dict[str, Any] | None], int]
Close = Callable[[ThreadLog, int, Any], None]


def make_open(session: Session) -> Open:
    """Write a record and make it the innermost open one; returns its offset, NONE when the log is full."""
    stacks, forms, clock, tracers = session.stacks, session.forms, perf_counter_ns, session.stacks.tracers
    stack_ids, form_ids, value_of, describe = stacks.ids, forms.ids, session.values.plain_value_of, forms.describe

    def open_event(
        log: ThreadLog,
        what: int,
        frame: FrameType | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
    ) -> int:
        records, values = log.records, log.values
        tracer = tracers.get(gettrace()) if tracers else None
        log.on = False  # what Python runs in between (`__del__`, a signal handler) must not write here
        try:
            if tracer is not None:
                settrace(None)  # in here, since Ctrl-C may fall right behind it
            at, inputs = len(records), len(values)
            if at >= log.limit:
                log.lost += 1
                return NONE
            described: list[Any] = [len(args)]
            for arg in args:
                cls = type(arg)
                if cls is Tensor or cls is Parameter:
                    values.append(value_of(arg))
                    described.append(None)
                else:
                    described.append(arg if cls is int else describe(arg, values))
            if kwargs:
                forms.describe_named(kwargs, described, values)
            form = form_ids.get(key := tuple(described))
            if form is None:
                form = forms.intern(key)
            if frame is not None and frame.f_code is HANDLER:
                frame = frame.f_back.f_back  # type: ignore[union-attr]
            anchor, stack = log.anchor, log.base
            if id(frame) != anchor:  # else an op that a function made: the function's own place
                stack = None
                if frame is not None:
                    # Most stand one or two frames below the open event: written out, that costs half as much as a loop.
                    base, code, above = log.base, frame.f_code, frame.f_back
                    if id(above) == anchor:
                        stack = stack_ids.get((base, id(code), frame.f_lasti))
                    elif above is not None and id(above.f_back) == anchor:
                        stack = stack_ids.get((base, id(code), frame.f_lasti, id(above.f_code), above.f_lasti))
                if stack is None:
                    stack = find_stack(stacks, anchor, log.base, frame)
            records.extend((what, log.parent, stack, clock(), NONE, form, inputs, NONE, NONE, NONE))
            log.parent = at
            if log.listening:
                session.tell(log, at, "open")
        finally:
            log.on = True
            if tracer is not None:
                settrace(tracer)
        return at

    return open_event


def make_close(session: Session, value_of: ValueOf, describe: Describe) -> Close:
    """Fill in the end and the outputs of a record, and tell the listeners."""
    form_ids, intern_form, clock = session.forms.ids, session.forms.intern, perf_counter_ns
    tracers, one_tensor = session.stacks.tracers, intern_form((1, None))

    def close_event(log: ThreadLog, at: int, result: Any) -> None:
        records, values = log.records, log.values
        tracer = tracers.get(gettrace()) if tracers else None
        was_on, log.on = log.on, False  # as above; after a compiled region it was off
        try:
            if tracer is not None:
                settrace(None)
            records[at + END] = clock()
            records[at + OUTPUTS] = len(values)
            if type(result) is Tensor:
                values.append(value_of(result))
                form_id = one_tensor
            else:
                form_key = (1, describe(result, values))
                form_id = form_ids.get(form_key)
                if form_id is None:
                    form_id = intern_form(form_key)
            records[at + RESULT] = form_id
            if log.listening:
                session.tell(log, at, "close")
        finally:
            log.on = was_on
            if tracer is not None:
                settrace(tracer)

    return close_event
