"""This thread's stack of function modes: ours goes on and off it without touching the others'."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import GeneratorType
from typing import Any

import torch
import torch.overrides

push = torch._C._push_on_torch_function_stack
pop = torch._C._pop_torch_function_stack
count = torch._C._len_torch_function_stack
_TAKES_OFF = torch.overrides._pop_mode_temporarily.__wrapped__.__code__  # type: ignore[attr-defined]


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


def finish_pops(error: BaseException) -> None:
    """End the generators by which torch takes a mode off for a while, where Ctrl-C left them half way.

    They would put our mode back when they are collected: after the recording, with nobody to take it off.
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == contextlib.__file__:
            generator = getattr(trace.tb_frame.f_locals.get("self"), "gen", None)
            if isinstance(generator, GeneratorType) and generator.gi_code is _TAKES_OFF:
                generator.close()
        trace = trace.tb_next


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
