"""The following of variables in C is safe: nothing grows, no memory is touched that is not its own."""

# ruff: noqa: RET504 - the programs followed here assign names to have them told

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import torchglass as tg
from tests.capture.engine.test_fast import python
from torchglass import compiled
from torchglass.capture.variables import Engine, Watch, settrace
from torchglass.capture.variables.activation import Activation
from torchglass.capture.variables.snapshots import Snapshots

pytestmark = pytest.mark.skipif(compiled.engine() != compiled.COMPILED, reason=f"the engine is {compiled.described()}")
BY_LINES = pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring tells of variables")


@BY_LINES
def test_the_trace_function_of_a_followed_call_is_compiled() -> None:
    def followed(x: int) -> type:
        return type(sys._getframe().f_trace)

    with tg.record(variables=True):
        kind = followed(1)
    assert kind is compiled.extension.Local
    assert followed(1) is type(None)


@BY_LINES
def test_a_plain_call_needs_python_of_ours_only_when_it_begins_and_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("_stored", "look", "done", "_compare", "end"):
        monkeypatch.setattr(Activation, name, lambda *_, name=name: asked.append(name))
    monkeypatch.setattr(settrace, "_on_other", lambda *what: asked.append(what[3][0]))

    def followed(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x + n
        name = "a name"
        y = y * 2
        for n in range(3):
            y = y + n
        return y if name else x

    with tg.record(variables=["x", "n", "y", "name"]) as trace:
        followed(torch.ones(2), 4)
        asked_here = list(asked)
    assert asked_here == ["return"]
    told = [each.name for each in trace.events() if each.kind == "variable"]
    assert told == ["x", "n", "y", "name", "y", "n", "y", "n", "y", "n", "y"]


def test_python_of_ours_looks_at_a_plain_call_only_when_it_begins_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(owner: Any, name: str) -> None:
        method = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **named: (asked.append(name), method(*args, **named))[1])

    for name in ("__init__", "begin", "_stored", "_sort_by_access", "end"):
        note(Activation, name)
    for name in ("take", "is_closed"):
        note(Snapshots, name)
    for name in ("begin", "left"):
        note(Engine, name)

    def inner(items: list[int], options: dict[str, int], *rest: Any, **named: Any) -> tuple[int, ...]:
        pair = (len(items), rest)
        items = [1, *items]
        both = {"pair": pair, **options}
        (late) = len(both)
        return (*items, late)

    with tg.record(variables=["items", "options", "rest", "named", "pair", "both", "late"]) as trace:
        inner([1], {})  # where its code is met for the first time Python reads it
        asked.clear()
        inner([1], {"a": 1}, 2, key=3)
        asked_here = list(asked)
    begun = ["begin", "__init__", "begin"]
    assert asked_here in (begun, [*begun, "left"], [*begun, "end", "left"])
    told = [each.name for each in trace.events(kind="variable")]
    assert told == ["items", "options", "rest", "named", "pair", "items", "both", "late"] * 2


def test_blocks_that_follow_variables_leave_nothing_behind() -> None:
    code = """
        import gc, sys, torch, torchglass as tg
        class Thing: pass
        def work(x, n, **named):
            thing, items = Thing(), [x, n]
            items.append({"x": x, "n": n})
            text = str(n)
            for x in (x + 1, 2.5, None):
                pass
            counted = (each for each in range(3))
            first = next(counted)
            try:
                del text
                raise ValueError(first)
            except ValueError as error:
                named["error"] = repr(error)
        def blocks(count):
            for number in range(count):
                with tg.record(variables=True):
                    work(torch.ones(2), number, key=[number])
            gc.collect()
            return sys.getallocatedblocks()
        # Python 3.13 goes on remembering things of code for some thousand blocks, fewer and fewer: 307, 111, 71 … for
        # each three hundred. One object that each block left behind would be three hundred every time.
        counts = [blocks(600), *(blocks(300) for _ in range(3))]
        print(min(after - before for before, after in zip(counts, counts[1:])))
    """
    assert int(python(code)) < 250


def test_recursion_ends_where_it_would_while_variables_are_followed() -> None:
    def depth(n: int) -> int:
        here = n + 1
        try:
            return depth(here)
        except RecursionError:
            return here

    plain = depth(0)
    with tg.record(variables=["here"]):
        recorded = depth(0)
    assert abs(plain - recorded) < 30


def test_nine_hundred_calls_deep() -> None:
    def depth(n: int, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y if n == 0 else depth(n - 1, y)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 1500)
    try:
        with tg.record(variables=["y"]) as trace:
            result = depth(900, torch.zeros(1))
    finally:
        sys.setrecursionlimit(limit)
    assert result.item() == 901
    told = [each for each in trace.events() if each.kind == "variable"]
    assert len(told) == 901


