"""Programs that die at random moments, and what their bundles hold: counted by the program itself, not by us.

    python benchmarks/kills.py 1000

Each program is a forked child that records into a bundle and does what programs do: calls of small models, marks,
a second thread, a child process that is forked inside a module call. It keeps count, in memory that outlives it, of
each call that it has begun and ended and of each mark that has returned. Then it dies, by SIGKILL, SIGSEGV, SIGABRT or
``os._exit``. What its bundle must hold follows from the counts.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import nn

import torchglass as tg

DEATHS = ("SIGKILL", "SIGSEGV", "SIGABRT", "os._exit")
LONGEST = 0.8
"""Seconds after the first call of a program at which it is dead at the latest (``--longest``) …"""
EARLY = 0.15
"""… but for this part of them, which die that soon after they were started, whatever they do then."""
PATIENCE = 60.0
WORKERS = 4
"""Who counts: the main thread, the second one, and two forked children."""
STARTED, BEGUN, ENDED, MARKED = range(4)


class Counts:
    """What the program has done, in memory that it shares with whoever started it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, WORKERS * 32)

    def add(self, worker: int, what: int) -> None:
        at = worker * 32 + what * 8
        struct.pack_into("q", self._memory, at, struct.unpack_from("q", self._memory, at)[0] + 1)

    def of(self, worker: int) -> tuple[int, ...]:
        return struct.unpack_from("4q", self._memory, worker * 32)


class Step(nn.Module):
    """A model whose call is counted by itself: when it has begun, and by whoever called it when it has ended."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        self.worker = 0

    def forward(self, x: torch.Tensor, worker: int) -> torch.Tensor:
        self.counts.add(worker, BEGUN)
        if worker == 0 and self.counts.of(0)[BEGUN] in (3, 40):
            self.fork(2 if self.counts.of(0)[BEGUN] == 3 else 3)
        return self.layers(x)

    def fork(self, worker: int) -> None:
        """A child process that begins inside of a call, and goes on by itself."""
        if os.fork() == 0:
            work(self, self.counts, worker)
            os._exit(0)


def work(model: Step, counts: Counts, worker: int) -> None:
    """Until it dies."""
    counts.add(worker, STARTED)
    while True:
        x = torch.full((2, 4), float(counts.of(worker)[MARKED]))
        y = model(x, worker)
        counts.add(worker, ENDED)
        tg.mark(f"worker {worker}", x)
        counts.add(worker, MARKED)
        del y


def leave_after(seconds: float) -> None:
    """Die by ``os._exit``."""
    leave = threading.Timer(seconds, os._exit, [7])
    leave.daemon = True
    leave.start()


def program(path: Path, counts: Counts, exit_after: float | None, early: bool) -> None:
    """What is killed."""
    os.setpgid(0, 0)
    model = Step(counts)
    if exit_after is not None and early:
        leave_after(exit_after)
    with tg.record(to=path, ops=random.random() < 0.3):
        if exit_after is not None and not early:
            leave_after(exit_after)
        if random.random() < 0.5:
            threading.Thread(target=work, args=(model, counts, 1), daemon=True).start()
        work(model, counts, 0)


def die_once(folder: Path, seed: int, longest: float) -> tuple[str, Counts, Path]:
    """Start a program and end it; returns how, and what it had done."""
    random.seed(seed)
    path, counts, death = folder / f"{seed}.trace", Counts(), DEATHS[seed % len(DEATHS)]
    moment, early = random.random() ** 2 * longest, random.random() < EARLY
    child = os.fork()
    if child == 0:
        os.close(2)
        os.open(os.devnull, os.O_WRONLY)
        program(path, counts, moment if death == "os._exit" else None, early)
    if death == "os._exit":
        os.waitpid(child, 0)
    else:
        until = time.monotonic() + PATIENCE
        while not early and not counts.of(0)[BEGUN] and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(moment)
        os.kill(child, getattr(signal, death))
        os.waitpid(child, 0)
    try:
        os.killpg(child, signal.SIGKILL)  # its forked children live on
    except ProcessLookupError:
        pass
    return death, counts, path


def problems(path: Path, counts: Counts) -> list[str]:
    """What a bundle should hold and does not."""
    started = [worker for worker in range(WORKERS) if counts.of(worker)[STARTED]]
    if not started and not (path / "manifest.json").exists():
        return []  # it died before the bundle was made
    try:
        trace = tg.load(path)
        events = list(trace.events())
    except Exception as error:
        return [f"it does not load: {type(error).__name__}: {error}"]
    found: list[str] = []
    for worker in started:
        found += [f"worker {worker}: {each}" for each in _missing(trace, events, counts.of(worker), worker)]
    return found


def _missing(trace: Any, events: list[Any], counts: tuple[int, ...], worker: int) -> list[str]:
    _, begun, ended, marked = counts
    calls = [each for each in events if each.name == "Step" and f", {worker}" in each.args]
    done = [each for each in calls if each.end_ns is not None]
    marks = [each for each in events if each.kind == "mark" and each.name == f"worker {worker}"]
    found: list[str] = []
    if not begun <= len(calls) <= begun + 1:
        found.append(f"{begun} calls had begun, {len(calls)} are there")
    if not ended <= len(done) <= ended + 1:
        found.append(f"{ended} calls had ended, {len(done)} are there with an end")
    if not marked <= len(marks) <= marked + 1:
        found.append(f"{marked} marks had returned, {len(marks)} are there")
    for number, mark in enumerate(marks[:marked]):
        try:
            content = trace.tensor(mark.inputs[0])
        except tg.NotRecorded:
            content = None
        if content is None or not torch.equal(content, torch.full((2, 4), float(number))):
            found.append(f"mark {number} holds {content}")
            break
    return found


def main() -> int:
    """Kill again and again; 1 when something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("deaths", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first death")
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds that a program lives")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="torchglass-kills-"))
    ways, bad, calls = Counter[str](), 0, 0
    for seed in range(options.seed, options.seed + options.deaths):
        death, counts, path = die_once(folder, seed, options.longest)
        missing = problems(path, counts)
        ways[death] += 1
        calls += sum(counts.of(worker)[BEGUN] for worker in range(WORKERS))
        bad += bool(missing)
        for each in missing:
            print(f"death {seed} by {death}: {each}")
        if not missing:
            shutil.rmtree(path, ignore_errors=True)
    print(f"{options.deaths} deaths ({', '.join(f'{n} by {way}' for way, n in ways.items())}), {calls:,} calls begun:")
    print(f"{bad} bundles lack something" if bad else "nothing is missing, every bundle loads")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
