"""What values="all" keeps: each value as it was at its event, up to a number of bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import torchglass as tg
from tests import programs


class Cloning(TorchDispatchMode):
    """Keeps a copy of what each op gives."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with _disable_current_modes():
            self.copies += [each.detach().clone() for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
        return result


def same(one: Any, two: Any) -> bool:
    return one.dtype == two.dtype and torch.equal(one.nan_to_num(), two.nan_to_num())


@pytest.mark.parametrize("in_bundle", [False, True], ids=["memory", "bundle"])
@pytest.mark.parametrize("name", ["inplace_and_views", "loss_and_backward", "mlp"])
def test_each_value_is_as_it_was_at_its_event(name: str, in_bundle: bool, tmp_path: Path) -> None:
    cloning = Cloning()
    with tg.record(ops=True, values="all", to=tmp_path / "x" if in_bundle else None) as trace, cloning:
        programs.load(name).main()
    if in_bundle:
        trace = tg.load(tmp_path / "x")
    ops = sorted((event for event in trace.events() if event.kind == "op"), key=lambda event: event.end_ns or 0)
    saved = [trace.tensor(value) for event in ops for value in event.outputs]
    assert len(saved) == len(cloning.copies) > 5
    assert all(same(one, two) for one, two in zip(saved, cloning.copies, strict=True))


def test_saved_tensors_are_those_that_plain_hooks_and_debug_mode_collect() -> None:
    """Three runs of one program: the hooks' and DebugMode's copies are their own, not of the recorded run."""

    def program() -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2))
        return model, torch.randn(4, 6)

    model, x = program()
    hooked: list[Any] = []
    for layer in model:
        layer.register_forward_hook(lambda _, args, result: hooked.extend([args[0].clone(), result.clone()]))
    model(x)
    model, x = program()
    with DebugMode() as mode, DebugMode.record_outputs():
        model(x).square_().sum().backward()
    debugged = [call.record["output"] for call in mode.logs if "output" in (getattr(call, "record", None) or {})]
    model, x = program()
    with tg.record(values="all", ops=True) as trace:
        model(x).square_().sum().backward()
    layers = [event for event in trace.events(kind="module") if event.module]
    saved = [trace.tensor(value) for event in layers for value in (*event.inputs[:1], *event.outputs)]
    assert len(saved) == len(hooked) == 8
    assert all(same(one, two) for one, two in zip(saved, hooked, strict=True))
    ops = list(trace.events(kind="op"))
    given = [each for result in debugged for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
    ours = [trace.tensor(value) for event in ops for value in event.outputs]
    assert len(ours) == len(given) > 15
    assert all(same(one, two) for one, two in zip(ours, given, strict=True))


def test_a_budget_that_is_reached_is_said() -> None:
    with tg.record(values="all", max_bytes=100) as trace:
        small = torch.ones(10)
        large = small.expand(1 << 40, 10)
        large[0]
        torch.zeros(20)
    first, expanded, row, last = [event.outputs[0] for event in trace.events()]
    assert torch.equal(trace.tensor(first), torch.ones(10))
    assert torch.equal(trace.tensor(row), torch.ones(10))
    for value in (expanded, last):
        with pytest.raises(tg.NotRecorded, match="was not kept"):
            trace.tensor(value)
        assert value.stats is not None
    assert trace.notes == (
        "record(values='all') kept 2 values of 80 bytes; of the others there are statistics: max_bytes=… keeps more",
    )


def test_a_mark_beside_it_is_the_same_value() -> None:
    with tg.record(values="all") as trace:
        x = torch.ones(3) + 1
        tg.mark("x", x)
    made, marked = [event.outputs[0] for event in trace.events() if event.name == "Tensor.add"], trace.kept()
    assert marked[made[0].id] == "x"
    assert torch.equal(trace.tensor(made[0]), torch.full((3,), 2.0))
