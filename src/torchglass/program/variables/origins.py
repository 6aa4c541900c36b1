"""Finds where the value of a variable comes from: the call that made it, its other names, and shared memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.types import Event, Value
from torchglass.program.paths import numberless
from torchglass.program.recorded import Recorded
from torchglass.program.variables.changes import Change, ChangesRead
from torchglass.program.variables.lives import Life

MAX_HOLDERS = 16
"""Variables that are remembered for one value: the first one, and the latest others."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The event that made a value."""

    event: Event
    """A sample of the outermost event that gave it."""
    op: str
    """The name of the op that made it, if ops were recorded."""
    here: bool
    """Whether the statement that changed the variable also made the value."""

    @property
    def key(self) -> Hashable:
        """A key that is equal for origins that may share a row. It leaves out the number of a layer."""
        event = self.event
        path = None
        if event.kind == "module":
            path = numberless(event.module)
        if self.here or event.location is None:
            where = None
        else:
            where = (event.location.file, event.location.line)
        return (event.kind, event.name, path, self.op, where)


class Relation(NamedTuple):
    """Another variable that holds the value, or shares its memory."""

    name: str
    scope: str
    """Its function; "" for a variable of the same call."""


class Story(NamedTuple):
    """Where a value comes from."""

    origin: Origin | None = None
    same_as: Relation | None = None
    """A variable that holds the same tensor."""
    shares: Relation | None = None
    """A variable whose memory it shares."""
    shares_before: bool = False
    """Whether an array became a tensor over the same memory, or a tensor an array."""
    number: int = -1
    """Equal for stories that may share a row."""


NO_STORY = Story()


@dataclass(slots=True)
class Stories:
    """Finds the story of each change. Changes must come in order: it remembers which variable holds which value."""

    trace: Recorded
    reading: ChangesRead
    _outer: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """By value and the event around the change, the outermost event that gave the value."""
    _holders: dict[int, list[tuple[Life, Change]]] = field(
        default_factory=dict[int, list[tuple[Life, Change]]]
    )
    _made: dict[tuple[int, str, bool], Origin] = field(
        default_factory=dict[tuple[int, str, bool], Origin]
    )
    _known: dict[Hashable, Story] = field(default_factory=dict[Hashable, Story])
    _numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _sharers: dict[int, list[tuple[Life, Change]]] = field(
        default_factory=dict[int, list[tuple[Life, Change]]]
    )

    def story_of(self, life: Life, change: Change) -> Story:
        """Return where the new value comes from. Only tensors and arrays have a story."""
        value = change.new.value
        if value is None:
            return NO_STORY
        if self.reading.is_guessed:
            origin = self._own_event(change)
        else:
            origin = self._origin(change, value.id, value.producer)
        holders = self._holders.get(value.id, ())
        same = self._other(holders, life, change, lambda held: held.id == value.id)
        if same is not None and same.scope and origin is not None and origin.here:
            # The statement that made the value is shown, so the other name adds nothing.
            same = None
        shares = None
        shares_before = False
        if value.storage is not None:
            old = change.old.value
            shares_before = (
                old is not None and old.kind != value.kind and old.storage == value.storage
            )
            if same is None and not shares_before:
                sharers = self._sharers.get(value.storage, ())
                shares = self._other(
                    sharers, life, change, lambda held: held.storage == value.storage
                )
                if shares is not None and shares.scope:
                    # Variables of other calls are left out, or nearly every argument would have this remark.
                    shares = None
            _add_holder(self._sharers, value.storage, life, change)
        _add_holder(self._holders, value.id, life, change)
        return self._story(origin, same, shares, shares_before)

    def _story(
        self, origin: Origin | None, same: Relation | None, shares: Relation | None, before: bool
    ) -> Story:
        """Return a story. Equal ones are one object, because the garbage collector visits every object."""
        key = (id(origin), same, shares, before)
        story = self._known.get(key)
        if story is None:
            look = (origin and origin.key, same, shares, before)
            number = self._numbers.setdefault(look, len(self._numbers))
            story = self._known[key] = Story(origin, same, shares, before, number)
        return story

    def _other(
        self,
        holders: Sequence[tuple[Life, Change]],
        life: Life,
        change: Change,
        still_holds: Callable[[Value], bool],
    ) -> Relation | None:
        """Return another variable that still holds a value (or shares its memory).

        One of the same call is preferred, then one of the caller, then the last one.
        """
        relation: Relation | None = None
        is_of_caller = False
        for other, then in holders:
            value = other.now.value
            if other is life or value is None or not still_holds(value):
                continue
            if then.call is change.call:
                return Relation(other.name, "")
            if other.name == life.name and other.scope == life.scope:
                # The same variable in an earlier call.
                continue
            if not is_of_caller:
                is_of_caller = then.call is change.call.caller
                relation = Relation(other.name, then.at.function)
        return relation

    # ------------------------------------------------------------ the event that made it

    def _own_event(self, change: Change) -> Origin:
        """Return the origin of a change that was read from a target: the event itself."""
        event = self.reading.program.distinct.sample(change.id)
        return self._made.setdefault((id(event), "", True), Origin(event, "", True))

    def _origin(self, change: Change, value: int, producer: int | None) -> Origin | None:
        """Return the origin of a value that the event ``producer`` made; None if that is not known."""
        digest = self.reading.program.distinct
        if producer is None or not 0 <= producer < len(digest):
            return None
        outer = producer
        if digest.parents[producer] not in (-1, change.parent):
            key = (value, change.parent)
            if key not in self._outer:
                self._outer[key] = self._outermost(change, value, producer)
            outer = self._outer[key]
        event = digest.sample(outer)
        inner = digest.sample(producer)
        op = ""
        if inner.kind == "op" and outer != producer:
            op = inner.name
        here = _is_here(event, change)
        origin = self._made.get((id(event), op, here))
        if origin is None:
            origin = self._made[id(event), op, here] = Origin(event, op, here)
        return origin

    def _outermost(self, change: Change, value: int, producer: int) -> int:
        """Return the outermost event that gave the value and had ended before the change."""
        parents = self.reading.program.distinct.parents
        changed_ns = self.trace.event(change.id).start_ns
        outermost = producer
        parent = parents[producer]
        while parent >= 0 and parent != change.parent:
            event = self.trace.event(parent)
            has_ended = event.end_ns is not None and event.end_ns <= changed_ns
            if not has_ended or all(given.id != value for given in event.outputs):
                break
            outermost = parent
            parent = parents[parent]
        return outermost


def _add_holder(
    holders: dict[int, list[tuple[Life, Change]]], key: int, life: Life, change: Change
) -> None:
    """Note that a variable holds a value. The first holder is always kept, since it gave the value its name."""
    known = holders.setdefault(key, [])
    if len(known) >= MAX_HOLDERS:
        del known[1]
    known.append((life, change))


def _is_here(event: Event, change: Change) -> bool:
    """Return whether an event was part of the statement that changed the variable."""
    made = event.location
    at = change.at
    if made is None or made.file != at.file or made.function != at.function:
        return False
    return at.line <= made.line <= max(at.end_line, at.line + change.event.code.count("\n"))
