"""The functions probe: what is an event and what is not, by which name, under which parent, written how."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import torchglass as tg
from tests import programs
from tests.zoo import FAMILIES
from torchglass.capture.torch.signatures import function_parameters

X = torch.arange(6.0).reshape(2, 3) + 1


def record(function: Callable[[Tensor], Any]) -> list[tg.Event]:
    x = X.clone()
    with tg.record() as trace:
        function(x)
    assert not any("failed to record" in note for note in trace.notes)
    return list(trace.events())


def names(function: Callable[[Tensor], Any]) -> list[str]:
    return [event.name for event in record(function)]


class Counts(TorchFunctionMode):
    """A mode of the program's own."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Named(Tensor):
    """A subclass with a handler of its own."""

    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: torch.cat([x, x]), "cat"),
        (lambda x: x.matmul(x.new_ones(3, 1)), "Tensor.matmul"),
        (lambda x: x.T, "Tensor.T"),
        (lambda x: x.data, "Tensor.data"),
        (lambda x: x[0], "Tensor.__getitem__"),
        (lambda x: F.softmax(x, -1), "F.softmax"),
        (lambda x: F.gelu(x), "F.gelu"),
        (lambda x: F.max_pool1d(x, 2), "F.max_pool1d"),
        (lambda x: torch.linalg.norm(x), "linalg.norm"),
        (lambda x: torch.linalg.det(x[:, :2]), "linalg.det"),
        (lambda x: torch.fft.fft(x), "fft.fft"),
        (lambda x: torch.special.erf(x), "special.erf"),
        (lambda x: torch.einsum("ij->ji", x), "einsum"),
        (lambda x: torch.norm(x), "norm"),
        (lambda x: nn.init.normal_(x), "nn.init.normal_"),
        (lambda x: torch._foreach_add([x], 1), "_foreach_add"),
        (lambda x: torch.zeros(2), "zeros"),
        (lambda x: torch.tensor([1, 2]), "tensor"),
        (lambda x: torch.arange(3), "arange"),
        (lambda x: torch.as_tensor(np.ones(2)), "as_tensor"),
    ],
)
def test_names_of_each_family(function: Callable[[Tensor], Any], name: str) -> None:
    assert name in names(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.shape, lambda x: x.size(), lambda x: x.dim(), lambda x: len(x), lambda x: x.stride(),
        lambda x: x.is_contiguous(), lambda x: x.numel(), lambda x: x.dtype, lambda x: x.device,
        lambda x: x.requires_grad, lambda x: x.grad, lambda x: x.grad_fn, lambda x: x.is_floating_point(),
        lambda x: x.data_ptr(), lambda x: x.untyped_storage(), lambda x: x.ndim, lambda x: x.element_size(),
        lambda x: torch.set_grad_enabled(True), lambda x: torch.is_tensor(x), lambda x: torch.manual_seed(0),
        lambda x: hash(x), lambda x: x.is_shared(), lambda x: x.storage_offset(), lambda x: f"{x.shape}",
        lambda x: torch.result_type(x, 1), lambda x: torch.finfo(x.dtype), lambda x: x.layout,
        lambda x: setattr(x, "requires_grad", True), lambda x: setattr(x, "grad", None), lambda x: x.is_leaf,
    ],
)  # fmt: skip
def test_queries_switches_and_plain_attributes_are_no_events(function: Callable[[Tensor], Any]) -> None:
    assert names(function) == []


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x[0, 0].item(), "Tensor.item"),
        (lambda x: x.tolist(), "Tensor.tolist"),
        (lambda x: bool(x[0, 0]), "Tensor.__bool__"),
        (lambda x: float(x[0, 0]), "Tensor.__float__"),
        (lambda x: x.numpy(), "Tensor.numpy"),
        (lambda x: x.add_(1), "Tensor.add_"),
        (lambda x: x.requires_grad_(), "Tensor.requires_grad_"),
    ],
)
def test_values_that_leave_torch_are_events(function: Callable[[Tensor], Any], name: str) -> None:
    assert names(function)[-1] == name


