"""What each event took and gave, by the numbers of values: the columns that data flow is found in."""

from __future__ import annotations

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
