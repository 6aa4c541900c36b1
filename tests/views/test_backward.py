"""Backward under its forward line: against anomaly mode's own account, and in the views that show it on request."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchglass as tg
from tests import programs
from tests.older import needs_autograd_backward, needs_equal_modes
from torchglass._trace import Trace
from torchglass.events.types import Event
from torchglass.views.backward import TiedTrace

HERE = str(Path(__file__))
OURS = re.compile(r'File "[^"]*/(site-packages|torchglass/src|src/torchglass|torch|lib/python[^/]*)/')
PROGRAMS = (
    "autocast checkpointing complex_numbers convolution custom_function custom_ops foreach hooks indexing "
    "inplace_and_views loss_and_backward padded_sequences parametrised recurrent_layers training_step unfused_attention"
).split()


class Accounts(TorchDispatchMode):
    """For each op that runs in backward: the line that anomaly mode kept for its autograd node."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int | None]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        node = torch._C._current_autograd_node()
        if node is not None:
            kept = node.metadata.get("traceback_") or []
            lines = [int(each.split(", line ")[1].partition(",")[0]) for each in kept if not OURS.search(each)]
            # Of a leaf it keeps who used it first; nothing of that step runs there.
            is_known = lines and not node.name().endswith("AccumulateGrad")
            self.seen.append((func._schema.name, lines[-1] if is_known else None))
        return func(*args, **(kwargs or {}))


def accounts_of(program: Callable[[], Any]) -> tuple[list[tuple[str, int | None]], Trace]:
    with torch.autograd.set_detect_anomaly(True, check_nan=False), Accounts() as told, tg.record(ops=True) as trace:
        program()
    return told.seen, trace


def in_backward(trace: Trace) -> list[tuple[str, int | None]]:
    ran = [event for event in trace.events() if event.kind == "op" and event.phase == "backward"]
    return [(event.name.partition(".")[0], line_of(trace, event)) for event in ran]


def line_of(trace: Trace, event: Event) -> int | None:
    return None if event.forward_event is None else trace.event(event.forward_event).line


@needs_equal_modes
@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_lines_are_those_that_anomaly_mode_kept(name: str) -> None:
    told, trace = accounts_of(programs.load(name).main)
    found = in_backward(trace)
    assert [op for op, _ in found] == [op for op, _ in told]
    known = [(mine, theirs) for mine, theirs in zip(found, told, strict=True) if theirs[1] is not None]
    assert known
    assert [mine for mine, _ in known] == [theirs for _, theirs in known]


# ---------------------------------------------------------------- each way into backward


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad.mul(3)


def marked(text: str) -> int:
    """The number of the line of this file that ends with a comment."""
    lines = Path(HERE).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


def lines_by_op(trace: Trace, name: str) -> set[int | None]:
    found = [event for event in trace.events() if event.phase == "backward" and event.name.startswith(f"aten::{name}")]
    assert found
    return {line_of(trace, event) for event in found}


def test_backward_and_autograd_grad_are_tied_to_their_lines() -> None:
    x = torch.rand(3, requires_grad=True)
    with tg.record(ops=True) as trace:
        y = x.tanh()  # tanh
        z = y.sigmoid()  # sigmoid
        torch.autograd.grad(z.sum(), x, retain_graph=True)
        z.sum().backward()
    assert lines_by_op(trace, "tanh_backward") == {marked("tanh")}
    assert lines_by_op(trace, "sigmoid_backward") == {marked("sigmoid")}
    assert len([event for event in trace.events() if event.name == "aten::tanh_backward"]) == 2


def test_double_backward_is_tied_to_the_first_one_and_so_to_its_line() -> None:
    x = torch.rand(3, requires_grad=True)
    with tg.record(ops=True) as trace:
        (first,) = torch.autograd.grad(x.exp().sum(), x, create_graph=True)  # first order
        first.sum().backward()  # second order
    second = [event for event in trace.events() if event.phase == "backward" and event.line == marked("second order")]
    assert {line_of(trace, event) for event in second if event.forward_event} == {
        marked("first order"),
        marked("second order"),  # its own sum
    }


def test_a_function_of_ones_own_is_an_event_and_its_backward_is_tied_to_its_call() -> None:
    x = torch.rand(3, requires_grad=True)
    with tg.record(ops=True) as trace:
        y = Scale.apply(x)  # applied
        y.sum().backward()
    (applied,) = [event for event in trace.events() if event.name == "Scale.apply"]
    assert (applied.kind, applied.target, applied.line) == ("function", ("y",), marked("applied"))
    assert [value.shape for value in applied.outputs] == [(3,)]
    (inside,) = [event for event in trace.events() if event.name == "Tensor.mul" and event.phase == "backward"]
    assert inside.function is not None
    assert (inside.function, inside.forward_event) == ("Scale.backward", applied.id)


