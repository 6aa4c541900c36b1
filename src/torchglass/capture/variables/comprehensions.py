"""Comprehensions have no frame of their own from Python 3.12 on: their variables are told as if they had one."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from torchglass.capture.engine.stack import StackTable
from torchglass.capture.variables.bytecode import effects_of

INLINED = sys.version_info >= (3, 12)
"""Whether a comprehension may be part of its function's own code."""
MARK = "comp>"
"""How the scopes of comprehensions end: ``f.<locals>.<listcomp>``."""


def start_of(code: CodeType, offset: int) -> int | None:
    """Where the comprehension begins whose variable is stored at an instruction; None where that is no such store."""
    return effects_of(code).comprehensions.get(offset)


class InnerStacks:
    """Stacks as they were up to Python 3.11: the function's at the comprehension, then the comprehension itself."""

    def __init__(self, stacks: StackTable) -> None:
        self._stacks = stacks
        self._codes: dict[tuple[int, str], tuple[CodeType, CodeType]] = {}
        """By ``id`` of a function's code and scope: that code, which is kept so, and the comprehension's."""

    def below(self, above: int, frame: FrameType, scope: str, offset: int) -> int:
        """The stack inside a comprehension; ``above`` is that of the function at it."""
        return self._stacks.intern_renamed(above, frame, self._code(frame.f_code, scope), offset)

    def _code(self, code: CodeType, scope: str) -> CodeType:
        """The function's code under the name of the comprehension; settling reads names and places from it."""
        known = self._codes.get((id(code), scope))
        if known is None:
            known = self._codes[id(code), scope] = (code, code.replace(co_qualname=scope))
        return known[1]
