"""What views cost: seconds and memory for a training loop of ten thousand events, of a hundred thousand, of a million.

python benchmarks/views.py                10⁴ and 10⁵ events
python benchmarks/views.py 1000000        another size (needs some GiB)
"""

from __future__ import annotations

import gc
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time

import torch
from torch import nn

import torchglass as tg

VIEWS = ("tree", "code", "calls", "variables", "listing", "table")
SIZES = (10_000, 100_000)
LARGE = 500_000
"""Events from which on each view is made once, and its memory is not followed: that takes five times as long."""
EVENTS_A_STEP, CHANGES_A_STEP = 105, 130


class Net(nn.Module):
    """A few layers, some of them in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x).relu()
        return x.mean(dim=(1, 2))


def batches(steps: int) -> Iterator[torch.Tensor]:
    """Batches whose second dimension differs."""
    for at in range(steps):
        yield torch.ones(3, 1 + at % 7, 4)


def train(steps: int) -> None:
    """Training with a loss that is logged each tenth step: rounds that differ in shapes, values and steps."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step, x in enumerate(batches(steps)):
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            loss.item()


def kept(size: int, folder: Path, variables: bool = False) -> Path:
    """A bundle of about that many events, as `torchglass show` reads it."""
    path = folder / f"{size}-{variables}.trace"
    with tg.record(max_events=None, to=path, variables=variables):
        train(size // (CHANGES_A_STEP if variables else EVENTS_A_STEP))
    return path


def measured(path: Path, views: Sequence[str] = VIEWS) -> None:
    """Seconds of CPU (the best of three) as the command takes them; bytes at their peak, in turns of their own."""
    tracemalloc.start()
    trace = tg.load(path)
    count = len(trace)
    own = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    print(f"{count:,} events, {own / count:.0f} bytes each in memory", flush=True)
    print(f"{'view':<12}{'lines':>7}{'seconds':>9}{'µs an event':>13}{'peak / trace':>14}", flush=True)
    for view in views:
        seconds, lines = min(timed(path, view) for _ in range(3 if count < LARGE else 1))
        peak = f"{peak_of(path, view) / own:.1f}×" if count < LARGE else "–"
        print(f"{view:<12}{lines:>7}{seconds:>9.2f}{seconds / count * 1e6:>13.1f}{peak:>14}", flush=True)


def timed(path: Path, view: str) -> tuple[float, int]:
    """Seconds for the view of a loaded trace, and its lines."""
    trace = tg.load(path)
    len(trace)
    gc.collect()
    gc.disable()
    began = process_time()
    lines = tg.render(trace, view, width=120).count("\n") + 1
    spent = process_time() - began
    gc.enable()
    return spent, lines


def peak_of(path: Path, view: str) -> int:
    """The most that making the view took beside the trace."""
    trace = tg.load(path)
    len(trace)
    gc.collect()
    tracemalloc.start()
    tg.render(trace, view, width=120)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    """All sizes, each with and without followed variables."""
    torch.set_num_threads(1)
    for size in map(int, sys.argv[1:] or SIZES):
        with tempfile.TemporaryDirectory() as folder:
            measured(kept(size, Path(folder)))
            print("with variables=True:", end=" ")
            measured(kept(size, Path(folder), variables=True), ("tree", "variables", "listing"))
            print()


if __name__ == "__main__":
    main()
