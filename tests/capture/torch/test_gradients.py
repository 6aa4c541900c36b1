"""What is recorded behind a run of backward and around a step: whose gradient, and by how much it changed."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torchglass as tg
from tests.older import REPORTS_BACKWARD, needs_autograd_backward
from torchglass._trace import Trace
from torchglass.capture.engine.log import LOGS
from torchglass.capture.statistics import updates
from torchglass.capture.torch import optimizers
from torchglass.events.gradients import gradients_of
from torchglass.events.types import Event
from torchglass.system import get_ident

X = torch.ones(3, 2)


def accumulated(trace: Trace) -> list[Event]:
    return [event for event in trace.events() if event.name == "AccumulateGrad"]


def got(trace: Trace) -> list[list[str]]:
    return [sorted(value.role for value in event.inputs) for event in accumulated(trace)]


def test_backward_tells_which_parameters_it_gave_what() -> None:
    net = nn.Linear(2, 2)
    with tg.record(values="stats") as trace:
        net(X).sum().backward()
    (event,) = accumulated(trace)
    assert [value.role for value in event.inputs] == ["Linear.weight", "Linear.bias"]
    assert [value.shape for value in event.outputs] == [(2, 2), (2,)]
    assert [value.stats.mean for value in event.outputs if value.stats] == [3.0, 3.0]
    assert event.phase == "backward"
    assert trace.event(event.parent or 0).name == ("autograd.backward" if REPORTS_BACKWARD else "Tensor.backward")


def test_runs_of_backward_are_counted_where_torch_reports_the_method_alone() -> None:
    net = nn.Linear(2, 2)
    with tg.record() as trace:
        for _ in range(3):
            net(X).sum().backward()
    events = list(trace.events())
    assert gradients_of(events, ()).runs == 3
    assert gradients_of([event for event in events if event.name != "autograd.backward"], ()).runs == 3


@needs_autograd_backward
def test_a_call_of_autograd_backward_is_shown_too() -> None:
    net = nn.Linear(2, 2)
    with tg.record() as trace:
        torch.autograd.backward([net(X).sum()])
    (event,) = accumulated(trace)
    assert trace.event(event.parent or 0).code == "torch.autograd.backward([net(X).sum()])"


def test_autograd_grad_accumulates_nothing() -> None:
    net = nn.Linear(2, 2)
    with tg.record() as trace:
        torch.autograd.grad(net(X).sum(), list(net.parameters()))
    assert accumulated(trace) == []


def test_backward_that_reaches_no_parameter_leaves_them_without() -> None:
    net = nn.Linear(2, 2)
    with tg.record() as trace:
        (net(X).detach().requires_grad_() * 2).sum().backward(inputs=[torch.ones(2, requires_grad=True)])
    assert got(trace) == []
    assert "no gradient: Linear (2 parameters)" in str(trace)


def test_accumulation_is_shown_each_time_with_the_sum_so_far() -> None:
    net = nn.Linear(2, 1, bias=False)
    with tg.record(values="stats") as trace:
        for _ in range(3):
            net(X).sum().backward()
    assert [event.outputs[0].stats.mean for event in accumulated(trace)] == [3.0, 6.0, 9.0]  # type: ignore[union-attr]


def test_of_two_losses_each_tells_what_it_reached() -> None:
    one, two = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    with tg.record() as trace:
        first, second = one(X).sum(), two(X).sum()
        second.backward()
        first.backward()
    assert got(trace) == [["Linear#2.weight"], ["Linear.weight"]]


def test_a_reentrant_checkpoint_tells_each_gradient_once() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with tg.record() as trace:
        checkpoint(net[1], net[0](X), use_reentrant=True).sum().backward()
    assert got(trace) == [["Linear#2.bias", "Linear#2.weight", "Linear.bias", "Linear.weight"]]


def test_more_parameters_than_fit_one_event() -> None:
    net = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(1201)])
    with tg.record(values="stats") as trace:
        sum(net).backward()  # type: ignore[union-attr]
    assert [len(event.inputs) for event in accumulated(trace)] == [500, 500, 201]
    assert all(len(event.inputs) == len(event.outputs) for event in accumulated(trace))


def test_a_step_takes_parameters_and_gradients_and_gives_updates() -> None:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    with tg.record(values="stats") as trace:
        net(X).sum().backward()
        optimizer.step()
    step = next(trace.events(kind="step"))
    names = ["Linear.weight", "Linear.weight.grad", "Linear.bias", "Linear.bias.grad"]
    assert [value.role for value in step.inputs] == names
    assert [value.shape for value in step.outputs] == [(2, 2), (2,)]
    assert [value.stats.mean for value in step.outputs if value.stats] == pytest.approx([-1.5, -1.5])


def test_without_statistics_a_step_gives_nothing_and_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates.Updates, "__init__", lambda *_: pytest.fail("a copy was made"))
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    with tg.record() as trace:
        torch.optim.SGD([weight]).step()
    step = next(trace.events(kind="step"))
    assert ([value.role for value in step.inputs], step.outputs) == (["tensor 0", "tensor 0.grad"], ())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64])
def test_updates_of_other_dtypes(dtype: torch.dtype) -> None:
    weight = nn.Parameter(torch.ones(4, dtype=dtype))
    weight.grad = torch.ones(4, dtype=dtype)
    with tg.record(values="stats") as trace:
        torch.optim.SGD([weight], lr=0.5).step()
    stats = next(trace.events(kind="step")).outputs[0].stats
    assert stats is not None
    assert stats.norm == 1.0


def test_of_many_numbers_some_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "MOST_COPIED", 10_000)
    weight = nn.Parameter(torch.ones(300, 100))
    weight.grad = torch.ones(300, 100)
    with tg.record(values="stats") as trace:
        torch.optim.SGD([weight], lr=0.5).step()
    stats = next(trace.events(kind="step")).outputs[0].stats
    assert stats is not None
    assert stats.count == 10_000
    shown = tg.render(trace, "gradients")
    assert "≈ 87 " in shown  # 0.5 √30,000
    assert "≈: of so many parameters" in shown


def test_the_names_of_a_model_stay_when_another_is_freed() -> None:
    def parameter_names(net: nn.Module) -> list[str]:
        net(X).sum().backward()
        return LOGS[get_ident()].session.parameters.names(list(net.parameters()))

    with tg.record(functions=False):
        first, second = nn.Linear(2, 1), nn.Linear(2, 1)
        parameter_names(first)
        before = parameter_names(second)
        del first
        gc.collect()
        third = parameter_names(nn.Linear(2, 1))
        after = parameter_names(second)
    assert before == after == ["Linear#2.weight", "Linear#2.bias"]
    assert third == ["Linear#3.weight", "Linear#3.bias"]


def test_of_complex_numbers_real_and_imaginary_parts_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second number is compared here, and a number has two parts: as many as the parameter has numbers."""
    monkeypatch.setattr(updates, "MOST_COPIED", 10_000)
    weight = nn.Parameter(torch.zeros(200, 100, dtype=torch.complex64))
    weight.grad = torch.full((200, 100), 1 + 3j)
    with tg.record(values="stats") as trace:
        torch.optim.SGD([weight], lr=1.0).step()
    (update,) = next(trace.events(kind="step")).outputs
    assert update.stats is not None
    assert (update.stats.min, update.stats.max, update.stats.mean) == (-3.0, -1.0, -2.0)
    assert update.shape == (20_000,)


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no dtype that it cannot copy")
def test_a_parameter_that_torch_cannot_convert_costs_only_its_own_update() -> None:
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    odd = torch.zeros(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    found = updates.Updates([weight, nn.Parameter(odd, requires_grad=False)])
    with torch.no_grad():
        weight.add_(2.0)
    change, unknown = found.differences()
    assert torch.equal(change, torch.full((3,), 2.0))
    assert unknown is None


@pytest.mark.parametrize("values", [None, "stats"])
@pytest.mark.parametrize("ops", [False, True])
def test_training_has_the_same_bits(values: str | None, ops: bool) -> None:
    def train(**options: Any) -> list[Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(net.parameters())
        with tg.record(**options):
            for _ in range(3):
                optimizer.zero_grad()
                net(torch.randn(3, 4)).square().sum().backward()
                optimizer.step()
        return [*net.parameters(), *(each.grad for each in net.parameters()), torch.randn(2)]  # type: ignore[list-item]

    plain = train(modules=False, functions=False)
    recorded = train(values=values, ops=ops)
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))
    assert [each._version for each in plain] == [each._version for each in recorded]


def test_a_step_with_more_than_a_thousand_parameters_tells_each_update() -> None:
    parameters = [nn.Parameter(torch.full((2,), float(number))) for number in range(1_500)]
    for parameter in parameters:
        parameter.grad = torch.ones(2)
    parameters[0].grad = None
    with tg.record(values="stats") as trace:
        torch.optim.SGD(parameters, lr=0.5).step()
    step = next(trace.events(kind="step"))
    assert len(step.outputs) == 1_500
    assert [each.stats.mean for each in step.outputs if each.stats] == [0.0, *[-0.5] * 1_499]
    assert trace.notes == ()


def test_a_step_with_too_many_parameters_says_of_how_many_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (updates, optimizers):
        monkeypatch.setattr(module, "MOST_UPDATES", 3)
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(5)]
    with tg.record(values="stats") as trace:
        torch.optim.SGD(parameters, lr=0.5).step()
    assert len(next(trace.events(kind="step")).outputs) == 3
    assert trace.notes == ("updates are shown for the first 3 of the 5 parameters of a step",)
