"""Code of the program that Python runs in the middle of our own: collections, finalisers, signals."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass import compiled
from torchglass.capture.torch import modules


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        h = h.relu()
        return self.second(h)


@contextmanager
def collecting(callback: Callable[..., Any]) -> Iterator[None]:
    """A collection at almost every object that is made, also inside of our handlers."""
    before, known = gc.get_threshold(), gc.callbacks[:]
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks[:] = known


def recorded(intruder: Callable[..., Any] | None, **options: Any) -> tg.Trace:
    model, x = TwoLayers(), torch.ones(2, 4)
    around = nullcontext() if intruder is None else collecting(intruder)
    with around, tg.record(ops=True, **options) as trace:
        run(model, x)
    return trace


def run(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    h = model(x)
    for _ in range(5):
        h = torch.cat([h, model(x)]).relu_()
    return h


def told(trace: tg.Trace, owner: str) -> list[tuple[object, ...]]:
    """All that is known of each event, but times, and but what the intruder did."""
    events = [
        each
        for each in trace.events()
        if each.location is not None and not any(owner in frame.function for frame in each.stack)
    ]
    names = {each.id: number for number, each in enumerate(events)}

    def looks(values: Any) -> list[Any]:
        return [(value.shape, value.dtype, value.requires_grad, names.get(value.producer)) for value in values]

    return [
        (
            each.kind,
            each.name,
            each.module,
            each.detail,
            each.args,
            each.result,
            names.get(each.parent),
            looks(each.inputs),
            looks(each.outputs),
            each.error,
            each.location.line,
        )
        for each in events
        if each.location is not None
    ]


def test_a_callback_of_the_collector_whose_variables_are_followed() -> None:
    def on_collection(phase: str, info: dict[str, int]) -> None:
        seen = phase
        _ = seen

    plain = told(recorded(None, variables=True), "on_collection")
    with_callback = recorded(on_collection, variables=True)
    assert any(each.name == "seen" for each in with_callback.events())
    assert told(with_callback, "on_collection") == plain


def test_a_finaliser_that_calls_a_module_and_torch() -> None:
    small, x = nn.Linear(2, 3), torch.ones(1, 2)

    class Finalised:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            small(x)

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            Finalised()

    plain = told(recorded(None), "__del__")
    with_finaliser = recorded(on_collection)
    assert any(
        each.name == "Linear" and each.inputs[0].shape == (1, 2)
        for each in with_finaliser.events(tg.select(kind="module"))
    )
    assert told(with_finaliser, "__del__") == plain


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
def test_a_signal_handler_that_calls_a_module() -> None:
    small, x = nn.Linear(2, 3), torch.ones(1, 2)

    def on_signal(number: int, frame: Any) -> None:
        small(x)

    model, given = TwoLayers(), torch.ones(2, 4)
    plain = told(recorded(None), "on_signal")
    before = signal.signal(signal.SIGALRM, on_signal)
    try:
        for _ in range(20):
            with tg.record(ops=True) as trace:
                signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
                run(model, given)
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert told(trace, "on_signal") == plain
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class TimeoutOfTheProgram(Exception):
    """What a handler of the program's raises: an ordinary exception, as ours could be."""


def until_stopped(model: nn.Module, given: torch.Tensor, delay: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, delay)
    for _ in range(300):
        run(model, given)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
@pytest.mark.parametrize(
    "options", [{}, {"ops": True}, {"variables": True}, {"to": "run.trace"}], ids=["default", "ops", "variables", "to"]
)
def test_a_timeout_by_signal_always_arrives(options: dict[str, Any], tmp_path: Path) -> None:
    """Wherever it falls, in our handlers or not, it is the program's, and it leaves everything as it was."""

    def on_signal(number: int, frame: Any) -> None:
        raise TimeoutOfTheProgram

    model, given = TwoLayers(), torch.ones(2, 4)
    if "to" in options:
        options = {"to": tmp_path / options["to"]}
    before = signal.signal(signal.SIGALRM, on_signal)
    arrived = 0
    try:
        with tg.record(**options) as trace:
            for attempt in range(60):
                with pytest.raises(TimeoutOfTheProgram):
                    until_stopped(model, given, 0.002 + attempt * 0.000037)
                arrived += 1
            run(model, given)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert arrived == 60
    assert not any("fault" in note for note in trace.notes)
    last = [event for event in trace.events() if event.name == "TwoLayers"][-1]
    assert (last.error, last.parent) == (None, None)
    assert any("TimeoutOfTheProgram" in (event.error or "") for event in trace.events())


@pytest.mark.skipif(compiled.engine() == compiled.COMPILED, reason="the compiled engine has no such call")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="variables are not followed by sys.settrace there")
def test_a_signal_as_the_trace_function_is_put_back_leaves_no_module_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python runs a signal's handler behind a call: also behind the one that ends our opening of a module's event."""
    model, given, puts_back = TwoLayers(), torch.ones(2, 4), 0

    def interrupted(tracer: Any) -> None:
        nonlocal puts_back
        sys.settrace(tracer)
        puts_back += tracer is not None
        if puts_back == 1:  # the outermost: whatever stands around an inner one would put things right
            raise TimeoutOfTheProgram

    with tg.record(variables=True) as trace:
        model(given)
        puts_back = 0
        monkeypatch.setattr(modules, "_settrace", interrupted)
        with pytest.raises(TimeoutOfTheProgram):
            model(given)
        monkeypatch.undo()
        model(given)
    calls = [event for event in trace.events() if event.name == "TwoLayers"]
    assert [each.parent for each in calls] == [None, None, None]
    assert ["TimeoutOfTheProgram" in (each.error or "") for each in calls] == [False, True, False]
