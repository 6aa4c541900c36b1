"""What statistics cost on top of recording: ratios of CPU time to the plain program, taken in turns, medians.

python benchmarks/measuring.py [rounds]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import workloads
from torch import nn

import torchglass as tg
from torchglass.capture.statistics.memory import KINDS, tally_of
from torchglass.capture.statistics.sketch import sketch_of
from torchglass.compiled import described

WAYS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "functions": {},
    "functions, statistics": {"values": "stats"},
    "ops": {"ops": True},
    "ops, statistics": {"ops": True, "values": "stats"},
    "ops, sketches": {"ops": True, "values": "stats+sketch"},
    "ops, all kept": {"ops": True, "values": "all", "max_bytes": 1 << 33},
    "… into a bundle": {"ops": True, "values": "all", "max_bytes": 1 << 33, "to": "kept"},
    "statistics, into one": {"ops": True, "values": "stats", "to": "measured"},
}


def programs() -> dict[str, Callable[[], Any]]:
    """Those of workloads.py, and a step of a small perceptron, which has hardly any work to hide behind."""
    return {
        "GPT-2 12×256, forward": workloads.gpt2_forward().run,
        "GPT-2 12×256, training step": workloads.training_step().run,
        "60×[Linear, ReLU], five forwards": workloads.tiny_ops().run,
        "perceptron 256, training step": perceptron(),
    }


def perceptron() -> Callable[[], Any]:
    """A training step of a small perceptron with AdamW."""
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.GELU(), nn.Linear(256, 10))
    optimizer, x, y = torch.optim.AdamW(model.parameters()), torch.randn(128, 256), torch.randint(0, 10, (128,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def spent(program: Callable[[], Any], options: dict[str, Any] | None) -> float:
    """CPU seconds of one run; the block itself counts, looking at the trace does not."""
    began = time.process_time()
    if options is None:
        program()
    else:
        with tempfile.TemporaryDirectory() as folder:
            to = {"to": Path(folder) / options["to"]} if "to" in options else {}
            began = time.process_time()
            with tg.record(**options | to):
                program()
            return time.process_time() - began
    return time.process_time() - began


def ratios(program: Callable[[], Any], rounds: int) -> dict[str, float]:
    """By way: the median time, as a multiple of the plain one's."""
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds + 1):
        for name, options in WAYS.items():
            took = spent(program, options)
            if number:
                times[name].append(took)
    plain = median(times["plain"])
    return {name: median(each) / plain for name, each in times.items()}


def cloned(program: Callable[[], Any], rounds: int) -> float:
    """The time that it takes to clone all the values that were kept, as a multiple of the plain program's."""
    with tg.record(ops=True, values="all", max_bytes=1 << 33) as trace:
        program()
    tensors, plain, cloning = [trace.tensor(each) for each in trace.kept()], list[float](), list[float]()
    for _ in range(rounds):
        plain.append(spent(program, None))
        began = time.process_time()
        copies = [each.clone() for each in tensors]
        cloning.append(time.process_time() - began)
        del copies
    return median(cloning) / median(plain)


def of_one_tensor(shape: tuple[int, ...], rounds: int) -> list[float]:
    """Seconds to measure so many float32, to sketch them too, and to sum them."""
    tensor = torch.randn(shape)
    kind, size = KINDS[tensor.dtype], tensor.numel()
    works = (
        lambda: tally_of(tensor, kind), lambda: sketch_of(tensor, kind, tally_of(tensor, kind)), tensor.sum,
    )  # fmt: skip
    times: list[list[float]] = [[], [], []]
    for _ in range(rounds):
        for took, work in zip(times, works, strict=True):
            began = time.process_time()
            for _ in range(max(1, 100_000 // size)):
                work()
            took.append((time.process_time() - began) / max(1, 100_000 // size))
    return [median(each) for each in times]


def main() -> None:
    """Print both tables."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"engine: {described()}")
    for title, program in programs().items():
        print(title)
        found = ratios(program, rounds)
        for name, ratio in found.items():
            print(f"  {name:<22} {ratio:6.2f}")
        measured, sketched = (found[each] - found["ops"] for each in ("ops, statistics", "ops, sketches"))
        print(f"  statistics on top of ops: {measured:.2f} of the plain program")
        print(f"  with sketches: {sketched:.2f}, {sketched / measured:.2f} times as much")
        kept = found["ops, all kept"] - found["ops, statistics"]
        written, cloning = found["… into a bundle"] - found["statistics, into one"], cloned(program, rounds)
        print(f"  to keep all values, on top of statistics: {kept:.2f}; into a bundle {written:.2f};")
        print(f"  to clone them: {cloning:.2f}")
    print("Float32: to measure, to measure and sketch, to sum; measured over summed, sketched over measured:")
    for shape in ((1_000,), (256, 64), (100, 1000), (1000, 1000), (10_000, 1000)):
        measured, sketched, summed = of_one_tensor(shape, rounds)
        times = " ".join(f"{each * 1e6:10.1f} µs" for each in (measured, sketched, summed))
        print(f"  {shape!s:>14} {times} {measured / summed:6.1f} {sketched / measured:6.1f}")


if __name__ == "__main__":
    main()