@pytest.mark.parametrize(
    ("function", "name", "operator"),
    [
        (lambda x: x + 1, "Tensor.add", "+"),
        (lambda x: 1 + x, "Tensor.add", "+"),
        (lambda x: x - x, "Tensor.sub", "-"),
        (lambda x: 1 - x, "Tensor.__rsub__", "-"),
        (lambda x: 2 / x, "Tensor.__rdiv__", "/"),
        (lambda x: 2**x, "Tensor.__rpow__", "**"),
        (lambda x: x @ x.T, "Tensor.matmul", "@"),
        (lambda x: x.matmul(x.T), "Tensor.matmul", None),
        (lambda x: -x, "Tensor.neg", "-"),
        (lambda x: ~(x > 1), "Tensor.__invert__", "~"),
        (lambda x: x > 1, "Tensor.gt", ">"),
        (lambda x: x <= 2, "Tensor.le", "<="),
        (lambda x: x[1:], "Tensor.__getitem__", "[]"),
        (lambda x: x.__setitem__(0, 1), "Tensor.__setitem__", None),
        (lambda x: x % 2, "Tensor.remainder", "%"),
        (lambda x: x.T, "Tensor.T", None),
    ],
)
def test_operators_as_they_were_written(function: Callable[[Tensor], Any], name: str, operator: str | None) -> None:
    event = next(e for e in record(function) if e.direct and (e.name == name))
    assert event.operator == operator


def _write(x: Tensor) -> None:
    x[0] = 5.0
    x += 1
    x[1] *= 2


def test_writing_by_operators() -> None:
    events = record(_write)
    assert [(e.name, e.operator) for e in events] == [
        ("Tensor.__setitem__", "[]="),
        ("Tensor.add_", "+="),
        ("Tensor.__getitem__", "[]"),
        ("Tensor.mul_", "*="),
        ("Tensor.__setitem__", "[]="),
    ]
    assert events[0].outputs[0].version == 1
    assert events[1].outputs[0].version == 2
    assert (events[0].target, events[0].operands) == (("x[0]",), ("x",))


def test_out_is_an_input_and_the_output() -> None:
    event = record(lambda x: torch.add(x, 1, out=torch.empty(2, 3)))[-1]
    assert [value.role for value in event.inputs] == ["self", "out"]
    before, after = event.inputs[1], event.outputs[0]
    assert (before.version, after.version, after.producer) == (0, 1, event.id)
    assert before.storage == after.storage


def test_arguments_as_text_and_by_role() -> None:
    event = record(lambda x: torch.sum(input=x, dim=-1, dtype=torch.float64))[0]
    assert event.args == "input=f32[2, 3], dim=-1, dtype=torch.float64"
    assert [value.role for value in event.inputs] == ["input"]
    assert event.result == "f64[2]"
    event = record(lambda x: torch.where(x > 1, x, 0.5))[-1]
    assert [value.role for value in event.inputs] == ["condition", "self"]
    event = record(lambda x: x[None, ..., 1:, torch.tensor([0])])[-1]
    assert event.args == "f32[2, 3], (None, ..., 1:, i64[1])"


def test_what_a_python_function_calls_hangs_below_it() -> None:
    events = record(lambda x: F.gumbel_softmax(x, hard=True))
    assert events[0].name == "F.gumbel_softmax"
    assert len(events) > 5
    assert all(e.parent == 0 for e in events[1:])
    assert all(not e.direct and e.code == "F.gumbel_softmax(x, hard=True)" for e in events[1:])
    assert all(events[0].start_ns <= e.start_ns <= e.end_ns <= events[0].end_ns for e in events[1:])


@pytest.mark.parametrize("name", programs.names())
def test_every_function_event_takes_or_gives_a_tensor(name: str) -> None:
    trace = programs.recorded(name)
    for event in trace.events(kind="function"):
        assert event.inputs or event.outputs, event.name
        assert event.parent is None or event.parent < event.id
    assert not any("failed to record" in note for note in trace.notes)


@pytest.mark.parametrize("name", FAMILIES)
def test_children_lie_inside_their_parents(name: str) -> None:
    model, inputs = FAMILIES[name]()
    with torch.no_grad(), tg.record() as trace:
        model(**inputs)
    events = list(trace.events())
    assert [e.id for e in events] == list(range(len(events)))
    for event in events:
        if event.parent is not None:
            around = events[event.parent]
            assert around.start_ns <= event.start_ns <= (event.end_ns or math.inf) <= (around.end_ns or 0)
    assert not any("failed to record" in note for note in trace.notes)


