"""Events as they happen are those of the trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchglass._trace import Trace
from torchglass.capture.live import LeafCall, LiveFeed
from torchglass.capture.recorder import Recorder
from torchglass.events.types import Event
from torchglass.options import Options
from torchglass.settle.live import LiveSettler


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        first, *_ = torch.split(torch.relu(self.inner(x)), 2, dim=1)
        return torch.cat([first, first * 2], dim=1)


def _seen(act: Any, **options: Any) -> tuple[list[Event], list[Event], Trace]:
    """The events of both edges of a recording, by edge, and its trace."""
    opened, closed = list[Event](), list[Event]()
    recorder = Recorder(Options())
    trace = Trace(recorder)
    recorder.start()

    def show(event: Event, edge: str) -> None:
        (opened if edge == "open" else closed).append(event)

    feed = LiveFeed(recorder, show, lambda log, at: True, **options)
    recorder.listen(feed)
    try:
        act()
    finally:
        recorder.unlisten(feed)
        recorder.stop(None)
    return opened, closed, trace


def _without(event: Event, *unknown: str) -> Event:
    values = {name: tuple(each._replace(producer=None, storage=None) for each in getattr(event, name))
              for name in ("inputs", "outputs")}  # fmt: skip
    return event._replace(**values, **dict.fromkeys(unknown))


def _model() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(Block(), Block(), Block())
    for _ in range(2):
        network(torch.randn(3, 4)).sum().backward()


def test_what_closes_is_what_the_trace_has() -> None:
    opened, closed, trace = _seen(_model)
    stored = {event.id: event for event in trace.events()}
    assert len(stored) == len(opened) == len(closed) > 30
    for event in closed:
        assert _without(event, "forward_event") == _without(stored[event.id], "forward_event")


def _alike(event: Event) -> Event:
    """Without what may be that of another event: times, and which its values are."""
    values = {name: tuple(each._replace(id=0, version=0) for each in getattr(event, name))
              for name in ("inputs", "outputs")}  # fmt: skip
    return _without(event._replace(**values), "start_ns", "end_ns")


def test_without_keys_all_else_is_the_same_but_which_values_they_are() -> None:
    with_keys, without = ([_alike(each) for each in seen] for seen in _twice())
    assert {event.key for event in without} == {""}
    assert len({event.key for event in with_keys}) == len(with_keys)
    assert without == [each._replace(key="") for each in with_keys]


def _twice() -> list[list[Event]]:
    return [_seen(_model, keyed=keyed)[1] for keyed in (True, False)]


def test_layers_that_are_alike_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settle, worked_out = LiveSettler._first_of_kind, list[int]()
    monkeypatch.setattr(LiveSettler, "_first_of_kind", lambda *args: (worked_out.append(args[2][0]), settle(*args))[1])
    network = nn.Sequential(*[Block() for _ in range(20)])
    opened, _, _ = _seen(lambda: network(torch.ones(3, 4)), keyed=False)
    assert len(opened) > 100
    assert len(worked_out) < 12


def test_values_that_are_alike_are_described_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value, described = LiveSettler._value, list[int]()
    monkeypatch.setattr(LiveSettler, "_value", lambda *given: (described.append(given[1]), value(*given))[1])
    network = nn.Sequential(*[Block() for _ in range(20)])
    _, closed, _ = _seen(lambda: network(torch.ones(3, 4)), keyed=False)
    assert sum(len(event.inputs) + len(event.outputs) for event in closed) > 200
    assert len(described) < 40
    assert {event.outputs[0].shape for event in closed if event.name == "cat"} == {(3, 4)}


def test_a_listener_does_not_get_a_call_that_was_open_before() -> None:
    recorder, seen = Recorder(Options()), list[tuple[str, str]]()
    trace = Trace(recorder)
    feeds: list[LiveFeed] = []

    class Listening(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            feeds.append(LiveFeed(recorder, lambda event, edge: seen.append((event.name, edge)), lambda log, at: True))
            recorder.listen(feeds[0])
            return x.neg()

    network, x = Listening(), torch.ones(2)
    recorder.start()
    try:
        network(x)
    finally:
        recorder.unlisten(feeds[0])
        recorder.stop(None)
    assert seen == [("Tensor.neg", "open"), ("Tensor.neg", "close")]
    assert [event.name for event in trace.events()] == ["Listening", "Tensor.neg"]
    assert not any("failed to record" in note for note in trace.notes)


def _at_once(act: Any) -> tuple[list[Event], list[Event]]:
    """The events that are told of at both edges, at their ends, and those that are told of at once."""
    wholes = list[Event]()
    brief = LeafCall(lambda parent, is_module: True, lambda event, parent: wholes.append(event))
    _, closed, _ = _seen(act, keyed=False, brief=brief)
    return closed, wholes


def _loosely(event: Event) -> Event:
    """Without what may be that of another call that was alike."""
    function = {} if event.kind == "module" else {"module": None}
    return _alike(event)._replace(id=0, parent=None, call=None, key="", **function)


def test_calls_in_which_nothing_happens_are_reported_once_and_say_the_same() -> None:
    closed, wholes = _at_once(_model)
    _, one_by_one, _ = _seen(_model, keyed=False)
    assert {"Sequential", "Block"} < {event.name for event in closed}
    assert {"F.linear", "relu", "cat"} < {event.name for event in wholes}
    assert len(wholes) > 30
    together = [repr(_loosely(event)) for event in (*closed, *wholes)]
    assert sorted(together) == sorted(repr(_loosely(event)) for event in one_by_one)


def test_one_sample_represents_all_calls_that_are_alike() -> None:
    network = nn.Sequential(*[Block() for _ in range(20)])
    _, wholes = _at_once(lambda: network(torch.ones(3, 4)))
    relus = [event for event in wholes if event.name == "relu"]
    assert len(relus) == 20
    assert len(set(map(id, relus))) == 1


def test_calls_that_differ_in_one_thing_are_not_alike() -> None:
    x = torch.ones(3, 4)
    unlike = (x, x[:2], x.to("meta"), x.double(), x.t(), x.clone().requires_grad_())

    def act() -> None:
        for scale in (1, 2):
            for each in (*unlike, *unlike):
                Scaled(scale)(each)

    _, wholes = _at_once(act)
    scaled = [event for event in wholes if event.name == "Tensor.mul"]
    assert len(scaled) == 24
    assert len(set(map(id, scaled))) == 12
    assert len({(event.args, event.inputs[0][3:10]) for event in scaled}) == 12


class Scaled(nn.Module):
    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale
