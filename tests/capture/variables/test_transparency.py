"""The watched program does what the plain one does, and nothing stays behind."""

# ruff: noqa: F841, RET504, UP028 - the programs watched here assign names to have them told
from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from types import FrameType
from typing import Any

import pytest

from tests.capture.variables.listing import CORES, Listing, in_file, watched
from torchglass.capture.variables import Engine, VariableChange, Watch

pytestmark = pytest.mark.parametrize("core", CORES)
HERE = Watch(code=lambda code: code.co_filename == __file__)


class Thing:
    """Something that weak references can see die."""


class Silent:
    def changed(self, change: VariableChange, frame: FrameType) -> None:
        pass


def lifetimes() -> list[Any]:
    """When things die, and how many references there are on the way."""
    seen: list[Any] = []
    thing, items = Thing(), [Thing()]
    one, two = weakref.ref(thing), weakref.ref(items[0])
    seen.append(sys.getrefcount(thing))
    thing = None
    seen.append(one() is None)
    items[0] = 1
    seen.append(two() is None)
    other = Thing()
    three = weakref.ref(other)
    try:
        kept = other
        raise ValueError
    except ValueError:
        del other, kept
    seen.append(three() is None)
    known = locals()
    seen.append(sorted(known))
    late = 1
    seen += [sorted(known), late]
    return seen


def test_values_die_when_they_would(core: str) -> None:
    gc.disable()
    try:
        expected = lifetimes()
        with Engine(HERE, Silent(), core=core):
            found = lifetimes()
    finally:
        gc.enable()
    assert found == expected


def test_a_frame_that_is_left_is_not_kept(core: str) -> None:
    def program() -> weakref.ref[Thing]:
        thing = Thing()
        inner = lambda: thing  # noqa: E731
        inner()
        return weakref.ref(thing)

    gc.disable()
    try:
        with Engine(HERE, Silent(), core=core):
            assert program()() is None
    finally:
        gc.enable()


def test_a_closure_that_another_thread_writes_keeps_what_was_written(core: str) -> None:
    def program() -> int:
        count, done = 0, False

        def add() -> None:
            nonlocal count, done
            for _ in range(3000):
                count += 1
            done = True

        thread = threading.Thread(target=add)
        thread.start()
        spins = 0
        while not done:
            spins += 1
        thread.join()
        return count

    with Engine(Watch(("spins", "count"), code=HERE.code), Silent(), core=core) as engine:
        assert program() == 3000
    assert engine.faults == []


def test_a_fault_of_the_sink_costs_an_event_never_the_program(core: str) -> None:
    class Broken:
        calls = 0

        def changed(self, change: VariableChange, frame: FrameType) -> None:
            self.calls += 1
            raise RuntimeError("broken sink")

    def program() -> list[int]:
        items = [1]
        items.append(2)
        total = sum(items)
        return [*items, total]

    sink = Broken()
    with Engine(HERE, sink, core=core) as engine:
        assert program() == [1, 2, 3]
    assert sink.calls >= 3
    assert engine.fault_count == sink.calls
    assert "RuntimeError: broken sink" in engine.faults[0]


def test_the_same_exception_goes_on_and_all_is_put_back(core: str) -> None:
    error = ValueError("mine")

    def program() -> None:
        text = "before"
        raise error

    before = sys.gettrace(), threading.gettrace()
    listing = Listing()
    with pytest.raises(ValueError) as caught, Engine(HERE, listing, core=core):
        program()
    assert caught.value is error
    assert (sys.gettrace(), threading.gettrace()) == before
    assert sys._getframe().f_trace is None or before[0] is not None
    assert ("text", "assigned", "'before'") in listing.brief
    if core == "monitoring":
        events = sys.monitoring  # type: ignore[attr-defined]
        assert [events.get_tool(number) for number in (3, 4)] == [None, None]
        assert events.use_tool_id(4, "check") is None
        left = events.get_local_events(4, program.__code__), events.get_events(4)
        events.free_tool_id(4)
        assert left == (0, 0)


def test_nothing_is_shown_after_the_block(core: str) -> None:
    def numbers() -> Any:
        for n in range(9):
            yield n

    def program() -> Any:
        suspended = numbers()
        next(suspended)
        return suspended

    listing = Listing()
    with Engine(HERE, listing, core=core):
        suspended = program()
    told = len(listing.rows)
    assert list(suspended) == list(range(1, 9))
    program()
    assert len(listing.rows) == told


def test_a_thread_that_outlives_the_block_is_released(core: str) -> None:
    go_on, ready, traced = threading.Event(), threading.Event(), []

    def step(n: int) -> int:
        doubled = 2 * n
        return doubled

    def work() -> None:
        first = step(1)
        ready.set()
        go_on.wait(10)
        step(first)
        traced.append(sys.gettrace())

    listing = Listing()
    before = threading.gettrace()
    with Engine(HERE, listing, core=core):
        thread = threading.Thread(target=work)
        thread.start()
        assert ready.wait(10)
    told = len(listing.rows)
    go_on.set()
    thread.join()
    assert ("doubled", "assigned", "2") in listing.brief
    assert len(listing.rows) == told
    assert traced == [before]


