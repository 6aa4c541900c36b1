"""Events that look the same are kept once, however the trace is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import torchglass
from tests import programs
from tests.handmade import HandmadeTrace
from tests.views.tree.test_view import TRACES
from torchglass.events.selection import select
from torchglass.views.digest import Looks, TellsAlike, looks_of


class TellingTrace(HandmadeTrace):
    """Knows what is alike without making events, as a trace in columns does."""

    def alike(self) -> Iterator[tuple[Any, int, int]]:
        for event in self.made:
            key = event._replace(id=0, parent=None, start_ns=0, end_ns=None)
            yield key, -1 if event.parent is None else event.parent, event.duration_ns or 0


def told(looks: Looks) -> tuple[list[int], list[int], list[int], list[str]]:
    return looks.look, looks.parents, looks.spent_ns, [event.code for event in looks.events]


@pytest.mark.parametrize("name", TRACES)
def test_both_ways_of_reading_agree(name: str) -> None:
    trace = TRACES[name]
    assert told(looks_of(trace, None)) == told(looks_of(TellingTrace(trace.made, trace.infos), None))


@pytest.mark.parametrize("name", [each for each in programs.names() if each not in programs.RAISES])
def test_a_recorded_trace_agrees_with_its_events(name: str) -> None:
    with torchglass.record() as trace:
        programs.load(name).main()
    if isinstance(trace, TellsAlike):
        assert told(looks_of(trace, None)) == told(looks_of(HandmadeTrace(list(trace.events())), None))


def test_equal_events_are_one_look_and_selections_are_kept_apart() -> None:
    looks = looks_of(TRACES["blocks"], select(function="relu"))
    relus = [at for at, event in enumerate(looks.events) if event.name == "F.relu"]
    assert len({looks.look[at] for at in relus}) == 1
    assert [at for at, chosen in enumerate(looks.matched or b"") if chosen] == relus
