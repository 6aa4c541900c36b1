"""This thread's stack of function modes: ours goes on and off it without touching the others'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

push = torch._C._push_on_torch_function_stack
pop = torch._C._pop_torch_function_stack
count = torch._C._len_torch_function_stack


def take_mode(cls: type | None) -> tuple[Any, int]:
    """Take the mode of this class off, wherever it stands: the mode (or None) and how many stood above it."""
    above: list[Any] = []
    found = None
    while found is None and count():
        mode = pop()
        if type(mode) is cls:
            found = mode
        else:
            above.append(mode)
    for mode in reversed(above):
        push(mode)
    return found, len(above)


def drop_modes(unwanted: Callable[[Any], bool]) -> None:
    """Take off all modes of which this is true."""
    kept = [mode for mode in [pop() for _ in range(count())] if not unwanted(mode)]
    for mode in reversed(kept):
        push(mode)


def insert_mode(mode: Any, below: int) -> None:
    """Put a mode back with ``below`` others above it."""
    above = [pop() for _ in range(min(below, count()))]
    push(mode)
    for each in reversed(above):
        push(each)
