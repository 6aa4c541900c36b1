"""What every view reads first: a trace read once, with equal events told apart from different ones.

Programs repeat themselves: a hundred thousand events are a few hundred different ones. Keeping one event for all
that are alike, and small numbers for the rest, spares the garbage collector a million objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, Protocol, TypeVar, runtime_checkable

from torchglass.events.selection import Selection
from torchglass.events.tables import Tables
from torchglass.events.types import Event, Location, ModuleInfo, Value

_T = TypeVar("_T")
_Made = TypeVar("_Made")
Key = tuple[object, ...]
shape_key: Callable[[Value], Key] = attrgetter("shape", "dtype", "device", "layout")
"""All that is shown of a tensor."""


@runtime_checkable
class HasTables(Protocol):
    """A trace that has its events as columns: no event need be made to read them, which takes a quarter of the time."""

    @property
    def tables(self) -> Tables: ...


class Recorded(Protocol):
    """A trace as views see it: the few methods that they read."""

    @property
    def name(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def duration_ns(self) -> int: ...

    @property
    def complete(self) -> bool:
        """Whether the recording came to its end; a killed program's did not."""
        ...

    @property
    def sources(self) -> dict[str, str]:
        """The texts of the files that ran."""
        ...

    def __len__(self) -> int: ...

    def events(self) -> Iterator[Event]:
        """All events in the order of opening: ids from 0, parents before what they called."""
        ...

    def event(self, number: int, /) -> Event: ...

    def modules(self) -> tuple[ModuleInfo, ...]: ...

    @property
    def left_by(self) -> tuple[str, ...]:
        """The exception that ended the block, then what it was raised in answer to."""
        ...

    @property
    def left_process(self) -> int:
        """Of several processes the one that the exception left."""
        ...

    @property
    def raised_at(self) -> tuple[Location, ...]:
        """The frames between the block and the place where that exception was raised, outermost first."""
        ...

    def failure(self) -> Event | None:
        """The innermost event that the exception left which ended the block."""
        ...


@runtime_checkable
class TellsAlike(Protocol):
    """A trace that knows which events are alike without making them: four fifths of the time to read it."""

    def alike(self) -> Iterable[tuple[Hashable, int, int]]:
        """For each event a key, its parent's id (-1: none) and its duration (0: not known).

        Events with equal keys may differ only in id, parent, times, and in which tensors they had.
        """
        ...


class ById(Generic[_T, _Made]):
    """What is made of each object, once; it is kept with its object, whose id so stays its own.

    A trace has each stack and each place once, and to hash one takes a while.
    """

    def __init__(self, make: Callable[[_T], _Made]) -> None:
        self._make = make
        self._known: dict[int, tuple[_Made, _T]] = {}

    def __call__(self, thing: _T) -> _Made:
        found = self._known.get(id(thing))
        if found is None:
            found = self._known[id(thing)] = (self._make(thing), thing)
        return found[0]


@dataclass(slots=True)
class Digest:
    """A trace read once; one entry for each event of it, in order."""

    trace: Recorded
    alike: list[int] = field(default_factory=list[int])
    """Equal for events that differ at most in id, parent, times, and in which tensors they had."""
    samples: list[Event] = field(default_factory=list[Event])
    """For each number in ``alike`` the first such event."""
    parents: list[int] = field(default_factory=list[int])
    """-1: none."""
    spent_ns: list[int] = field(default_factory=list[int])

    def __len__(self) -> int:
        return len(self.alike)

    def sample(self, number: int) -> Event:
        """An event like this one: all but its id, parent, times and values are its own."""
        return self.samples[self.alike[number]]

    def events(self) -> list[Event]:
        """For each event one that is alike."""
        samples = self.samples
        return [samples[number] for number in self.alike]

    def matching(self, only: Selection) -> bytearray:
        """Which events are selected. A callable is asked for each: alike events may differ in what it looks at."""
        if only.where is not None:
            return bytearray(only.matches(event) for event in self.trace.events())
        matches = [only.matches(event) for event in self.samples]
        return bytearray(matches[number] for number in self.alike)


def digest_of(trace: Recorded) -> Digest:
    """Read a trace once: each event is one turn of a short loop, where half the time of a view is spent."""
    digest = Digest(trace)
    if not isinstance(trace, TellsAlike):
        for number, event in enumerate(trace.events()):
            digest.alike.append(number)
            digest.samples.append(event)
            digest.parents.append(-1 if event.parent is None else event.parent)
            digest.spent_ns.append(event.duration_ns or 0)
        return digest
    known: dict[Hashable, int] = {}
    alike, parents, spent_ns = digest.alike, digest.parents, digest.spent_ns
    for key, parent, spent in trace.alike():
        number = known.get(key)
        if number is None:
            number = known[key] = len(digest.samples)
            digest.samples.append(trace.event(len(alike)))
        alike.append(number)
        parents.append(parent)
        spent_ns.append(spent)
    return digest


def call_numbers(trace: Recorded) -> Callable[[int], int]:
    """A function that gives the number of the Python call of an event; -1: the trace does not tell."""
    if isinstance(trace, HasTables):
        return trace.tables.python_call.__getitem__
    return lambda number: -1 if (call := trace.event(number).python_call) is None else call


# ---------------------------------------------------------------- what is shown of an event

_words: Callable[[Event], Key] = attrgetter(
    "kind", "name", "code", "target", "operator", "error", "note", "direct", "thread"
)


