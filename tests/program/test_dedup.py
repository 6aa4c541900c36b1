"""Events that are alike are kept once, however the trace is read."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchglass
from tests import programs
from tests.handmade import HandmadeTrace
from torchglass.events.selection import select
from torchglass.program.dedup import DistinctEvents, distinct_events


def read(distinct: DistinctEvents) -> tuple[list[int], list[int], list[int], list[int], list[str]]:
    codes = [event.code for event in distinct.events()]
    return distinct.looks(), list(distinct.parents), list(distinct.spent_ns), list(distinct.python_calls), codes


@pytest.mark.parametrize("name", [each for each in programs.names() if each not in programs.RAISES])
def test_columns_and_events_are_read_alike(name: str) -> None:
    trace = programs.recorded(name)
    assert read(distinct_events(trace)) == read(distinct_events(HandmadeTrace(list(trace.events()))))


def blocks() -> torchglass.Trace:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(4)])
    with torchglass.record() as trace:
        for _ in range(3):
            model(torch.ones(2, 3))
    return trace


def test_equal_events_are_kept_once() -> None:
    trace = blocks()
    distinct = distinct_events(trace)
    ones = [event.id for event in trace.events(function="ones")]
    assert len(ones) == 3
    assert len({distinct.alike[at] for at in ones}) == 1
    assert len(distinct.samples) < len(trace) / 2
    for event in trace.events():
        own = event._replace(id=0, parent=None, start_ns=0, end_ns=0, inputs=(), outputs=(), key="", call=None)
        sample = distinct.sample(event.id)
        assert own == sample._replace(id=0, parent=None, start_ns=0, end_ns=0, inputs=(), outputs=(), key="", call=None)


def test_selected_events_are_found_by_their_samples_and_a_callable_is_asked_for_each() -> None:
    trace = blocks()
    distinct = distinct_events(trace)
    relus = [event.id for event in trace.events(function="relu")]
    assert [at for at, found in enumerate(distinct.matching(select(function="relu"))) if found] == relus
    late = distinct.matching(select(where=lambda event: event.id > relus[-2]))
    assert [at for at, found in enumerate(late) if found] == list(range(relus[-2] + 1, len(trace)))
