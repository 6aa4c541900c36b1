"""What statistics cost on top of recording: ratios of CPU time to the plain program, taken in turns, medians.

python benchmarks/measuring.py [rounds]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import workloads
from torch import nn

import torchglass as tg
from torchglass.capture.statistics.memory import KINDS, tally_of
from torchglass.compiled import described

WAYS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "functions": {},
    "functions, statistics": {"values": "stats"},
    "ops": {"ops": True},
    "ops, statistics": {"ops": True, "values": "stats"},
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
        with tg.record(**options):
            program()
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


def of_one_tensor(size: int, rounds: int) -> tuple[float, float]:
    """Seconds to measure so many float32, and to sum them."""
    tensor = torch.randn(size)
    measured, summed = list[float](), list[float]()
    for _ in range(rounds):
        for took, work in ((measured, lambda: tally_of(tensor, KINDS[tensor.dtype])), (summed, tensor.sum)):
            began = time.process_time()
            for _ in range(max(1, 100_000 // size)):
                work()
            took.append((time.process_time() - began) / max(1, 100_000 // size))
    return median(measured), median(summed)


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
        print(f"  statistics on top of ops: {found['ops, statistics'] - found['ops']:.2f} of the plain program")
    print("Seconds to measure so many float32, and to sum them:")
    for size in (1_000, 16_384, 100_000, 1_000_000, 10_000_000):
        measured, summed = of_one_tensor(size, rounds)
        print(f"  {size:>10,} {measured * 1e6:10.1f} µs {summed * 1e6:10.1f} µs {measured / summed:6.1f}")


if __name__ == "__main__":
    main()
