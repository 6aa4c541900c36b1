"""The two engines side by side: what a block with one forward costs, and what each further forward in it does.

`python benchmarks/engines.py [rounds [workload]]` runs each engine in a process of its own, by turns, and prints both.
Within a process the plain program, a mode that does nothing and the recordings take turns; the clock is CPU time, each
figure the median over the rounds of its ratio to the plain run of its own round.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

RECORDED: dict[str, dict[str, Any]] = {"default": {}, "ops": {"ops": True}, "variables": {"variables": True}}


def main() -> None:
    """Both engines, each in a process of its own."""
    rounds, wanted = [*sys.argv[1:], *("15", "")[len(sys.argv) - 1 :]]
    found: dict[str, Any] = {}
    for engine in ("python", "fast"):
        environment = {**os.environ, "TORCHGLASS_ENGINE": engine}
        run = subprocess.run(
            [sys.executable, __file__, "--here", wanted, rounds], env=environment, stdout=subprocess.PIPE
        )
        found[engine] = json.loads(run.stdout)
    print(f"{found['python']['versions']}; {rounds} rounds\n")
    print("| | engine |", " | ".join(found["fast"]["ratios"]), "|")
    print("|---|---|" + "---:|" * len(found["fast"]["ratios"]))
    for case in next(iter(found["fast"]["ratios"].values())):
        for engine, result in found.items():
            print("|", case, "|", engine, "|", " | ".join(each[case] for each in result["ratios"].values()), "|")
    for engine, result in found.items():
        print(f"\n{engine}: an empty block {result['empty']:.0f} µs")


def measure_here(rounds: int) -> dict[str, Any]:
    """What the engine of this process takes."""
    import torch
    import workloads

    import torchglass as tg

    torch.set_num_threads(1)
    for _ in range(3):
        with tg.record():
            pass
    wanted = [each for each in workloads.build() if sys.argv[2] in each.name]
    ratios = {each.name: _ratios(each, rounds) for each in wanted}
    begins = []
    for _ in range(50):
        began = process_time()
        with tg.record():
            pass
        begins.append(process_time() - began)
    empty = statistics.median(begins) * 1e6
    versions = f"torch {torch.__version__}, Python {sys.version.split()[0]}"
    return {"ratios": ratios, "empty": empty, "versions": versions}


def _ratios(workload: Any, rounds: int) -> dict[str, str]:
    import torch

    import torchglass as tg

    class Nothing(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    def floor() -> float:
        def act() -> None:
            with Nothing():
                workload.once()

        return _seconds(act)

    events: dict[str, int] = {}

    def fresh(name: str, options: dict[str, Any]) -> float:
        def act() -> Any:
            with tg.record(**options) as trace:
                workload.once()
            return trace

        return _seconds(act, lambda trace: events.__setitem__(name, trace._source.progress()))

    def third(options: dict[str, Any]) -> float:
        with tg.record(**options):
            workload.once()
            workload.once()
            return _seconds(workload.once)

    acts: dict[str, Callable[[], float]] = {"plain": lambda: _seconds(workload.once), "empty mode": floor}
    for name, options in RECORDED.items():
        acts[f"{name}, a fresh block"] = lambda name=name, options=options: fresh(name, options)
        acts[f"{name}, third forward"] = lambda options=options: third(options)
    taken: dict[str, list[float]] = {name: [] for name in acts}
    for turn in range(rounds + 1):
        for name, act in acts.items():
            gc.collect(1)
            took = act()
            if turn:
                taken[name].append(took)
    plain, floors = taken["plain"], taken["empty mode"]
    result = {}
    for name, times in taken.items():
        ratio = statistics.median(map(lambda one, base: one / base, times, plain))
        over = statistics.median(map(lambda one, base: one - base, times, floors)) * 1e6
        count = events.get(name.partition(",")[0])
        result[name] = f"{ratio:.2f}" + (f" ({over / count:.1f} µs)" if count else "")
    return result


def _seconds(act: Callable[[], Any], then: Callable[[Any], Any] | None = None) -> float:
    began = process_time()
    found = act()
    took = process_time() - began
    if then is not None:
        then(found)
    return took


if __name__ == "__main__":
    if "--here" in sys.argv:
        print(json.dumps(measure_here(int(sys.argv[-1]))))
    else:
        main()
