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
        return value in self._sources([other])

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
        """The events that read each value, in order."""
        by_value: dict[int, list[int]] = {}
        for event, takes in enumerate(self.takes):
            for value in dict.fromkeys(takes):
                by_value.setdefault(value, []).append(event)
        return by_value

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
    """Find the data flow of a program from its events and the ids of their parents (-1: none).

    This takes two steps: read what was recorded of each event and value, then follow the writes in place
    (``_follow_writes``), since a recorded input may have been overwritten through another name.
    """
    if isinstance(source, TableEvents):
        flow = _from_columns(source.tables)
    else:
        flow = _from_events(source)
    for module in source.modules():
        flow.parameters.update(value.id for value in module.parameters)
    flow.recorded_takes = flow.takes[:]
    flow.recorded_gives = flow.gives[:]
    _follow_writes(flow, parents)
    return flow


def _takes_nothing(kind: str, name: str) -> bool:
    """Return whether the inputs of an event are not read by it."""
    # AccumulateGrad lists the leaves that it gave gradients, and does not read them.
    return kind in REPORTS or name == ACCUMULATE


def _from_columns(tables: Tables) -> DataFlow:
    """Read the recorded data flow from tables, without making an ``Event`` of each row."""
    flow = DataFlow(
        starts=tables.start_ns,
        ends=tables.end_ns,
        threads=tables.thread,
        storages=tables.value_storage.tolist(),
        versions=tables.value_version.tolist(),
        producers=tables.value_producer.tolist(),
        backward=tables.backward,
    )
    in_place = [_is_op_in_place(callee.kind, callee.name) for callee in tables.callees]
    flow.writes_by_name = [in_place[callee] for callee in tables.callee]
    takes_nothing = [_takes_nothing(callee.kind, callee.name) for callee in tables.callees]
    gives_nothing = [callee.kind in REPORTS for callee in tables.callees]
    # The inputs and outputs of all events are in one list: the inputs of an event, then its outputs.
    io = tables.io.tolist()
    sizes = form_sizes(tables)
    columns = zip(tables.callee, tables.args, tables.result, tables.first_io, strict=True)
    for callee, args, result, first_input in columns:
        first_output = first_input + sizes[args]
        takes = ()
        if not takes_nothing[callee]:
            takes = tuple(io[first_input:first_output])
        gives = ()
        if not gives_nothing[callee]:
            gives = tuple(io[first_output : first_output + sizes[result]])
        flow.takes.append(takes)
        flow.gives.append(gives)
    metas = {number for number, meta in enumerate(tables.metas) if is_parameter(meta.type)}
    flow.parameters = {value for value, meta in enumerate(tables.value_meta) if meta in metas}
    return flow


def _from_events(source: EventSource) -> DataFlow:
    """Read the recorded data flow from events."""
    events = list(source.events())
    flow = DataFlow(
        starts=[event.start_ns for event in events],
        ends=[_number_or_none(event.end_ns) for event in events],
        threads=[event.thread for event in events],
        backward=[int(event.phase == "backward") for event in events],
    )
    values: dict[int, Value] = {}
    for event in events:
        flow.writes_by_name.append(_is_op_in_place(event.kind, event.name))
        takes: Ids = ()
        if not _takes_nothing(event.kind, event.name):
            takes = tuple(value.id for value in event.inputs)
        gives: Ids = ()
        if event.kind not in REPORTS:
            gives = tuple(value.id for value in event.outputs)
        flow.takes.append(takes)
        flow.gives.append(gives)
        values.update({value.id: value for value in (*event.inputs, *event.outputs)})
    flow.parameters = {value.id for value in values.values() if is_parameter(value.type)}
    count = max(values, default=-1) + 1
    flow.storages = [NONE] * count
    flow.versions = [NONE] * count
    flow.producers = [NONE] * count
    for number, value in values.items():
        flow.storages[number] = _number_or_none(value.storage)
        flow.versions[number] = _number_or_none(value.version)
        flow.producers[number] = _number_or_none(value.producer)
    return flow


