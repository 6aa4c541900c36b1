"""Engines one after the other, one inside the other, in several threads: each is told of all that is its own."""

# ruff: noqa: RET504 - the programs watched here assign names to have them told
from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from tests.capture.variables.listing import CORES
from torchglass.capture.variables import Engine, VariableChange, Watch

pytestmark = pytest.mark.parametrize("core", CORES)


class Told:
    """Remembers what it is told, as name and value."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, object]] = []

    def changed(self, change: VariableChange, frame: FrameType) -> None:
        self.changes.append((change.name, change.new))


def watching(*names: str) -> Watch:
    return Watch(names, code=lambda code: code.co_filename == __file__)


def first_only() -> int:
    first = 1
    return first


def second_only() -> int:
    second = 2
    return second


def test_the_next_engine_gets_events_that_another_engine_disabled(core: str) -> None:
    found: list[list[tuple[str, object]]] = []
    for name in ("first", "second", "first"):
        sink = Told()
        with Engine(watching(name), sink, core=core):
            first_only()
            second_only()
        found.append(sink.changes)
    assert found == [[("first", 1)], [("second", 2)], [("first", 1)]]


def test_one_inside_the_other(core: str) -> None:
    outer, inner = Told(), Told()
    with Engine(watching("first"), outer, core=core):
        first_only()
        with Engine(watching("first", "second"), inner, core=core):
            first_only()
            second_only()
        first_only()
        second_only()
    assert outer.changes == [("first", 1)] * 3
    assert inner.changes == [("first", 1), ("second", 2)]


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_each_thread_has_an_engine_of_its_own(core: str, often: None) -> None:
    def counting(number: int) -> int:
        value = 0
        for value in range(number):  # noqa: B007
            pass
        return value

    before = threading.gettrace()
    for _ in range(15):
        sinks = [Told() for _ in range(4)]
        together = threading.Barrier(len(sinks))

        def work(sink: Told, together: threading.Barrier = together) -> None:
            together.wait()
            with Engine(watching("value"), sink, core=core):
                counting(20)

        threads = [threading.Thread(target=work, args=(sink,)) for sink in sinks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(sink.changes) for sink in sinks] == [20] * len(sinks)
        assert threading.gettrace() is before


def test_nothing_is_left_behind(core: str) -> None:
    before = _tools()
    with Engine(watching("first"), Told(), core=core), Engine(watching("second"), Told(), core=core):
        first_only()
    assert _tools() == before


def test_engines_that_end_in_the_order_in_which_they_began(core: str) -> None:
    before = (sys.gettrace(), threading.gettrace(), _tools())
    first, second, third = (Engine(watching("first"), Told(), core=core) for _ in range(3))
    first.start(sys._getframe())
    second.start(sys._getframe())
    first.stop()
    third.start(sys._getframe())
    second.stop()
    third.stop()
    assert (sys.gettrace(), threading.gettrace(), _tools()) == before
    assert first.notes == second.notes == third.notes
    assert not [note for note in first.notes if "settrace" in note and "changed" in note]


def _tools() -> list[str | None]:
    monitoring = getattr(sys, "monitoring", None)
    return [] if monitoring is None else [monitoring.get_tool(number) for number in range(6)]
