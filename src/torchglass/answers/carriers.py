"""Finds the events that take or give bad values.

It reads whole columns, because a long run has millions of events that do neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from torchglass.events.gradients import OVERFLOW_CHECK
from torchglass.events.schema import NONE
from torchglass.events.tables import Tables, form_sizes
from torchglass.events.types import Stats


class Carriers:
    """The bad values of a trace, and the events that they went through."""

    def __init__(self, tables: Tables, test: Callable[[Stats], bool], is_nonfinite: bool) -> None:
        self._tables = tables
        self._counts = form_sizes(tables)
        if is_nonfinite:
            self._is_bad = _nonfinite(tables)
        else:
            self._is_bad = _matching(tables, test)
        self.numbers = self._find()
        """The events that take or give a bad value, in the order in which they began."""

    def in_order_of_end(self) -> list[int]:
        """Return these events, and the checks of a GradScaler, in the order in which they ended.

        Events that did not end, changes of variables and marks are left out.
        """
        is_computed = [callee.kind not in ("variable", "mark") for callee in self._tables.callees]
        ends = self._tables.end_ns
        ended: list[int] = []
        for number in {*self.numbers, *self._checks()}:
            if ends[number] != NONE and is_computed[self._tables.callee[number]]:
                ended.append(number)
        return sorted(ended, key=lambda number: (ends[number], -number))

    def ended_after(self, since: int, event: int) -> list[int]:
        """Return these events, except ``event``, as far as they ended after the time ``since``."""
        ends = self._tables.end_ns
        return [
            number for number in self.in_order_of_end() if ends[number] > since and number != event
        ]

    def taken(self, number: int) -> list[int]:
        """Return the bad values that an event took."""
        tables = self._tables
        first = tables.first_io[number]
        values = tables.io[first : first + self._counts[tables.args[number]]]
        return [value for value in values if self._is_bad[value]]

    def given(self, number: int) -> list[int]:
        """Return the bad values that an event gave."""
        tables = self._tables
        first = tables.first_io[number] + self._counts[tables.args[number]]
        values = tables.io[first : first + self._counts[tables.result[number]]]
        return [value for value in values if self._is_bad[value]]

    def _checks(self) -> list[int]:
        """Return the events in which a GradScaler looked for overflows."""
        checks: set[int] = set()
        for number, callee in enumerate(self._tables.callees):
            if OVERFLOW_CHECK in callee.name:
                checks.add(number)
        if not checks:
            return []
        return [event for event, callee in enumerate(self._tables.callee) if callee in checks]

    def _find(self) -> list[int]:
        """Return the events with a bad value among their inputs and outputs."""
        tables = self._tables
        is_bad = bytes(map(self._is_bad.__getitem__, tables.io))
        first_io = tables.first_io
        events: list[int] = []
        index = is_bad.find(1)
        while index >= 0:
            event = bisect_right(first_io, index) - 1
            events.append(event)
            next_event = len(is_bad)
            if event + 1 < len(first_io):
                next_event = first_io[event + 1]
            index = is_bad.find(1, next_event)
        return events


def _nonfinite(tables: Tables) -> bytearray:
    """Return by value whether a number in it is NaN or infinite."""
    is_bad = bytearray(len(tables.value_meta))
    for column in (tables.value_nan, tables.value_posinf, tables.value_neginf):
        for value, count in enumerate(column):
            if count > 0:
                is_bad[value] = 1
    return is_bad


def _matching(tables: Tables, test: Callable[[Stats], bool]) -> bytearray:
    """Return by value whether the test holds for its statistics."""
    is_bad = bytearray(len(tables.value_meta))
    for value in range(len(is_bad)):
        stats = tables.stats(value)
        if stats is not None and test(stats):
            is_bad[value] = 1
    return is_bad
