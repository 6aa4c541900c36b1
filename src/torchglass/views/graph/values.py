"""What each event took and gave, by the numbers of values: the columns that data flow is found in."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from torchglass.events.gradients import ACCUMULATE
from torchglass.events.tables import NONE, Tables, form_sizes
from torchglass.events.types import Value
from torchglass.views.digest import HasTables, Recorded

Ids = tuple[int, ...]
TELLS = ("variable", "mark")
"""Kinds of events that tell of values, and neither take nor give any. AccumulateGrad names the leaves that it gave
gradients, and does not read them."""


@dataclass(slots=True)
class FlowValues:
    """The values of a trace; lists by event or by value, in order of their numbers."""

    takes: list[Ids] = field(default_factory=list[Ids])
    gives: list[Ids] = field(default_factory=list[Ids])
    starts: Sequence[int] = ()
    ends: Sequence[int] = ()
    """NONE: still open."""
    threads: Sequence[object] = ()
    storages: list[int] = field(default_factory=list[int])
    """Equal numbers share memory; NONE: not known."""
    versions: list[int] = field(default_factory=list[int])
    producers: list[int] = field(default_factory=list[int])
    """The innermost event that made each; NONE: it was there before, or was made out of sight."""
    parameters: set[int] = field(default_factory=set[int])
    recorded_takes: list[Ids] = field(default_factory=list[Ids])
    """As recorded, where ``takes`` has been followed through memory."""
    recorded_gives: list[Ids] = field(default_factory=list[Ids])
    backward: Sequence[int] = ()
    """1 for events of a backward pass."""
    writes: list[bool] = field(default_factory=list[bool])
    """Whether an event is by its name an op that writes in place: its version is counted only after it."""

    def __len__(self) -> int:
        return len(self.takes)


def values_of(trace: Recorded) -> FlowValues:
    """Read the values of a trace, from its columns where it has them."""
    found = _from_columns(trace.tables) if isinstance(trace, HasTables) else _from_events(trace)
    found.parameters |= {value.id for module in trace.modules() for value in module.parameters}
    found.recorded_takes, found.recorded_gives = found.takes[:], found.gives[:]
    return found


def _from_columns(tables: Tables) -> FlowValues:
    sizes, io = form_sizes(tables), tables.io.tolist()
    tells = {number for number, what in enumerate(tables.whats) if what.kind in TELLS}
    adds = {number for number, what in enumerate(tables.whats) if what.name == ACCUMULATE}
    found = FlowValues(
        starts=tables.start_ns, ends=tables.end_ns, threads=tables.thread, storages=tables.value_storage.tolist(),
        versions=tables.value_version.tolist(), producers=tables.value_producer.tolist(), backward=tables.backward,
    )  # fmt: skip
    takes, gives = found.takes, found.gives
    in_place = [what.kind == "op" and writes_in_place(what.name) for what in tables.whats]
    found.writes = [in_place[what] for what in tables.what]
    columns = zip(tables.what, tables.args, tables.result, tables.first_io, strict=True)
    for what, args, result, first in columns:
        middle = first + sizes[args]
        takes.append(() if what in tells or what in adds else tuple(io[first:middle]))
        gives.append(() if what in tells else tuple(io[middle : middle + sizes[result]]))
    kinds = {number for number, meta in enumerate(tables.metas) if is_parameter(meta.type)}
    found.parameters = {value for value, meta in enumerate(tables.value_meta) if meta in kinds}
    return found


def _from_events(trace: Recorded) -> FlowValues:
    events = list(trace.events())
    found = FlowValues(
        starts=[event.start_ns for event in events],
        ends=[NONE if event.end_ns is None else event.end_ns for event in events],
        threads=[event.thread for event in events],
        backward=[int(event.phase == "backward") for event in events],
    )
    for event in events:
        tells = event.kind in TELLS
        found.writes.append(event.kind == "op" and writes_in_place(event.name))
        found.takes.append(() if tells or event.name == ACCUMULATE else tuple(value.id for value in event.inputs))
        found.gives.append(() if tells else tuple(value.id for value in event.outputs))
        for value in (*event.inputs, *event.outputs):
            _note(found, value)
    return found


def _note(found: FlowValues, value: Value) -> None:
    more = value.id + 1 - len(found.storages)
    for column in (found.storages, found.versions, found.producers):
        column += [NONE] * more
    found.storages[value.id] = NONE if value.storage is None else value.storage
    found.versions[value.id] = NONE if value.version is None else value.version
    found.producers[value.id] = NONE if value.producer is None else value.producer
    if is_parameter(value.type):
        found.parameters.add(value.id)


def writes_in_place(op: str) -> bool:
    """``aten::add_.Tensor``, ``aten::add.out``: what torch's own naming says."""
    name, _, overload = op.partition(".")
    return (name.endswith("_") and not name.endswith("__")) or overload.endswith("out")


