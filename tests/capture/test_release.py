"""Ended recordings go by counting references alone: no circle waits for the collector."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.capture.transparency.test_lifetimes import no_collector
from torchglass.capture.torch import private

CLASSES = 16
"""Objects of a mode's class, which is always a circle of itself, and holds nothing: for two classes."""


@pytest.fixture
def without_collector() -> Iterator[None]:
    with no_collector():
        yield


def _record(**options: Any) -> tg.Trace:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)
    with tg.record(**options) as trace:
        model(x).sum()
    return trace


def _parts(trace: Any) -> dict[str, weakref.ref[Any]]:
    """What must go with a trace."""
    recorder = trace._source._recorder
    session = recorder.session
    found = {"recording": trace._source, "recorder": recorder, "journal": session.journal, "values": session.values}
    return {name: weakref.ref(each) for name, each in found.items()} | {"session": weakref.ref(session)}


def _alive(parts: dict[str, weakref.ref[Any]]) -> list[str]:
    return [name for name, part in parts.items() if part() is not None]


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ops": True},
        {"functions": False},
        {"values": "stats"},
        {"values": "all"},
        {"calls": "user"},
        {"variables": True},
        {"variables": ["x"], "calls": "user"},
        {"variables": True, "functions": False},
        {"keep": "begin"},
    ],
    ids=str,
)
def test_a_dropped_trace_frees_its_session(options: dict[str, Any]) -> None:
    _record(**options)  # what is made once in a process
    gc.collect()
    trace = _record(**options)
    parts = _parts(trace)
    _record(**options)  # else the other one is the last trace
    assert _alive(parts) == list(parts)
    del trace
    assert _alive(parts) == []
    assert gc.collect() <= 3 * CLASSES


@pytest.mark.usefixtures("without_collector")
def test_also_one_that_was_looked_at() -> None:
    trace = _record()
    parts = _parts(trace)
    assert "Linear" in tg.render(trace)
    _record()
    del trace
    assert _alive(parts) == []


@pytest.mark.usefixtures("without_collector")
def test_also_one_that_went_into_a_bundle(tmp_path: Path) -> None:
    trace = _record(to=tmp_path / "run.trace")
    parts = _parts(trace)
    _record()
    del trace
    assert _alive(parts) == []


@pytest.mark.usefixtures("without_collector")
def test_also_one_whose_block_an_exception_left() -> None:
    parts: dict[str, weakref.ref[Any]] = {}
    try:
        with tg.record() as trace:
            parts = _parts(trace)
            torch.ones(2) @ torch.ones(3)
    except RuntimeError as error:
        del error
    _record()
    del trace
    assert _alive(parts) == []


@pytest.mark.usefixtures("without_collector")
def test_also_one_with_a_thread_that_has_ended() -> None:
    with tg.record() as trace:
        thread = threading.Thread(target=lambda: torch.ones(2).sum())
        thread.start()
        thread.join()
    parts = _parts(trace)
    assert [event.name for event in trace.events(kind="function")] == ["ones", "Tensor.sum"]
    _record()
    del trace, thread
    assert _alive(parts) == []


@pytest.mark.usefixtures("without_collector")
def test_also_one_that_followed_variables_next_to_somebody_elses_trace_function() -> None:
    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: None)
    try:
        trace = _record(variables=True)
    finally:
        sys.settrace(before)
    parts = _parts(trace)
    _record()
    del trace
    assert _alive(parts) == []


def _counts(x: torch.Tensor) -> Iterator[torch.Tensor]:
    for _ in range(3):
        x = x + 1
        yield x


@pytest.mark.usefixtures("without_collector")
def test_also_one_that_followed_a_generator_which_goes_on_later() -> None:
    counts = _counts(torch.ones(1))
    with tg.record(variables=["x"]) as trace:
        next(counts)
    parts = _parts(trace)
    told = [event.name for event in trace.events(kind="variable")]
    _record()
    del trace
    assert told == ["x", "x"]
    assert _alive(parts) == []
    assert [float(each) for each in counts] == [3.0, 4.0]


@pytest.mark.usefixtures("without_collector")
def test_also_one_that_followed_what_an_exception_left() -> None:
    def fails(n: int) -> float:
        share = 1 / n
        return share * 2

    parts: dict[str, weakref.ref[Any]] = {}
    try:
        with tg.record(variables=True) as trace:
            parts = _parts(trace)
            fails(0)
    except ZeroDivisionError as error:
        del error
    _record()
    del trace
    assert _alive(parts) == []


def test_a_trace_can_be_looked_at_long_after_its_block() -> None:
    trace = _record(ops=True)
    _record()
    gc.collect()
    assert [event.name for event in trace.events(kind="op")][:2] == ["aten::t", "aten::addmm"]


def test_a_thread_that_is_still_at_work_keeps_the_session_as_it_is() -> None:
    began, goes_on, sums = threading.Event(), threading.Event(), []

    def work() -> None:
        torch.ones(1)
        began.set()
        goes_on.wait()
        sums.append(float(torch.ones(3).sum()))

    with tg.record() as trace:
        thread = threading.Thread(target=work)
        thread.start()
        began.wait()
    session = trace._source._recorder.session  # type: ignore[attr-defined]
    assert all(log.session is session for log in session.logs)
    goes_on.set()
    thread.join()
    assert sums == [3.0]


def test_a_mode_that_is_put_back_after_the_block_only_calls() -> None:
    with tg.record(ops=True):
        mode = private.pop_function_mode()
        private.push_function_mode(mode)
        torch.ones(1)
    private.push_function_mode(mode)
    try:
        assert float(torch.ones(3).sum()) == 3.0
    finally:
        private.pop_function_mode()
