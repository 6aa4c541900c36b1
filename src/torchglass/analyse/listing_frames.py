"""Every line of the program that a step ran below, as a tree of frames."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.analyse.listing_statements import Range
from torchglass.analyse.looks import TellsAlike
from torchglass.analyse.source import Recorded
from torchglass.events.selection import Selection
from torchglass.events.types import Event, Location


@dataclass(slots=True)
class Look:
    """Events that look the same: the first of them, how many, and how long they took."""

    event: Event
    count: int
    spent_ns: int
    last: int
    """The id of the last of them."""
    in_module: bool = True
    """Whether all of them ran inside the call of a module."""


def looks_in(trace: Recorded) -> list[Look]:
    """All steps of a trace; aten ops only where no functions were recorded, since they tell the same again."""
    looks = _all_looks(trace)
    if any(look.event.kind == "function" for look in looks):
        return [look for look in looks if look.event.kind != "op"]
    return looks


def selected(trace: Recorded, looks: list[Look], only: Selection | None) -> list[Look]:
    """The steps that are meant. A callable is asked for each event: alike events may differ in what it looks at."""
    if only is None:
        return looks
    if only.where is None:
        return [look for look in looks if only.matches(look.event)]
    kinds = {look.event.kind for look in looks}
    chosen = (event for event in trace.events() if event.kind in kinds and only.matches(event))
    return [Look(event, 1, event.duration_ns or 0, event.id) for event in chosen]


def _all_looks(trace: Recorded) -> list[Look]:
    found: dict[Hashable, Look] = {}
    inside = bytearray()
    """For each event: 1 in a module's call, 2 when it is such a call itself."""
    for number, (key, parent, spent) in enumerate(_keys(trace)):
        look = found.get(key)
        if look is None:
            look = found[key] = Look(trace.event(number), 0, 0, 0)
        around = parent >= 0 and inside[parent] > 0
        inside.append(2 if look.event.kind == "module" else around)
        look.count += 1
        look.spent_ns += spent
        look.last = number
        look.in_module = look.in_module and around
    return list(found.values())


def _keys(trace: Recorded) -> Iterable[tuple[Hashable, int, int]]:
    if isinstance(trace, TellsAlike):
        return trace.alike()
    return (
        (event.id, -1 if event.parent is None else event.parent, event.duration_ns or 0) for event in trace.events()
    )


# ---------------------------------------------------------------- frames


class Place(NamedTuple):
    """One instruction of the program."""

    file: str
    function: str
    where: Range


@dataclass(slots=True)
class Frame:
    """A place under the calls that led to it; loops come to the same frame again."""

    number: int
    parent: int
    """-1: none."""
    place: Place
    called: bool
    """Whether the parent's expression may have made the call itself: no frame of torch lies between."""
    source: str
    looks: list[Look] = field(default_factory=list[Look])
    """The selected steps that have it as their innermost frame of the program."""
    children: list[int] = field(default_factory=list[int])
    in_module: bool = True
    """Whether every step below it ran inside a module's call."""
    calls_module: bool = False
    live: bool = False
    """Whether a selected step is in it or below it."""
    unproven: bool = False
    """The file's text is not that of this code."""


def frames_of(looks: Iterable[Look], chosen: Iterable[Look]) -> list[Frame]:
    """The tree of frames, parents before children; frames of torch and the standard library are left out.

    Every step has its frames, but only the ``chosen`` ones are kept with them.
    """
    tree = _Tree()
    for look in looks:
        number, event = tree.number(look.event), look.event
        if number >= 0:
            frame = tree.frames[number]
            frame.source = frame.source or (event.location.source if event.location else "")
            frame.calls_module = frame.calls_module or event.kind == "module"
            if not look.in_module:
                _note_outside(number, tree.frames)
    for look in chosen:
        number = tree.number(look.event)
        if number >= 0:
            tree.frames[number].looks.append(look)
        while number >= 0 and not tree.frames[number].live:
            tree.frames[number].live = True
            number = tree.frames[number].parent
    return tree.frames


class _Tree:
    """The frames found so far; stacks and places that are the same object are known without reading them."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._known: dict[tuple[int, int, bool], int] = {}
        self._stacks: dict[int, tuple[int, tuple[Location, ...]]] = {}
        self._places: dict[int, tuple[int, Location]] = {}
        self._numbers: dict[Place, int] = {}

    def number(self, event: Event) -> int:
        """The innermost frame of an event; -1: it has none in the program."""
        stack = event.stack or ((event.location,) if event.location else ())
        found = self._stacks.get(id(stack))
        if found is None:
            # The stack is kept with its number, so that its id stays its own.
            found = self._stacks[id(stack)] = (self._add(stack), stack)
        return found[0]

    def _add(self, stack: tuple[Location, ...]) -> int:
        number, called = -1, True
        for at in stack:
            if at.origin != "user":
                called = False
                continue
            key = (number, self._place(at), called)
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = len(self.frames)
                self.frames.append(Frame(found, number, _place_of(at), called, at.source))
                if number >= 0:
                    self.frames[number].children.append(found)
            number, called = found, True
        return number

    def _place(self, at: Location) -> int:
        """Locations may be equal but for their source text, which is not read for all."""
        found = self._places.get(id(at))
        if found is None:
            number = self._numbers.setdefault(_place_of(at), len(self._numbers))
            found = self._places[id(at)] = (number, at)
        return found[0]


def _place_of(at: Location) -> Place:
    return Place(at.file, at.function, Range(at.line, at.end_line, at.col, at.end_col))


def _note_outside(number: int, frames: list[Frame]) -> None:
    """A frame that steps outside any module have may be one that is still running."""
    while number >= 0 and frames[number].in_module:
        frames[number].in_module = False
        number = frames[number].parent


def last_made(frame: Frame) -> list[Look]:
    """The steps that its expression made itself; of several in a row (``x[0] += 1``) the last."""
    direct = [look for look in frame.looks if look.event.direct or _unpacks(look.event) or _made_here(look.event)]
    if not direct:
        return []
    last = max(direct, key=lambda look: look.last).event
    return [look for look in direct if (look.event.kind, look.event.name) == (last.kind, last.name)]


def _unpacks(event: Event) -> bool:
    """``a, b = tensor``: torch iterates, and the step stands at the targets."""
    return event.name == "Tensor.unbind" and bool(event.stack) and event.stack[-1].function == "Tensor.__iter__"


def _made_here(event: Event) -> bool:
    """Where the text is not known it is not known what was written; but no frame of torch lies between."""
    return not event.code and bool(event.stack) and event.stack[-1].origin == "user"


def is_nested(frame: Frame) -> bool:
    """A comprehension or a lambda: a frame of its own inside a statement."""
    name = frame.place.function.rpartition(".")[2]
    return name.startswith("<") and name != "<module>"


def is_lambda(frame: Frame) -> bool:
    """A function written inside a statement: it runs when it is called."""
    return frame.place.function.rpartition(".")[2] == "<lambda>"
