"""Lines while the program runs: which steps are worth printing, and when all that they need is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.types import Event
from torchglass.views.nesting import called_by_torch, is_inner, relative_path


class LiveStep(NamedTuple):
    """Something to print: the ``head`` of a call that others are in, its ``tail``, or a ``whole`` call."""

    part: str
    event: Event
    depth: int
    name: str


@dataclass(slots=True)
class _Open:
    event: Event
    parent: _Open | None
    shown: bool
    depth: int
    name: str
    begun: bool = False
    container: bool = False
    held: _Open | None = None
    """For a call that may turn out to be torch's own business: the module that will tell."""
    waiting: list[LiveStep] = field(default_factory=list[LiveStep])


class LiveSteps:
    """Turns the two edges of events into steps to print.

    Whether a call has others in it is not known when it opens: its head is held back until the first step
    in it opens, or until it closes. What torch calls in a module is held back until a module is called in it
    (then it is a container, and these are its own steps), and forgotten when none is: no ``F.linear`` under
    a Linear.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}

    def feed(self, event: Event, edge: str) -> list[LiveStep]:
        """The steps that can be printed now; ``edge`` is ``open`` or ``close``."""
        return self._opened(event) if edge == "open" else self._closed(event)

    def _opened(self, event: Event) -> list[LiveStep]:
        parent = None if event.parent is None else self._open.get(event.parent)
        entry = _Open(event, parent, True, 0, "")
        self._open[event.id] = entry
        around = _nearest(parent, lambda each: each.event.kind == "module")
        if event.kind == "module":
            entry.name = relative_path(event, around.event if around else None)
        if is_inner(event, parent and parent.event, parent is not None and not parent.container):
            entry.shown = False
            if parent is not None and parent.event.kind == "module" and parent.shown and called_by_torch(event):
                entry.held = parent
        above = _nearest(parent, lambda each: each.shown or each.held is not None)
        entry.depth = above.depth + 1 if above else 0
        if not entry.shown:
            return []
        return self._make_known(around if event.kind == "module" else None) + _begin(above)

    def _make_known(self, container: _Open | None) -> list[LiveStep]:
        """A module is called inside another, which so is a container: what was held back for it may go."""
        if container is None or container.container:
            return []
        container.container = True
        steps = _begin(container) + container.waiting
        container.waiting = []
        for entry in list(self._open.values()):
            if entry.held is container:
                entry.held, entry.shown = None, True
        return steps

    def _closed(self, event: Event) -> list[LiveStep]:
        entry = self._open.pop(event.id, None)
        if entry is None:
            return []
        step = LiveStep("tail" if entry.begun else "whole", event, entry.depth, entry.name)
        if entry.held is not None:
            entry.held.waiting.append(step)
        return [step] if entry.shown else []


def _begin(entry: _Open | None) -> list[LiveStep]:
    """Heads of all calls under way that have none yet, outermost first."""
    steps: list[LiveStep] = []
    while entry is not None and not entry.begun:
        if entry.shown:
            entry.begun = True
            steps.append(LiveStep("head", entry.event, entry.depth, entry.name))
        entry = entry.parent
    return steps[::-1]


def _nearest(entry: _Open | None, wanted: Callable[[_Open], bool]) -> _Open | None:
    while entry is not None and not wanted(entry):
        entry = entry.parent
    return entry
