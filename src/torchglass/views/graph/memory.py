"""Writes in place: who reads memory reads what was last written there, whatever name the write went through.

A tensor that was written through a view is a new value that no event gave: `a[0].add_(1)` changes `a`, and the next
step that takes `a` must be joined to that write. Memory is known as a whole, not which part of it a view covers, so
a write counts for everybody who shares it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from torchglass.events.tables import NONE
from torchglass.views.graph.values import FlowValues, Ids


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
