"""Rows of changes: what is shown as one, and which changes may share a row."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from torchglass.views.levels import Level
from torchglass.views.variables.changes import NOTHING, Call, Change
from torchglass.views.variables.origins import NO_STORY, Story


@dataclass(slots=True)
class Changes:
    """What is shown as one row: a change of a variable, or several at one place."""

    depth: int
    changes: list[Change]
    """All that it stands for, in order."""
    stories: list[Story]
    often: str = ""
    """How often it happened in what is around it: ``× 4``."""
    rounds: str = ""
    """In which rounds or calls, where not in all."""

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
class LoopRow:
    """A line above the rows of one round."""

    depth: int
    loops: list[Level]
    rounds: str = ""


@dataclass(slots=True)
class CallRow:
    """A function was called: the rows below it happened inside."""

    depth: int
    calls: list[Call]
    often: str = ""
    rounds: str = ""


@dataclass(slots=True)
class OtherThread:
    """What follows happened in another thread."""

    name: str
    depth: int = 0


AnyRow = Changes | Repeat | LoopRow | CallRow | OtherThread


@dataclass(slots=True)
class Patterns:
    """One number for each pattern of a change, equal for those of which the same is said."""

    stories: dict[tuple[int, str], Story]
    """By the key of the change."""
    _known: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _places: dict[int, int] = field(default_factory=dict[int, int])

    def of(self, change: Change) -> int:
        """A first value looks like one that came after an equal one: the first round of a loop is no exception."""
        new = change.new.form
        old = new if change.old.kind == NOTHING else change.old.form
        return self._number((self.place_of(change), old, new, self.story_of(change).number))

    def place_of(self, change: Change) -> int:
        """Equal for changes of one variable at one place of the code."""
        event = change.event
        place = self._places.get(id(event))
        if place is None:
            at = change.at
            words = (event.name, change.how, at.file, at.line, at.col, event.code)
            place = self._places[id(event)] = self._number(words)  # the change keeps the event, and so its id
        return place

    def story_of(self, change: Change) -> Story:
        """Where its value comes from."""
        return self.stories.get(change.key, NO_STORY)

    def _number(self, key: Hashable) -> int:
        return self._known.setdefault(key, len(self._known))
