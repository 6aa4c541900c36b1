"""Data flow: which event made each value, which events used it, and what was written in place.

Values and events are numbers (``Value.id``, ``Event.id``). Aliases are resolved: an event that reads a tensor takes the
value that was last written to the tensor's memory, even if that went through a view or another name::

    a = torch.zeros(3)      # event 0 gives value 0
    b = a[0]                # event 1 takes 0, gives 1
    b.add_(1)               # event 2 takes 1, gives 2: a write in place
    c = a.exp()             # event 3 takes 2, and not 0
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from torchglass.events.gradients import ACCUMULATE
from torchglass.events.tables import NONE, Tables, form_sizes
from torchglass.events.types import Value
from torchglass.program.dedup import EventSource, TableEvents

Ids = tuple[int, ...]
REPORTS = ("variable", "mark")
"""Kinds of events that only report values: they neither take nor give any."""


class Write(NamedTuple):
    """A write in place."""

    event: int
    value: int
    """The value that the memory holds from then on."""
    time: int
    """The time of the write on the clock of ``DataFlow.created_at``."""


@dataclass
class DataFlow:
    """The values of a trace and the events that made and used them.

    Its lists are indexed by event or by value.
    """

    takes: list[Ids] = field(default_factory=list[Ids])
    """By event, the values that it read, with aliases resolved."""
    gives: list[Ids] = field(default_factory=list[Ids])
    """By event, the values that it returned or wrote, with aliases resolved."""
    starts: Sequence[int] = ()
    """By event, when it began, in nanoseconds."""
    ends: Sequence[int] = ()
    """By event, when it ended, in nanoseconds; NONE if it had not."""
    threads: Sequence[object] = ()
    """By event, its thread."""
    storages: Sequence[int] = field(default_factory=list[int])
    """By value, a number for its memory, equal for values that share it; NONE if it is not known."""
    versions: Sequence[int] = field(default_factory=list[int])
    """By value, its tensor's ``_version``: how often the memory was written in place."""
    producers: Sequence[int] = field(default_factory=list[int])
    """By value, the innermost event that made it; NONE if it was made before the recording or was not seen."""
    parameters: set[int] = field(default_factory=set[int])
    """The values that are part of a model."""
    recorded_takes: list[Ids] = field(default_factory=list[Ids])
    """``takes`` as recorded, before aliases are resolved."""
    recorded_gives: list[Ids] = field(default_factory=list[Ids])
    """``gives`` as recorded, before aliases are resolved."""
    backward: Sequence[int] = ()
    """By event, 1 if it is part of a backward pass, else 0."""
    writes_by_name: list[bool] = field(default_factory=list[bool])
    """By event, whether it is an op that writes in place by its name. The version is raised only after the op."""
    writes: list[Write] = field(default_factory=list[Write])
    """All writes in place, in order."""
    created_at: dict[int, int] = field(default_factory=dict[int, int])
    """When each value was made, for values in memory that is written to.

    Times are counted by a clock that goes on by one with each write and with each such value.
    """

    def __len__(self) -> int:
        return len(self.takes)

    # ------------------------------------------------------------ one value

    def producer(self, value: int) -> int | None:
        """Return the innermost event that made a value; None if it was made before the recording or was not seen."""
        producer = self.producers[value]
        if producer == NONE:
            return None
        return producer

    def users(self, value: int) -> Sequence[int]:
        """Return the events that read a value, in order: modules, and also the functions and ops in them."""
        return self._users.get(value, ())

    def written_after(self, value: int) -> list[Write]:
        """Return the writes that changed a value's memory after it was made."""
        storage = self.storages[value]
        if storage == NONE:
            return []
        created = self.created_at.get(value, NONE)
        return [write for write in self._writes_to.get(storage, ()) if write.time > created]

    def is_write(self, event: int) -> bool:
        """Return whether an event itself, and not another one in it, changed memory that it was given."""
        return event in self._writing_events

    # ------------------------------------------------------------ walks

    def upstream(self, values: Iterable[int]) -> Iterator[int]:
        """Yield the events that values come from, nearest first: what made them, what made the inputs of that …"""
        seen: set[int] = set()
        for value in self._sources(values):
            producer = self.producers[value]
            if producer != NONE and producer not in seen:
                seen.add(producer)
                yield producer

    def downstream(self, values: Iterable[int]) -> Iterator[int]:
        """Yield the events that use values, directly or through what was made of them, in order of beginning.

        A module call reads what the functions in it read, so it is one of them.
        """
        reached = set(values)
        pending = sorted({event for value in reached for event in self.users(value)})
        waiting = set(pending)
        while pending:
            event = heapq.heappop(pending)
            yield event
            for value in self.gives[event]:
                if value in reached or self.producers[value] != event:
                    # What a module returns was made by an event in it.
                    continue
                reached.add(value)
                for user in self.users(value):
                    if user not in waiting:
                        waiting.add(user)
                        heapq.heappush(pending, user)

    def reaches(self, value: int, other: int) -> bool:
        """Return whether a value was used to compute another one, or is that value."""
        return any(each == value for each in self._sources([other]))

    def _sources(self, values: Iterable[int]) -> Iterator[int]:
        """Yield values, and those that they were made of, nearest first."""
        pending = list(dict.fromkeys(values))
        seen = set(pending)
        # The list grows during the loop.
        for value in pending:
            yield value
            producer = self.producers[value]
            if producer == NONE:
                continue
            for taken in self.takes[producer]:
                if taken not in seen:
                    seen.add(taken)
                    pending.append(taken)

    @cached_property
    def _users(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for event, takes in enumerate(self.takes):
            for value in dict.fromkeys(takes):
                found.setdefault(value, []).append(event)
        return found

    @cached_property
    def _writes_to(self) -> dict[int, list[Write]]:
        """Return the writes to each storage, in order."""
        by_storage: dict[int, list[Write]] = {}
        for write in self.writes:
            by_storage.setdefault(self.storages[write.value], []).append(write)
        return by_storage

    @cached_property
    def _writing_events(self) -> set[int]:
        return {write.event for write in self.writes}


def data_flow(source: EventSource, parents: Sequence[int]) -> DataFlow:
    """Find the data flow of a program from its events and the ids of their parents (-1: none)."""
    if isinstance(source, TableEvents):
        flow = _from_columns(source.tables)
    else:
        flow = _from_events(source)
    flow.parameters |= {value.id for module in source.modules() for value in module.parameters}
    flow.recorded_takes = flow.takes[:]
    flow.recorded_gives = flow.gives[:]
    _follow_writes(flow, parents)
    return flow


def _from_columns(tables: Tables) -> DataFlow:
    sizes = form_sizes(tables)
    io = tables.io.tolist()
    # For each callee, whether its events take values, give values, or write in place.
    takes_values: list[bool] = []
    gives_values: list[bool] = []
    in_place: list[bool] = []
    for callee in tables.callees:
        is_report = callee.kind in REPORTS
        # AccumulateGrad names the leaves that it gave gradients, and does not read them.
        takes_values.append(not is_report and callee.name != ACCUMULATE)
        gives_values.append(not is_report)
        in_place.append(callee.kind == "op" and writes_in_place(callee.name))
    flow = DataFlow(
        starts=tables.start_ns,
        ends=tables.end_ns,
        threads=tables.thread,
        storages=tables.value_storage.tolist(),
        versions=tables.value_version.tolist(),
        producers=tables.value_producer.tolist(),
        backward=tables.backward,
    )
    flow.writes_by_name = [in_place[callee] for callee in tables.callee]
    columns = zip(tables.callee, tables.args, tables.result, tables.first_io, strict=True)
    for callee, args, result, first in columns:
        middle = first + sizes[args]
        takes: Ids = ()
        if takes_values[callee]:
            takes = tuple(io[first:middle])
        flow.takes.append(takes)
        gives: Ids = ()
        if gives_values[callee]:
            gives = tuple(io[middle : middle + sizes[result]])
        flow.gives.append(gives)
    kinds = {number for number, meta in enumerate(tables.metas) if is_parameter(meta.type)}
    flow.parameters = {value for value, meta in enumerate(tables.value_meta) if meta in kinds}
    return flow


def _from_events(source: EventSource) -> DataFlow:
    events = list(source.events())
    flow = DataFlow(
        starts=[event.start_ns for event in events],
        ends=[_known(event.end_ns) for event in events],
        threads=[event.thread for event in events],
        backward=[int(event.phase == "backward") for event in events],
    )
    values: dict[int, Value] = {}
    for event in events:
        is_report = event.kind in REPORTS
        takes: Ids = ()
        if not is_report and event.name != ACCUMULATE:
            takes = tuple([value.id for value in event.inputs])
        gives: Ids = ()
        if not is_report:
            gives = tuple([value.id for value in event.outputs])
        flow.takes.append(takes)
        flow.gives.append(gives)
        flow.writes_by_name.append(event.kind == "op" and writes_in_place(event.name))
        for value in (*event.inputs, *event.outputs):
            values[value.id] = value
    flow.parameters = {value.id for value in values.values() if is_parameter(value.type)}
    count = max(values, default=-1) + 1
    storages = [NONE] * count
    versions = [NONE] * count
    producers = [NONE] * count
    for number, value in values.items():
        storages[number] = _known(value.storage)
        versions[number] = _known(value.version)
        producers[number] = _known(value.producer)
    flow.storages = storages
    flow.versions = versions
    flow.producers = producers
    return flow


def _known(number: int | None) -> int:
    """Return a number, with NONE in place of None."""
    if number is None:
        return NONE
    return number


def writes_in_place(op: str) -> bool:
    """Return whether an op writes in place, by torch's own naming: ``aten::add_.Tensor``, ``aten::add.out``."""
    name, _, overload = op.partition(".")
    return (name.endswith("_") and not name.endswith("__")) or overload.endswith("out")


def is_parameter(python_type: str) -> bool:
    """Return whether a tensor of this class is part of a model rather than of the data."""
    return python_type.endswith(("Parameter", "Buffer"))


# ---------------------------------------------------------------- memory


def _follow_writes(flow: DataFlow, parents: Sequence[int]) -> None:
    """Replace each value that was overwritten, or whose maker is not known, by the last one written to its memory."""
    written = _written_storages(flow)
    if not written:
        return
    values = {value for value, storage in enumerate(flow.storages) if storage in written}
    memory = _Memory(flow, values)
    for is_begin, event in _begins_and_ends(flow, parents, values):
        if is_begin:
            memory.begin(event)
            flow.takes[event] = memory.read(flow.takes[event])
        else:
            memory.end(event)
            flow.gives[event] = memory.read(flow.gives[event])


def _written_storages(flow: DataFlow) -> set[int]:
    """Return the storages that are written in place, or that have a value whose maker is not known."""
    written: set[int] = set()
    for value, (storage, producer) in enumerate(zip(flow.storages, flow.producers, strict=True)):
        if storage in (NONE, value):
            continue
        if storage in written:
            continue
        if producer == NONE or _is_write(flow, producer, flow.takes[producer], value):
            written.add(storage)
    return written


def _is_write(flow: DataFlow, event: int, takes: Ids, given: int) -> bool:
    """Return whether an event changed the memory of a value that it took, and gave it again as ``given``.

    It did if the version is higher. Versions are compared within one storage only, since ``.data`` counts its own.
    """
    storages = flow.storages
    versions = flow.versions
    for taken in takes:
        if storages[taken] != storages[given]:
            continue
        if versions[taken] < versions[given] or flow.writes_by_name[event]:
            return True
    return False


class _Memory:
    """What each piece of memory holds, from one begin or end of an event to the next."""

    def __init__(self, flow: DataFlow, values: set[int]) -> None:
        self._flow = flow
        self._values = values
        """The values in memory that is written to; all others stay as they are."""
        self._clock = 0
        self._content: dict[int, int] = {}
        """By storage, the value written last. Before any write it is the first value that an event gave."""
        self._written_at: dict[int, int] = {}
        """By storage, when it was last written."""
        self._begun_at: dict[int, int] = {}
        """By event, when it began."""

    def begin(self, event: int) -> None:
        self._begun_at[event] = self._clock

    def read(self, values: Ids) -> Ids:
        """Return the values that are now in the memory of these values."""
        if self._values.isdisjoint(values):
            return values
        return tuple([self._read(value) if value in self._values else value for value in values])

    def _read(self, value: int) -> int:
        storage = self._flow.storages[value]
        created = self._flow.created_at.get(value, NONE)
        if created == NONE or self._written_at.get(storage, NONE) > created:
            return self._content.get(storage, value)
        return value

    def end(self, event: int) -> None:
        """End an event: note the values that it made, and its writes in place."""
        flow = self._flow
        for value in flow.gives[event]:
            if value not in self._values or flow.producers[value] != event:
                continue
            storage = flow.storages[value]
            if self._written_at.get(storage, NONE) > self._begun_at[event]:
                # An event in it wrote this value.
                continue
            self._clock += 1
            if _is_write(flow, event, flow.recorded_takes[event], value):
                self._content[storage] = value
                self._written_at[storage] = self._clock
                flow.writes.append(Write(event, value, self._clock))
            else:
                self._content.setdefault(storage, self._first_content(event, value))
            flow.created_at[value] = self._clock

    def _first_content(self, event: int, given: int) -> int:
        """Return what memory held before the first event that gave a value in it.

        If the event made a view, that is the value that it took.
        """
        storages = self._flow.storages
        for taken in self._flow.takes[event]:
            if storages[taken] == storages[given]:
                return taken
        return given


def _begins_and_ends(
    flow: DataFlow, parents: Sequence[int], values: set[int]
) -> Iterator[tuple[bool, int]]:
    """Yield (True, event) when an event begins and (False, event) when it ends, in order of time.

    Only events that take or give one of ``values`` are yielded.
    """
    chosen: list[int] = []
    columns = zip(flow.recorded_takes, flow.recorded_gives, strict=True)
    for event, (takes, gives) in enumerate(columns):
        if not values.isdisjoint(takes) or not values.isdisjoint(gives):
            chosen.append(event)
    last = _last_inside(parents)
    if len(set(flow.threads)) > 1:
        return _in_several_threads(flow, chosen, last)
    return _in_one_thread(chosen, last)


def _in_one_thread(chosen: Sequence[int], last: Sequence[int]) -> Iterator[tuple[bool, int]]:
    """Yield the begins and ends of events in one thread, where an event ends after the last one in it."""
    open_events: list[int] = []
    for event in chosen:
        while open_events and last[open_events[-1]] < event:
            yield False, open_events.pop()
        yield True, event
        open_events.append(event)
    while open_events:
        yield False, open_events.pop()


def _in_several_threads(
    flow: DataFlow, chosen: Sequence[int], last: Sequence[int]
) -> Iterator[tuple[bool, int]]:
    """Yield the begins and ends of events in several threads, where the recorded times order them."""
    moments: list[tuple[float, bool, int]] = []
    for event in chosen:
        end = last[event] + 1
        if flow.ends[event] != NONE:
            end = max(end, bisect_left(flow.starts, flow.ends[event], end))
        moments += [(event, True, event), (end - 0.5, False, event)]
    # Of events that end between the same two begins, the inner ones come first.
    moments.sort(key=lambda moment: (moment[0], moment[1], -moment[2]))
    for _, is_begin, event in moments:
        yield is_begin, event


def _last_inside(parents: Sequence[int]) -> list[int]:
    """Return for each event the last one in it; the event itself if there is none."""
    last = list(range(len(parents)))
    for event in range(len(parents) - 1, -1, -1):
        if parents[event] >= 0:
            last[parents[event]] = max(last[parents[event]], last[event])
    return last
