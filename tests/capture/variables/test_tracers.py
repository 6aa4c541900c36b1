"""Others that trace, a debugger or coverage, see what they would see alone; and are seen when they take over."""

# ruff: noqa: RET504, UP028 - the programs watched here assign names to have them told
from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

import pytest

from tests.capture.variables.listing import CORES, Listing
from torchglass.capture.variables import Engine, VariableChange, Watch
from torchglass.capture.variables.engine import NO_TOOL_ID
from torchglass.capture.variables.settrace import INTERRUPTED, REPLACED, TAKEN_AWAY
from torchglass.compiled import extension

pytestmark = pytest.mark.parametrize("core", CORES)
HERE = Watch(code=lambda code: code.co_filename == __file__)


class Silent:
    def changed(self, change: VariableChange, frame: FrameType) -> None:
        pass


def lines_of(tracer_core: str | None, program: Any) -> list[tuple[str, int, str]]:
    """What somebody else's trace function sees of a program, with an engine inside or without."""
    seen: list[tuple[str, int, str]] = []

    def tracer(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name in ("work", "helper"):
            seen.append((frame.f_code.co_name, frame.f_lineno, event))
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        if tracer_core is None:
            program()
        else:
            with Engine(HERE, Silent(), core=tracer_core) as engine:
                program()
            assert engine.notes == []
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    return seen


def test_a_debugger_sees_what_it_would_see_alone(core: str) -> None:
    def helper(n: int) -> Any:
        for k in range(n):
            yield k

    def work() -> int:
        total = 0
        for k in helper(3):
            total += k
        try:
            {}["x"]  # type: ignore[index]
        except KeyError:
            total = -total
        c = 1; c = 2  # noqa: E702  # fmt: skip
        return total + c

    alone = lines_of(None, work)
    assert len(alone) > 20
    assert lines_of(core, work) == alone


def test_a_tracer_that_installs_itself_at_each_call_is_kept_alive_and_so_are_we(core: str) -> None:
    """The C tracer of coverage does so."""
    if core != "settrace":
        pytest.skip("sys.monitoring is not touched by others' trace functions")
    calls: list[str] = []

    class Installing:
        def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
            if frame.f_code.co_filename == __file__:
                calls.append(f"{event} {frame.f_code.co_name}")
            if event == "call":
                sys.settrace(self)
            return self

    def program() -> int:
        x = 1
        x = step(x)
        return x

    def step(n: int) -> int:
        y = n + 1
        return y

    installing, listing, before = Installing(), Listing(), sys.gettrace()
    sys.settrace(installing)
    try:
        with Engine(HERE, listing, core=core):
            program()
        assert sys.gettrace() is installing
    finally:
        sys.settrace(before)
    assert [row for row in listing.brief if row[0] in "xy"] == [
        ("x", "assigned", "1"), ("y", "assigned", "2"), ("x", "assigned", "2"),
    ]  # fmt: skip
    assert calls.count("call step") == 1
    assert calls.count("line step") == 2


def test_a_note_says_that_the_program_changed_settrace(core: str) -> None:
    def program() -> None:
        x = 1
        sys.settrace(None)
        helper()
        del x

    def helper() -> None:
        unseen = 1
        del unseen

    before = sys.gettrace()
    listing = Listing()
    with Engine(HERE, listing, core=core) as engine:
        program()
    sys.settrace(before)
    assert ("x", "assigned", "1") in listing.brief
    gone = TAKEN_AWAY if extension is None else REPLACED
    assert engine.notes == ([gone] if core == "settrace" else [])
    assert (listing.of("unseen") == []) == (core == "settrace")


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_an_exception_of_a_signal_that_falls_into_us_is_not_taken_for_a_change_of_settrace(
    core: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(number: int, frame: Any) -> None:
        raise error

    def plan_for(engine: Engine, frame: FrameType) -> Any:
        if frame.f_code is called.__code__:
            signal.raise_signal(signal.SIGALRM)
        return plain(engine, frame)

    def called() -> None:
        pass

    plain, handled, before = Engine.plan_for, signal.signal(signal.SIGALRM, handler), sys.gettrace()
    monkeypatch.setattr(Engine, "plan_for", plan_for)
    try:
        with pytest.raises(error), Engine(HERE, Listing(), core=core) as engine:
            called()
    finally:
        signal.signal(signal.SIGALRM, handled)
        sys.settrace(before)
    assert engine.notes == ([INTERRUPTED] if core == "settrace" else [])
    assert not engine.faults


def test_with_all_ids_taken_settrace_is_used(core: str) -> None:
    if core != "monitoring":
        pytest.skip("nothing to take")
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    taken = [number for number in range(6) if monitoring.get_tool(number) is None]
    for number in taken:
        monitoring.use_tool_id(number, "somebody")
    try:
        listing = Listing()
        with Engine(HERE, listing) as engine:
            x = 1
        assert engine.notes == [NO_TOOL_ID]
        assert ("x", "assigned", str(x)) in listing.brief
    finally:
        for number in taken:
            monitoring.free_tool_id(number)
