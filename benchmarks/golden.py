"""Golden traces: do they hold from run to run and with any number of threads, and what do they cost?

    python benchmarks/golden.py [--repetitions 100]

Each program is recorded again and again with 1, 2 and 4 threads, and compared with its first recording, as the pytest
fixture does. A difference is a flake. The cost is that of the text beside the cost of recording, in CPU time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from torchglass.answers.golden import LEVELS, differences, snapshot_lines

VALUES = {"stats": "stats", "values": "stats+sketch"}


def training() -> None:
    """Two steps of a convolutional net with batch norm."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(net(torch.randn(16, 3, 8, 8)), torch.arange(16) % 10).backward()
        optimizer.step()


def transformer() -> None:
    """A forward pass of twelve layers."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
    nn.TransformerEncoder(layer, 12)(torch.randn(4, 33, 64))


def language_model() -> None:
    """A training step of a small GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=64, n_layer=12, n_head=4))
    tokens = torch.randint(0, 128, (2, 48))
    model(tokens, labels=tokens).loss.backward()


PROGRAMS: list[Callable[[], None]] = [training, transformer, language_model]


def main() -> int:
    """Print one line a program and level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=100, help="of each program at each level (default: 100)")
    options = parser.parse_args()
    flakes = 0
    print(f"{'program':16}{'level':9}{'lines':>6}{'flakes':>8}{'compared':>10}{'text / recording':>18}")
    for program in PROGRAMS:
        for level in LEVELS:
            lines, found, cost = judged(program, level, options.repetitions)
            flakes += found
            print(
                f"{program.__name__:16}{level:9}{lines:6}{found:8}{3 * options.repetitions:10}{cost:18.3f}", flush=True
            )
    return 1 if flakes else 0


def judged(program: Callable[[], None], level: str, repetitions: int) -> tuple[int, int, float]:
    """How many lines a snapshot has, how many repetitions differ from it, and the cost of its text."""
    expected: list[str] = []
    flakes = 0
    costs: list[float] = []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        for _ in range(repetitions):
            torch.manual_seed(0)
            began = time.process_time()
            with tg.record(ops=level == "ops", values=VALUES.get(level)) as trace:
                program()
            list(trace.columns())  # what was recorded is put in order here, with or without a snapshot
            recorded = time.process_time()
            lines = snapshot_lines(trace, level)
            written = time.process_time()
            costs.append((written - recorded) / (recorded - began))
            expected = expected or lines
            flakes += bool(differences(expected, lines))
    return len(expected), flakes, median(costs)


if __name__ == "__main__":
    raise SystemExit(main())
