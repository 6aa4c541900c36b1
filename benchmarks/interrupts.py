"""A signal handler of the program's raises at a random moment, many times: each time its exception must arrive.

python benchmarks/interrupts.py 1000

Says how many arrived, what came instead, whether the model gives the same as before, and what was left behind.
"""

from __future__ import annotations

import random
import signal
import sys
from typing import Any

import torch
from torch import nn

import torchglass as tg

OPTIONS: list[dict[str, Any]] = [
    {}, {"ops": True}, {"calls": "user"}, {"values": "stats"}, {"values": "stats", "ops": True}, {"variables": True},
]  # fmt: skip
SOONEST, LATEST = 0.0005, 0.006
"""Seconds into the block."""


class Stopped(Exception):
    """What the handler raises."""


def stop(*_: object) -> None:
    """The handler."""
    raise Stopped


def once(net: nn.Module, x: torch.Tensor, options: dict[str, Any]) -> tuple[str, int]:
    """What came out of the block, and how many events can be read after."""
    came = "nothing"
    try:
        with tg.record(**options):
            signal.setitimer(signal.ITIMER_REAL, random.uniform(SOONEST, LATEST))
            while True:
                (net(x).relu() + 1).sum()
    except BaseException as error:
        came = type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    trace = tg.last_trace()
    return came, 0 if trace is None else len(list(trace.events()))


def main() -> None:
    """Count."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    signal.signal(signal.SIGALRM, stop)
    random.seed(0)
    torch.set_num_threads(1)
    net, x = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6))), torch.ones(2, 4)
    expected = net(x)
    came: dict[str, int] = {}
    events = differences = 0
    for number in range(times):
        what, read = once(net, x, OPTIONS[number % len(OPTIONS)])
        came[what] = came.get(what, 0) + 1
        events += read
        differences += not torch.equal(net(x), expected)
    left = [each for each in (sys.gettrace(), sys.getprofile()) if each is not None]
    print(f"{times} times: {came}; {events:,} events read; {differences} results that differ; left behind: {left}")


if __name__ == "__main__":
    main()
