"""Measures what following variables costs in numpy programs; needs no torch, so it runs on every Python."""

from __future__ import annotations

import gc
import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np

from torchglass.capture.variables import Engine, Watch

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


if __name__ == "__main__":
    main()
