"""The callbacks of ``sys.monitoring`` in C do what those in Python do, and leave to them what is unusual."""

# ruff: noqa: RET504 - the programs followed here assign names to have them told

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

import torchglass as tg
from torchglass import compiled
from torchglass.capture.variables import Engine, VariableChange, Watch, monitoring
from torchglass.capture.variables.activation import Activation
from torchglass.capture.variables.monitoring_tool import TOOL

pytestmark = [
    pytest.mark.skipif(compiled.engine() != compiled.COMPILED, reason=f"the engine is {compiled.described()}"),
    pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.settrace tells of variables"),
]
EVENTS = ("PY_START", "PY_RESUME", "INSTRUCTION", "PY_RETURN", "PY_UNWIND")
monitored: Any = getattr(sys, "monitoring", None)  # Python 3.11 has none


class Told:
    """Remembers what it is told, as name and value; or does something else first."""

    def __init__(self, act: Callable[[VariableChange], Any] | None = None) -> None:
        self.changes: list[tuple[str, object]] = []
        self.act = act

    def changed(self, change: VariableChange, frame: FrameType) -> None:
        self.changes.append((change.name, change.new))
        if self.act is not None:
            self.act(change)


def following(function: Callable[..., Any], sink: Told, *names: str) -> Engine:
    return Engine(Watch(names or ("*",), code=lambda code: code is function.__code__), sink)


def registered() -> list[object]:
    """Our callbacks, which Python tells only when they are replaced."""
    number, found = TOOL._number, []
    for name in EVENTS:
        event = getattr(monitored.events, name)
        found.append(monitored.register_callback(number, event, None))
        monitored.register_callback(number, event, found[-1])
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What C has asked of Python: callbacks, and looks at a call's variables."""
    found: list[str] = []
    for name in ("_stored", "look", "done", "_compare", "end"):
        monkeypatch.setattr(Activation, name, lambda *_, name=name: found.append(name))
    for name in ("start", "instruction", "return", "unwind"):
        make = getattr(monitoring, f"_make_{name}")

        def counting(core: Any, depth: int, *args: Any, name: str = name, make: Any = make, **named: Any) -> Any:
            python = make(core, depth + 1, *args, **named)

            def callback(code: CodeType, *rest: Any) -> Any:
                if code.co_name == "followed":
                    found.append(name)
                return python(code, *rest)

            return callback

        monkeypatch.setattr(monitoring, f"_make_{name}", counting)
    return found


def test_the_callbacks_are_compiled_and_removed_after_the_block() -> None:
    with tg.record(variables=True):
        found = registered()
    assert {type(each) for each in found} == {compiled.extension.Callback}
    assert TOOL._number is None


