"""Calls of the program's own functions as events: what went in, what came out, what was inside."""

from __future__ import annotations

import cProfile
import gc
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchglass as tg


def double(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by


def pair(n: int, *rest: Any, flag: bool = False, **named: Any) -> tuple[Tensor, Tensor]:
    x = torch.ones(n)
    return x, double(x)


def refuses(x: Tensor) -> Tensor:
    return x.view(1000)


def counts(n: int) -> int:
    return 0 if n == 0 else 1 + counts(n - 1)


def gives(n: int) -> Iterator[Tensor]:
    for _ in range(n):
        yield double(torch.ones(1))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def helper(self, x: Tensor) -> Tensor:
        return x.relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.helper(self.layer(x))


def calls_of(trace: tg.Trace) -> list[tg.Event]:
    return [event for event in trace.events() if event.kind == "call"]


def by_name(trace: tg.Trace, name: str) -> tg.Event:
    (found,) = [event for event in calls_of(trace) if event.name == name]
    return found


def test_what_went_in_and_came_out_and_what_was_inside() -> None:
    with tg.record(calls="user") as trace:
        pair(3, 1, 2, flag=True, extra=torch.zeros(2))
    assert not [note for note in trace.notes if "profile" in note]
    outer, inner = by_name(trace, "pair"), by_name(trace, "double")
    assert outer.parent is None
    assert outer.args == "n=3, rest=(1, 2), flag=True, named={'extra': f32[2]}"
    assert outer.result == "(f32[3], f32[3])"
    assert [value.id for value in outer.outputs] == [value.id for value in (*inner.inputs, *inner.outputs)]
    assert inner.parent == outer.id
    assert inner.args == "x=f32[3], by=2.0"
    made = {event.name: event for event in trace.events() if event.kind == "function"}
    assert made["ones"].parent == outer.id
    assert made["Tensor.mul"].parent == inner.id
    assert made["Tensor.mul"].location is not None
    assert made["Tensor.mul"].location.function == "double"
    assert [at.function for at in made["Tensor.mul"].stack][-2:] == ["pair", "double"]
    assert made["zeros"].parent is None


def test_nothing_of_it_without_being_asked() -> None:
    with tg.record() as trace:
        pair(3)
    assert calls_of(trace) == []
    assert sys.getprofile() is None


def test_stacks_are_those_without_calls() -> None:
    def stacks(**options: Any) -> list[list[tuple[str, int]]]:
        with tg.record(**options) as trace:
            net = Net()
            for _ in range(2):
                net(double(torch.ones(2, 3)))
        events = [each for each in trace.events() if each.kind != "call"]
        return [[(at.function, at.line) for at in event.stack] for event in events]

    assert stacks(calls="user") == stacks()
    assert stacks(calls="user", ops=True) == stacks(ops=True)


def test_a_modules_forward_is_shown_once() -> None:
    net = Net()
    with tg.record(calls="user") as trace:
        net(torch.ones(2, 3))
        net.forward(torch.ones(2, 3))
    names = [event.name for event in calls_of(trace)]
    assert names == ["Net.helper", "Net.forward", "Net.helper"]
    assert calls_of(trace)[0].module == ""


def test_an_exception_leaves_all_it_passes_and_is_the_same() -> None:
    def fails() -> Tensor:
        return refuses(torch.ones(3))

    with pytest.raises(RuntimeError) as plain:
        fails()
    with pytest.raises(RuntimeError) as recorded, tg.record(calls="user") as trace:
        fails()
    assert str(plain.value) == str(recorded.value)
    shown = [[each.name for each in traceback.extract_tb(error.tb)[1:]] for error in (plain, recorded)]
    assert shown[0] == [name for name in shown[1] if name in shown[0]]
    errors = {event.name: event.error for event in trace.events()}
    assert len(set(errors.values())) == 2  # `ones` went well
    assert all("invalid for input of size 3" in (errors[name] or "") for name in ("refuses", "Tensor.view"))


def test_an_exception_that_no_event_raised() -> None:
    def raises() -> None:
        raise KeyError("x")

    def catches() -> str:
        try:
            raises()
        except KeyError:
            return "caught"
        return ""

    with tg.record(calls="user") as trace:
        assert catches() == "caught"
    names = {event.name.rpartition(".")[2]: event for event in calls_of(trace)}
    assert names["catches"].error is None
    assert names["catches"].result == "'caught'"
    assert names["raises"].error
    assert names["raises"].end_ns is not None


def test_recursion_nests() -> None:
    with tg.record(calls="user") as trace:
        assert counts(50) == 50
    found = calls_of(trace)
    assert [event.parent for event in found] == [None, *[event.id for event in found[:-1]]]
    assert [event.result for event in found] == [str(50 - at) for at in range(51)]


def test_generators_are_left_alone_and_what_they_call_is_not() -> None:
    with tg.record(calls="user") as trace:
        assert len(list(gives(3))) == 3
    assert [event.name for event in calls_of(trace)] == ["double"] * 3
    assert {event.parent for event in calls_of(trace)} == {None}


def test_comprehensions_and_lambdas() -> None:
    with tg.record(calls="user") as trace:
        f = lambda x: double(x)  # noqa: E731
        [f(torch.ones(1)) for _ in range(2)]
    names = [event.name.rpartition(".")[2] for event in calls_of(trace)]
    assert names == ["<lambda>", "double"] * 2


def test_threads_that_begin_in_the_block() -> None:
    with tg.record(calls="user") as trace:
        thread = threading.Thread(target=pair, args=(4,), name="worker")
        thread.start()
        thread.join()
    assert {(event.name, event.thread) for event in calls_of(trace)} == {("pair", "worker"), ("double", "worker")}


def test_arguments_live_as_long_as_without_us() -> None:
    def lets_go(x: Tensor) -> bool:
        ref = weakref.ref(x)
        del x
        return ref() is None

    gc.disable()
    try:
        plain = lets_go(torch.ones(2))
        with tg.record(calls="user"):
            recorded = lets_go(torch.ones(2))
    finally:
        gc.enable()
    assert recorded == plain


def test_a_profiler_goes_on_alone() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        with tg.record(calls="user") as trace:
            pair(3)
    finally:
        profiler.disable()
    assert calls_of(trace) == []
    assert any("a profiler was at work" in note for note in trace.notes)
    assert any(each.code.co_name == "pair" for each in profiler.getstats() if not isinstance(each.code, str))
    assert [event.name for event in trace.events()] == ["ones", "Tensor.mul"]


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="calls are told another way")
def test_a_profile_function_that_comes_later_takes_over() -> None:
    seen: list[str] = []
    with tg.record(calls="user") as trace:
        double(torch.ones(1))
        sys.setprofile(lambda frame, event, arg: seen.append(event))
        double(torch.ones(1))
        now = sys.getprofile()
    try:
        assert sys.getprofile() is now
        assert "call" in seen
    finally:
        sys.setprofile(None)
    assert [event.name for event in calls_of(trace)] == ["double"]
    assert any("changed sys.setprofile" in note for note in trace.notes)


