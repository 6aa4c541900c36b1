"""Events that look the same, kept once: what laying out a big trace needs in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from torchglass.analyse.nesting import called_by_torch
from torchglass.events.selection import Selection
from torchglass.events.types import Event, Location, Value

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
    places = _Places()
    for event in events:
        key = _key(event, places)
        found = known.get(key)
        if found is None:
            found = known[key] = (len(known), event)
        looks.look.append(found[0])
        looks.events.append(found[1])
        looks.parents.append(-1 if event.parent is None else event.parent)
        looks.spent_ns.append(0 if event.end_ns is None else event.end_ns - event.start_ns)
        if only is not None and looks.matched is not None:
            looks.matched.append(only.matches(event))
    return looks


class _Places:
    """A number for each place in the code; a place that is the same object is known without reading it."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[int, Location]] = {}
        self._numbers: dict[Location, int] = {}

    def number(self, location: Location) -> int:
        found = self._by_id.get(id(location))
        if found is None:
            number = self._numbers.setdefault(location, len(self._numbers))
            # The place is kept with its number, so that its id stays its own.
            found = self._by_id[id(location)] = (number, location)
        return found[0]


shape_key: Callable[[Value], Key] = attrgetter("shape", "dtype", "device", "layout")
"""All that is shown of a tensor."""
_words: Callable[[Event], Key] = attrgetter(
    "kind", "name", "code", "target", "operator", "error", "note", "direct", "thread"
)


def _key(event: Event, places: _Places) -> Key:
    """All that is shown of an event."""
    of_module = None
    if event.kind == "module":
        of_module = (event.module, event.root, event.detail, tuple([value.role for value in event.inputs]))
    return (
        _words(event),
        None if event.location is None else places.number(event.location),
        tuple(map(shape_key, event.inputs)),
        tuple(map(shape_key, event.outputs)) or event.result,
        event.direct or called_by_torch(event),
        event.end_ns is None,
        of_module,
    )
