"""A comprehension's variable is its own, also where Python gives it no frame: no local of that name is touched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import torchglass as tg
from tests.capture.variables.listing import CORES, FOLLOWS_INSTRUCTIONS
from torchglass.capture.variables import Engine
from torchglass.capture.variables import events as variable_events


@pytest.fixture(params=CORES)
def recorded(request: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], tg.Trace]:
    """Records the variable x by one of the cores."""
    if not FOLLOWS_INSTRUCTIONS[request.param]:
        pytest.skip("on Python 3.12 settrace does not follow single instructions")
    monkeypatch.setattr(variable_events, "Engine", functools.partial(Engine, core=request.param))

    def record(function: Callable[[], Any]) -> tg.Trace:
        with tg.record(variables=["x"], functions=False) as trace:
            function()
        assert trace.notes == ()
        return trace

    return record


def life(trace: tg.Trace, function: str) -> list[tuple[str, str]]:
    """What x held before and after each change in one function."""
    events = [event for event in trace.events(kind="variable") if event.function.endswith(f"<locals>.{function}")]
    return [(event.args, event.result) for event in events]


def test_a_local_of_the_same_name_goes_on_where_it_was(recorded: Any) -> None:
    def run() -> None:
        x = 100
        _ = [x * 2 for x in range(2)]
        x = 5
        _ = {x: x for x in range(2)}
        x = x + 1

    trace = recorded(run)
    assert life(trace, "run") == [("", "100"), ("100", "5"), ("5", "6")]
    assert life(trace, "<listcomp>") == life(trace, "<dictcomp>") == [("", "0"), ("0", "1")]


def test_every_comprehension_begins_anew_inside_its_function(recorded: Any) -> None:
    def run() -> None:
        for _ in range(2):
            _ = [x for x in range(2)]  # noqa: C416

    trace = recorded(run)
    assert life(trace, "<listcomp>") == [("", "0"), ("0", "1")] * 2
    first = next(trace.events(kind="variable"))
    outer, inner = first.stack[-2:]
    assert outer.function.endswith("<locals>.run")
    assert (outer.line, inner.line) == (run.__code__.co_firstlineno + 2,) * 2
    assert first.code == "for x in range(2)"


def test_one_that_an_exception_leaves(recorded: Any) -> None:
    def run() -> None:
        x = 7
        try:
            _ = [1 / x for x in (1, 0)]
        except ZeroDivisionError:
            x = x + 1
        _ = [x for x in (3,)]  # noqa: C416

    trace = recorded(run)
    assert life(trace, "run") == [("", "7"), ("7", "8")]
    assert life(trace, "<listcomp>") == [("", "1"), ("1", "0"), ("", "3")]


def test_one_inside_another(recorded: Any) -> None:
    def run() -> None:
        _ = {x: [x for x in range(2)] for x in "ab"}  # noqa: C416

    events = list(recorded(run).events(kind="variable"))
    outer = [(event.args, event.result) for event in events if event.function.endswith("<dictcomp>")]
    inner = [(event.args, event.result) for event in events if event.function.endswith("<listcomp>")]
    assert outer == [("", "'a'"), ("'a'", "'b'")]
    assert inner == [("", "0"), ("0", "1")] * 2


def test_the_view_tells_them_apart(recorded: Any) -> None:
    def run() -> None:
        x = 100
        _ = [x for x in range(3)]  # noqa: C416
        x = x - 95

    trace = recorded(run)
    lines = tg.render(trace, "variables", color=False, order="time").splitlines()
    shown = [line.partition("→")[2].split("  ")[0].strip() for line in lines if "→" in line]
    assert shown == ["100", "0, 1, 2", "5"]
    assert sum("list comprehension" in line for line in lines) == 1
