"""Finds when something happened: in which iterations of which loops, and how its inputs changed before that."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from torchglass.answers.finding import Evidence
from torchglass.events.schema import NONE
from torchglass.events.types import Event, Stats
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded, tables_of
from torchglass.views.text.scopes import loop_word
from torchglass.views.text.tensors import number_word
from torchglass.views.text.words import count

MAX_EARLIER_CALLS = 3
"""Earlier calls at the same place that are shown."""
MAX_EVENTS_SEARCHED = 100_000
"""Events that are searched for such calls; a tenth of a second."""
MIN_CHANGE = 0.01
"""The smallest change of a number, relative to its size, that is shown."""


def iterations_of(trace: Recorded, event: Event) -> Iterator[Evidence]:
    """Yield a line for each loop around an event that had several iterations, outermost first."""
    tree = program_of(trace).tree
    for iteration in tree.iterations(event.id):
        loop = tree.parent[iteration]
        known = tree.count(loop)
        if known.number < 2 or tree.loops[loop].is_over_layers:
            continue
        total = count(known.number)
        number = count(tree.number(iteration) + 1)
        text = f"in: {loop_word(tree, loop)}"
        if known.exact:
            text = f"in iteration {number} of {total}: {loop_word(tree, loop)}"
        elif known.at_least:
            text = f"in iteration {number} or later, of at least {total}: {loop_word(tree, loop)}"
        yield Evidence(text, tree.first(iteration), kind="when")


def history_of(trace: Recorded, event: Event) -> Iterator[Evidence]:
    """Yield how the input that changed most was in earlier calls at the same place, if one changed."""
    earlier = _earlier_calls(trace, event)
    largest_change = MIN_CHANGE
    text = ""
    for index, value in enumerate(event.inputs):
        before = [each.inputs[index].stats for each in earlier if index < len(each.inputs)]
        known = [stats for stats in (*before, value.stats) if stats is not None and stats.count]
        if len(known) < 2:
            continue
        name = value.role
        if len(event.operands) == len(event.inputs) and event.operands[index]:
            name = event.operands[index]
        for word, numbers in _ends(known):
            change = _relative_change(numbers)
            if change > largest_change:
                largest_change = change
                row = " → ".join(map(number_word, numbers))
                text = f"{name} had {word} {row} in the last {len(numbers)} calls"
    if text:
        yield Evidence(text, event.id, kind="before")


def _ends(several: list[Stats]) -> Iterator[tuple[str, list[float]]]:
    """Yield the minima and the maxima of several values, each with its word, if all are finite."""
    lowest = [stats.min for stats in several]
    highest = [stats.max for stats in several]
    for word, numbers in (("min", lowest), ("max", highest)):
        if all(map(isfinite, numbers)):
            yield word, numbers


def _relative_change(numbers: list[float]) -> float:
    largest = max(map(abs, numbers))
    if largest:
        return (max(numbers) - min(numbers)) / largest
    return 0.0


def _earlier_calls(trace: Recorded, event: Event) -> list[Event]:
    """Return the last calls of the same function at the same place, oldest first, up to where events were dropped."""
    tables = tables_of(trace)
    first = max(event.id - MAX_EVENTS_SEARCHED, 0)
    for gap in tables.gaps():
        if gap < event.id:
            first = max(first, gap)
    what = tables.callee[event.id]
    stack = tables.stack[event.id]
    module = tables.module[event.id]
    calls: list[int] = []
    for number in range(event.id - 1, first - 1, -1):
        is_same_call = (
            tables.callee[number] == what
            and tables.stack[number] == stack
            and tables.module[number] == module
        )
        if is_same_call and tables.end_ns[number] != NONE:
            calls.append(number)
            if len(calls) == MAX_EARLIER_CALLS:
                break
    return list(map(trace.event, reversed(calls)))
