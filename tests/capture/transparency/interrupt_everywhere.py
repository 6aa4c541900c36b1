"""Sends a Ctrl-C at every line that starting and stopping a recording runs, and prints where it left something.

A program of its own, because a recorder that fails here leaves its process in disorder:
`python -m tests.capture.transparency.interrupt_everywhere [ops]`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

import torchglass as tg
from tests.conformance.compare import surroundings

# Python may answer a signal on the way into `__exit__` itself, before a line of ours has run that could guard.
UNGUARDED = 3


class Interrupter:
    """A tracer that raises the signal at one line, counted over all code of torchglass."""

    def __init__(self, line: int) -> None:
        self.left = line
        self.place = ""

    def __call__(self, frame: FrameType, what: str, _: Any) -> Any:
        if f"{tg.__name__}." not in frame.f_globals.get("__name__", "") + ".":
            return None
        if what == "line":
            self.left -= 1
            if self.left == 0:
                self.place = f"{frame.f_globals['__name__']}:{frame.f_lineno} in {frame.f_code.co_name}"
                signal.raise_signal(signal.SIGINT)
        return self

    def watch(self, act: Callable[[], object]) -> None:
        sys.settrace(self)
        try:
            act()
        finally:
            sys.settrace(None)


def interrupt(line: int, starting: bool) -> tuple[str, str]:
    """Start and stop one recording; where the interrupt came, and what was raised instead of it."""
    interrupter = Interrupter(line)
    recording = tg.record(ops="ops" in sys.argv)
    try:
        if starting:
            interrupter.watch(recording.__enter__)
        else:
            recording.__enter__()
            torch.ones(2).relu()
            interrupter.watch(lambda: recording.__exit__(None, None, None))
    except KeyboardInterrupt:
        return interrupter.place, ""
    except BaseException as error:
        return interrupter.place, f"raised {error!r}"
    if starting:
        recording.__exit__(None, None, None)
    return interrupter.place, "swallowed the interrupt" if interrupter.place else ""


def main() -> int:
    """Go through all lines, until one leaves something: what comes after would only repeat it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tg.record(ops="ops" in sys.argv) as trace:
        torch.ones(2).relu()
    len(trace)
    before = surroundings()
    tried = 0
    for starting in (True, False):
        line = 1 if starting else 1 + UNGUARDED
        while (found := interrupt(line, starting))[0]:
            place, wrong = found
            left = [name for name, value in surroundings().items() if value != before[name]]
            if wrong or left:
                print(f"{'starting' if starting else 'stopping'}, {place}: {wrong or 'left'} {left}")
                return 1
            line += 1
            tried += 1
    print(f"{tried} places")
    return 0


if __name__ == "__main__":
    sys.exit(main())
