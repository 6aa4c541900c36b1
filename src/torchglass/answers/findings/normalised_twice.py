"""Data is normalised twice: the same numbers are subtracted, or divided by, once more.

A data set, or a transform, has already brought the data to a mean of 0 and a deviation of 1, or to numbers between 0
and 1. The second time they become much too small, or are shifted away from 0.

    x = (x - mean) / std
    x = (x - mean) / std                                 # wrong: leave it out
    x = x / 255 / 255                                    # the same

It is only reported where the same numbers are used, and nothing but that lies in between.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.answers.findings.facts import KEEPS_NUMBERS
from torchglass.answers.findings.suspicion import LIKELY, Facts, Suspicion, seen_at

IN_PLACE = ("div_", "__itruediv__")
DIVIDES = ("div", "__truediv__", "true_divide", *IN_PLACE)
SUBTRACTS = ("sub", "__sub__", "sub_", "__isub__")
STEPS = frozenset((*DIVIDES, *SUBTRACTS))
PASSES = KEEPS_NUMBERS - {"cat", "concat", "concatenate", "stack"}
LARGEST_OF_BYTES = (255, 256)
MOST_STEPS = 6
MOST_CALLS = 20


def find(facts: Facts) -> Iterator[Suspicion]:
    for name in DIVIDES:
        for events in facts.by_name.get(name, {}).values():
            found = [(each, _same_before(facts, each)) for each in events[:MOST_CALLS]]
            twice = [(event, earlier) for event, earlier in found if earlier is not None]
            if not twice:
                continue
            event, earlier = twice[0]
            yield Suspicion(
                severity=LIKELY,
                event=event,
                text=f"{facts.code(event)} normalises what was normalised by the same numbers before",
                evidence=(seen_at(facts, f"the first time: {facts.code(earlier)}", earlier),),
                fix="normalise once",
                times=len(twice),
            )


def _same_before(facts: Facts, event: int) -> int | None:
    """Return an earlier division by the same thing, with nothing but a subtraction in between."""
    by = _by_what(facts, event)
    if facts.name(event) in IN_PLACE:
        return None  # changes-the-data reports that
    if by is None or facts.takes[event][0] in facts.carries_gradient:
        return None
    is_plain = len(facts.takes[event]) == 1
    if is_plain and by[0] not in LARGEST_OF_BYTES:
        return None
    value = facts.takes[event][0]
    has_subtracted = False
    for _ in range(MOST_STEPS):
        source, maker = next(facts.sources(value, PASSES), (value, None))
        if maker is None or facts.name(maker) not in STEPS or source in facts.carries_gradient:
            return None
        if facts.name(maker) in DIVIDES:
            is_same = _by_what(facts, maker) == by and (is_plain or has_subtracted)
            return maker if is_same else None
        has_subtracted = True
        value = facts.takes[maker][0]
    return None


def _by_what(facts: Facts, event: int) -> tuple[object, tuple[int, ...]] | None:
    """Return the number, or the memory and the shape of the tensor, that a call divides by."""
    taken = facts.takes[event]
    if not taken:
        return None
    if len(taken) == 2:
        if facts.storage(taken[1]) < 0:
            return None
        return (facts.storage(taken[1]), facts.shape(taken[1]))
    for each in (*facts.arguments(event).positional, *facts.arguments(event).named.values()):
        if isinstance(each, int | float):
            return (each, ())
    return None