def test_an_ordinary_call_needs_no_python_of_ours_after_the_first_has_begun(asked: list[str]) -> None:
    def followed(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x + n
        name = "a name"
        y = y * 2
        for n in range(3):
            y = y + n
        return y if name else x

    with tg.record(variables=["x", "n", "y", "name"]) as trace:
        followed(torch.ones(2), 4)
        followed(torch.ones(2), 5)
        asked_here = list(asked)
    assert asked_here == ["start"]
    told = [each.name for each in trace.events(kind="variable")]
    assert told == ["x", "n", "y", "name", "y", "n", "y", "n", "y", "n", "y"] * 2


def test_a_call_that_an_exception_leaves_is_left_to_python(asked: list[str]) -> None:
    def followed(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = 0
        return 1 // number

    with tg.record(variables=["number"]):
        followed("2")
        with pytest.raises(ZeroDivisionError):
            followed("no number")
    assert [each for each in asked if each in ("start", "instruction", "unwind")] == ["start", "instruction", "unwind"]


def test_places_where_nothing_is_stored_are_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts: list[tuple[str, bool]] = []
    callbacks = monitoring.MonitoringCore.callbacks

    def spied(core: Any, depth: int) -> dict[int, Callable[..., Any]]:
        return {event: spy(event, callback) for event, callback in callbacks(core, depth + 1).items()}

    def spy(event: int, callback: Callable[..., Any]) -> Callable[..., Any]:
        def told(code: CodeType, *args: Any) -> Any:
            verdict = callback(code, *args)
            if code is followed.__code__:
                verdicts.append((names[event], verdict is monitored.DISABLE))
            return verdict

        return told

    def followed(n: int) -> int:
        total = 0
        for each in range(n):
            total += each
        return total

    names = {getattr(monitored.events, name): name for name in EVENTS}
    monkeypatch.setattr(monitoring.MonitoringCore, "callbacks", spied)
    with following(followed, Told(), "total"):
        followed(3)
        first = len(verdicts)
        followed(3)
    again = verdicts[first:]
    assert ("INSTRUCTION", True) in verdicts[:first]
    assert ("INSTRUCTION", True) not in again
    assert {name for name, _ in again} == {"PY_START", "INSTRUCTION", "PY_RETURN"}


def test_another_tool_sees_as_much_as_without_us() -> None:
    def followed(n: int) -> int:
        total = sum(each * n for each in range(3))
        return total

    def seen(act: Callable[[], object]) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        events = monitored.events
        monitored.use_tool_id(2, "somebody else")
        try:
            monitored.register_callback(2, events.PY_START, lambda code, at: found.append((code.co_name, at)))
            monitored.register_callback(2, events.PY_RETURN, lambda code, at, value: found.append((code.co_name, at)))
            for code in (followed.__code__, *(each for each in followed.__code__.co_consts if type(each) is CodeType)):
                monitored.set_local_events(2, code, events.PY_START | events.PY_RETURN)
            act()
        finally:
            for code in (followed.__code__, *(each for each in followed.__code__.co_consts if type(each) is CodeType)):
                monitored.set_local_events(2, code, 0)
            for event in (events.PY_START, events.PY_RETURN):
                monitored.register_callback(2, event, None)
            monitored.free_tool_id(2)
        return found

    plain, sink = seen(lambda: [followed(1), followed(2)]), Told()
    with following(followed, sink, "total"):
        beside = seen(lambda: [followed(1), followed(2)])
    assert beside == plain
    assert len(plain) >= 4
    assert sink.changes == [("total", 3), ("total", 6)]


def test_what_a_signal_handler_raises_while_we_look_is_the_programs() -> None:
    class Timeout(Exception):
        pass

    def handler(number: int, frame: FrameType | None) -> None:
        raise Timeout

    def followed(n: int) -> int:
        x = n
        return x

    before = signal.signal(signal.SIGUSR1, handler)
    sink = Told(lambda change: signal.raise_signal(signal.SIGUSR1) if change.new == 2 else None)
    try:
        with following(followed, sink, "x") as engine:
            followed(1)
            with pytest.raises(Timeout):
                followed(2)
            followed(3)  # callbacks stay where an exception has left them
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sink.changes == [("x", 1), ("x", 2), ("x", 3)]
    assert (engine.faults, engine.running) == ([], {})


@pytest.mark.parametrize("when", ["n", "x"], ids=["as the call begins", "behind an instruction"])
def test_a_fault_of_ours_costs_an_event(when: str) -> None:
    def fails(change: VariableChange) -> None:
        if change.name == when:
            raise RuntimeError("ours")

    def followed(n: int) -> int:
        x = n + 1
        y = x + 1
        return y

    sink = Told(fails)
    with following(followed, sink, "n", "x", "y") as engine:
        assert followed(1) == 3
    assert ("y", 3) in sink.changes
    assert engine.fault_count == 1
    assert "RuntimeError: ours" in engine.faults[0]


def test_callbacks_that_are_replaced_while_they_are_at_work() -> None:
    """Python does not hold on to one that it calls."""

    def followed(n: int) -> int:
        x = n
        return x

    def begin_another(change: VariableChange) -> None:
        inner = Told()
        with following(test_places_where_nothing_is_stored_are_shown_once, inner):
            pass

    sink = Told(begin_another)
    with following(followed, sink, "n", "x"):
        for n in range(20):
            followed(n)
    assert [value for name, value in sink.changes if name == "x"] == list(range(20))


def test_two_recordings_and_the_calls_of_functions_at_once() -> None:
    def followed(n: int) -> int:
        x = n
        return x

    with tg.record(variables=["x"], calls="user") as outer, tg.record(variables=["x"]) as inner:
        followed(1)
        followed(2)
    for trace in (outer, inner):
        assert [each.name for each in trace.events(kind="variable")] == ["x", "x"]
    assert [each.name.rpartition(".")[2] for each in outer.events(kind="call")] == ["followed", "followed"]


def test_generators_coroutines_and_comprehensions_of_several_threads() -> None:
    names = ("x", "each", "total")

    def followed(n: int) -> int:
        def counts() -> Iterator[int]:
            for x in range(n):
                yield -x

        async def later() -> AsyncIterator[int]:
            for x in range(n):
                await asyncio.sleep(0)
                yield x

        async def both() -> int:
            return sum([each async for each in later()])

        total = sum([-each for each in counts()]) + asyncio.run(both())
        return total

    def run() -> None:
        results.append(followed(4))

    def codes(code: CodeType) -> Iterator[CodeType]:
        yield code
        for each in code.co_consts:
            if type(each) is CodeType:
                yield from codes(each)

    results: list[int] = []
    sink, own = Told(), set(codes(followed.__code__))
    with Engine(Watch(names, code=lambda code: code in own), sink) as engine:
        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [12] * 3
    assert (engine.faults, engine.running) == ([], {})
    assert {name: sum(each == name for each, _ in sink.changes) for name in names} == {"x": 24, "each": 24, "total": 3}


def test_a_depth_and_what_is_no_event_are_refused() -> None:
    callback = compiled.extension.Callback("start", None, {}, {}, {}, monitored.DISABLE, len, 1)
    with pytest.raises(TypeError, match=r"sys\.monitoring"):
        callback(1, 2)
    with pytest.raises(TypeError, match=r"sys\.monitoring"):
        callback(callback.__class__.__call__)
    with pytest.raises(ValueError, match="no such event: jump"):
        compiled.extension.Callback("jump", None, {}, {}, {}, monitored.DISABLE, len, 1)
    with pytest.raises(TypeError):
        compiled.extension.Callback("start", None, (), {}, {}, monitored.DISABLE, len, 1)
