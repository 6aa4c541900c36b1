"""Events that look the same, kept once: what laying out a big trace needs in memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol, runtime_checkable

from torchglass.events.selection import Selection
from torchglass.events.types import Event, Location, Value
from torchglass.views.nesting import called_by_torch
from torchglass.views.recorded import Recorded

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

    def append(self, found: tuple[int, Event], parent: int, spent_ns: int) -> None:
        self.look.append(found[0])
        self.events.append(found[1])
        self.parents.append(parent)
        self.spent_ns.append(spent_ns)


@runtime_checkable
class TellsAlike(Protocol):
    """A trace that knows which events are alike without making them: four fifths of the time to read it."""

    def alike(self) -> Iterable[tuple[Hashable, int, int]]:
        """For each event a key, its parent's id (-1: none) and its duration (0: not known).

        Events with equal keys may differ only in id, parent, times, and in which tensors they had.
        """
        ...

    def event(self, number: int, /) -> Event: ...


def looks_of(trace: Recorded, only: Selection | None) -> Looks:
    """Read a trace once."""
    looks = Looks()
    known = _Known()
    if only is None and isinstance(trace, TellsAlike):
        return _looks_alike(trace, known)
    looks.matched = None if only is None else bytearray()
    for event in trace.events():
        spent = 0 if event.end_ns is None else event.end_ns - event.start_ns
        looks.append(known.look(event), -1 if event.parent is None else event.parent, spent)
        if only is not None and looks.matched is not None:
            looks.matched.append(only.matches(event))
    return looks


def _looks_alike(trace: TellsAlike, known: _Known) -> Looks:
    """Each key is looked up once, and each event is one step of a short loop: half the time is spent here."""
    found: dict[Hashable, tuple[int, Event]] = {}
    entries: list[tuple[int, Event]] = []
    parents: list[int] = []
    times: list[int] = []
    for key, parent, spent in trace.alike():
        entry = found.get(key)
        if entry is None:
            entry = found[key] = known.look(trace.event(len(entries)))
        entries.append(entry)
        parents.append(parent)
        times.append(spent)
    return Looks([event for _, event in entries], [look for look, _ in entries], parents, times)


class _Known:
    """The looks found so far, each with the first event that has it."""

    def __init__(self) -> None:
        self._looks: dict[Key, tuple[int, Event]] = {}
        self._places = _Places()

    def look(self, event: Event) -> tuple[int, Event]:
        key = _key(event, self._places)
        found = self._looks.get(key)
        if found is None:
            found = self._looks[key] = (len(self._looks), event)
        return found


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
