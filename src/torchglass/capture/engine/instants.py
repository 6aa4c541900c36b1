"""Events that are over at once and of which a probe knows everything already: marks, and changes of variables."""

from __future__ import annotations

from time import perf_counter_ns
from types import FrameType
from typing import Any

from torchglass.capture.engine.log import ThreadLog
from torchglass.capture.engine.milestones import far_stack, near_stack
from torchglass.journal.layout import NONE, RECORD, pack_record

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
