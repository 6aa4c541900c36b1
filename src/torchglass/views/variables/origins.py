"""Where the value of a variable comes from: the call that made it, other names of it, memory that it shares."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.types import Event, Value
from torchglass.views.digest import Recorded
from torchglass.views.variables.changes import Change, ChangesRead
from torchglass.views.variables.lives import Life, numberless

MOST_HOLDERS = 16


@dataclass(frozen=True, slots=True)
class Origin:
    """The event that made a value."""

    event: Event
    """The outermost one that gave it; one that is alike."""
    op: str
    """The name of the op below, where ops were recorded."""
    here: bool
    """Whether the statement that changed the variable made it."""

    @property
    def key(self) -> Hashable:
        """Equal for origins that may share a row: the number of a layer among its like is left out."""
        event = self.event
        path = numberless(event.module) if event.kind == "module" else None
        where = None if self.here or event.location is None else (event.location.file, event.location.line)
        return (event.kind, event.name, path, self.op, where)


class Relation(NamedTuple):
    """Another variable that has to do with the value."""

    name: str
    scope: str
    """The function that it lives in; ``""`` for the same call."""


class Story(NamedTuple):
    """All that is known of where a value comes from."""

    origin: Origin | None = None
    same_as: Relation | None = None
    """A variable that holds the same tensor."""
    shares: Relation | None = None
    """A variable whose memory it shares."""
    shares_before: bool = False
    """An array became a tensor, or a tensor an array, over the same memory."""
    number: int = -1
    """Equal for stories that may share a row."""


NO_STORY = Story()


@dataclass(slots=True)
class Stories:
    """Told of every change in order; remembers who holds what."""

    trace: Recorded
    reading: ChangesRead
    _outer: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """The outermost event for a value and the event around the change."""
    _holders: dict[int, list[tuple[Life, Change]]] = field(default_factory=dict[int, list[tuple[Life, Change]]])
    _made: dict[tuple[int, str, bool], Origin] = field(default_factory=dict[tuple[int, str, bool], Origin])
    _known: dict[Hashable, Story] = field(default_factory=dict[Hashable, Story])
    _numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _sharers: dict[int, list[tuple[Life, Change]]] = field(default_factory=dict[int, list[tuple[Life, Change]]])

    def tell(self, life: Life, change: Change) -> Story:
        """Where the new value comes from; only for single tensors and arrays."""
        value = change.new.value
        if value is None:
            return NO_STORY
        origin = self._itself(change) if self.reading.is_guessed else self._origin(change, value.id, value.producer)
        same = self._other(self._holders.get(value.id, ()), life, change, lambda it: it.id == value.id)
        if same is not None and same.scope and origin is not None and origin.here:
            same = None  # the call that the statement made says it already
        shares, before = None, False
        if value.storage is not None:
            old = change.old.value
            before = old is not None and old.kind != value.kind and old.storage == value.storage
            if same is None and not before:
                near = self._sharers.get(value.storage, ())
                shares = self._other(near, life, change, lambda it: it.storage == value.storage)
                if shares is not None and shares.scope:
                    shares = None  # memory of callers and of calls that are over would be told everywhere
            _hold(self._sharers, value.storage, life, change)
        _hold(self._holders, value.id, life, change)
        return self._story(origin, same, shares, before)

    def _story(self, origin: Origin | None, same: Relation | None, shares: Relation | None, before: bool) -> Story:
        """Equal stories are one object: a hundred thousand changes have few, and the collector looks at each."""
        key = (id(origin), same, shares, before)
        story = self._known.get(key)
        if story is None:
            said = (origin and origin.key, same, shares, before)
            number = self._numbers.setdefault(said, len(self._numbers))
            story = self._known[key] = Story(origin, same, shares, before, number)
        return story

    def _other(
        self, held: Sequence[tuple[Life, Change]], life: Life, change: Change, still: Callable[[Value], bool]
    ) -> Relation | None:
        """The first variable of the same call that still holds it, else one of the caller, else the last one."""
        found: Relation | None = None
        near = False
        for other, when in held:
            value = other.now.value
            if other is life or value is None or not still(value):
                continue
            if when.call is change.call:
                return Relation(other.name, "")
            if other.name == life.name and other.scope == life.scope:
                continue  # itself, in an earlier call
            if not near:
                near = when.call is change.call.caller
                found = Relation(other.name, when.at.function)
        return found

    # ------------------------------------------------------------ the event that made it

    def _itself(self, change: Change) -> Origin:
        event = self.reading.digest.sample(change.id)
        return self._made.setdefault((id(event), "", True), Origin(event, "", True))

    def _origin(self, change: Change, value: int, producer: int | None) -> Origin | None:
        digest = self.reading.digest
        if producer is None or not 0 <= producer < len(digest):
            return None
        outer = producer
        if digest.parents[producer] not in (-1, change.parent):
            key = (value, change.parent)
            if key not in self._outer:
                self._outer[key] = self._outermost(change, value, producer)
            outer = self._outer[key]
        event, inner = digest.sample(outer), digest.sample(producer)
        op = inner.name if inner.kind == "op" and outer != producer else ""
        here = _is_here(event, change)
        origin = self._made.get((id(event), op, here))
        if origin is None:
            origin = self._made[id(event), op, here] = Origin(event, op, here)
        return origin

    def _outermost(self, change: Change, value: int, producer: int) -> int:
        """The outermost event that gave the value and was over by then."""
        parents = self.reading.digest.parents
        at, above = producer, parents[producer]
        while above >= 0 and above != change.parent:
            event = self.trace.event(above)
            over = event.end_ns is not None and event.end_ns <= self.trace.event(change.id).start_ns
            if not over or all(given.id != value for given in event.outputs):
                break
            at, above = above, parents[above]
        return at


def _hold(held: dict[int, list[tuple[Life, Change]]], key: int, life: Life, change: Change) -> None:
    known = held.setdefault(key, [])
    if len(known) >= MOST_HOLDERS:
        del known[1]  # the first one gave the value its name
    known.append((life, change))


def _is_here(event: Event, change: Change) -> bool:
    """Whether an event was part of the statement that changed the variable."""
    made, at = event.location, change.at
    if made is None or made.file != at.file or made.function != at.function:
        return False
    return at.line <= made.line <= max(at.end_line, at.line + change.event.code.count("\n"))