@pytest.mark.skipif(
    sys.version_info[:2] in ((3, 12), (3, 13)),
    reason="Python crashes by itself where memory runs out: 3.12.1 while a function is made, as json does for each "
    "text, 3.13.0 while a generator runs (any(f(x) for x in …), without torchglass)",
)
def test_memory_that_runs_out_while_a_change_is_written_or_looked_at() -> None:
    """Each allocation that C and what it asks makes fails once; Python itself takes a trace function away then."""
    pytest.importorskip("_testcapi")
    code = """
        import _testcapi, sys, torch, torchglass as tg
        from threading import get_ident
        from torchglass.capture.engine.log import LOGS
        from torchglass.capture.variables import UNBOUND, Engine, Watch
        from torchglass.capture.variables.activation import after_step
        from torchglass.capture.variables.events import VariableEvents
        class Thing: pass
        def failing(number, act):
            _testcapi.set_nomemory(number, number + 1)
            try:
                act()
            except (MemoryError, SystemError):
                return 1
            finally:
                _testcapi.remove_mem_hooks()
            return 0
        failed = whole = 0
        values = (Thing(), torch.ones(2), 2.5, 10**9, "text", [1, torch.ones(1)], {"a": torch.ones(1)}, None, UNBOUND)
        with tg.record() as trace:
            log, frame = LOGS[get_ident()], sys._getframe()
            changed = VariableEvents(log.session).changed
            for at, value in enumerate(values):
                for number in range(60):
                    place = (f"x{number}", frame.f_code, 2 * number, 1, "<module>", "assigned")
                    change = (*place, UNBOUND, value, 100 * at + number)
                    failed += failing(number, lambda: changed(change, frame))
                    assert log.on
                    before = log.at
                    assert changed(change, frame)
                    whole += log.at - before
            y = values[1] + 1
        assert whole == len(values) * 60
        assert y.tolist() == [2.0, 2.0]

        class Sink:
            def changed(self, change, frame): names.append(change[0])
        names = []
        def work(number, value):
            before = value
            frame = sys._getframe()
            engine = Engine(Watch(code=lambda code: True), Sink())
            plan = engine.plan_for(frame)
            call = engine.begin(frame, plan, silent=False)
            actions = [each for each in plan.lines.values() if each.fast]
            before, value = value, number
            found = failing(number, lambda: [after_step(call, each, frame) for each in actions])
            for each in actions:
                after_step(call, each, frame)
            assert call.known["before"].id == id(before), (number, before)
            return found
        for value in values[:-1]:
            for number in range(40):
                failed += work(number, value)
        assert names.count("before") > 200, names.count("before")  # of 320: a failure costs an event
        print(failed)
    """
    assert int(python(code)) > 100


def test_objects_that_die_while_their_variable_is_looked_at() -> None:
    class Dies:
        def __del__(self) -> None:
            later = torch.ones(3)
            gone.append(float(later.sum()))

    def work() -> int:
        for number in range(50):
            thing = Dies()
            pair = [thing, number]
            thing = number
            pair.clear()
        return number

    gone: list[float] = []
    with tg.record(variables=True) as trace:
        assert work() == 49
    assert gone == [3.0] * 50
    told = [each for each in trace.events() if each.kind == "variable" and each.name == "number"]
    assert len(told) == 50


@BY_LINES
def test_a_profiler_sees_as_much_as_without_us() -> None:
    def helper(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        return y

    def seen() -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []

        def profile(frame: object, event: str, argument: object) -> None:
            code = frame.f_code  # type: ignore[attr-defined]
            if code.co_filename == __file__ and event in ("call", "return"):
                found.append((code.co_name, event))

        sys.setprofile(profile)
        try:
            for _ in range(3):
                helper(torch.ones(2))
        finally:
            sys.setprofile(None)
        return found

    plain = seen()
    with tg.record(variables=True):
        recorded = seen()
    assert recorded == plain
    assert len(plain) == 6


@BY_LINES
def test_a_trace_function_that_is_set_inside_a_handler_stays() -> None:
    class Sets:
        def __del__(self) -> None:
            sys.settrace(mine)

    def mine(frame: object, event: str, argument: object) -> None:
        return None

    before = sys.gettrace()
    try:
        with tg.record(variables=True) as trace:
            held = Sets()
            held = None
            assert sys.gettrace() is mine
        assert held is None
        assert sys.gettrace() is mine
    finally:
        sys.settrace(before)
    assert any("sys.settrace" in note for note in trace.notes)


def test_whoever_calls_with_something_else_gets_an_error() -> None:
    fast = compiled.extension
    frame = sys._getframe()
    with pytest.raises(TypeError):
        fast.done(fast.Call(), (), frame)
    with pytest.raises(TypeError):
        fast.begin(fast.Call(), (), (1, 2, 3, 4, 5), frame)
    with pytest.raises(TypeError):
        fast.VariableSink(None)
    with pytest.raises(TypeError):
        fast.Local()


def test_no_torch_is_needed() -> None:
    class Listing:
        def __init__(self) -> None:
            self.names: list[str] = []

        def changed(self, change: tuple[str, ...], frame: object) -> None:
            self.names.append(change[0])

    def work(first: int) -> int:
        second = first + 1
        second = 1 + first
        return second

    sink = Listing()
    with Engine(Watch(code=lambda code: code is work.__code__), sink):
        work(3)
    assert sink.names == ["first", "second"]
