"""An event of backward belongs to the forward event that made its autograd node: torch's own nodes are the witness."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import torchglass as tg
from tests.older import needs_equal_modes
from torchglass.journal.layout import NODE_BITS
from torchglass.settle.links import Nodes


class Tagging(TorchFunctionMode):
    """Puts the name of each function on the autograd node of its result."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor) and each.grad_fn is not None:
                each.grad_fn.metadata.setdefault("function", getattr(func, "__name__", ""))
        return result


class Reading(TorchDispatchMode):
    """Notes for each op of backward what is written on the node that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str | None]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        node = torch._C._current_autograd_node()
        if node is not None:
            self.seen.append((func.name(), node.metadata.get("function")))
        return func(*args, **(kwargs or {}))


def mlp() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    nn.functional.cross_entropy(model(torch.randn(3, 4)), torch.tensor([0, 1, 1])).backward()


def attention() -> None:
    x = torch.randn(2, 5, 8, requires_grad=True)
    (x @ x.transpose(1, 2)).softmax(-1).matmul(x).pow(2).sum().backward()


def in_place_and_views() -> None:
    x = torch.randn(4, 4, requires_grad=True)
    y = x * 2
    y[0].mul_(3)
    y.view(16)[2:].exp().mean().backward()


def grad_and_twice() -> None:
    x = torch.randn(3, requires_grad=True)
    (first,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    first.pow(2).sum().backward()


@needs_equal_modes
@pytest.mark.parametrize("program", [mlp, attention, in_place_and_views, grad_and_twice])
def test_the_forward_event_is_the_one_that_made_the_node(program: Any) -> None:
    torch.manual_seed(0)
    reading = Reading()
    with tg.record(ops=True) as trace, Tagging(), reading:
        program()
    events = [event for event in trace.events() if event.phase == "backward" and event.kind == "op"]
    pairs = [(event, tag) for event, (_, tag) in zip(events, reading.seen, strict=True) if tag]
    assert [event.name for event in events] == [name for name, _ in reading.seen]
    assert len(pairs) > 5
    for event, tag in pairs:
        assert event.forward_event is not None, event.name
        assert tag.strip("_") in _names(trace, event.forward_event), event.name


def _names(trace: tg.Trace, number: int | None) -> list[str]:
    """An event and what it is in: the witness sees the outermost function only."""
    names: list[str] = []
    while number is not None:
        event = trace.event(number)
        names.append(event.name.rpartition(".")[2].strip("_"))
        number = event.parent
    return names


def test_of_double_backward_each_op_belongs_to_the_op_that_made_its_node() -> None:
    x = torch.tensor([2.0], requires_grad=True)
    with tg.record(ops=True) as trace:
        (first,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
        first.sum().backward()
    made = {trace.event(event.forward_event).name for event in trace.events() if event.forward_event is not None}
    second = [
        event for event in trace.events() if event.phase == "backward" and event.start_ns > _end(trace, "autograd.grad")
    ]
    kinds = {trace.event(event.forward_event).phase for event in second if event.forward_event is not None}
    assert {"Tensor.mul", "aten::mul.Tensor"} <= made
    assert kinds == {"forward", "backward"}


def _end(trace: tg.Trace, name: str) -> int:
    return next(event.end_ns or 0 for event in trace.events() if event.name == name)


def test_what_checkpoint_computes_again_and_kept_events() -> None:
    x = torch.ones(3, requires_grad=True)
    with tg.record(ops=True, only=tg.select(op="*")) as trace:
        checkpoint(lambda t: (t * 2).exp(), x, use_reentrant=False).sum().backward()
    assert trace.notes == ()
    assert all(event.forward_event is None or event.forward_event < len(trace) for event in trace.events())


def test_numbers_beyond_what_a_word_has_room_for_are_counted_on() -> None:
    nodes, high = Nodes(), (1 << 16) - 1
    record = [0, -1, 0, 0, 0, -2 - high, 0, 0, -1, 1, 1, 1]  # from 65,535 to 65,537
    back = [0, -1, 0, 0, 0, -2 - high - 2, 0, 0, -1, 1 | (high + 2) << NODE_BITS, 1, 1]
    nodes.read(0, [*record, *back], [0, 1])
    with tg.record() as trace:
        torch.ones(2)
        torch.ones(2)
    tables = trace._tables
    nodes.link(tables, {})
    assert list(tables.forward) == [-1, 0]
