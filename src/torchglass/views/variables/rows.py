"""The row of a change of a variable, or of several at one place."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchglass.program.variables.changes import Change
from torchglass.program.variables.origins import Story
from torchglass.views.row import Row


@dataclass(slots=True)
class Changes(Row):
    """A change of a variable, or several at one place; the view says it in cells when it knows what is around them."""

    changes: list[Change] = field(default_factory=list[Change])
    """All that it stands for, in order."""
    stories: list[Story] = field(default_factory=list[Story])

    @property
    def first(self) -> Change:
        return self.changes[0]
