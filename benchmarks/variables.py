"""Measures what following variables costs in numpy programs; needs no torch, so it runs on every Python.

With `models`, and a word of a workload's name if only one is meant, it measures transformers instead, beside the floor:
the same recording while Python tells of calls and lines, or instructions, and nobody does anything about them.
"""

from __future__ import annotations

import gc
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np

from torchglass.capture.variables import Engine, Watch
from torchglass.capture.variables.plan import plan_of
from torchglass.capture.variables.scope import is_user_code
from torchglass.compiled import extension

ROUNDS = 15


class Counting:
    """A sink that only counts."""

    def __init__(self) -> None:
        self.count = 0

    def changed(self, change: object, frame: object) -> None:
        self.count += 1


def fifty_operations(a: np.ndarray) -> np.ndarray:
    """Fifty small numpy operations; one array is stored once, the others over and over."""
    first = a + 1
    total = first * 0
    for _ in range(12):
        total = total + a
        scaled = total * 0.5
        shifted = scaled - 1
        total = np.abs(shifted)
    return total


def thousand_lines() -> Callable[[np.ndarray], float]:
    """A function of a thousand lines, without calls or stores into anything, beside a large array."""
    lines = ["x = y * 1.5 + 2.0 - y / 3.0 + y * y * 0.01", "y = x * x * 0.001 - x * 2.0 + x / 7.0 - 1.0"] * 500
    text = "def run(watched):\n    y = 1.0\n    " + "\n    ".join(lines) + "\n    return y\n"
    names: dict[str, Callable[[np.ndarray], float]] = {}
    exec(compile(text.replace("x * x", "x * 0.5").replace("y * y", "y * 0.5"), __file__ + ".lines.py", "exec"), names)
    return names["run"]


def ratio(act: Callable[[], object], names: tuple[str, ...], repeat: int) -> tuple[float, int]:
    """CPU time inside the engine to CPU time without it, interleaved; and how many changes were told."""
    sink = Counting()
    plain, watched = [], []
    for _ in range(ROUNDS):
        gc.collect(1)
        plain.append(timed(act, repeat))
        with Engine(Watch(names), sink):
            act()  # reading the code once is not what is measured
            watched.append(timed(act, repeat))
    return statistics.median(watched) / statistics.median(plain), sink.count // (ROUNDS * (repeat + 1))


def timed(act: Callable[[], object], repeat: int) -> float:
    """CPU seconds of so many runs."""
    start = process_time()
    for _ in range(repeat):
        act()
    return process_time() - start


