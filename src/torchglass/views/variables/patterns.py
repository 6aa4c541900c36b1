"""Rows of changes: one for each, or one for several that are alike, with repeats found among siblings."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from torchglass.views.fold import groups
from torchglass.views.variables.changes import NOTHING, NUMBER, Change
from torchglass.views.variables.origins import NO_STORY, Story

Node = TypeVar("Node")


@dataclass(slots=True)
class Changes:
    """What is shown as one row: a change of a variable, or several alike."""

    depth: int
    changes: list[Change]
    """All that it stands for, in order."""
    stories: list[Story]
    times: int = 1
    """How often it happened in a row; what it is in may repeat too."""

    @property
    def first(self) -> Change:
        return self.changes[0]


@dataclass(slots=True)
class Repeat:
    """A line above rows that repeat together."""

    depth: int
    times: int
    rows: int


@dataclass(slots=True)
class Patterns:
    """One number for each pattern of a change, equal for those that may share a row."""

    stories: dict[int, Story]
    """By the id of the change."""
    _known: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _places: dict[int, int] = field(default_factory=dict[int, int])

    def of(self, change: Change) -> int:
        """A first value looks like one that came after an equal one: the first turn of a loop is no exception."""
        new, story = change.new.form, self.stories.get(change.id, NO_STORY)
        old = new if change.old.kind == NOTHING else change.old.form
        event = change.event
        place = self._places.get(id(event))
        if place is None:
            at = change.at
            words = (event.name, change.how, at.file, at.line, at.col, event.code)
            place = self._places[id(event)] = self.number(words)  # the change keeps the event, and so its id
        return self.number((place, old, new, story.number))

    def number(self, key: Hashable) -> int:
        return self._known.setdefault(key, len(self._known))


def fold_columns(
    columns: Sequence[list[Node]], pattern: Callable[[Node], int], height: Callable[[Node], int]
) -> list[tuple[int, list[list[Node]]]]:
    """Siblings in groups: how often, and the columns that repeat together. A column is several that stand for one,
    the n-th of each in what is the n-th around them; columns of a group may repeat among themselves.
    """
    found: list[tuple[int, list[list[Node]]]] = []
    patterns, heights = [pattern(column[0]) for column in columns], [height(column[0]) for column in columns]
    for start, unit, times in groups(patterns, heights):
        own = columns[start : start + unit * times]
        found.append((times, [_joined(own[offset::unit]) for offset in range(unit)]))
    return found


def _joined(columns: Sequence[list[Node]]) -> list[Node]:
    """In the order in which they happened."""
    return columns[0] if len(columns) == 1 else [each for row in zip(*columns, strict=True) for each in row]


def height_of(change: Change) -> int:
    """Two numbers in a row may share a line already, since it tells both; two tensors only from the third on."""
    return 2 if change.new.form == NUMBER else 1


def rows_of(columns: Sequence[list[Change]], patterns: Patterns, fold: bool, depth: int = 0) -> list[Changes | Repeat]:
    """The rows of one life, or of several that are alike: the n-th column has the n-th change of each."""
    if not fold:
        return [_row(column, patterns, depth) for column in columns]
    rows: list[Changes | Repeat] = []
    for times, members in fold_columns(columns, patterns.of, height_of):
        if len(members) > 1:
            rows.append(Repeat(depth, times, len(members)))
            rows += rows_of(members, patterns, fold, depth + 1)
        else:
            rows.append(_row(members[0], patterns, depth, times))
    return rows


def _row(changes: list[Change], patterns: Patterns, depth: int, times: int = 1) -> Changes:
    return Changes(depth, changes, [patterns.stories.get(change.id, NO_STORY) for change in changes], times)
