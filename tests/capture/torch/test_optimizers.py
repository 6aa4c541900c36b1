"""Optimizer steps as events, and what becomes of the others when a step raises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchglass as tg

X = torch.ones(2, 3)


class Fails(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        torch.relu(X)
        raise ValueError("no step")


def parameter() -> nn.Parameter:
    made = nn.Parameter(torch.ones(2))
    made.grad = torch.ones(2)
    return made


def test_a_step_is_an_event_with_its_work_below() -> None:
    optimizer = torch.optim.SGD([parameter()], lr=0.1)
    with tg.record() as trace:
        optimizer.step()
        torch.relu(X)
    events = list(trace.events())
    assert (events[0].kind, events[0].name, events[0].code) == ("step", "SGD", "optimizer.step()")
    assert {e.parent for e in events[1:-1]} >= {0}
    assert (events[-1].name, events[-1].parent) == ("relu", None)
    assert events[0].error is None
    assert events[0].end_ns is not None


def test_a_step_that_raises_and_leaves_the_block() -> None:
    with pytest.raises(ValueError, match="no step"), tg.record() as trace:
        Fails([parameter()]).step()
    step = next(trace.events(kind="step"))
    assert step.error == "ValueError: no step"
    assert step.end_ns is not None
    assert trace.failure() == step


def test_a_step_that_raises_inside_a_module() -> None:
    class Trains(nn.Module):
        def forward(self, x: Tensor, optimizer: Any) -> None:
            optimizer.step()

    optimizer = Fails([parameter()])
    with tg.record() as trace:
        with pytest.raises(ValueError, match="no step"):
            Trains()(X, optimizer)
        torch.relu(X)
    module, step, inside, after = trace.events()
    assert (module.error, step.error) == ("ValueError: no step", "ValueError: no step")
    assert (step.parent, inside.parent, after.parent) == (module.id, step.id, None)


def test_parents_stay_right_when_the_program_goes_on() -> None:
    """Again and again: the frames of dead steps give their ids to living ones."""

    def helper(x: Tensor) -> Tensor:
        return torch.sigmoid(torch.relu(x))

    good = torch.optim.SGD([parameter()], lr=0.1)
    with tg.record() as trace:
        for _ in range(20):
            try:
                Fails([parameter()]).step()
            except ValueError:
                pass
            helper(X)
            good.step()
    events = list(trace.events())
    for event in events:
        if event.name == "sigmoid":
            assert event.parent is None
            assert event.stack[-1].function.endswith("helper")
        if event.name == "relu" and event.code == "torch.relu(x)":
            assert event.parent is None
    assert [e.name for e in events if e.kind == "step"] == ["Fails", "SGD"] * 20
    assert all(e.parent is None and e.end_ns is not None for e in events if e.kind == "step")
    assert all((e.error is not None) == (e.name == "Fails") for e in events if e.kind == "step")


def test_a_closure_runs_inside_the_step() -> None:
    weight = parameter()
    optimizer = torch.optim.LBFGS([weight], max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (weight**2).sum()
        loss.backward()
        return loss

    with tg.record() as trace:
        optimizer.step(closure)
    events = list(trace.events())
    assert events[0].kind == "step"
    assert all(e.parent is not None for e in events[1:])


def test_a_step_is_the_call_that_is_written_also_under_a_scheduler() -> None:
    """It wraps ``step``, and its frame stands between the two."""
    model = nn.Linear(2, 2)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(opt, 1)
    with tg.record() as trace:
        opt.step()
        scheduler.step()
    (step,) = trace.events(kind="step")
    assert (step.code, step.direct) == ("opt.step()", True)


def test_zero_grad_does_not_hide_which_event_made_the_weight() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tg.record() as trace:
        model(X).sum().backward()
        optimizer.step()
        optimizer.zero_grad()  # sets p.grad = None
        model(X)
    step = next(trace.events(kind="step"))
    weight = list(trace.events(function="F.linear"))[-1].inputs[1]
    assert weight.producer is not None
    assert step.id <= weight.producer
    maker = trace.event(weight.producer)
    assert maker.parent == step.id