def test_everything_is_put_back() -> None:
    before = sys.getprofile(), threading.getprofile()
    with pytest.raises(ZeroDivisionError), tg.record(calls="user"):
        1 / 0
    assert (sys.getprofile(), threading.getprofile()) == before
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is not None:
        assert all(monitoring.get_tool(number) != "torchglass" for number in range(6))


def test_a_thread_that_keeps_running_is_released() -> None:
    block_ended, seen = threading.Event(), []

    def work() -> None:
        double(torch.ones(1))
        block_ended.wait(20)
        double(torch.ones(1))
        seen.append(sys.getprofile())

    with tg.record(calls="user") as trace:
        thread = threading.Thread(target=work)
        thread.start()
        while not any(event.name == "double" for event in calls_of(trace)):
            time.sleep(0.01)
    block_ended.set()
    thread.join()
    assert seen == [None]
    assert [event.name for event in calls_of(trace) if event.name == "double"] == ["double"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_does_not_call_it() -> None:
    with tg.record(calls="user") as trace:
        child = os.fork()
        if child == 0:
            monitoring = getattr(sys, "monitoring", None)
            mine = monitoring is not None and any(monitoring.get_tool(each) == "torchglass" for each in range(6))
            os._exit(3 if sys.getprofile() is not None or mine else 0)
        _, status = os.waitpid(child, 0)
        double(torch.ones(1))
    assert os.waitstatus_to_exitcode(status) == 0
    assert [event.name for event in calls_of(trace)] == ["double"]


def test_with_variables_both_see_all() -> None:
    with tg.record(calls="user", variables=True) as trace:
        pair(3)
        counts(2)
    assert [event.name for event in calls_of(trace)] == ["pair", "double", "counts", "counts", "counts"]
    changes = [event.name for event in trace.events() if event.kind == "variable"]
    assert changes.count("n") == 4
    assert "x" in changes


def test_packages_by_name() -> None:
    with tg.record(calls=["torch.nn.functional"]) as trace:
        torch.nn.functional.softmax(torch.ones(3), dim=0)
        double(torch.ones(1))
    assert {event.name for event in calls_of(trace)} <= {"softmax", "_get_softmax_dim"}
    assert "softmax" in {event.name for event in calls_of(trace)}


@pytest.mark.parametrize("wrong", [1, None, [1], {"user"}])
def test_what_is_no_choice_is_refused(wrong: Any) -> None:
    with pytest.raises(tg.WrongType, match="record\\(calls=…\\) takes 'user'"):
        tg.record(calls=wrong)


def test_calls_can_be_chosen() -> None:
    with tg.record(calls="user") as trace:
        pair(3)
    assert [event.name for event in trace.events(tg.select(kind="call"))] == ["pair", "double"]


def test_a_nested_recording_has_its_own_part() -> None:
    with tg.record(calls="user") as outer:
        double(torch.ones(1))
        with tg.record(calls="user") as inner:
            pair(2)
        double(torch.ones(1))
    assert [event.name for event in calls_of(inner)] == ["pair", "double"]
    assert [event.name for event in calls_of(outer)] == ["double", "pair", "double", "double"]
