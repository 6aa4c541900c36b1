"""What findings cost: CPU seconds after a training loop of ten thousand events, of a hundred thousand, of a million.

python benchmarks/findings.py             10⁴ and 10⁵ events
python benchmarks/findings.py 1000000     another size (needs some GiB)
"""

from __future__ import annotations

import sys
from time import process_time

import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from torchglass.answers.findings.check import check
from torchglass.program.program import program_of

SIZES = (10_000, 100_000)


class Net(nn.Module):
    """Attention, dropout and a norm: what most detectors look at."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 16)
        self.blocks = nn.ModuleList([nn.Linear(16, 48) for _ in range(4)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            q, k, v = block(self.norm(x)).chunk(3, dim=-1)
            weights = F.softmax(q @ k.transpose(-2, -1) / 4, dim=-1)
            x = x + F.dropout(weights @ v, 0.1, self.training)
        return self.head(x.mean(dim=1))


def training(events: int) -> tg.Trace:
    """Record a training loop until there are that many events."""
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    with tg.record(max_events=2 * events) as trace:
        first = step(model, optimizer)
        recorded = len(trace)
        for _ in range(events // recorded):
            first += step(model, optimizer)
    print(f"loss {first:.1f}", end="  ")
    return trace


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Make one step of training."""
    loss = F.cross_entropy(model(torch.randn(8, 5, 4)), torch.randint(0, 3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    """Print one row for each size."""
    torch.set_num_threads(1)
    for size in [int(each) for each in sys.argv[1:]] or SIZES:
        trace = training(size)
        begin = process_time()
        events = len(trace)
        program = program_of(trace)
        settled = process_time()
        flow = program.flow
        followed = process_time()
        report = check(trace)
        done = process_time()
        print(
            f"{events:>9,} events: settling {settled - begin:6.2f} s, data flow {followed - settled:6.2f} s, "
            f"findings {done - followed:6.2f} s, {(done - settled) / events * 1e6:5.1f} µs an event, "
            f"{len(report.findings)} found, {len(flow)} in the data flow"
        )


if __name__ == "__main__":
    main()
