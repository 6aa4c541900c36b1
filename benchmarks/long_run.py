"""What it costs to leave a training recorded: twenty thousand steps of a small MLP, plain and under ``torchglass run``.

    python benchmarks/long_run.py [STEPS [ROUNDS]]

Plain and recorded runs take turns. Figures are CPU seconds of whole processes, the start and the end included, so that
other work on the machine disturbs them little; the table gives medians. The views are those of the last trace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

PROGRAM = '''"""Train a small MLP on random numbers."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.Adam(model.parameters())
data, labels = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
for step in range(int(sys.argv[1])):
    at = step * 256 % 4096
    loss = F.cross_entropy(model(data[at : at + 256]), labels[at : at + 256])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 1000 == 0:
        print(step, loss.item())
'''
STEPS, ROUNDS = 20_000, 3
AIMS = {"recorded": "≤ 1.3 × plain", "show": "≤ 3 s", "page": "≤ 8 s"}


class Cost(NamedTuple):
    """What a process took."""

    cpu: float
    """Seconds."""
    peak: float
    """MB of memory."""


def cost(command: Sequence[str]) -> Cost:
    """Run a command and return what it took, its children included."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=silent)
    _, status, used = os.wait4(pid, 0)
    if status:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), command)
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def measure(steps: int, rounds: int) -> dict[str, Cost]:
    """Return the median cost of each command."""
    found: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        script, trace = Path(folder, "train.py"), Path(folder, "run.trace")
        script.write_text(PROGRAM)
        torchglass = [sys.executable, "-m", "torchglass"]
        plain = [sys.executable, str(script)]
        recorded = [*torchglass, "run", "--to", str(trace), str(script)]
        for _ in range(rounds):
            shutil.rmtree(trace, ignore_errors=True)
            found.setdefault("plain", []).append(cost([*plain, str(steps)]))
            found.setdefault("recorded", []).append(cost([*recorded, str(steps)]))
            found.setdefault("start alone, plain", []).append(cost([*plain, "1"]))
        for view in ("show", "show code", "show listing", "show table"):
            name, *which = view.split()
            found[view] = [cost([*torchglass, name, str(trace), *which]) for _ in range(rounds)]
        page = [*torchglass, "export", str(trace), str(Path(folder, "run.html"))]
        found["page"] = [cost(page) for _ in range(rounds)]
    return {
        name: Cost(median(each.cpu for each in costs), median(each.peak for each in costs))
        for name, costs in found.items()
    }


def main() -> None:
    """Print the table."""
    steps, rounds = [*map(int, sys.argv[1:]), *(STEPS, ROUNDS)[len(sys.argv) - 1 :]]
    found = measure(steps, rounds)
    print(f"{steps:,} steps, medians of {rounds} rounds\n")
    print("| | CPU | × plain | peak memory | aim |\n|---|---|---|---|---|")
    for name, each in found.items():
        ratio = f"{each.cpu / found['plain'].cpu:.2f}" if name == "recorded" else ""
        print(f"| {name} | {each.cpu:.2f} s | {ratio} | {each.peak:,.0f} MB | {AIMS.get(name, '')} |")


if __name__ == "__main__":
    main()