def main() -> None:
    """Print one line a case."""
    small, large, long = np.ones(64), np.ones(100_000_000 // 8), thousand_lines()
    cases: list[tuple[str, Callable[[], object], tuple[str, ...], int]] = [
        ("50 numpy operations, one variable stored once", lambda: fifty_operations(small), ("first",), 200),
        ("50 numpy operations, one variable stored 25 times", lambda: fifty_operations(small), ("total",), 200),
        ("50 numpy operations, all variables", lambda: fifty_operations(small), ("*",), 100),
        ("1,000 lines beside an array of 100 MB, watched by name", lambda: long(large), ("watched",), 50),
    ]
    print(f"Python {platform.python_version()}, numpy {np.__version__}; ratio to plain, medians of {ROUNDS} rounds")
    for name, act, names, repeat in cases:
        found, changes = ratio(act, names, repeat)
        print(f"{found:6.2f}  {changes:4} changes  {name}")


# ---------------------------------------------------------------- the floor


class Silent:
    """Its `__init__` is C's own, and takes whatever is given when `__new__` is another: the cheapest callback."""

    def __new__(cls) -> Silent:
        return object.__new__(cls)


SILENCE: Callable[..., Any] = Silent().__init__
_met: dict[int, CodeType] = {}
_plans: dict[int, Any] = {}
"""By `id` of code: what is followed, and None for what is not; the code is kept above."""


def _is_followed(code: CodeType) -> bool:
    if id(code) not in _met:
        _met[id(code)] = code
        _plans[id(code)] = SimpleNamespace(lines=None, after=_offsets(code)) if is_user_code(code) else None
    return _plans[id(code)] is not None


def _offsets(code: CodeType) -> frozenset[int]:
    return frozenset(plan_of(code, Watch(), lambda inner: None).after) if hasattr(sys, "monitoring") else frozenset()


@contextmanager
def by_lines() -> Iterator[None]:
    """A trace function that asks for the lines of what is followed (Python 3.11), compiled if ours is."""

    def begin(core: object, frame: FrameType, plan: object) -> Any:
        return SILENCE if _is_followed(frame.f_code) else None

    tracer: Any = lambda frame, event, argument: begin(None, frame, None)  # noqa: E731 (with the others of its kind)
    if extension is not None:
        engine = SimpleNamespace(closed=False)
        tracer = extension.Tracer(engine, engine, _plans, {}, {}, begin, object(), None, None)
    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(None)


@contextmanager
def by_instructions(act: Callable[[], object]) -> Iterator[None]:
    """Callbacks that do nothing, where something is stored or called: `act` shows where that is (3.12 and later)."""
    tool: Any = getattr(sys, "monitoring")  # noqa: B009 (3.11 has none)
    number, kinds = 3, tool.events

    def start(code: CodeType, offset: int) -> Any:
        if not _is_followed(code):
            return tool.DISABLE
        tool.set_local_events(number, code, kinds.INSTRUCTION | kinds.PY_RETURN)
        return None

    def instruction(code: CodeType, offset: int) -> Any:
        return None if offset in _plans[id(code)].after else tool.DISABLE

    tool.use_tool_id(number, "floor")
    try:
        tool.register_callback(number, kinds.PY_START, start)
        tool.register_callback(number, kinds.INSTRUCTION, instruction)
        tool.set_events(number, kinds.PY_START)
        act()
        for kind in (kinds.PY_START, kinds.INSTRUCTION, kinds.PY_RETURN):
            tool.register_callback(number, kind, SILENCE)
        yield
    finally:
        tool.set_events(number, 0)
        for code in _met.values():
            tool.set_local_events(number, code, 0)
        for kind in (kinds.PY_START, kinds.INSTRUCTION, kinds.PY_RETURN):
            tool.register_callback(number, kind, None)
        tool.free_tool_id(number)


def models(wanted: str, rounds: int = ROUNDS) -> None:
    """One line a workload: default recording, the same under the floor, and with all variables; ratios to plain."""
    import torch
    import workloads

    import torchglass as tg

    def recorded(act: Callable[[], object], **options: Any) -> None:
        with tg.record(**options):
            act()

    def under_floor(act: Callable[[], object]) -> float:
        if hasattr(sys, "monitoring"):
            with by_instructions(act):
                return timed(lambda: recorded(act), 1)
        start = process_time()
        with tg.record(), by_lines():
            act()
        return process_time() - start

    torch.set_num_threads(1)
    for workload in [each for each in workloads.build() if wanted in each.name]:
        act = workload.run
        ways: dict[str, Callable[[], float]] = {
            "plain": lambda act=act: timed(act, 1),
            "default": lambda act=act: timed(lambda: recorded(act), 1),
            "floor": lambda act=act: under_floor(act),
            "variables": lambda act=act: timed(lambda: recorded(act, variables=True), 1),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(rounds + 2):
            for name, way in ways.items():
                gc.collect(1)
                found = way()
                if turn > 1:  # the first ones meet everything for the first time
                    taken[name].append(found)
        plain = statistics.median(taken["plain"])
        shown = ", ".join(f"{name} {statistics.median(each) / plain:.2f}" for name, each in taken.items())
        print(f"{workload.name}: {shown}; plain {plain * 1e3:.1f} ms")


if __name__ == "__main__":
    models(*sys.argv[2:3] or ("",)) if sys.argv[1:2] == ["models"] else main()
