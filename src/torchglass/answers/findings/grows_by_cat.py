"""A tensor grows by `torch.cat` in a loop: each iteration copies all that there was.

    outputs = torch.cat([outputs, y])                    # n iterations copy n * n / 2 entries

Append to a list and join once at the end. For a few iterations, or a cache of keys and values, it does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.suspicion import HINT, Facts, Suspicion

ENOUGH = 16


def find(facts: Facts) -> Iterator[Suspicion]:
    at_line: dict[tuple[str, int], list[int]] = {}
    for looks in (facts.by_name.get("cat", {}), facts.by_name.get("concat", {})):
        for events in looks.values():
            location = facts.location(events[0])
            if location is not None and facts.is_written(events[0]):
                at_line.setdefault((location.file, location.line), []).extend(events)
    for events in at_line.values():
        events.sort()
        given = {value for event in events for value in facts.gives[event]}
        grown = [event for event in events if not given.isdisjoint(facts.takes[event])]
        if len(grown) < ENOUGH:
            continue
        yield Suspicion(
            severity=HINT,
            event=events[0],
            text=f"{facts.code(events[0])} copies everything in each of {facts.times(grown)} iterations",
            fix="append to a list, and torch.cat(list) once after the loop",
            times=len(grown),
        )
