"""Repeats among siblings, found once for every view that folds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from torchglass.views.nesting import split_index

LONGEST_UNIT = 64
TRIES = 4
WORTH_IT = 2


class Group(NamedTuple):
    """``times`` repeats of the ``unit`` siblings that begin at ``start``; 1 × 1 is a sibling by itself."""

    start: int
    unit: int
    times: int


def groups(marks: Sequence[int], heights: Sequence[int]) -> list[Group]:
    """Cut siblings into groups of repeats; every sibling is in exactly one.

    Equal marks are siblings that may stand for each other; ``heights`` says how many lines each would take.
    A group is made where it saves at least two lines, and of several ways the one that saves most.
    """
    following = _next_equal(marks)
    found: list[Group] = []
    at, end = 0, len(marks)
    while at < end:
        best = _best_group(marks, heights, following, at) if following[at] else Group(at, 1, 1)
        found.append(best)
        at += best.unit * best.times
    return found


def _next_equal(marks: Sequence[int]) -> list[int]:
    """For each place the next one with an equal mark; 0 where there is none."""
    seen: dict[int, int] = {}
    following = [0] * len(marks)
    for at in range(len(marks) - 1, -1, -1):
        mark = marks[at]
        following[at] = seen.get(mark, 0)
        seen[mark] = at
    return following


def _best_group(marks: Sequence[int], heights: Sequence[int], following: Sequence[int], at: int) -> Group:
    best, most = Group(at, 1, 1), WORTH_IT - 1
    again = following[at]
    for _ in range(TRIES):
        unit = again - at
        if not again or unit > LONGEST_UNIT:
            break
        times = _repeats(marks, at, unit)
        # A unit of several siblings needs a line of its own that says how often.
        saved = sum(heights[at : at + unit]) * (times - 1) - (unit > 1)
        if saved > most:
            best, most = Group(at, unit, times), saved
        again = following[again]
    return best


def _repeats(marks: Sequence[int], at: int, unit: int) -> int:
    same, last = 0, len(marks) - unit
    while at + same < last and marks[at + same] == marks[at + same + unit]:
        same += 1
    return same // unit + 1


def merge_alike(
    members: Sequence[int], children: Mapping[int, Sequence[int]], add: Callable[[int, Sequence[int]], None]
) -> None:
    """Call ``add(first, others)`` for the first of several that are alike, and so for all that is in it."""
    pending: list[Sequence[int]] = [members] if len(members) > 1 else []
    while pending:
        alike = pending.pop()
        add(alike[0], alike[1:])
        if alike[0] in children:
            pending += zip(*[children[each] for each in alike], strict=True)


def range_label(paths: Iterable[str]) -> str:
    """``blocks.0–11`` for twelve layers in a row; one path when all are the same; else the first few."""
    distinct = list(dict.fromkeys(paths))
    if len(distinct) == 1:
        return distinct[0]
    head, first = split_index(distinct[0])
    numbers = [split_index(path)[1] for path in distinct]
    if first is None or any(split_index(path)[0] != head for path in distinct):
        return ", ".join(distinct if len(distinct) <= 3 else [*distinct[:2], "…", distinct[-1]])
    if numbers == list(range(first, first + len(distinct))):
        return f"{head}{first}–{numbers[-1]}"
    rest = [str(number) for number in numbers]
    return head + ", ".join(rest if len(rest) <= 4 else [*rest[:2], "…", rest[-1]])
