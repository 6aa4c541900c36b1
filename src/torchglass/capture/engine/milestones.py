"""Keeps the cost of deep stacks constant: a long stack walk leaves milestones in frames, and later walks stop there.

Between two open events there may be hundreds of plain Python frames (recursion). Walking all of them for every event
would cost 0.2 µs a frame. We cannot recognise frames by keeping them, which would keep their tensors alive, nor by
their ids, which are reused. So a long walk stores a milestone in ``frame.f_trace`` of every sixteenth frame. The
milestone is freed with its frame. Python reads ``f_trace`` only while a trace function is set, and then we leave no
milestones. A milestone holds the number of the stack above its frame, which does not change while the frame lives.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torchglass.capture.engine.stack import StackTable
from torchglass.journal.layout import NONE

NEAR = range(16)
"""How many frames to walk before the walk counts as long."""
APART = 16
"""How many frames are between two milestones."""
RESUMED = 0x20 | 0x80 | 0x200
"""The code flags CO_GENERATOR, CO_COROUTINE and CO_ASYNC_GENERATOR. Frames of such code get no milestone, because
another caller may resume them."""


class Milestone:
    """Holds the number of the stack above a frame. If Python calls it as a trace function, it does nothing."""

    __slots__ = ("above", "table")

    def __init__(self, table: StackTable, above: int) -> None:
        self.table = table
        self.above = above

    def __call__(self, *_: Any) -> None:
        return None


def find_stack(table: StackTable, anchor: int, base: int, frame: FrameType | None) -> int:
    """Return the number of a frame's stack. ``base`` is the number of the stack at the anchor, where the walk stops."""
    number = near_stack(table, [base], frame, (frame, anchor))
    if number is None:
        return far_stack(table, anchor, base, frame)
    return number


def near_stack(
    table: StackTable, path: list[int], above: FrameType | None, of: tuple[FrameType | None, int]
) -> int | None:
    """Walk from ``above`` to the anchor and return the number of the stack, or None if the anchor is far.

    ``path`` is the beginning of the stack's key. ``of`` holds the innermost frame and the anchor.
    """
    frame, anchor = of
    for _ in NEAR:
        if above is None or id(above) == anchor:
            if above is None:
                path[0] = NONE  # the anchor is not on this stack, so the key holds all its frames
            key = tuple(path)
            number = table.ids.get(key)
            if number is None:
                return table.intern(key, frame, anchor)
            return number
        path += (id(above.f_code), above.f_lasti)
        above = above.f_back
    return None


def far_stack(table: StackTable, anchor: int, base: int, frame: FrameType | None) -> int:
    """Return the number of a deep stack. Walk to the anchor or the first milestone, and leave new milestones."""
    frames: list[FrameType] = []
    each = frame
    above = NONE
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
    """Intern a stack in parts of at most APART frames, each on top of the last. ``frames`` has the innermost first."""
    # Our own trace functions are paused here, so `gettrace` does not show them.
    allowed = sys.gettrace() is None and not table.tracers
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
    """Remove the table's milestones from the frames on this thread's stack."""
    if not table.has_milestones:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        mark: Any = frame.f_trace
        if type(mark) is Milestone and mark.table is table:
            frame.f_trace = None
        frame = frame.f_back