def test_a_thread_from_before_the_block_is_left_alone(core: str) -> None:
    go_on, done = threading.Event(), threading.Event()

    def work() -> None:
        go_on.wait(10)
        mine = inner()
        done.set()
        del mine

    def inner() -> int:
        elsewhere = 1
        return elsewhere

    thread = threading.Thread(target=work)
    thread.start()
    listing = Listing()
    with Engine(HERE, listing, core=core):
        go_on.set()
        assert done.wait(10)
    thread.join()
    assert listing.of("elsewhere") == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_not_watched(core: str) -> None:
    script = f"""
    import os, sys
    from tests.capture.variables.listing import Listing
    from torchglass.capture.variables import Engine, Watch
    def child(n):
        inside = n
        return inside
    def program(listing):
        x = 1
        pid = os.fork()
        if pid == 0:
            before = len(listing.rows)
            child(1)
            y = 2
            tools = [sys.monitoring.get_tool(k) for k in (3, 4)] if {core!r} == "monitoring" else []
            os._exit(0 if len(listing.rows) == before and sys.gettrace() is None and not any(tools) else 1)
        status = os.waitpid(pid, 0)[1]
        child(2)
        return status
    listing = Listing()
    with Engine(Watch(code=lambda code: code.co_name in ("program", "child")), listing, core={core!r}):
        status = program(listing)
    print(status, listing.of("inside"))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "0 [('assigned', '2')]\n"


def test_engines_nest(core: str) -> None:
    def program() -> None:
        x = 1
        items = [x]
        items.append(2)

    outer, inner = Listing(), Listing()
    with Engine(HERE, outer, core=core) as one:
        with Engine(HERE, inner, core=core) as two:
            program()
        program()
    told = [("x", "assigned", "1"), ("items", "assigned", "list(1)"), ("items", "changed", "list(1, 2)")]
    assert [row for row in inner.brief if row in told] == told
    assert [row for row in outer.brief if row in told] == told * 2
    assert (one.faults, two.faults, one.notes, two.notes) == ([], [], [], [])


def test_four_engines_in_one_frame_for_longer_than_the_stack_is_deep(core: str) -> None:
    def program(count: int) -> int:
        x = 0
        for number in range(count):
            x = number
        return x

    listings = [Listing() for _ in range(4)]
    engines = [Engine(HERE, each, core=core) for each in listings]
    for each in engines:
        each.start(sys._getframe())
    for _ in range(sys.getrecursionlimit()):
        program(1)
    assert program(50) == 49
    for each in reversed(engines):
        each.stop()
    assert len({tuple(each.of("x")) for each in listings}) == 1
    assert len(listings[0].of("x")) >= 50
    assert all((each.faults, each.notes) == ([], []) for each in engines)


def test_ctrl_c_in_the_sink_reaches_the_program(core: str) -> None:
    class Interrupted:
        def changed(self, change: VariableChange, frame: FrameType) -> None:
            if change.name == "x":
                raise KeyboardInterrupt

    def program() -> None:
        x = 1
        del x

    before = sys.gettrace()
    with pytest.raises(KeyboardInterrupt), Engine(HERE, Interrupted(), core=core):
        program()
    sys.settrace(before)  # Python takes a trace function away that raises


def test_neither_torch_nor_numpy_is_imported(core: str) -> None:
    script = """
    import sys
    from torchglass.capture.variables import Engine, Watch
    class Sink:
        def changed(self, change, frame): print(change.name, change.how)
    with Engine(Watch(code=lambda code: True), Sink(), core="%s"):
        x = [1]
        x.append(2)
    print("torch" in sys.modules, "numpy" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script % core)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "x assigned\nx changed\nFalse False\n"


def test_watching_code_of_this_file_only(core: str) -> None:
    assert in_file(watched)(watched.__code__)
    assert not HERE.code(watched.__code__)


COLLECTED = """
import gc, sys, threading
from torchglass.capture.variables import Engine, Watch

class Sink:
    def changed(self, change, frame):
        pass

gc.callbacks.append(lambda phase, info: sum(range(50)))
gc.set_threshold(5)

def f():
    x = [1]
    x = [2]
    return x

def work():
    for _ in range(30):
        with Engine(Watch(("x",)), Sink(), core=sys.argv[1]):
            f()

for _ in range(10):
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("done")
"""


def test_threads_and_the_garbage_collector_do_not_stop_each_other(core: str) -> None:
    """Where starting asked Python for the frames of all threads, a collection at that moment stopped all of them."""
    command = [sys.executable, "-c", COLLECTED, core]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
