"""Events that are alike are kept once, however the trace is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import torchglass
from tests import programs
from tests.handmade import HandmadeTrace
from tests.views.tree.test_view import TRACES
from torchglass.events.selection import select
from torchglass.views.digest import Digest, TellsAlike, digest_of, texts_of


class TellingTrace(HandmadeTrace):
    """Knows what is alike without making events, as a trace in columns does."""

    def alike(self) -> Iterator[tuple[Any, int, int]]:
        for event in self.made:
            key = event._replace(id=0, parent=None, start_ns=0, end_ns=None)
            yield key, -1 if event.parent is None else event.parent, event.duration_ns or 0


def read(digest: Digest) -> tuple[list[int], list[int], list[int], list[str]]:
    return texts_of(digest), digest.parents, digest.spent_ns, [event.code for event in digest.events()]


@pytest.mark.parametrize("name", TRACES)
def test_both_ways_of_reading_agree(name: str) -> None:
    trace = TRACES[name]
    assert read(digest_of(trace)) == read(digest_of(TellingTrace(trace.made, trace.infos)))


@pytest.mark.parametrize("name", [each for each in programs.names() if each not in programs.RAISES])
def test_a_recorded_trace_agrees_with_its_events(name: str) -> None:
    with torchglass.record() as trace:
        programs.load(name).main()
    assert isinstance(trace, TellsAlike)
    assert read(digest_of(trace)) == read(digest_of(HandmadeTrace(list(trace.events()))))


def test_equal_events_are_kept_once() -> None:
    trace = TellingTrace(TRACES["blocks"].made)
    digest = digest_of(trace)
    relus = [at for at, event in enumerate(trace.made) if event.name == "F.relu"]
    assert len({digest.alike[at] for at in relus}) == 1
    assert len(digest.samples) < len(trace)
    for at, event in enumerate(trace.made):
        assert digest.sample(at)._replace(id=0, parent=None, start_ns=0, end_ns=0) == event._replace(
            id=0, parent=None, start_ns=0, end_ns=0
        )


def test_selected_events_are_found_by_their_samples_and_a_callable_is_asked_for_each() -> None:
    trace = TellingTrace(TRACES["blocks"].made)
    digest = digest_of(trace)
    relus = [at for at, event in enumerate(trace.made) if event.name == "F.relu"]
    assert [at for at, found in enumerate(digest.matching(select(function="relu"))) if found] == relus
    late = digest.matching(select(where=lambda event: event.id > relus[-2]))
    assert [at for at, found in enumerate(late) if found] == list(range(relus[-2] + 1, len(trace)))