def is_parameter(python_type: str) -> bool:
    """Whether a tensor of this class is part of a model rather than of the data."""
    return python_type.endswith(("Parameter", "Buffer"))


# ---------------------------------------------------------------- memory

# Writes in place: who reads memory reads what was last written there, whatever name the write went through.


def follow_writes(values: FlowValues, parents: Sequence[int]) -> None:
    """Put in the place of each value that was overwritten, or made out of sight, the one that was written last."""
    shared = _written_storages(values)
    if not shared:
        return
    touched = {value for value, storage in enumerate(values.storages) if storage in shared}
    memory = _Memory(values)
    for _, is_opening, event in _edges(values, parents, touched):
        if is_opening:
            memory.open(event)
            values.takes[event] = memory.read(values.takes[event], touched)
        else:
            memory.write(event, touched)
            values.gives[event] = memory.read(values.gives[event], touched)


def _written_storages(values: FlowValues) -> set[int]:
    """Memory of which not every value tells where its content comes from."""
    found: set[int] = set()
    storages, producers = values.storages, values.producers
    for value, (storage, producer) in enumerate(zip(storages, producers, strict=True)):
        if storage == NONE:
            continue
        if producer == NONE:
            if storage != value:
                found.add(storage)
        elif storage != value and storage not in found and _is_write(values, producer, values.takes[producer], value):
            found.add(storage)
    return found


def _is_write(values: FlowValues, event: int, takes: Ids, given: int) -> bool:
    """Whether an event gave the memory that it took, changed.

    Versions are compared as recorded, within one tensor's own count: ``.data`` has another.
    """
    storages, versions, by_name = values.storages, values.versions, values.writes[event]
    return any(storages[taken] == storages[given] and (by_name or versions[taken] < versions[given]) for taken in takes)


class _Memory:
    """What each piece of memory holds, while the events go by."""

    def __init__(self, values: FlowValues) -> None:
        self._values = values
        self._now = 0
        self._last: dict[int, int] = {}
        """By storage the value that was written last; before any write, the first one that an event gave."""
        self._written_at: dict[int, int] = {}
        self._made_at: dict[int, int] = {}
        self._opened_at: dict[int, int] = {}

    def open(self, event: int) -> None:
        self._opened_at[event] = self._now

    def read(self, ids: Ids, touched: set[int]) -> Ids:
        return tuple([self._read(value) if value in touched else value for value in ids])

    def _read(self, value: int) -> int:
        storage = self._values.storages[value]
        made = self._made_at.get(value, NONE)
        if made == NONE or self._written_at.get(storage, NONE) > made:
            return self._last.get(storage, value)
        return value

    def write(self, event: int, touched: set[int]) -> None:
        """An event has ended: what it gave is new, or what it took has changed."""
        values = self._values
        for value in values.gives[event]:
            if value not in touched or values.producers[value] != event:
                continue
            storage = values.storages[value]
            if self._written_at.get(storage, NONE) > self._opened_at[event]:
                continue  # by something in it, whose value this is
            self._now += 1
            if _is_write(values, event, values.recorded_takes[event], value):
                self._last[storage] = value
                self._written_at[storage] = self._now
            else:
                self._last.setdefault(storage, value)
            self._made_at[value] = self._now


def _edges(values: FlowValues, parents: Sequence[int], touched: set[int]) -> list[tuple[float, bool, int]]:
    """Openings and endings of the events that have to do with such memory, in order."""
    last = _last_inside(parents)
    threads = len(set(values.threads)) > 1
    found: list[tuple[float, bool, int]] = []
    for event, (takes, gives) in enumerate(zip(values.takes, values.gives, strict=True)):
        if touched.isdisjoint(takes) and touched.isdisjoint(gives):
            continue
        end = last[event] + 1
        if threads and values.ends[event] != NONE:
            # What other threads began before it ended comes before its end.
            end = max(end, bisect_left(values.starts, values.ends[event], end))
        found += [(event, True, event), (end - 0.5, False, event)]
    # Several that end between the same two openings: the inner ones first.
    return sorted(found, key=lambda edge: (edge[0], edge[1], -edge[2]))


def _last_inside(parents: Sequence[int]) -> list[int]:
    """For each event the last one in it, itself where there is none."""
    last = list(range(len(parents)))
    for event in range(len(parents) - 1, -1, -1):
        if parents[event] >= 0:
            last[parents[event]] = max(last[parents[event]], last[event])
    return last
