"""Reads the events of a trace once, and keeps one sample for all events that are alike.

Programs repeat themselves: a hundred thousand events are a few hundred different ones. So each event is a small number,
and there is one ``Event`` object for each of these numbers. That saves memory, and time in the garbage collector.
"""

# Private members of a trace are hidden from users, not from the views and answers that read it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import add, attrgetter
from typing import Generic, Protocol, TypeVar

from torchglass.events.missing import missing_of
from torchglass.events.schema import NONE
from torchglass.events.selection import Selection
from torchglass.events.tables import NewRound, Tables, form_sizes
from torchglass.events.types import Event, Location, ModuleInfo, Value
from torchglass.program.inner import called_by_torch
from torchglass.program.recorded import HasTables, Recorded

_T = TypeVar("_T")
_Made = TypeVar("_Made")
Key = tuple[object, ...]
shape_key: Callable[[Value], Key] = attrgetter("shape", "dtype", "device", "layout")
"""Return all that is shown of a tensor, as a key."""


class EventSource(Protocol):
    """What the events of a program are read from: the tables of a trace, or a trace without tables."""

    @property
    def sources(self) -> dict[str, str]:
        """The texts of the files that ran."""
        ...

    def __len__(self) -> int: ...

    def events(self) -> Iterator[Event]: ...

    def event(self, number: int, /) -> Event: ...

    def modules(self) -> tuple[ModuleInfo, ...]: ...