def texts_of(digest: Digest) -> list[int]:
    """For each event a number, equal for those of which the same is shown."""
    places: dict[Location, int] = {}
    numbers: dict[Key, int] = {}
    by_sample = [numbers.setdefault(_text_key(event, places), len(numbers)) for event in digest.samples]
    return [by_sample[number] for number in digest.alike]


def _text_key(event: Event, places: dict[Location, int]) -> Key:
    """All that is shown of an event."""
    of_module = None
    if event.kind == "module":
        of_module = (event.module, event.root, event.detail, tuple([value.role for value in event.inputs]))
    return (
        _words(event),
        None if event.location is None else places.setdefault(event.location, len(places)),
        tuple(map(shape_key, event.inputs)),
        tuple(map(shape_key, event.outputs)) or event.result,
        event.direct or called_by_torch(event),
        event.end_ns is None,
        of_module,
    )


# ---------------------------------------------------------------- nesting

# Who called whom: the modules around each event, and what torch did by itself inside a call.


@dataclass(frozen=True, slots=True)
class Nesting:
    """For each event id the module event around it (-1: none), and which module events called modules."""

    module_above: list[int]
    containers: set[int]


def nesting(events: Sequence[Event], parents: Sequence[int]) -> Nesting:
    """One pass over all events and the ids of their parents (-1: none), parents before children."""
    above: list[int] = []
    containers: set[int] = set()
    for event, parent in zip(events, parents, strict=True):
        around = -1 if parent < 0 else parent if events[parent].kind == "module" else above[parent]
        above.append(around)
        if around >= 0 and event.kind == "module":
            containers.add(around)
    return Nesting(above, containers)


def called_by_torch(event: Event) -> bool:
    """True when torch's own code made this call, not an expression of the program."""
    return not event.direct and bool(event.stack) and event.stack[-1].origin == "torch"


def is_recomputed(event: Event) -> bool:
    """Whether a checkpoint (``torch.utils.checkpoint``) computed it once more, for backward."""
    return event.phase == "backward" and any(
        frame.origin == "torch" and frame.file.replace("\\", "/").endswith("torch/utils/checkpoint.py")
        for frame in event.stack
    )


def is_inner(event: Event, parent: Event | None, parent_is_leaf: bool) -> bool:
    """Whether an event is torch's own business: shown only when asked for.

    That is what torch functions call in turn, what the leaf modules of ``torch.nn`` do (no ``F.linear`` under
    every Linear), what an optimizer's step does, and the aten ops below all of these, as well as ops without a
    tensor (the profiler's marks). Changes of variables have a view of their own. Code of the program that torch
    calls back (a checkpointed block, a custom autograd function) is not inner; what a checkpoint computes once more in
    backward is, since it stands where it was computed first.
    """
    if is_recomputed(event):
        return True
    if event.kind == "variable" or (event.kind == "op" and not event.inputs and not event.outputs):
        return True
    if parent is None or event.kind not in ("function", "op"):
        return False
    if parent.kind == "step":
        return True
    if parent.kind in ("function", "op"):
        return event.kind == "op" or not event.direct
    return parent.kind == "module" and parent_is_leaf and (event.kind == "op" or called_by_torch(event))


def is_inner_at(events: Sequence[Event], nest: Nesting, at: int, parent: int) -> bool:
    """The same for an event by its number and that of the event around it (-1: none)."""
    around = events[parent] if parent >= 0 else None
    return is_inner(events[at], around, around is not None and parent not in nest.containers)


def visible_events(events: Sequence[Event]) -> list[Event]:
    """The events that are shown by default."""
    parents = [-1 if event.parent is None else event.parent for event in events]
    nest = nesting(events, parents)
    return [events[at] for at, parent in enumerate(parents) if not is_inner_at(events, nest, at, parent)]


def is_torch_helper(event: Event, parent: Event | None) -> bool:
    """Whether torch made this call inside an expression that is no event itself.

    ``opt.zero_grad()`` and ``clip_grad_norm_(…)`` are plain Python: only the functions they call are seen.
    What a layer of ``torch.nn`` does in its own ``forward`` is not meant: its event has the same place.
    """
    return (
        event.kind == "function"
        and not event.direct
        and event.location is not None
        and (parent is None or parent.location != event.location)
        and called_by_torch(event)
    )


def relative_path(event: Event, around: Event | None) -> str:
    """A module's path as seen from the module that encloses the call; a root goes by its label."""
    path = event.module or ""
    if around is None or around.root != event.root:
        label = event.root or event.name
        return f"{label}.{path}" if path else label
    outer = around.module or ""
    if outer and path.startswith(outer + "."):
        return path[len(outer) + 1 :]
    return path or event.root or event.name


_INDEX = re.compile(r"(?:^|, )\w*(?:idx|index|layer|number|_id)\w*=(\d+)(?=,|$)")


def settings_of(detail: str, path: str | None) -> str:
    """A module's settings, less the number that its path has already: ``layer_idx=5`` in ``h.5.attn``."""
    found = _INDEX.search(detail) if detail and path else None
    if found is None or path is None or found[1] not in path.split("."):
        return detail
    return (detail[: found.start()] + detail[found.end() :]).removeprefix(", ")


def split_index(path: str) -> tuple[str, int | None]:
    """``blocks.11`` is ``("blocks.", 11)``: the number of a layer among its like, None when it has none."""
    head, dot, last = path.rpartition(".")
    return (head + dot, int(last)) if last.isdecimal() and last.isascii() else (path, None)
