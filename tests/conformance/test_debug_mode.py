"""The ops of a trace are those that PyTorch's own DebugMode saw, in the same order, on every family of the zoo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.utils._debug_mode import DebugMode
from torch.utils._pytree import tree_leaves

import torchglass as tg
from tests.conformance.compare import leaves, seed
from tests.zoo import FAMILIES, Built

Spec = list[tuple[tuple[int, ...], str]]


def specs(value: Any) -> Spec:
    """Shape and dtype of every tensor in a nested value."""
    return [(tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in tree_leaves(value) if isinstance(t, Tensor)]


class Oracle(DebugMode):
    """DebugMode, asked to keep what it saw as data, and to keep all of it.

    It leaves out what it is given with plain classes among the types. That is how torch dispatches the copy of a
    tensor's handle (a result that its own node saves, ``t.data``): an op of ours with a note, so it is counted here.
    """

    def __init__(self) -> None:
        # Named ranges of the profiler are annotations to it and ops to us: they are compared by neither.
        super().__init__(store_original_args=True, record_profiler_context=False)
        self.seen: list[dict[str, Any]] = []
        self.copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        subclasses = tuple(each for each in types if each not in (Tensor, Parameter))
        self.copies += len(types) - len(subclasses)
        return super().__torch_dispatch__(func, subclasses, args, kwargs)

    def _record_call(self, call: Any) -> None:
        before = len(self.operators)
        super()._record_call(call)
        if len(self.operators) > before:
            self.seen.append({"name": call.op.name(), "inputs": specs((call.args, call.kwargs)), "kwargs": call.kwargs})

    def _record_call_output(self, call: Any, output: Any) -> None:
        super()._record_call_output(call, output)
        if self.operators and self.operators[-1] is call:  # nothing was dispatched inside of it
            self.seen[-1]["outputs"] = specs(output)


def forward(model: nn.Module, inputs: dict[str, Tensor]) -> None:
    with torch.no_grad():
        model.eval()(**inputs)


def training_step(model: nn.Module, inputs: dict[str, Tensor]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    results = [leaf for _, leaf in leaves("out", model.train()(**inputs)) if isinstance(leaf, Tensor)]
    sum(each.sum() for each in results if each.is_floating_point()).backward()
    optimizer.step()


def ops_of(trace: tg.Trace) -> list[tg.Event]:
    return [event for event in trace.events() if event.kind == "op" and not event.name.startswith("profiler::")]


def run(build: Callable[[], Built], act: Callable[..., None], context: Any) -> Any:
    """What the context saw of a model and of inputs that are the same every time."""
    seed()
    built = build()
    seed()
    with context as seen:
        act(*built)
    return seen


@pytest.mark.parametrize("act", [forward, training_step])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_ops_are_those_that_debug_mode_saw(name: str, act: Callable[..., None]) -> None:
    theirs: list[dict[str, Any]] = run(FAMILIES[name], act, Oracle()).seen
    trace: tg.Trace = run(FAMILIES[name], act, tg.record(ops=True))
    ours = ops_of(trace)
    assert [event.name for event in ours] == [call["name"] for call in theirs]
    assert len(ours) > 20
    for event, call in zip(ours, theirs, strict=True):
        assert [(value.shape, value.dtype) for value in event.inputs] == call["inputs"], event
        assert all(f"{word}=" in event.args for word in call["kwargs"]), event
        if "outputs" in call:
            assert [(value.shape, value.dtype) for value in event.outputs] == call["outputs"], event
    assert not [note for note in trace.notes if "failed to record" in note]


def test_the_oracle_sees_what_debug_mode_leaves_out() -> None:
    """And nothing else: without the copies of handles the two of torch agree."""
    whole = run(FAMILIES["gpt2"], training_step, Oracle())
    usual = run(FAMILIES["gpt2"], training_step, DebugMode(store_original_args=True, record_profiler_context=False))
    assert len(whole.seen) - whole.copies == len(usual.operators)
    assert whole.copies > 0


def test_the_comparison_can_fail() -> None:
    """With one op less, or in another order, the lists above differ."""
    theirs = [call["name"] for call in run(FAMILIES["gpt2"], forward, Oracle()).seen]
    trace = run(FAMILIES["gpt2"], lambda model, inputs: model.eval()(**inputs), tg.record(ops=True))
    assert [event.name for event in ops_of(trace)] != theirs  # with gradients there are copies of handles


def test_functions_that_run_with_the_mode_off_are_the_only_difference() -> None:
    x = torch.arange(4.0).reshape(2, 2)

    def act() -> None:
        x.relu()
        torch.linalg.svdvals(x)
        x.exp()

    with Oracle() as oracle:
        act()
    with tg.record(ops=True) as trace:
        act()
    theirs = [call["name"] for call in oracle.seen]
    assert theirs == ["aten::relu", "aten::_linalg_svd", "aten::exp"]
    assert [event.name for event in ops_of(trace)] == ["aten::relu", "aten::exp"]
    unseen = next(event for event in trace.events() if event.name == "linalg.svdvals")
    assert "dispatch mode" in (unseen.note or "")
