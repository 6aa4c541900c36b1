"""Events that are over at once and of which a probe knows everything already: marks, and changes of variables."""

from __future__ import annotations

from time import perf_counter_ns
from types import FrameType
from typing import Any

from torchglass.capture.log import NONE, ThreadLog
from torchglass.capture.milestones import far_stack, near_stack

Held = tuple[int, int]
"""The number of a form, and where the values in it begin in the log."""
NOTHING: Held = (NONE, NONE)


def write_note(log: ThreadLog, what: int, stack: int, took: Held, gave: Held = NOTHING) -> int:
    """Write a record that is closed when it opens; returns its offset, NONE when the log is full."""
    at, now = len(log.records), perf_counter_ns()
    if at >= log.limit:
        log.lost += 1
        return NONE
    log.records.extend((what, log.parent, stack, now, now, *took, *gave, NONE))
    if log.listening:
        log.session.tell(log, at, "open")
        log.session.tell(log, at, "close")
    return at


def hold(log: ThreadLog, described: Any, first: int) -> Held:
    """The form of one described value whose tensors were appended to the log's values from ``first`` on."""
    form = (1, described)
    number = log.session.forms.ids.get(form)
    return (log.session.forms.intern(form) if number is None else number), first


def stack_at(log: ThreadLog, frame: FrameType, offset: int) -> int:
    """The stack of a frame as it was at an instruction that it has just left."""
    stacks, anchor = log.session.stacks, log.anchor
    number = near_stack(stacks, [log.base, id(frame.f_code), offset], frame.f_back, (frame, anchor))
    if number is None:
        number = stacks.intern_one(far_stack(stacks, anchor, log.base, frame.f_back), frame, offset)
    return number
