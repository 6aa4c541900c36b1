"""The norms of gradients and updates over several steps, as ranges; of several parameters that of all together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import hypot, prod, sqrt
from typing import TypeVar

from torchglass.events.gradients import Leaf, Step
from torchglass.events.types import Stats, Value
from torchglass.views.row import Cell
from torchglass.views.text.statistics import alarm_word, number_word
from torchglass.views.text.words import count

GRADIENT, UPDATE, RATIO = "gradient", "update", "ratio"
"""Kinds of cells; ``mark`` is the part that is an alarm."""
Parameters = Sequence[Leaf]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Norms:
    """What is told of a module or a parameter, or of several that a row stands for."""

    gradients: tuple[float, ...]
    updates: tuple[float, ...]
    ratios: tuple[float, ...]
    alarm: str
    """What is amiss: no gradient, only zeros, NaN."""
    bad_updates: str
    """Of the updates what is not finite."""
    sampled: bool
    """Whether some updates are an estimate."""

    def cells(self) -> Iterator[Cell]:
        """Those cells that have something to say."""
        text = " ".join(filter(None, (range_of(self.gradients), self.alarm)))
        if text:
            mark = (len(text) - len(self.alarm), len(text)) if self.alarm and self.alarm != FROZEN else None
            yield Cell(GRADIENT, text, mark=mark)
        about = "≈ " if self.sampled else ""
        if self.updates or self.bad_updates:
            text = about + " ".join(filter(None, (range_of(self.updates), self.bad_updates)))
            yield Cell(UPDATE, text, mark=(len(text) - len(self.bad_updates), len(text)) if self.bad_updates else None)
        if self.ratios:
            yield Cell(RATIO, about + range_of(self.ratios))


FROZEN = "frozen"


def norms_of(several: Sequence[Parameters]) -> Norms:
    """Of one or more modules, each with its parameters: each round of each module is one norm."""
    gradients = [norm for leaves in several for norm in _together([each.gradients for each in leaves], _norm).values()]
    updates, ratios = list[float](), list[float]()
    for leaves in several:
        steps = [leaf.steps for leaf in leaves]
        moved, weights = _together(steps, _update), _together(steps, lambda step: _norm(step.weight))
        updates += moved.values()
        ratios += (norm / weights[number] for number, norm in moved.items() if weights.get(number))
    leaves = [leaf for each in several for leaf in each]
    changes = [step.update.stats for leaf in leaves for step in leaf.steps if step.update is not None]
    bad = alarm_word([each for each in changes if each is not None])
    sampled = any(map(_is_sampled, leaves))
    return Norms(tuple(gradients), tuple(updates), tuple(ratios), _alarm(leaves), bad, sampled)


def range_of(numbers: Sequence[float]) -> str:
    """``0.041 … 0.072``."""
    if not numbers:
        return ""
    first, last = number_word(min(numbers)), number_word(max(numbers))
    return first if first == last else f"{first} … {last}"


def _together(rows: Sequence[Sequence[T]], norm: Callable[[T], float | None]) -> dict[int, float]:
    """By round the norm of all parameters together; rounds that only some had count for these."""
    joined: dict[int, list[float]] = {}
    for row in rows:
        for number, each in enumerate(row):
            found = norm(each)
            if found is not None:
                joined.setdefault(number, []).append(found)
    return {number: hypot(*joined[number]) for number in sorted(joined)}


def _norm(value: Value) -> float | None:
    stats = value.stats
    if stats is None or not stats.count:
        return None
    return stats.norm if stats.finite else None


def _update(step: Step) -> float | None:
    """Of a sample, what all of it is about."""
    norm = None if step.update is None else _norm(step.update)
    if norm is None or step.update is None or step.update.stats is None:
        return None
    return norm * sqrt(max(_numbers(step.weight) / step.update.stats.count, 1))


def _numbers(value: Value) -> int:
    return prod(value.shape or (0,)) * (2 if value.dtype.startswith("complex") else 1)


def _is_sampled(leaf: Leaf) -> bool:
    measured = [(step.weight, step.update.stats) for step in leaf.steps if step.update is not None]
    return any(stats is not None and stats.count < _numbers(weight) for weight, stats in measured)


def _alarm(leaves: Parameters) -> str:
    """What is amiss with some parameters: of one in its own words, of several how many."""
    wanting = [leaf for leaf in leaves if leaf.value.requires_grad]
    if not wanting:
        return FROZEN if leaves else ""
    missed = sum(leaf.is_missed for leaf in wanting)
    stats = [[each.stats for each in leaf.gradients if each.stats is not None] for leaf in wanting]
    zero = sum(bool(each) and all(map(_is_zero, each)) for each in stats)
    some = [sum(map(_is_zero, each)) for each in stats]
    words = [alarm_word([each for several in stats for each in several])]
    if missed:
        words.append("none" if missed == len(wanting) else f"{count(missed)} of {count(len(wanting))} none")
    if zero:
        words.append("zero" if zero == len(wanting) else f"{count(zero)} of {count(len(wanting))} zero")
    elif len(wanting) == 1 and some[0]:
        words.append(f"zero in {count(some[0])} of {count(len(stats[0]))}")
    return ", ".join(filter(None, words))


def _is_zero(stats: Stats) -> bool:
    return stats.count > 0 and stats.zeros == stats.count
