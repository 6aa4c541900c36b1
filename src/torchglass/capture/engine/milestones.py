"""Deep stacks at a flat price: milestones, left in long-lived frames, at which later walks stop.

Between two open events there may be hundreds of plain Python frames (recursion). Walking all of them for every
event would cost 0.2 µs a frame, and a frame must not be kept to know it again: that would keep its tensors alive,
and ids of dead frames are reused. So a walk that turns out long leaves a mark in every sixteenth frame, in
``frame.f_trace``: it lives and dies with its frame, and Python looks at it only while a trace function is set,
in which case none is left. A mark says which stack stands above its frame, which does not change while it lives.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torchglass.capture.engine.stack import StackTable
from torchglass.journal.layout import NONE

NEAR = range(16)
"""How many frames an ordinary walk goes before it is called long."""
APART = 16
RESUMED = 0x20 | 0x80 | 0x200
"""CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR: frames whose callers change while they live."""


class Milestone:
    """The number of the stack above a frame; calling it does what no trace function would do: nothing."""

    __slots__ = ("above", "table")

    def __init__(self, table: StackTable, above: int) -> None:
        self.table = table
        self.above = above

    def __call__(self, *_: Any) -> None:
        return None


def find_stack(table: StackTable, anchor: int, base: int, frame: FrameType | None) -> int:
    """The number of the stack from a frame up to the anchor, whose own stack is ``base``."""
    number = near_stack(table, [base], frame, (frame, anchor))
    return far_stack(table, anchor, base, frame) if number is None else number


def near_stack(
    table: StackTable, path: list[int], above: FrameType | None, of: tuple[FrameType | None, int]
) -> int | None:
    """The number of a stack whose path is begun, walked on from ``above``; None where the anchor is far.

    ``of`` is the innermost frame and the anchor.
    """
    frame, anchor = of
    for _ in NEAR:
        if above is None or id(above) == anchor:
            if above is None:
                path[0] = NONE  # no anchor above: a whole stack, or a foreign one
            key = tuple(path)
            number = table.ids.get(key)
            return table.intern(key, frame, anchor) if number is None else number
        path += (id(above.f_code), above.f_lasti)
        above = above.f_back
    return None


def far_stack(table: StackTable, anchor: int, base: int, frame: FrameType | None) -> int:
    """The number of a deep stack: walks to the anchor or the first milestone, and leaves new ones on the way."""
    frames: list[FrameType] = []
    each, above = frame, NONE
    while each is not None:
        if id(each) == anchor:
            above = base
            break
        frames.append(each)
        mark: Any = each.f_trace
        if type(mark) is Milestone and mark.table is table:
            above = mark.above
            break
        each = each.f_back
    table.frames_walked += len(frames)
    return _intern_in_parts(table, above, frames)


def _intern_in_parts(table: StackTable, above: int, frames: list[FrameType]) -> int:
    """Stacks of at most APART frames, each the base of the next; ``frames`` has the innermost first."""
    allowed = sys.gettrace() is None and not table.tracers  # which are paused just now
    end = len(frames)
    while end > APART:
        part = frames[end - APART : end]
        above = table.intern_part(above, part)
        end -= APART
        below = frames[end - 1]
        if allowed and below.f_trace is None and not below.f_code.co_flags & RESUMED:
            below.f_trace = Milestone(table, above)
            table.has_milestones = True
    return table.intern_part(above, frames[:end])


def remove_milestones(table: StackTable) -> None:
    """Take the marks out of the frames that are under way in this thread."""
    if not table.has_milestones:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        mark: Any = frame.f_trace
        if type(mark) is Milestone and mark.table is table:
            frame.f_trace = None
        frame = frame.f_back
