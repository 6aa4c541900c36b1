"""Who made a value, who used it, what was written in place: of programs whose data flow is known."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.handmade import HandmadeTrace
from torchglass.program import Program, program_of


def recorded(run: Callable[[], Any], **options: Any) -> tuple[tg.Trace, Program]:
    with tg.record(**options) as trace:
        run()
    return trace, program_of(trace)


def only(trace: tg.Trace, name: str) -> Any:
    (found,) = trace.events(function=name)
    return found


def names(program: Program, events: Any) -> list[str]:
    return [program.event(each).name for each in events]


def branches() -> None:
    x = torch.ones(3)
    y = x.exp()
    z = x.sin()
    torch.add(y, z).cos()
    torch.zeros(3).tan()


def test_a_value_has_a_maker_and_users() -> None:
    trace, program = recorded(branches)
    flow = program.flow
    (x,), (y,) = only(trace, "ones").outputs, only(trace, "exp").outputs
    assert flow.producer(x.id) == only(trace, "ones").id
    assert names(program, flow.users(x.id)) == ["Tensor.exp", "Tensor.sin"]
    assert names(program, flow.users(y.id)) == ["add"]
    assert flow.users(only(trace, "tan").outputs[0].id) == ()


def test_what_was_there_before_has_no_maker() -> None:
    before = torch.ones(2)
    trace, program = recorded(lambda: before + 1)
    (value,) = trace.event(0).inputs
    assert program.flow.producer(value.id) is None
    assert list(program.flow.upstream([value.id])) == []
    assert list(program.flow.downstream([value.id])) == [0]


def test_upstream_is_nearest_first_and_leaves_out_what_took_no_part() -> None:
    trace, program = recorded(branches)
    (end,) = only(trace, "cos").outputs
    found = names(program, program.flow.upstream([end.id]))
    assert found == ["Tensor.cos", "add", "Tensor.exp", "Tensor.sin", "ones"]


def test_downstream_is_in_order_of_the_program() -> None:
    trace, program = recorded(branches)
    (y,) = only(trace, "exp").outputs
    assert names(program, program.flow.downstream([y.id])) == ["add", "Tensor.cos"]
    (x,) = only(trace, "ones").outputs
    assert names(program, program.flow.downstream([x.id])) == ["Tensor.exp", "Tensor.sin", "add", "Tensor.cos"]


def test_reaches_is_true_of_what_went_in_and_of_the_value_itself() -> None:
    trace, program = recorded(branches)
    x, y, z, end, other = (only(trace, name).outputs[0].id for name in ("ones", "exp", "sin", "cos", "tan"))
    assert [program.flow.reaches(each, end) for each in (x, y, z, end, other)] == [True, True, True, True, False]
    assert not program.flow.reaches(end, x)
    assert not program.flow.reaches(y, z)


@pytest.mark.parametrize("ops", [False, True])
def test_inside_of_modules_values_are_made_by_the_innermost_event(ops: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    trace, program = recorded(lambda: model(torch.ones(1, 3)).sum(), ops=ops)
    (loss,) = only(trace, "sum").outputs
    (x,) = only(trace, "ones").outputs
    made = list(program.flow.upstream([loss.id]))
    assert {program.event(each).kind for each in made} == ({"op"} if ops else {"function"})
    assert program.flow.reaches(x.id, loss.id)
    users = {program.event(each).kind for each in program.flow.users(x.id)}
    assert users == ({"module", "function", "op"} if ops else {"module", "function"})


def test_writing_in_place_through_another_name() -> None:
    """``x`` is read after ``view`` was written: what is read is what the write left."""

    def run() -> None:
        x = torch.zeros(4)
        view = x[1:]
        y = torch.full((3,), 2.0)
        view.add_(y)
        x.exp()

    trace, program = recorded(run)
    flow = program.flow
    x, y = only(trace, "zeros").outputs[0].id, only(trace, "full").outputs[0].id
    write = only(trace, "add_")
    assert flow.is_write(write.id)
    assert [each.event for each in flow.written_after(x)] == [write.id]
    assert [each.value for each in flow.written_after(x)] == list(flow.takes[only(trace, "exp").id])
    assert flow.reaches(y, only(trace, "exp").outputs[0].id)
    assert not any(flow.is_write(event.id) for event in trace.events() if event.id != write.id)
    assert flow.written_after(write.outputs[0].id) == []


def test_a_write_before_a_value_was_made_did_not_change_it() -> None:
    def run() -> None:
        x = torch.zeros(4)
        x.add_(1)
        view = x[:2]
        view.exp()
        x.mul_(3)
        x.neg_()

    trace, program = recorded(run)
    (view,) = only(trace, "__getitem__").outputs
    written = [program.event(each.event).name for each in program.flow.written_after(view.id)]
    assert written == ["Tensor.mul_", "Tensor.neg_"]


def test_events_and_columns_give_the_same_flow() -> None:
    def run() -> None:
        x = torch.zeros(4)
        x[0] = 3
        nn.Linear(4, 2)(x).sum().backward()

    trace, program = recorded(run, ops=True)
    other = program_of(HandmadeTrace(list(trace.events()), trace.modules())).flow
    assert (program.flow.takes, program.flow.gives) == (other.takes, other.gives)
    assert program.flow.writes == other.writes
    assert program.flow.parameters == other.parameters


def test_a_program_is_built_once_and_kept_with_its_trace() -> None:
    with tg.record() as trace:
        torch.ones(2)
        early = program_of(trace)
        assert len(early) == 1
        torch.ones(2)
    program = program_of(trace)
    assert program is program_of(trace)
    assert program.tree is program_of(trace).tree
    assert (len(early), len(program)) == (1, 2)


def test_a_dropped_trace_is_freed_at_once_with_its_program() -> None:
    """Counting references is enough: nothing that the program keeps leads back to the trace."""
    trace, program = recorded(branches)
    assert len(program.tree) > len(program) == len(program.flow)
    tg.render(trace)
    kept = weakref.ref(trace), weakref.ref(program)
    recorded(branches)  # which is the last trace from now on
    gc.collect()
    gc.disable()
    try:
        del trace, program
        assert [each() for each in kept] == [None, None]
    finally:
        gc.enable()
