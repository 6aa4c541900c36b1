"""Helpers for detectors that look at numbers, which need ``record(values="stats")``."""

from __future__ import annotations

from collections import defaultdict

from torchglass.answers.findings.facts import Facts
from torchglass.events.types import Stats

ENOUGH_CALLS = 3
"""In this many calls something must be seen before it is reported, so that a single accident is
not.
"""


def calls_by_place(facts: Facts, *names: str) -> list[list[int]]:
    """Return the calls of functions, grouped by the module and the stack from which they are made."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for name in names:
        for look, events in facts.by_name.get(name, {}).items():
            for event in events:
                found[facts.tables.module[event], look[0]].append(event)
    return [sorted(events) for events in found.values()]


def measured(facts: Facts, values: list[int]) -> list[Stats]:
    """Return the statistics of the values that were measured and are not empty."""
    found = [facts.stats(value) for value in values]
    return [each for each in found if each is not None and each.count > 0]


def place_word(facts: Facts, event: int) -> str:
    """Return the path of the module around an event, or the event's expression if there is none."""
    around = facts.module_around(event)
    if around is None:
        return facts.code(event)
    record = facts.event(around)
    return ".".join(filter(None, (record.root, record.module)))