def test_backward_and_what_happens_in_it() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad.mul(2)

    x = torch.ones(2, requires_grad=True)
    with tg.record() as trace:
        Double.apply(x).sum().backward()
        torch.relu(x)
    phases = {e.name: e.phase for e in trace.events()}
    assert phases["Tensor.sum"] == "forward"
    inside = [e for e in trace.events() if e.phase == "backward"]
    assert [e.name for e in inside] == ["Tensor.mul", "AccumulateGrad"]
    backward = next(e for e in trace.events() if e.name == "Tensor.backward")
    assert (backward.phase, phases["relu"]) == ("forward", "forward")


def test_a_mode_above_ours_sees_and_gets_the_same() -> None:
    plain, recorded = Counts(), Counts()
    with plain:
        expected = F.gumbel_softmax(X, dim=0) * 0 + torch.relu(X)
    with tg.record() as trace, recorded:
        result = F.gumbel_softmax(X, dim=0) * 0 + torch.relu(X)
    assert recorded.seen == plain.seen
    assert torch.equal(result, expected)
    assert {"F.gumbel_softmax", "relu"} <= {e.name for e in trace.events()}


def test_a_mode_below_ours_sees_the_same() -> None:
    plain, recorded = Counts(), Counts()
    with plain:
        F.gumbel_softmax(X, dim=0)
    with recorded, tg.record() as trace:
        F.gumbel_softmax(X, dim=0)
    assert recorded.seen == plain.seen
    assert [e.name for e in trace.events()] == ["F.gumbel_softmax"]


def test_a_subclass_sees_the_same_and_is_shown_as_a_subclass() -> None:
    x = X.as_subclass(Named)
    Named.seen.clear()
    F.gelu(x + 1)
    plain = list(Named.seen)
    Named.seen.clear()
    with tg.record() as trace:
        F.gelu(x + 1)
    assert Named.seen == plain
    event = next(e for e in trace.events() if e.name == "Tensor.add")
    assert (event.inputs[0].type, event.outputs[0].type, event.inputs[0].shape) == ("Named", "Named", (2, 3))


def test_a_default_device_is_respected() -> None:
    torch.set_default_device("meta")
    try:
        with tg.record() as trace:
            x = torch.zeros(2) + 1
    finally:
        torch.set_default_device(None)
    assert x.device.type == "meta"
    assert [e.outputs[0].device for e in trace.events()] == ["meta", "meta"]


def test_a_callable_that_cannot_be_hashed_runs_as_ever() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, x: Tensor) -> Any:
            if torch.overrides.has_torch_function((x,)):
                return torch.overrides.handle_torch_function(self, (x,), x)
            return x + 1

    with tg.record():
        result = Odd()(X)
    assert torch.equal(result, X + 1)


def test_owner_is_the_method_of_the_module() -> None:
    class Base(nn.Module):
        def helper(self, x: Tensor) -> Tensor:
            return torch.relu(x)

        def forward(self, x: Tensor) -> Tensor:
            return plain(self.helper(x))

    class Derived(Base):
        pass

    def plain(x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    owners = {e.name: e.owner for e in tg.trace(Derived(), X).events()}
    assert owners == {"Derived": None, "relu": "Derived.helper", "sigmoid": "Derived.forward"}


def test_functions_in_a_thread_have_no_parent_in_another() -> None:
    with tg.record() as trace:
        thread = threading.Thread(target=lambda: torch.relu(X), name="worker")
        nn.Sequential(nn.ReLU())(X)
        thread.start()
        thread.join()
    event = next(e for e in trace.events() if e.thread == "worker")
    assert (event.parent, event.module) == (None, None)


def test_only_operator_methods_have_names_with_a_letter_before() -> None:
    def parameters(name: str) -> tuple[str, ...]:
        return function_parameters(SimpleNamespace(__name__=name))[0]

    assert parameters("__iadd__")[:2] == parameters("__radd__")[:2] == ("self", "other")
    assert parameters("isum") == parameters("rsum") == ()
