"""The ops probe: what an op event says, where it hangs, and which values it names."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torchglass as tg
from torchglass.compiled import COMPILED, engine


def ops(trace: tg.Trace) -> list[tg.Event]:
    return [event for event in trace.events() if event.kind == "op"]


def names(trace: tg.Trace) -> list[str]:
    return [event.name for event in ops(trace)]


def parent(trace: tg.Trace, event: tg.Event) -> tg.Event:
    assert event.parent is not None
    return trace.event(event.parent)


def only(trace: tg.Trace, name: str) -> tg.Event:
    (event,) = [event for event in trace.events() if event.name == name]
    return event


def no_faults(trace: tg.Trace) -> None:
    assert not [note for note in trace.notes if "failed to record" in note]


# ---------------------------------------------------------------- where they hang


def test_ops_are_children_of_the_function_and_in_the_module_that_they_ran_in() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    with tg.record(ops=True) as trace:
        model(torch.ones(1, 3))
    addmm = only(trace, "aten::addmm")
    linear = parent(trace, addmm)
    assert (linear.kind, linear.name, parent(trace, linear).kind) == ("function", "F.linear", "module")
    assert (addmm.module, addmm.root) == ("0", "Sequential")
    assert only(trace, "aten::relu").module == "1"
    assert addmm.stack == linear.stack
    assert (addmm.code, addmm.line) == (linear.code, linear.line)


def test_without_ops_there_are_none() -> None:
    with tg.record() as trace:
        torch.ones(2).relu()
    assert ops(trace) == []


def test_a_composite_shows_what_it_is_made_of() -> None:
    x = torch.ones(2, 3)
    with tg.record(ops=True) as trace:
        F.linear(x, x)
    assert names(trace) == ["aten::t", "aten::mm"]
    assert {parent(trace, event).name for event in ops(trace)} == {"F.linear"}


def test_ops_of_backward_are_children_of_backward_and_say_so() -> None:
    x = torch.ones(3, requires_grad=True)
    with tg.record(ops=True) as trace:
        (x * 2).sum().backward()
    phases = {event.name: event.phase for event in ops(trace)}
    assert phases["aten::expand"] == "backward"
    assert phases["aten::sum"] == "forward"
    backward = [event for event in ops(trace) if event.phase == "backward"]
    assert {parent(trace, event).name for event in backward} == {"autograd.backward"}
    assert {event.location for event in backward} == {only(trace, "Tensor.backward").location}


def test_ops_of_a_step_are_below_it() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    model(torch.ones(1, 2)).sum().backward()
    with tg.record(ops=True) as trace:
        optimizer.step()
    event = only(trace, "aten::_foreach_add_.List")
    assert parent(trace, parent(trace, event)).kind == "step"


@pytest.mark.parametrize(("probes", "kind"), [({"functions": False}, "module"), ({"modules": False}, "function")])
def test_parents_that_are_not_asked_for_are_left_out(probes: dict[str, bool], kind: str) -> None:
    with tg.record(ops=True, **probes) as trace:
        nn.Linear(2, 2)(torch.ones(1, 2))
    assert parent(trace, only(trace, "aten::addmm")).kind == kind
    assert {event.kind for event in trace.events()} == {kind, "op"}


def test_only_ops() -> None:
    with tg.record(ops=True, functions=False, modules=False) as trace:
        nn.Linear(2, 2)(torch.ones(1, 2))
    assert {(event.kind, event.parent) for event in trace.events()} == {("op", None)}
    no_faults(trace)


def test_threads_and_pools() -> None:
    x = torch.ones(2)
    with tg.record(ops=True) as trace:
        thread = threading.Thread(target=x.relu, name="mine")
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1, "pool") as pool:
            pool.submit(x.exp).result()
    threads = {event.name: event.thread for event in ops(trace)}
    assert threads["aten::relu"] == "mine"
    assert threads["aten::exp"].startswith("pool")


def test_generators_and_coroutines() -> None:
    def values() -> Iterator[Tensor]:
        yield torch.ones(2).relu()

    async def later() -> Tensor:
        await asyncio.sleep(0)
        return torch.ones(2).exp()

    with tg.record(ops=True) as trace:
        list(values())
        asyncio.run(later())
    assert [event.name for event in ops(trace)] == ["aten::ones", "aten::relu", "aten::ones", "aten::exp"]
    assert only(trace, "aten::exp").code == "torch.ones(2).exp()"


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_run_again_in_backward(reentrant: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    with tg.record(ops=True) as trace:
        checkpoint(lambda t: t.sin().exp(), x, use_reentrant=reentrant).sum().backward()
    assert [event.phase for event in ops(trace) if event.name == "aten::sin"] == ["forward", "backward"]


# ---------------------------------------------------------------- what they say


def test_arguments_and_keywords() -> None:
    with tg.record(ops=True) as trace:
        torch.ones(2, dtype=torch.int32).add(torch.ones(2), alpha=2)
    assert only(trace, "aten::add.Tensor").args == "i32[2], f32[2], alpha=2"
    assert next(event.args for event in ops(trace)) == "[2], dtype=torch.int32, device='cpu', pin_memory=False"


def test_an_op_that_raises_has_its_inputs_and_the_error() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(RuntimeError) as caught, tg.record(ops=True) as trace:
        torch.mm(x, x)
    event = only(trace, "aten::mm")
    assert event.error == f"RuntimeError: {caught.value}"
    assert [value.shape for value in event.inputs] == [(2, 3), (2, 3)]
    assert (event.outputs, event.end_ns is None) == ((), False)


@pytest.mark.skipif(engine() != COMPILED, reason="the engine in Python is on the stack, and so in tracebacks")
def test_the_traceback_of_an_op_that_raises_is_that_of_the_plain_program() -> None:
    def frames() -> list[str]:
        with pytest.raises(RuntimeError) as caught:
            F.linear(torch.ones(3, 4), torch.ones(5, 6))
        return [str(entry.path) for entry in caught.traceback]

    plain = frames()
    with tg.record(ops=True):
        recorded = frames()
    assert recorded == plain


def test_custom_ops_and_their_namespaces() -> None:
    from tests.programs import custom_ops

    with tg.record(ops=True) as trace:
        custom_ops.main()
    found = names(trace)
    assert found.count("program_ops::twice") == 2  # one in backward
    assert found.count("program_ops::scaled") == 2
    bump = only(trace, "program_ops::bump")
    assert [value.role for value in bump.inputs] == ["x"]
    assert bump.outputs[0].id != bump.inputs[0].id
    no_faults(trace)


def test_collectives() -> None:
    from tests.programs import collectives

    with tg.record(ops=True) as trace:
        collectives.main()
    reduce = only(trace, "c10d::allreduce_")
    assert reduce.outputs[0].id != reduce.inputs[0].id
    assert "_c10d_functional::all_reduce" in names(trace)
    no_faults(trace)


def test_a_scripted_function_shows_its_ops_below_it() -> None:
    scripted = torch.jit.script(_twice)
    with tg.record(ops=True) as trace:
        scripted(torch.ones(2))
    event = only(trace, "aten::mul.Tensor") if "aten::mul.Tensor" in names(trace) else only(trace, "aten::mul.Scalar")
    assert parent(trace, event).kind == "unseen"


def _twice(x: Tensor) -> Tensor:
    return x * 2


def test_copies_of_handles_are_ops_too() -> None:
    """Torch dispatches them only while something listens."""
    x = torch.ones(2, requires_grad=True)
    with tg.record(ops=True) as trace:
        x.exp()
    assert names(trace) == ["aten::exp", "aten::detach"]


# ---------------------------------------------------------------- values


def test_a_value_is_the_same_in_the_op_and_in_its_function() -> None:
    weight = nn.Parameter(torch.ones(3, 3))
    with tg.record(ops=True) as trace:
        torch.mm(torch.ones(2, 3), weight)
    op, function = only(trace, "aten::mm"), only(trace, "mm")
    assert [value.id for value in op.inputs] == [value.id for value in function.inputs]
    assert op.outputs[0].id == function.outputs[0].id
    assert op.outputs[0].producer == op.id
    assert (op.outputs[0].requires_grad, op.inputs[1].type) == (True, "Parameter")


def test_writing_makes_a_new_value_of_the_next_version() -> None:
    with tg.record(ops=True) as trace:
        x = torch.zeros(2, 2)
        x.add_(1)
        torch.add(x, 1, out=torch.empty(2, 2))
    add = only(trace, "aten::add_.Tensor")
    assert [(v.version, v.producer) for v in (*add.inputs, *add.outputs)] == [(0, add.inputs[0].producer), (1, add.id)]
    assert add.inputs[0].storage == add.outputs[0].storage
    out = only(trace, "aten::add.out")
    assert [value.version for value in (out.inputs[-1], out.outputs[0])] == [0, 1]
    assert only(trace, "aten::add.out").inputs[0].id == add.outputs[0].id


def test_views_share_storage() -> None:
    with tg.record(ops=True) as trace:
        torch.zeros(2, 2).t()
    view = only(trace, "aten::t")
    assert view.outputs[0].storage == view.inputs[0].storage


def test_lists_that_are_written_into() -> None:
    with tg.record(ops=True) as trace:
        torch._foreach_add_([torch.zeros(2), torch.zeros(3)], 1)
    event = only(trace, "aten::_foreach_add_.Scalar")
    assert [value.version for value in event.inputs] == [0, 0]
    assert [value.version for value in event.outputs] == [1, 1]
    assert {value.producer for value in event.outputs} == {event.id}


def test_inference_tensors_have_no_version() -> None:
    with tg.record(ops=True) as trace, torch.inference_mode():
        torch.ones(2).mul(2).add_(1)
    assert [event.outputs[0].version for event in ops(trace)] == [None, None, None]
    ids = [event.outputs[0].id for event in ops(trace)]
    assert len(set(ids)) == 3


def test_what_backward_accumulates_has_its_version_at_the_end() -> None:
    x = torch.ones(2, requires_grad=True)
    with tg.record(ops=True) as trace:
        for _ in range(2):
            (x * 3).sum().backward()
    assert x.grad is not None
    added = only(trace, "aten::add_.Tensor")
    assert added.outputs[0].version == x.grad._version == 1


def test_odd_tensors_are_recorded() -> None:
    def act() -> list[Any]:
        return [
            torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2,
            torch.eye(3).to_sparse() * 2,
            torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8).dequantize(),
            torch.empty(4, dtype=torch.bits8).view(torch.uint8),
            nn.LazyLinear(2)(torch.ones(1, 2)),
            torch.ones(3, device="meta") + 1,
        ]

    with tg.record(ops=True) as trace:
        act()
    assert {"aten::_to_sparse", "aten::quantize_per_tensor", "aten::view.dtype", "aten::addmm"} <= set(names(trace))
    assert {value.dtype for event in ops(trace) for value in event.inputs} >= {"qint8", "bits8"}
    assert tg.render(trace)
    no_faults(trace)


@torch.library.custom_op("test_ops::grow", mutates_args={"x", "others"})
def grow(x: torch.Tensor, by: torch.Tensor, others: list[torch.Tensor]) -> None:
    x.add_(by).mul_(2)
    for each in others:
        each.neg_()


def grown() -> list[int]:
    x, others = torch.ones(2), [torch.ones(3), torch.ones(4)]
    grow(x, torch.ones(2), others)
    return [x._version, *(each._version for each in others)]


def test_a_custom_op_that_writes_counts_as_without_us() -> None:
    plain = grown()
    with tg.record(ops=True) as trace:
        assert grown() == plain
    assert [event.name for event in trace.events(kind="op")].count("test_ops::grow") == 1
