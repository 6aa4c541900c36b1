"""Finds the places that every iteration of a loop passes exactly once: events there tell the number of iterations.

A call of one of the program's functions is such a place, too. It is counted by an event in that function that each call
of it makes::

    for epoch in range(9):
        train(data)         # a sure place: 9 events of loss.item() are 9 iterations

    def train(data):
        for x in data: …
        return loss.item()  # the counter of the place above

So the iterations are known even if most events of the training were dropped, because dropped events are counted by the
expression that made them (``events/missing.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torchglass.events.missing import Missing, code_range
from torchglass.events.types import Event, Location
from torchglass.program.frames import Entry, FrameReader
from torchglass.source.iterations import calls_back
from torchglass.source.places import Loop, Place


@dataclass(slots=True, eq=False)
class CallCounter:
    """The event in a called function that counts its calls at one place."""

    call: Place
    call_at: Location
    path: tuple[Place, ...]
    """Where the event happens: its place in the called function, or the place of a further call there, and so on."""
    at: Location
    """The last place of the path."""
    is_certain: bool = True
    """Whether each call at this place made one such event, and no other call did, as far as was seen."""

    def is_before(self, inside: Sequence[Place | None]) -> bool | None:
        """Return whether a call that is at the places ``inside`` has passed the event; None if that is not known."""
        for counted, now in zip(self.path, inside, strict=False):
            if now is None or now.function != counted.function:
                return None
            if now is not counted:
                return counted.order < now.order
        return False


@dataclass(slots=True, eq=False)
class SurePlace:
    """How often events happened at a place that every iteration of a loop passes."""

    at: Location
    counter: CallCounter | None = None
    """For a call of one of the program's functions: the event that counts it."""
    iterations: int = 0
    """In how many iterations an event happened there."""
    last_iteration: int = -1
    """The index of the last of these iterations."""
    events: int = 0
    """How many events happened there."""

    @property
    def is_once(self) -> bool:
        """Whether one event happened there in each iteration, as far as was seen."""
        is_certain = self.counter is None or self.counter.is_certain
        return self.events == self.iterations and is_certain

    def count_dropped(self, missing: Missing) -> int | None:
        """Return how many dropped events happened there; None if that does not give the number of iterations."""
        at = self.at
        if self.counter is not None:
            at = self.counter.at
        expression = code_range(at)
        if not self.is_once or expression in missing.mixed:
            return None
        return missing.executions[expression]

    def add_dropped(self, missing: Missing) -> None:
        """Count the dropped events that happened there, if they give the number of iterations."""
        dropped = self.count_dropped(missing) or 0
        self.iterations += dropped
        self.events += dropped
        self.last_iteration = self.iterations - 1


@dataclass(slots=True, eq=False)
class SurePlaces:
    """The sure places of all loops in a trace, as far as the program itself called torch there."""

    by_loop: dict[Loop, dict[Place, SurePlace]] = field(
        default_factory=dict["Loop", "dict[Place, SurePlace]"]
    )
    """Sure places at which nothing was counted yet."""
    counters: dict[Place, CallCounter] = field(default_factory=dict["Place", "CallCounter"])
    """By the place of a call."""
    counters_by_event: dict[Place, CallCounter] = field(
        default_factory=dict["Place", "CallCounter"]
    )
    """By the place of the event that counts."""


def find_sure_places(samples: Iterable[Event], reader: FrameReader) -> SurePlaces:
    """Find the sure places of all loops from the stacks of events."""
    found = SurePlaces()
    stacks_at: dict[Place, set[int]] = {}
    for event in samples:
        if not event.direct:
            continue
        entries = reader.inside(event, ())
        if not entries or entries[-1].place is None:
            continue
        stacks_at.setdefault(entries[-1].place, set()).add(id(event.stack))
        index = _index_in_loop(entries)
        if index >= 0:
            _add(found, entries, index)
    for place, counter in found.counters.items():
        event_place = counter.path[-1]
        # Calls from elsewhere would make the same event.
        counter.is_certain = len(stacks_at[event_place]) == 1
        found.counters_by_event[event_place] = counter
        found.by_loop.setdefault(place.loops[-1], {}).setdefault(
            place, SurePlace(counter.call_at, counter)
        )
    return found


def _index_in_loop(entries: Sequence[Entry]) -> int:
    """Return the index of the frame whose loop passes an event in each iteration; -1 if that is not sure."""
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        place = entry.place
        if place is None or not place.always or entry.is_opaque:
            return -1
        if place.loops:
            if place.is_head:
                return -1
            return index
        if entry.caller != index - 1:
            return -1
        caller = entries[index - 1].place
        if caller is not None and calls_back(caller):
            return -1
    return -1


def _add(found: SurePlaces, entries: Sequence[Entry], index: int) -> None:
    """Add the place of a frame in a loop: its own event, or a call that is counted by the event."""
    place = entries[index].place
    assert place is not None
    path = tuple(entry.place for entry in entries[index + 1 :] if entry.place is not None)
    if not path:
        found.by_loop.setdefault(place.loops[-1], {})[place] = SurePlace(entries[index].at)
        return
    counter = found.counters.get(place)
    # The first event of a call counts it.
    if counter is None or _orders(path) < _orders(counter.path):
        found.counters[place] = CallCounter(place, entries[index].at, path, entries[-1].at)


def _orders(path: Sequence[Place]) -> tuple[int, ...]:
    return tuple(place.order for place in path)
