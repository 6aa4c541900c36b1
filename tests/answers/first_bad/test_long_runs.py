"""The first bad value of a run that is longer than what is kept of it: the planted line is named all the same."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg

MOST = 3_000


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.relu(self.first(x)))


class _Spoil(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return torch.log(grads[0] * 0 - 1)  # backward


def train(steps: int, bad: int, where: str) -> None:
    """Train on the same data; in step ``bad`` something becomes NaN ``where``."""
    torch.manual_seed(0)
    model = _Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data, target = torch.randn(8, 4), torch.randint(0, 2, (8,))
    for step in range(steps):
        x = data
        if step == bad and where == "forward":
            x = torch.log(data - 100)  # forward
        out = model(x)
        if step == bad and where == "backward":
            out = _Spoil.apply(out)
        loss = F.cross_entropy(out, target)
        optimizer.zero_grad()
        loss.backward()
        if step == bad and where == "optimizer":
            optimizer.param_groups[0]["lr"] = float("inf")
        optimizer.step()  # optimizer


def line_of(where: str) -> int:
    module = inspect.getmodule(train)
    assert module is not None
    lines = inspect.getsource(module).splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.endswith(f"# {where}"))


def check(steps: int, bad: int, where: str, most: int) -> None:
    with tg.record(values="stats", max_events=most) as trace:
        train(steps, bad, where)
    found = trace.first_bad()
    assert found is not None
    assert len(trace) <= most * 1.1
    assert not found.came_in
    assert found.event.line == line_of(where)
    assert "not kept" not in found.story


@pytest.mark.parametrize("where", ["forward", "backward", "optimizer"])
@pytest.mark.parametrize("bad", [3, 150, 395], ids=["early", "middle", "late"])
def test_the_planted_line_is_named(where: str, bad: int) -> None:
    check(400, bad, where, MOST)


@pytest.mark.parametrize("where", ["forward", "backward", "optimizer"])
@pytest.mark.parametrize("bad", [10, 9_000, 19_990], ids=["early", "middle", "late"])
def test_the_planted_line_is_named_in_twenty_thousand_steps(where: str, bad: int) -> None:
    check(20_000, bad, where, 100_000)


def test_infinity_that_a_program_makes_in_every_step_hides_nothing() -> None:
    with tg.record(values="stats", max_events=MOST) as trace:
        for step in range(2_000):
            limit = torch.ones(2).div(0)  # it means to
            if step == 1_000:
                torch.log(torch.ones(2) - 100)
            limit.clone()
    found = trace.first_bad(allow="div")
    assert found is not None
    assert found.event.name == "log"


def test_what_made_a_bad_value_is_not_known_where_it_was_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PINNED_DIVISOR", "NEW_SITES_DIVISOR", "SAMPLES_DIVISOR"):
        monkeypatch.setattr(f"torchglass.journal.ring.{name}", 1_000)  # nothing stays
    with tg.record(values="stats", max_events=400) as trace:
        x = torch.ones(2)
        for step in range(600):
            y = x.log() - step
            if step == 150:
                x = (y - 1e9).log()
    found = trace.first_bad()
    assert found is not None
    assert found.came_in
    assert "the one that made it is not known" in found.story
    assert "made before the recording" not in found.story


def shrink(steps: int) -> None:
    """Make a parameter smaller in each step, until its logarithm is not finite."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.3)
    for _ in range(steps):
        positive = weight.clamp(min=0)
        loss = positive.log().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_it_is_shown_in_which_iteration_and_how_the_input_looked_before() -> None:
    with tg.record(values="stats") as trace:
        shrink(10)
    found = trace.first_bad()
    assert found is not None
    lines = found.story.splitlines()
    assert "  in iteration 4 of 10: for _ in range(steps):" in lines
    assert "  positive had min 1 → 0.7 → 0.27 → 0 in the last 4 calls" in lines


def test_the_iteration_is_the_true_one_after_events_that_were_dropped() -> None:
    with tg.record(values="stats", max_events=MOST) as trace:
        train(400, 150, "forward")
    found = trace.first_bad()
    assert found is not None
    assert "in iteration 151 of 400: for step in range(steps):" in found.story


def test_nothing_is_said_of_iterations_where_there_was_one() -> None:
    with tg.record(values="stats") as trace:
        torch.log(torch.tensor(-1.0))
    found = trace.first_bad()
    assert found is not None
    assert [line.kind for line in found.finding.evidence if line.kind in ("when", "before")] == []
