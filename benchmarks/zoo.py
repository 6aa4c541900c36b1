"""One forward of each tiny transformer of the tests' zoo in a fresh block, by the time of the plain one.

`python benchmarks/zoo.py [rounds [family]]`. Two layers of 32 do hardly any work, so this is what recording costs a
host that has nothing to wait for. Plain, an empty mode and the recordings take turns; the clock is CPU time; a family's
figure is the median over the rounds of its ratio to the plain run of its own round, the last line the median of those.
"""

from __future__ import annotations

import gc
import statistics
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import process_time
from typing import Any

import torch
from subjects import Floor

sys.path.insert(0, str(Path(__file__).parents[1]))
import torchglass as tg
from tests import zoo

Context = Callable[[], AbstractContextManager[Any]]
WAYS: dict[str, Context] = {
    "plain": nullcontext, "plain again": nullcontext, "empty mode": Floor, "default": tg.record,
    "ops": lambda: tg.record(ops=True),
}  # fmt: skip


def main() -> None:
    """All families, or those whose name contains a word."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = {name: ratios(build, rounds) for name, build in zoo.FAMILIES.items() if wanted in name}
    shown = list(WAYS)[1:]
    versions = f"torch {torch.__version__}, Python {sys.version.split()[0]}"
    print(f"{versions}, engine {tg.last_trace().engine}; {rounds} rounds\n")
    print("| family | plain, ms |", " | ".join(shown), "|")
    print("|---|---:|" + "---:|" * len(shown))
    for name, (plain, each) in found.items():
        print(f"| {name} | {plain * 1e3:.2f} |", " | ".join(f"{each[way]:.2f}" for way in shown), "|")
    middle = {way: statistics.median(each[way] for _, each in found.values()) for way in shown}
    print(f"| median of {len(found)} | |", " | ".join(f"{middle[way]:.2f}" for way in shown), "|")


def ratios(build: Callable[[], zoo.Built], rounds: int) -> tuple[float, dict[str, float]]:
    """Seconds of a plain forward, and how many times as long it takes in each way."""
    network, inputs = build()
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(rounds + 2):
        shift = turn % len(WAYS)  # who comes behind a recording finds the caches cold
        for way in [*list(WAYS)[shift:], *list(WAYS)[:shift]]:
            gc.collect(0)
            took = _seconds(network, inputs, WAYS[way])
            if turn > 1:  # the first rounds pay for imports and caches
                taken[way].append(took)
    plain = taken["plain"]
    found = {way: statistics.median(map(lambda one, base: one / base, times, plain)) for way, times in taken.items()}
    return statistics.median(plain), found


def _seconds(network: Any, inputs: dict[str, Any], context: Context) -> float:
    with torch.no_grad():
        began = process_time()
        with context():
            network(**inputs)
        return process_time() - began


if __name__ == "__main__":
    main()