def test_a_function_of_ones_own_is_left_as_it_was() -> None:
    original = vars(torch.autograd.Function)["apply"]
    x = torch.rand(3, requires_grad=True)
    with tg.record(), pytest.raises(TypeError):
        Scale.apply(x, x, x)
    assert vars(torch.autograd.Function)["apply"] is original


def test_hooks_of_tensors_and_modules_stand_at_their_own_lines() -> None:
    net, seen = nn.Linear(2, 2), []

    def of_tensor(grad: Tensor) -> Tensor:
        return grad * 2  # hook of a tensor

    def of_module(module: Any, grads: Any, outputs: Any) -> None:
        seen.append(outputs[0].abs())  # hook of a module

    net.register_full_backward_hook(of_module)
    with tg.record(ops=True) as trace:
        y = net(torch.rand(3, 2, requires_grad=True))
        y.register_hook(of_tensor)
        y.sum().backward()
    ran = {event.name: event.line for event in trace.events() if event.phase == "backward" and event.kind == "function"}
    assert (ran["Tensor.mul"], ran["Tensor.abs"]) == (marked("hook of a tensor"), marked("hook of a module"))
    assert len(seen) == 1


# ---------------------------------------------------------------- in the views


def small(**options: Any) -> Trace:
    torch.manual_seed(0)
    x = torch.rand(3, 4, requires_grad=True)
    with tg.record(**options) as trace:
        for _ in range(2):
            y = x.tanh()  # in a loop
            y.square().mean().backward()
    return trace


def test_the_code_view_shows_backward_under_its_forward_line() -> None:
    trace = small(ops=True, values="stats")
    lines = tg.render(trace, "code", backward=True, width=160).splitlines()
    at = next(number for number, line in enumerate(lines) if "y = x.tanh()" in line)
    below = lines[at + 1 : at + 6]
    assert any("# tanh(f32[3, 4]) -> f32[3, 4] μ" in line for line in below)
    assert any("# ∂ tanh_backward(f32[3, 4], f32[3, 4]) -> f32[3, 4] μ" in line for line in below)
    plain = tg.render(trace, "code", width=160)
    assert "∂" not in plain
    assert all("for _ in range(2):  × 2 " in text for text in (plain, "\n".join(lines)))  # no rounds are made up
    assert plain.splitlines()[-1] == lines[-1]  # as many ops


def test_no_op_is_lost_when_backward_is_tied() -> None:
    trace = small(ops=True)
    tied = TiedTrace(trace)
    assert sorted(tied.origin) == list(range(len(trace)))
    assert all(event.parent is None or event.parent < event.id for event in tied.events())
    assert all(event.id == number for number, event in enumerate(tied.events()))


def test_the_listing_shows_the_gradient_below_its_line() -> None:
    lines = tg.render(small(ops=True, values="stats"), "listing", backward=True, width=160).splitlines()
    at = next(number for number, line in enumerate(lines) if "# in a loop" in line)
    assert re.fullmatch(
        r" +∂ f32\[3, 4\] μ \S+ σ \S+ \[\S+, \S+\]: tanh_backward ×2", lines[at + 1].replace("detach ×2, ", "")
    )
    plain = tg.render(small(ops=True, values="stats"), "listing").splitlines()
    assert not any(line.lstrip().startswith("∂") for line in plain)


@pytest.mark.parametrize("view", ["code", "listing"])
def test_without_ops_it_says_how_to_have_them(view: str) -> None:
    assert "record(ops=True) records them" in tg.render(small(), view, backward=True)


def test_the_tree_shows_backward_in_its_own_order() -> None:
    shown = tg.render(small(ops=True), inner=True, fold=False, width=160)
    order = [name for name in re.findall(r"aten::(\w+)", shown) if name in ("mean", "div", "pow", "tanh_backward")]
    assert order[:5] == ["pow", "mean", "div", "pow", "tanh_backward"]


@needs_autograd_backward
def test_the_tree_says_which_module_an_op_of_backward_belongs_to() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    with tg.record(ops=True) as trace:
        net(torch.rand(2, 4)).sum().backward()
    shown = tg.render(trace, inner=True, fold=False, width=160)
    behind = shown[shown.index("autograd.backward") :]
    assert re.search(r"aten::tanh_backward +of 1 ", behind)
    products = re.findall(r"aten::mm +of (\d) ", behind)
    assert products == ["2", "2", "0"]
    assert not re.search(r"aten::\w+ +of ", shown[: shown.index("autograd.backward")])
