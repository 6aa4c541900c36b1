"""Starting and stopping: nesting, every way out, limits, and faults of our own."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchglass as tg
from torchglass.capture import recorder, threads
from torchglass.capture.engine.log import LOGS
from torchglass.capture.session import Session
from torchglass.capture.torch import functions, modules, optimizers

X = torch.ones(2, 3)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After every test: no mode, no recorded thread, every name in its place."""
    call = nn.Module.__call__
    yield
    assert torch._C._len_torch_function_stack() == 0
    assert LOGS == {}
    assert nn.Module.__call__ is call
    assert (recorder.PATCHES._users, recorder.DOOR._users, recorder.PATCHES._suspended) == (0, 0, 0)


def names(trace: tg.Trace) -> list[str]:
    return [event.name for event in trace.events()]


def in_thread(work: Callable[[], Any], name: str | None = None) -> None:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()


class TestNesting:
    def test_the_inner_events_are_in_both(self) -> None:
        with tg.record() as outer:
            torch.relu(X)
            with tg.record() as inner:
                torch.exp(X)
            torch.tanh(X)
        assert names(outer) == ["relu", "exp", "tanh"]
        assert names(inner) == ["exp"]
        assert [e.id for e in inner.events()] == [0]

    def test_inside_a_module_that_runs(self) -> None:
        class Records(nn.Module):
            def forward(self, x: Tensor) -> tg.Trace:
                with tg.record() as self.trace:
                    torch.relu(x)
                return self.trace

        model = nn.Sequential(Records())
        with tg.record() as outer:
            model(X)
        event = next(model[0].trace.events())
        assert (event.name, event.parent, event.module, event.root) == ("relu", None, "0", "Sequential")
        assert names(outer) == ["Sequential", "Records", "relu"]

    def test_each_gets_the_probes_it_asked_for(self) -> None:
        layer = nn.Linear(3, 1)
        with (
            tg.record() as outer,
            tg.record(functions=False) as only_modules,
            tg.record(modules=False) as only_functions,
        ):
            layer(X)
        assert names(outer) == ["Linear", "F.linear"]
        assert names(only_modules) == ["Linear"]
        assert names(only_functions) == ["F.linear"]

    def test_an_outer_one_that_asked_for_less(self) -> None:
        with tg.record(functions=False) as outer:
            with tg.record() as inner:
                torch.relu(X)
            torch.exp(X)
        assert (names(outer), names(inner)) == ([], ["relu"])

    def test_modules_are_those_of_the_recording(self) -> None:
        with tg.record() as outer:
            nn.Linear(3, 1)(X)
            with tg.record() as inner:
                nn.Linear(3, 2)(X)
        assert [m.parameters[0].shape for m in inner.modules()] == [(2, 3)]
        assert [(m.root, m.id) for m in inner.modules()] == [("Linear", 0)]
        assert len(outer.modules()) == 2
        assert inner.outputs("")[0].shape == (2, 2)

    def test_in_a_thread_of_the_outer_one(self) -> None:
        found = []

        def work() -> None:
            with tg.record() as inner:
                torch.relu(X)
            torch.exp(X)
            found.append(inner)

        with tg.record() as outer:
            in_thread(work)
        assert (names(outer), names(found[0])) == (["relu", "exp"], ["relu"])

    def test_the_outer_one_ends_first(self) -> None:
        go, inside, found = threading.Event(), threading.Event(), []

        def work() -> None:
            with tg.record() as inner:
                inside.set()
                go.wait(10)
                torch.relu(X)
            found.append(inner)

        with tg.record() as outer:
            thread = threading.Thread(target=work)
            thread.start()
            inside.wait(10)
        assert torch._C._len_torch_function_stack() == 0
        torch.tanh(X)
        go.set()
        thread.join()
        assert (names(outer), names(found[0])) == ([], ["relu"])

    def test_not_in_the_order_of_opening(self) -> None:
        first, second = tg.record(), tg.record()
        one = first.__enter__()
        torch.relu(X)
        two = second.__enter__()
        torch.exp(X)
        first.__exit__(None, None, None)
        torch.tanh(X)
        second.__exit__(None, None, None)
        assert (names(one), names(two)) == (["relu", "exp"], ["exp", "tanh"])


