"""Stacks as numbers: a walk from the caller to the nearest open event, interned, resolved once at settling.

A stack is a base (the stack known at the anchor frame) and the frames below it. The walk stops at the anchor,
so an event costs the same at 10 frames and at 1,000. No frame is ever kept: a kept frame keeps tensors alive.
"""

from __future__ import annotations

import itertools
import os
import string
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from torchglass.capture.log import NONE
from torchglass.source.text import find_exec_source

FOLDERS = (os.sep, *(f"{letter}:" for letter in string.ascii_uppercase)) if os.name == "nt" else (os.sep,)
"""How the names of files begin; code with another name may have been given to ``exec`` as text."""
StackKey = tuple[int, ...]
"""(base, id(code), f_lasti, id(code), f_lasti …), innermost frame first."""


class StackTable:
    """All stacks of one session, and the code objects their keys name."""

    def __init__(self) -> None:
        self.ids: dict[StackKey, int] = {}
        self.codes: dict[int, CodeType] = {}
        """Kept, so that an ``id`` in a key stays that code's; hashing a code object costs 7 µs, its id nothing."""
        self.module_names: dict[int, str] = {}
        """By id of code: the module it belongs to, to find the class of a method."""
        self.exec_sources: dict[int, str] = {}
        self.counter = itertools.count()
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
        if number is None:
            for frame in frames:
                if id(frame.f_code) not in self.codes:
                    self._keep(frame)
            number = self.ids.setdefault(key, next(self.counter))
        return number

    def intern_one(self, above: int, frame: FrameType, offset: int) -> int:
        """Intern a frame at one of its instructions, on top of a stack that is known."""
        key = (above, id(frame.f_code), offset)
        number = self.ids.get(key)
        if number is None:
            if id(frame.f_code) not in self.codes:
                self._keep(frame)
            number = self.ids.setdefault(key, next(self.counter))
        return number

    def whole(self, frame: FrameType | None) -> int:
        """Intern the whole stack above and including this frame."""
        frames: list[FrameType] = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        return self.intern_part(NONE, frames)

    def intern(self, key: StackKey, frame: FrameType | None, anchor: int) -> int:
        """Keep the code objects of a new stack, then give it a number."""
        while frame is not None and id(frame) != anchor:
            if id(frame.f_code) not in self.codes:
                self._keep(frame)
            frame = frame.f_back
        return self.ids.setdefault(key, next(self.counter))

    def _keep(self, frame: FrameType) -> None:
        code, caller = frame.f_code, frame.f_back
        name = frame.f_globals.get("__name__")
        if type(name) is str:
            self.module_names[id(code)] = name
        if caller is not None and not code.co_filename.startswith(FOLDERS):
            text = find_exec_source(code, caller.f_code, caller.f_globals)
            if text is not None:
                self.exec_sources[id(code)] = text
        self.codes[id(code)] = code
