"""How often something ran in the whole run: in the events that were kept and in those that were dropped.

What is known of dropped events is how many there were of each *call site*: a callee, called from one stack::

    kept       loss.backward() 40 times     dropped    loss.backward() 960 times, all of them counted
    times(event, 40) → 1000                 which(the first kept event after the gap) → 961
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from torchglass.events.missing import Missing, is_gap, missing_of
from torchglass.events.types import Event
from torchglass.program.dedup import DistinctEvents

_CallSite = tuple[str, int]
"""The name of what was called, and the ``id`` of the stack. A trace has each stack once."""


class Totals:
    """Counts of events by call site."""

    def __init__(self, distinct: DistinctEvents, left_out: Sequence[int]) -> None:
        """Count. ``left_out`` has 1 for each event that views leave out, and else 0."""
        self._distinct = distinct
        self._gaps: dict[int, Missing] = {
            event: missing_of(distinct.samples[alike])
            for event, alike in enumerate(distinct.alike)
            if is_gap(distinct.samples[alike])
        }
        """By the event of a gap, what is known of it."""
        self._shown: Counter[_CallSite] = Counter()
        """Kept events that views do not leave out."""
        self._kept: Counter[_CallSite] = Counter()
        """Kept events."""
        self._all: Counter[_CallSite] = Counter()
        """Kept and dropped events."""
        all_are_counted = all(missing.is_complete for missing in self._gaps.values())
        self.is_needed = bool(self._gaps) and all_are_counted
        """Whether events were dropped, and all of them were counted."""
        if not self.is_needed:
            return
        kept = Counter(distinct.alike)
        columns = zip(distinct.alike, left_out, strict=True)
        shown = Counter(alike for alike, is_left_out in columns if not is_left_out)
        for alike, sample in enumerate(distinct.samples):
            site = _call_site(sample)
            self._kept[site] += kept[alike]
            self._all[site] += kept[alike] + distinct.dropped[alike]
            self._shown[site] += shown[alike]

    def times(self, event: int, kept: int) -> int:
        """Return how often something happened that happened ``kept`` times in kept events, first in ``event``.

        If these are all kept events of their call site, the dropped ones of that site happened too. If they are only
        some, it is not known how many of the dropped ones were alike, so the answer is ``kept``.
        """
        site = self._site_of(event)
        if self.is_needed and self._kept[site] == kept:
            return self._all[site]
        return kept

    def which(self, event: int) -> int:
        """Return which of all events of its call site an event is, from 1."""
        return self._numbers([event])[0]

    def numbers(self, events: Sequence[int]) -> list[int] | None:
        """Return which of all events of their call site some events are, from 1.

        Return None if nothing was dropped, if it was not counted, or if they are of several call sites.
        """
        if not self.is_needed or not events:
            return None
        site = self._site_of(events[0])
        if any(self._site_of(event) != site for event in events):
            return None
        return self._numbers(events)

    def _numbers(self, events: Sequence[int]) -> list[int]:
        """Return which of all events of their call site some events of one call site are, from 1."""
        site = self._site_of(events[0])
        is_of_site = [_call_site(sample) == site for sample in self._distinct.samples]
        alike = self._distinct.alike
        dropped = {
            gap: sum(
                number
                for distance, number in missing.alike_by_distance.items()
                if 0 <= gap + distance < len(alike) and is_of_site[alike[gap + distance]]
            )
            for gap, missing in self._gaps.items()
        }
        counted = list(
            accumulate(
                is_of_site[each] + dropped.get(event, 0)
                for event, each in enumerate(alike[: max(events) + 1])
            )
        )
        return [counted[event] for event in events]

    def all_like(self, event: int) -> int:
        """Return how often the whole run has the call site of an event, as far as it was counted."""
        return self._all[self._site_of(event)]

    def of(self, events: Iterable[int], times: int) -> int | None:
        """Return how often an item happened in the whole run that is shown as ``times`` times.

        ``events`` are those in the item. The answer is the total of one whose call site is shown just as often, or None
        if there is no such event.
        """
        for event in events:
            site = self._site_of(event)
            if self._shown[site] == times:
                return self._all[site]
        return None

    def _site_of(self, event: int) -> _CallSite:
        return _call_site(self._distinct.sample(event))


def _call_site(event: Event) -> _CallSite:
    return event.name, id(event.stack)