class TestWaysOut:
    def test_an_exception_is_the_same_object_and_the_trace_is_the_last(self) -> None:
        error = ValueError("mine")

        def program() -> None:
            torch.relu(X)
            raise error

        with pytest.raises(ValueError, match="mine") as caught, tg.record() as trace:
            program()
        assert caught.value is error
        assert tg.last_trace() is trace
        assert trace.failure() is None
        with tg.record() as after:
            pass
        assert tg.last_trace() is after, "also of a block that ended well"

    def test_a_failing_call_is_there_with_its_inputs(self) -> None:
        model = nn.Sequential(nn.Linear(5, 5))
        with pytest.raises(RuntimeError), tg.record() as trace:
            model(X)
        failed = trace.failure()
        assert failed is not None
        assert (failed.name, failed.inputs[0].shape, failed.outputs) == ("F.linear", (2, 3), ())
        assert all((e.error or "").startswith("RuntimeError: ") for e in trace.events())

    def test_an_exception_that_the_program_catches_is_no_failure(self) -> None:
        with tg.record() as trace:
            with pytest.raises(RuntimeError):
                X @ X
            torch.relu(X)
        assert trace.failure() is None
        assert [e.error is None for e in trace.events()] == [False, True]

    def test_the_cause_of_an_exception_is_found(self) -> None:
        def program() -> None:
            try:
                X @ X
            except RuntimeError as error:
                raise KeyError("mine") from error

        with pytest.raises(KeyError), tg.record() as trace:
            program()
        failed = trace.failure()
        assert failed is not None
        assert failed.name == "Tensor.matmul"

    def test_errors_keep_their_own_texts(self) -> None:
        """The address of a dead exception is the next one's: they must not be taken for one another."""
        with tg.record() as trace:
            for size in range(4, 12):
                try:
                    X + torch.ones(size)
                except RuntimeError:
                    pass
        texts = [e.error for e in trace.events() if e.error]
        assert len(set(texts)) == len(texts) == 8

    def test_ctrl_c(self) -> None:
        old = signal.signal(signal.SIGINT, signal.default_int_handler)

        class Interrupts(nn.Module):
            def forward(self, x: Tensor) -> None:
                signal.raise_signal(signal.SIGINT)

        try:
            with pytest.raises(KeyboardInterrupt), tg.record() as trace:
                Interrupts()(X)
        finally:
            signal.signal(signal.SIGINT, old)
        failed = trace.failure()
        assert failed is not None
        assert (failed.name, failed.error) == ("Interrupts", "KeyboardInterrupt")

    def test_ctrl_c_inside_torchs_own_way_of_taking_a_mode_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Torch's generator is left half way, and would put our mode back when it is collected."""
        leave = type(torch.overrides._pop_mode_temporarily()).__exit__
        calls = []

        def interrupted(self: Any, *args: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                raise KeyboardInterrupt
            return leave(self, *args)

        interrupted.__code__ = interrupted.__code__.replace(co_filename=sys.modules["contextlib"].__file__ or "")
        monkeypatch.setattr(type(torch.overrides._pop_mode_temporarily()), "__exit__", interrupted)

        def asking(given: Tensor) -> Tensor:
            """By torch's own way to a mode, whichever engine records."""
            if torch.overrides.has_torch_function((given,)):
                return torch.overrides.handle_torch_function(asking, (given,), given)
            return F.gumbel_softmax(given)

        with pytest.raises(KeyboardInterrupt), tg.record():
            asking(X)

    def test_an_exit_stack_and_a_generator(self) -> None:
        def recorded() -> Iterator[tg.Trace]:
            with tg.record() as trace:
                torch.relu(X)
                yield trace
                torch.exp(X)

        with ExitStack() as stack:
            trace = stack.enter_context(tg.record())
            torch.tanh(X)
        (inner,) = list(recorded())
        assert (names(trace), names(inner)) == (["tanh"], ["relu", "exp"])
        assert next(inner.events()).stack[-1].function.endswith("recorded")


class TestFaultsOfOurs:
    """One costs an event, never the program."""

    @pytest.mark.parametrize(
        ("owner", "name"),
        [
            (modules, "_identify"),
            (modules, "_describe"),
            (modules, "read_settings"),
            (functions, "is_event"),
            (functions, "inner_copy"),
            (optimizers, "OpenStep"),
            (Session, "what"),
            (Session, "error_number"),
            (threads, "join"),
        ],
    )
    def test_the_program_goes_on(self, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def program() -> Any:
            torch.manual_seed(0)
            layer = nn.Linear(3, 3)
            out = F.gumbel_softmax(layer(X))
            out.sum().backward()
            torch.optim.SGD(layer.parameters(), lr=0.1).step()
            with pytest.raises(RuntimeError):
                nn.Sequential(layer)(torch.ones(2, 9))
            in_thread(lambda: torch.relu(X))
            return out.detach(), layer.weight.detach().clone()

        broken = Mock(side_effect=ZeroDivisionError("ours"))  # whose frames are no frames of the program
        expected = program()
        with tg.record() as trace, monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            patch.setattr(functions, "_KNOWN", ({}, {}))  # as in a process that has met none of them
            result = program()
        assert all(torch.equal(one, other) for one, other in zip(result, expected, strict=True))
        assert any("failed to record" in note and "ZeroDivisionError: ours" in note for note in trace.notes)
        assert "failed to record" in str(trace)
        with tg.record() as after:
            nn.Linear(3, 3)(X)
        assert names(after)[-2:] == ["Linear", "F.linear"]
        assert not any("failed" in note for note in after.notes)


class TestLimitsAndLooks:
    def test_max_events_from_the_beginning(self) -> None:
        with tg.record(max_events=3, keep="begin") as trace:
            for _ in range(5):
                torch.relu(X)
        assert len(trace) == 3
        assert trace.notes == (
            "2 events were not recorded: the limit of 3 was reached; record(max_events=…) or --max-events raises it",
        )

    def test_max_events_from_the_beginning_over_all_threads(self) -> None:
        with tg.record(max_events=3, keep="begin") as trace:
            for _ in range(2):
                in_thread(lambda: [torch.relu(X) for _ in range(4)])
        assert len(trace) == 3
        assert trace.notes[0].startswith("5 events")

    def test_looking_early_is_a_snapshot(self) -> None:
        class Snapshots(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                self.seen = list(trace.events())
                return torch.relu(x)

        model = Snapshots()
        with tg.record() as trace:
            assert len(trace) == 0
            assert trace.running
            model(X)
            assert "still recording" in str(trace)
            assert names(trace) == ["Snapshots", "relu"]
            torch.exp(X)
        assert [(e.name, e.end_ns, e.outputs) for e in model.seen] == [("Snapshots", None, ())]
        assert names(trace) == ["Snapshots", "relu", "exp"]
        assert not trace.running


def test_a_view_of_a_running_trace_settles_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads go on meanwhile: a view that looked anew at each question would never come to its end."""
    from torchglass.settle.settler import Settler

    settled: list[int] = []
    settle = Settler.settle

    def counting(self: Settler) -> None:
        settled.append(1)
        settle(self)

    monkeypatch.setattr(Settler, "settle", counting)
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.001):
            torch.ones(2) * 2

    counts: list[int] = []
    with tg.record(values="stats") as trace:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for each in threads:
            each.start()
        time.sleep(0.1)
        try:
            for look in (trace.render, lambda: trace.render("table"), trace.to_dict, trace.first_bad, trace.findings):
                settled.clear()
                look()
                counts.append(len(settled))
        finally:
            stop.set()
            for each in threads:
                each.join()
    assert max(counts) <= 3  # a thread that ends a call with a new form meanwhile is looked at once more
