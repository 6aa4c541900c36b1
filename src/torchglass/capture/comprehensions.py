"""Comprehensions have no frame of their own from Python 3.12 on: their variables are told as if they had one."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from torchglass.capture.stack import StackTable
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
        self._codes: dict[tuple[int, str], CodeType] = {}

    def below(self, above: int, frame: FrameType, scope: str, offset: int) -> int:
        """The stack inside a comprehension; ``above`` is that of the function at it."""
        code = self._code(frame.f_code, scope)
        key = (above, id(code), offset)
        number = self._stacks.ids.get(key)
        return self._stacks.ids.setdefault(key, next(self._stacks.counter)) if number is None else number

    def _code(self, code: CodeType, scope: str) -> CodeType:
        """The function's code under the name of the comprehension; settling reads names and places from it."""
        known = self._codes.get((id(code), scope))
        if known is None:
            known = self._codes[id(code), scope] = code.replace(co_qualname=scope)
            stacks = self._stacks
            stacks.codes[id(code)] = code  # kept, or another could get its id
            stacks.codes[id(known)] = known
            if id(code) in stacks.exec_sources:
                stacks.exec_sources[id(known)] = stacks.exec_sources[id(code)]
        return known