class TableEvents:
    """The events in tables. It does not refer to the trace, which refers to the program: that would be a cycle."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.sources = tables.sources
        self.event = tables.event
        self.modules = tables.module_infos

    def __len__(self) -> int:
        return len(self.tables)

    def events(self) -> Iterator[Event]:
        return map(self.tables.event, range(len(self.tables)))


class ById(Generic[_T, _Made]):
    """A function whose results are cached by the ``id`` of its argument.

    A trace has each stack and each place only once, and computing its hash takes long. The argument is kept with the
    result, so that no other object gets its id.
    """

    def __init__(self, make: Callable[[_T], _Made]) -> None:
        self._make = make
        self._known: dict[int, tuple[_Made, _T]] = {}

    def __call__(self, thing: _T) -> _Made:
        known = self._known.get(id(thing))
        if known is not None:
            made, _ = known
            return made
        made = self._make(thing)
        self._known[id(thing)] = (made, thing)
        return made


class DistinctEvents:
    """The events of a trace, with one sample for all that are alike."""

    def __init__(self, source: EventSource) -> None:
        self.source = source
        self.alike: list[int] = []
        """By event, the number of its sample. Events that are alike may differ in their ids, parents, times, and
        values."""
        self.samples: list[Event] = []
        """By that number, the first such event."""
        self.parents: Sequence[int] = []
        """By event, the event around it; -1 if there is none."""
        if isinstance(source, TableEvents):
            self._read_tables(source.tables)
        else:
            self._read_events()

    def __len__(self) -> int:
        return len(self.alike)

    def sample(self, number: int) -> Event:
        """Return a sample for an event: only its id, parent, times and values may be those of another one."""
        return self.samples[self.alike[number]]

    def events(self) -> list[Event]:
        """Return the sample of each event."""
        samples = self.samples
        return [samples[number] for number in self.alike]

    def matching(self, only: Selection) -> bytearray:
        """Return by event whether it is selected."""
        if only.where is not None:
            # A function of the user's may look at what differs between events that are alike.
            return bytearray(only.matches(event) for event in self.source.events())
        matches = [only.matches(event) for event in self.samples]
        return bytearray(matches[number] for number in self.alike)

    @cached_property
    def spent_ns(self) -> Sequence[int]:
        """Return by event how long it took, in nanoseconds; 0 if that is not known."""
        if isinstance(self.source, TableEvents):
            tables = self.source.tables
            spent = array("q")
            for start, end in zip(tables.start_ns, tables.end_ns, strict=True):
                if end == NONE:
                    spent.append(0)
                else:
                    spent.append(end - start)
            return spent
        return [event.duration_ns or 0 for event in self.source.events()]

    @cached_property
    def forwards(self) -> Sequence[int]:
        """Return by event of a backward pass the event of the forward pass that it belongs to; -1 if not known."""
        if isinstance(self.source, TableEvents):
            return self.source.tables.forward
        return [
            -1 if event.forward_event is None else event.forward_event
            for event in self.source.events()
        ]

    @cached_property
    def python_calls(self) -> Sequence[int]:
        """Return by event the number of the Python call that it belongs to; -1 if that is not known."""
        if isinstance(self.source, TableEvents):
            return self.source.tables.python_call
        return [
            -1 if event.python_call is None else event.python_call for event in self.source.events()
        ]

    @cached_property
    def new_rounds(self) -> Mapping[int, Sequence[NewRound]]:
        """Return by event the outer loops that began a new round at it although no stack shows that."""
        if isinstance(self.source, TableEvents):
            return self.source.tables.rounds
        return {}

    @cached_property
    def dropped(self) -> Counter[int]:
        """Return by sample how many events like it were not kept.

        Of events that were not kept, only what was called and from where is known. They count with the first sample
        that fits.
        """
        counts: Counter[int] = Counter()
        if not isinstance(self.source, TableEvents):
            return counts
        for gap in self.source.tables.gaps():
            for distance, number in missing_of(self.sample(gap)).alike_by_distance.items():
                event = gap + distance
                if 0 <= event < len(self.alike):
                    counts[self.alike[event]] += number
        return counts

    def looks(self) -> list[int]:
        """Return by event a number that is equal for events that look the same in views."""
        places: dict[Location, int] = {}
        numbers: dict[Key, int] = {}
        by_sample: list[int] = []
        for event in self.samples:
            by_sample.append(numbers.setdefault(_shown(event, places), len(numbers)))
        return [by_sample[sample] for sample in self.alike]

    def _read_tables(self, tables: Tables) -> None:
        """Read the columns of tables. ``Event`` objects are made only for the samples."""
        self.parents = tables.parent
        sample_of: dict[Hashable, int] = {}
        alike = self.alike
        for key in _keys(tables):
            sample = sample_of.get(key)
            if sample is None:
                sample = len(self.samples)
                sample_of[key] = sample
                # Events that are alike have other statistics, so a sample has none.
                self.samples.append(tables.event(len(alike), has_stats=False))
            alike.append(sample)

    def _read_events(self) -> None:
        """Take every event as its own sample."""
        self.samples = list(self.source.events())
        self.alike = list(range(len(self.samples)))
        self.parents = [-1 if event.parent is None else event.parent for event in self.samples]


def distinct_events(trace: Recorded) -> DistinctEvents:
    """Read the events of a trace."""
    if isinstance(trace, HasTables):
        return DistinctEvents(TableEvents(trace._tables))
    return DistinctEvents(trace)


def _keys(tables: Tables) -> Iterator[Hashable]:
    """Yield for each event a key that is equal for events that are alike.

    All views of a big trace begin with this. So whole columns are zipped, and the metadata of an event's values is
    compared as bytes, which takes two thirds of the time of a loop over the events.
    """
    has_no_module_call = map(NONE.__eq__, tables.call)
    has_no_end = map(NONE.__eq__, tables.end_ns)
    return zip(
        tables.callee,
        tables.stack,
        tables.module,
        has_no_module_call,
        tables.args,
        tables.result,
        tables.error,
        tables.thread,
        has_no_end,
        _metadata_of_values(tables),
        strict=True,
    )


def _metadata_of_values(tables: Tables) -> list[bytes]:
    """Return for each event the numbers of the metadata of its inputs and outputs, as bytes."""
    sizes = form_sizes(tables)
    inputs = map(sizes.__getitem__, tables.args)
    outputs = map(sizes.__getitem__, tables.result)
    counts = map(add, inputs, outputs)
    metas = array("q", map(tables.value_meta.__getitem__, tables.io)).tobytes()
    return [
        metas[8 * first : 8 * (first + count)]
        for first, count in zip(tables.first_io, counts, strict=True)
    ]


_words: Callable[[Event], Key] = attrgetter(
    "kind", "name", "code", "target", "operator", "error", "note", "direct", "thread"
)


def _shown(event: Event, places: dict[Location, int]) -> Key:
    """Return everything that views show of an event, as a key. ``places`` numbers the locations."""
    module = None
    if event.kind == "module":
        roles = tuple([value.role for value in event.inputs])
        module = (event.module, event.root, event.detail, roles)
    place = None
    if event.location is not None:
        place = places.setdefault(event.location, len(places))
    inputs = tuple(map(shape_key, event.inputs))
    outputs = tuple(map(shape_key, event.outputs)) or event.result
    is_shown_as_direct = event.direct or called_by_torch(event)
    has_no_end = event.end_ns is None
    return (_words(event), place, inputs, outputs, is_shown_as_direct, has_no_end, module)
