"""This thread's stacks of modes: ours go on and off them without touching the others'."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from types import GeneratorType
from typing import Any

from torchglass.capture.engine import fast
from torchglass.capture.torch import private


class ModeStack:
    """One of torch's two stacks of modes, by its raw calls.

    Not by ``with mode``: in two threads at once that leaves a process-wide flag of torch's set for good.
    """

    def __init__(self, push: Callable[[Any], None], pop: Callable[[], Any], count: Callable[[], int]) -> None:
        self.push = push
        self.pop = pop
        self.count = count

    def take(self, wanted: Any) -> tuple[Any, int]:
        """Take this mode off, wherever it stands: the mode (None: it is not there) and how many stood above it."""
        above: list[Any] = []
        found = None
        while found is None and self.count():
            mode = self.pop()
            if mode is wanted:
                found = mode
            else:
                above.append(mode)
        for mode in reversed(above):
            self.push(mode)
        return found, len(above)

    def insert(self, mode: Any, below: int) -> None:
        """Put a mode back with ``below`` others above it."""
        above = [self.pop() for _ in range(min(below, self.count()))]
        self.push(mode)
        for each in reversed(above):
            self.push(each)

    def drop(self, unwanted: Callable[[Any], bool]) -> None:
        """Take off all modes of which this is true."""
        kept = [mode for mode in [self.pop() for _ in range(self.count())] if not unwanted(mode)]
        for mode in reversed(kept):
            self.push(mode)


FUNCTION_MODES = ModeStack(private.push_function_mode, private.pop_function_mode, private.count_function_modes)
OP_MODES = ModeStack(private.push_op_mode, lambda: private.pop_op_mode(None), private.count_op_modes)


class OpMode(private.TorchDispatchMode):
    """What all our dispatch modes are; each session has one, which is on the stacks of all its threads."""

    session: Any
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise the handler is wrapped so that the first op imports dynamo, for two seconds."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code may run below us: the door of compiled regions takes this mode off anyway."""
        return True


@cache
def compiled_op_mode() -> type[OpMode]:
    """The class of those whose handler is C's; made once, as a class takes as long as thirty events."""
    return type("OpMode", (fast.extension.OpMode, OpMode), {})


def take_op_mode() -> tuple[Any, int]:
    """Take our dispatch mode off, whichever session's: the mode (None: there is none) and how many stood above."""
    stack = [private.op_mode_at(index) for index in range(OP_MODES.count())]
    ours = next((each for each in stack if isinstance(each, OpMode)), None)
    return (None, 0) if ours is None else OP_MODES.take(ours)


def finish_pops(error: BaseException) -> None:
    """End the generators by which torch takes a mode off for a while, where Ctrl-C left them half way.

    They would put our mode back when they are collected: after the recording, with nobody to take it off.
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == contextlib.__file__:
            generator = getattr(trace.tb_frame.f_locals.get("self"), "gen", None)
            if isinstance(generator, GeneratorType) and generator.gi_code in private.SWITCHES:
                generator.close()
        trace = trace.tb_next
