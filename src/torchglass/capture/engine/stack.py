"""Stacks as numbers: a walk from the caller to the nearest open event, interned, resolved once at settling.

A stack is a base (the stack known at the anchor frame) and the frames below it. The walk stops at the anchor,
so an event costs the same at 10 frames and at 1,000. No frame is ever kept: a kept frame keeps tensors alive.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.engine.codes import CodeTable
from torchglass.journal.layout import NONE, STACK_ROW
from torchglass.journal.rows import encoded_ints
from torchglass.journal.writer import Journal

StackKey = tuple[int, ...]
"""(base, id(code), f_lasti, id(code), f_lasti …), innermost frame first."""


class StackTable:
    """All stacks of one session."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.codes = CodeTable(journal)
        self.ids: dict[StackKey, int] = {}
        self.numbers = count()
        self.tracers: dict[Any, Callable[..., Any]] = {}
        """Trace functions that follow variables, where nobody else has one, each by itself: our handlers pause them, or
        Python would tell them of every call in here, which takes as long as all the rest."""
        self.has_milestones = False
        self.frames_walked = 0
        """By long walks only; for the tests."""

    def intern_part(self, above: int, frames: list[FrameType]) -> int:
        """Intern some frames, innermost first, on top of a stack that is known."""
        path = [above]
        for frame in frames:
            path += (id(frame.f_code), frame.f_lasti)
        key = tuple(path)
        number = self.ids.get(key)
        return self._add(key, frames) if number is None else number

    def intern_one(self, above: int, frame: FrameType, offset: int) -> int:
        """Intern a frame at one of its instructions, on top of a stack that is known."""
        key = (above, id(frame.f_code), offset)
        number = self.ids.get(key)
        return self._add(key, [frame]) if number is None else number

    def intern_renamed(self, above: int, frame: FrameType, code: CodeType, offset: int) -> int:
        """The same for a frame whose code is shown under another name."""
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
        """Give a new stack a number; its frames are those from ``frame`` up to the anchor."""
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
        self.ids[key] = number
        return number
