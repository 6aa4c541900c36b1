"""Events that look the same, kept once: what laying out a big trace needs in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from torchglass.analyse.nesting import called_by_torch
from torchglass.events.selection import Selection
from torchglass.events.types import Event, Value

Key = tuple[object, ...]


@dataclass(slots=True)
class Looks:
    """One entry for each event of a trace, in order.

    Programs repeat themselves: a hundred thousand events are a few hundred looks. Keeping one event for each
    look, and small numbers for the rest, spares the garbage collector a million objects.
    """

    events: list[Event] = field(default_factory=list[Event])
    """An event that looks like it: all but its id, parent, times and values are its own."""
    look: list[int] = field(default_factory=list[int])
    """Equal for equal looks."""
    parents: list[int] = field(default_factory=list[int])
    """-1: none."""
    spent_ns: list[int] = field(default_factory=list[int])
    matched: bytearray | None = None
    """Which of them are selected; None when all are."""


def looks_of(events: Iterable[Event], only: Selection | None) -> Looks:
    """Read a trace once."""
    looks = Looks(matched=None if only is None else bytearray())
    known: dict[Key, tuple[int, Event]] = {}
    for event in events:
        key = _key(event)
        found = known.get(key)
        if found is None:
            found = known[key] = (len(known), event)
        looks.look.append(found[0])
        looks.events.append(found[1])
        looks.parents.append(-1 if event.parent is None else event.parent)
        looks.spent_ns.append(event.duration_ns or 0)
        if only is not None and looks.matched is not None:
            looks.matched.append(only.matches(event))
    return looks


shape_key: Callable[[Value], Key] = attrgetter("shape", "dtype", "device", "layout")
"""All that is shown of a tensor."""


def _key(event: Event) -> Key:
    """All that is shown of an event."""
    location = event.location
    return (
        event.name,
        event.code,
        None if location is None else (location.line, location.col, location.file),
        tuple(map(shape_key, event.inputs)),
        tuple(map(shape_key, event.outputs)) or event.result,
        event.kind,
        event.target,
        event.operator,
        event.error,
        event.note,
        event.direct or called_by_torch(event),
        event.direct,
        event.thread,
        event.end_ns is None,
        (event.module, event.root, event.detail, tuple([value.role for value in event.inputs]))
        if event.kind == "module"
        else None,
    )