def _number_or_none(number: int | None) -> int:
    """Return a number as the tables have it, with NONE for None."""
    if number is None:
        return NONE
    return number


def _is_op_in_place(kind: str, name: str) -> bool:
    return kind == "op" and writes_in_place(name)


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
    for edge in _event_edges(flow, parents, values):
        event = edge.event
        if edge.is_begin:
            memory.begin(event)
            flow.takes[event] = memory.read(flow.takes[event])
        else:
            memory.end(event)
            flow.gives[event] = memory.read(flow.gives[event])


def _written_storages(flow: DataFlow) -> set[int]:
    """Return the storages that are written in place, or that have a value whose maker is not known."""
    written: set[int] = set()
    for value, (storage, producer) in enumerate(zip(flow.storages, flow.producers, strict=True)):
        if storage in (NONE, value) or storage in written:
            continue
        if producer == NONE or _is_write(flow, producer, flow.takes[producer], value):
            written.add(storage)
    return written


def _is_write(flow: DataFlow, event: int, takes: Ids, given: int) -> bool:
    """Return whether an event changed the memory of a value that it took, and gave it again as ``given``.

    It did if the version is higher. Versions are compared within one storage only, since ``.data`` counts its own.
    """
    storage = flow.storages[given]
    version = flow.versions[given]
    for taken in takes:
        if flow.storages[taken] != storage:
            continue
        if flow.versions[taken] < version or flow.writes_by_name[event]:
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
        """By storage, the value that was written last; before any write, the first value that an event gave."""
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
        return tuple([self._read(value) for value in values])

    def _read(self, value: int) -> int:
        if value not in self._values:
            return value
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


class _Edge(NamedTuple):
    """The begin or the end of an event."""

    event: int
    is_begin: bool


def _event_edges(flow: DataFlow, parents: Sequence[int], values: set[int]) -> Iterator[_Edge]:
    """Yield the begin and the end of each event that takes or gives one of ``values``, in order of time."""
    chosen: list[int] = []
    recorded = zip(flow.recorded_takes, flow.recorded_gives, strict=True)
    for event, (takes, gives) in enumerate(recorded):
        if not values.isdisjoint(takes) or not values.isdisjoint(gives):
            chosen.append(event)
    last = _last_inside(parents)
    if len(set(flow.threads)) > 1:
        return _edges_in_several_threads(flow, chosen, last)
    return _edges_in_one_thread(chosen, last)


def _edges_in_one_thread(chosen: Sequence[int], last: Sequence[int]) -> Iterator[_Edge]:
    """Yield the edges of events in one thread, where an event ends after the last one in it."""
    open_events: list[int] = []
    for event in chosen:
        while open_events and last[open_events[-1]] < event:
            yield _Edge(open_events.pop(), is_begin=False)
        yield _Edge(event, is_begin=True)
        open_events.append(event)
    while open_events:
        yield _Edge(open_events.pop(), is_begin=False)


def _edges_in_several_threads(
    flow: DataFlow, chosen: Sequence[int], last: Sequence[int]
) -> Iterator[_Edge]:
    """Yield the edges of events in several threads, ordered by the recorded times."""
    keys: dict[_Edge, tuple[float, bool, int]] = {}
    for event in chosen:
        next_begin = last[event] + 1
        if flow.ends[event] != NONE:
            next_begin = max(next_begin, bisect_left(flow.starts, flow.ends[event], next_begin))
        # A begin is at the number of its event, an end just before the next begin. Of the ends there, those of inner
        # events come first.
        keys[_Edge(event, is_begin=True)] = (event, True, -event)
        keys[_Edge(event, is_begin=False)] = (next_begin - 0.5, False, -event)
    return iter(sorted(keys, key=keys.__getitem__))


def _last_inside(parents: Sequence[int]) -> list[int]:
    """Return for each event the last one in it; the event itself if there is none."""
    last = list(range(len(parents)))
    for event in reversed(range(len(parents))):
        parent = parents[event]
        if parent >= 0:
            last[parent] = max(last[parent], last[event])
    return last
