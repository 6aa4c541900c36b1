"""The time of a line or a call is the same in all views: that of the events in it, without those inside of others."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchglass as tg
from torchglass.program.program import program_of


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        time.sleep(0.01)
        return torch.softmax(gradients[0], 0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.01)
        return self.linear(x).relu()


def twice(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y.exp()


@pytest.fixture(scope="module", name="trace")
def _trace() -> tg.Trace:
    with tg.record() as trace:
        net = Net()
        for _ in range(3):
            x = twice(torch.ones(3, requires_grad=True))
            y = net(x)
            z = checkpoint(net, y, use_reentrant=False)
            loss = Slow.apply(z).sum()
            loss.backward()
    return trace


def time_of(trace: tg.Trace, view: str, code: str, **options: object) -> str:
    """Return the time in the row of a line of code."""
    (row,) = [row for row in trace.to_dict(view, times=True, **options)["rows"] if code in str(row["cells"])]
    (cell,) = [cell for cell in row["cells"] if cell["kind"] == "time"]
    return " ".join(cell["text"].split()[:2])


@pytest.mark.parametrize("line", ["net = Net()", "y = net(x)", "loss.backward()", "for _ in range(3)"])
def test_a_line_has_the_same_time_in_the_tree_and_in_the_code_view(trace: tg.Trace, line: str) -> None:
    assert time_of(trace, "tree", line) == time_of(trace, "code", line)


def test_a_scope_takes_as_long_as_the_events_directly_in_it(trace: tg.Trace) -> None:
    program = program_of(trace)
    tree = program.tree
    for scope in range(tree.events, len(tree)):
        assert program.spent_ns[scope] == sum(program.spent_ns[each] for each in tree.children(scope))


def test_no_line_takes_longer_than_the_block(trace: tg.Trace) -> None:
    program = program_of(trace)
    (thread,) = program.tree.threads.values()
    assert 0 < program.spent_ns[thread] <= trace.duration_ns
