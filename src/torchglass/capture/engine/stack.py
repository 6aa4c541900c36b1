"""Turns each stack into a number, so that an event stores one int for where it was called from.

A stack is a base (the number of the stack at the anchor, the frame of the nearest open event) and the frames below the
anchor. A walk from the caller stops at the anchor, so an event costs the same at 10 frames and at 1,000. Frames are
never kept, because a frame keeps tensors alive. File names and lines are looked up later, when the journal is decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.engine.codes import CodeTable
from torchglass.capture.engine.rounds import Rounds
from torchglass.journal.layout import NONE, STACK_ROW
from torchglass.journal.rows import encoded_ints
from torchglass.journal.writer import Journal

StackKey = tuple[int, ...]
"""The tuple (base, id(code), f_lasti, id(code), f_lasti, …), innermost frame first."""


class StackTable:
    """All stacks of one session."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.codes = CodeTable(journal)
        self.rounds = Rounds(journal, self.codes)
        self.ids: dict[StackKey, int] = {}
        self.numbers = count()
        self.tracers: dict[Any, Callable[..., Any]] = {}
        """Trace functions that follow variables while no other tracer is set. Our handlers pause them. Otherwise
        Python would call them for every call that a handler makes, which doubles the time of an event."""
        self.has_milestones = False
        self.frames_walked = 0
        """How many frames long walks have visited. Only tests use it."""

    def intern_part(self, above: int, frames: list[FrameType]) -> int:
        """Intern some frames, innermost first, on top of a stack that is known."""
        path = [above]
        for frame in frames:
            path += (id(frame.f_code), frame.f_lasti)
        key = tuple(path)
        number = self.ids.get(key)
        if number is None:
            return self._add(key, frames)
        return number

    def intern_one(self, above: int, frame: FrameType, offset: int) -> int:
        """Intern a frame at one of its instructions, on top of a stack that is known."""
        key = (above, id(frame.f_code), offset)
        number = self.ids.get(key)
        if number is None:
            return self._add(key, [frame])
        return number

    def intern_renamed(self, above: int, frame: FrameType, code: CodeType, offset: int) -> int:
        """Intern a frame whose code is shown under another name."""
        key = (above, id(code), offset)
        number = self.ids.get(key)
        if number is None:
            number = self._write(key, [above, self.codes.renamed(code, frame), offset])
        return number

    def whole(self, frame: FrameType | None) -> int:
        """Intern the whole stack above and including this frame."""
        frames: list[FrameType] = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        return self.intern_part(NONE, frames)

    def intern(self, key: StackKey, frame: FrameType | None, anchor: int) -> int:
        """Write a new stack and return its number. Its frames are the ones from ``frame`` up to the anchor."""
        frames: list[FrameType] = []
        while frame is not None and id(frame) != anchor:
            frames.append(frame)
            frame = frame.f_back
        return self._add(key, frames)

    def _add(self, key: StackKey, frames: list[FrameType]) -> int:
        words = list(key)
        words[1::2] = [self.codes.number(frame) for frame in frames]
        return self._write(key, words)

    def _write(self, key: StackKey, words: list[int]) -> int:
        number = next(self.numbers)
        self._journal.rows.add(STACK_ROW, number, encoded_ints(words))
        self.rounds.meet(number, key)
        self.ids[key] = number
        return number
