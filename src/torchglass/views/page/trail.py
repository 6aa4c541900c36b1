"""Computes the trail of the first bad value: what made it, the last good value before it, and
everything it reached.
"""

# Views may use the tables of a trace, which are private to users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchglass.answers.bad_story import FirstBad
from torchglass.program.flow import DataFlow
from torchglass.program.recorded import HasTables, Recorded
from torchglass.views.page.columns import differences
from torchglass.views.text.cells import expression_of
from torchglass.views.text.words import clean, count, tensor_word

Counts = tuple[int, int, int]
"""How many numbers are NaN, +Inf and −Inf."""
_WORDS = ("NaN", "+Inf", "−Inf")


def trail_data(bad: FirstBad | None, places: Mapping[int, int]) -> dict[str, Any] | None:
    """Return the events and the values on the trail. Values are given by their places in the page."""
    if bad is None:
        return None
    reached = sorted(places[value] for value in bad.reached if value in places)
    return {
        "event": bad.event.id,
        "after": differences(sorted(bad.after)),
        "values": differences(reached),
    }


def last_good(trace: Recorded, bad: FirstBad) -> dict[str, Any] | None:
    """Return the last good value: of the good inputs of the event that made the bad value, the one
    made last.
    """
    good = [
        value
        for value in bad.event.inputs
        if value.producer is not None and value.stats is not None and value.id not in bad.reached
    ]
    if not good:
        return None
    value = max(good, key=lambda value: value.producer or 0)
    made = trace.event(value.producer or 0)
    while not made.direct and made.parent is not None:  # find the call that the program made
        around = trace.event(made.parent)
        if all(each.id != value.id for each in around.outputs):
            break
        made = around
    if made.code:
        written = expression_of(made, made.module or "")
    else:
        written = clean(made.name)
    return {"text": f"Last good value: {tensor_word(value)} from {written}", "event": made.id}


class NonFinite:
    """The values of a trace that are not finite, and which of them are on the trail."""

    def __init__(self, trace: Recorded, flow: DataFlow, bad: FirstBad | None) -> None:
        self._gives = flow.recorded_gives
        if trace.measured and isinstance(trace, HasTables):
            self._tables = trace._tables
        else:
            self._tables = None
        self.reached: frozenset[int] = frozenset() if bad is None else bad.reached

    def counts(self, event: int) -> Counts:
        """Return how many numbers in the outputs of an event are not finite."""
        tables = self._tables
        if tables is None:
            return 0, 0, 0
        given = self._gives[event]
        columns = (tables.value_nan, tables.value_posinf, tables.value_neginf)
        nan, above, below = (sum(max(column[value], 0) for value in given) for column in columns)
        return nan, above, below

    def is_reached(self, event: int) -> bool:
        """Return whether an output of an event is on the trail."""
        return bool(self.reached) and not self.reached.isdisjoint(self._gives[event])

    def is_reached_at(self, events: Sequence[int], value: int) -> bool:
        """Return whether a value is on the trail, or an output at its position in another event of
        the same box.
        """
        if not self.reached:
            return False
        if value in self.reached or not events or value not in self._gives[events[0]]:
            return value in self.reached
        at = self._gives[events[0]].index(value)
        return any(
            at < len(given) and given[at] in self.reached
            for given in map(self._gives.__getitem__, events)
        )

    def alarm(self, events: Sequence[int], value: int) -> str | None:
        """Return how many numbers of a value are not finite, counted over all events that gave it
        at the same position.

        Return None if the trace has no tables or no statistics. Reading tables takes a hundredth of
        the time of making events.
        """
        tables = self._tables
        if tables is None:
            return None
        values = [value]
        if events and value in self._gives[events[0]]:
            at = self._gives[events[0]].index(value)
            values = [
                given[at] for given in map(self._gives.__getitem__, events) if at < len(given)
            ]
        columns = (tables.value_nan, tables.value_posinf, tables.value_neginf)
        totals = [sum(max(column[each], 0) for each in values) for column in columns]
        return counts_word([(totals[0], totals[1], totals[2])])


def counts_word(several: Iterable[Counts]) -> str:
    """Return the sum of counts as text, such as ``4 NaN, 1 −Inf``, or "" if all are zero."""
    totals = [sum(column) for column in zip(*several, strict=True)]
    return ", ".join(
        f"{count(total)} {word}" for total, word in zip(totals, _WORDS, strict=False) if total
    )
