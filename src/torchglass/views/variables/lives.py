"""Which changes are the life of one variable: locals by call, closures with their owner, attributes by class."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from torchglass.events.types import Event, Value
from torchglass.views.digest import Recorded
from torchglass.views.fold import range_label
from torchglass.views.variables.changes import NOTHING, PAST, TEXT, UNBOUND, Change, ChangesRead, Side

MODULE_LEVEL = "<module>"
OWNERS = ("self.", "cls.")
MOST_LOOKED_AT = 64
"""Lives that are compared to find the one that a change goes on with."""


@dataclass(slots=True, eq=False)
class Life:
    """One variable in one call; an attribute over all calls."""

    name: str
    scope: str
    changes: list[Change] = field(default_factory=list[Change])
    now: Side = UNBOUND
    module: tuple[str, str] | None = None
    """Root and path of the module that it was changed in."""
    thread: str = ""

    def add(self, change: Change) -> None:
        """Go on with a change; what was not kept of the value before is known from here."""
        if self.changes and _is_past(change.old) and self.now.kind != NOTHING:
            change.old = self.now
        elif change.old is PAST:
            change.old = UNBOUND
        self.changes.append(change)
        self.now = change.new
        self.module = self.module or _module_of(change)


@dataclass(slots=True, eq=False)
class Variable:
    """All lives of a name in one function, or of an attribute in one class."""

    name: str
    scope: str
    file: str
    lives: list[Life] = field(default_factory=list[Life])

    @property
    def is_attribute(self) -> bool:
        return self.name.startswith(OWNERS)


class Lives:
    """Puts each change into the life that it belongs to."""

    def __init__(self) -> None:
        self.variables: dict[tuple[str, str, str], Variable] = {}
        self._by_call: dict[tuple[int, str], Life] = {}

    def life_of(self, change: Change) -> Life:
        """The life of the variable that changed, with the change in it."""
        event = change.event
        key = (id(change.call), event.name)
        life = self._by_call.get(key)
        if life is None:
            life = self._found(change) or self._begun(change)
            self._by_call[key] = life  # calls live as long as their changes, so that their ids stay theirs
        life.add(change)
        return life

    def _found(self, change: Change) -> Life | None:
        """A life that began in another call: of an attribute, a generator, a closure or a global."""
        name = change.event.name
        if change.old.kind == NOTHING and change.how != "deleted":
            return None
        if change.old is PAST and not name.startswith(OWNERS):
            return None  # it may be another call of the same function
        for scope in _scopes(name, change.at.function):
            variable = self.variables.get((change.at.file, scope, name))
            if variable is not None:
                life = _continued(variable, change)
                if life is not None:
                    return life
        return None

    def _begun(self, change: Change) -> Life:
        event = change.event
        at = change.at
        scope = next(_scopes(event.name, at.function))
        variable = self.variables.get((at.file, scope, event.name))
        if variable is None:
            variable = self.variables[at.file, scope, event.name] = Variable(event.name, scope, at.file)
        life = Life(event.name, scope, thread=event.thread)
        variable.lives.append(life)
        return life


def _scopes(name: str, function: str) -> Iterator[str]:
    """Where a variable may live: an attribute in the class, others in the function or around it."""
    if name.startswith(OWNERS) and "." in function:
        owner = function.rpartition(".")[0]
        if not owner.endswith("<locals>"):
            yield owner
            return
    yield function
    while "." in function:
        function = function.rpartition(".")[0]
        if not function.endswith("<locals>"):
            yield function
    if function != MODULE_LEVEL:
        yield MODULE_LEVEL


def _continued(variable: Variable, change: Change) -> Life | None:
    """The latest life that ended with what the change begins with; of an attribute one of the same module."""
    module = _module_of(change)
    fitting = [life for life in reversed(variable.lives[-MOST_LOOKED_AT:]) if _fits(life.now, change.old)]
    if module is not None and "." in variable.name:
        own = [life for life in fitting if life.module == module]
        return own[0] if own else next((life for life in reversed(fitting) if life.module is None), None)
    return fitting[0] if fitting else None


def _fits(now: Side, old: Side) -> bool:
    if now.kind == NOTHING:
        return False
    return _is_past(old) or (now.form == old.form if now.value is not None else now.text == old.text)


def _is_past(side: Side) -> bool:
    """Whether no more than the type was kept."""
    return side.kind == TEXT and side.text.startswith("<") and side.text.endswith(">")


@lru_cache(maxsize=4096)
def numberless(path: str | None) -> str | None:
    """A module's path without the numbers of layers: ``blocks.#.fc`` for each of a row of blocks."""
    return None if path is None else ".".join("#" if part.isdecimal() else part for part in path.split("."))


def paths_label(paths: Sequence[str]) -> str:
    """``blocks.0–11.fc`` for paths that differ in one number; else as ``range_label`` has it."""
    split = [path.split(".") for path in dict.fromkeys(paths)]
    apart = [at for at in range(len(split[0])) if len({tuple(parts[at : at + 1]) for parts in split}) > 1]
    if len(apart) != 1 or len({numberless(path) for path in paths}) > 1:
        return range_label(paths)
    end = apart[0] + 1
    return ".".join([range_label([".".join(parts[:end]) for parts in split]), *split[0][end:]])


def module_label(modules: Sequence[tuple[str, str] | None]) -> str:
    """The paths of several modules; a root goes by its label; nothing outside any module."""
    named = [path or root for root, path in filter(None, modules)]
    return paths_label(named) if named else ""


def _module_of(change: Change) -> tuple[str, str] | None:
    event = change.event
    return None if event.module is None else (event.root or "", event.module)


# ---------------------------------------------------------------- where a value comes from

# The call that made it, other names of it, memory that it shares.

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
