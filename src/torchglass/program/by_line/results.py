"""The results of an expression over all its runs: counts equal ones, and splits and merges them.

A ``Result`` is what one call returned. An ``Outcome`` counts the results of many runs. The functions below make
results from events, take outcomes apart (``part``, ``by_path``) and merge them (``merged``, ``forms_of``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.types import Event, Stats, Value
from torchglass.program.inner import is_summed_up
from torchglass.program.merge import UNKNOWN, MergedTensor, merge_tensors
from torchglass.program.recorded import Recorded


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredOutput:
    """The statistics of one output of several events; they are read when they are asked for."""

    trace: Recorded
    numbers: Sequence[int]
    """The ids of the events."""
    place: int
    """The index of the output."""

    def stats(self) -> Iterator[Stats]:
        """Yield the statistics of each value that was measured."""
        for number in self.numbers:
            stats = self.trace.event(number).outputs[self.place].stats
            if stats is not None:
                yield stats


class ResultTensor(NamedTuple):
    """One tensor of a result."""

    role: str
    """Where it is in the result: ``[0]`` or ``.logits``; "" if it is the result itself."""
    dtype: str
    shape: tuple[int, ...] | None
    layout: str
    measured: MeasuredOutput | None = None
    """Its statistics, if it was measured."""


class Result(NamedTuple):
    """What one call returned: its tensors or, if there is none, its text."""

    items: tuple[ResultTensor, ...]
    text: str = ""


Counted = dict[tuple[Result, str | None], int]
"""How often each result occurred, keyed by the result and the path of the module that was running."""


@dataclass(slots=True)
class Outcome:
    """The results of an expression over several runs."""

    counted: Counted = field(default_factory=Counted)
    parts: tuple[Outcome | None, ...] | None = None
    """For a tuple in the source (``return a, b``), the results of its elements; otherwise None."""

    def add(self, result: Result, path: str | None, times: int) -> None:
        """Count a result that occurred ``times`` times while the module at ``path`` was running."""
        key = (result, path)
        self.counted[key] = self.counted.get(key, 0) + times

    def __bool__(self) -> bool:
        return bool(self.counted) or self.parts is not None

    @property
    def times(self) -> int:
        """Return how often there was a result."""
        of_parts = [part.times for part in self.parts or () if part is not None]
        return sum(self.counted.values()) + max(of_parts, default=0)


def module_path(event: Event) -> str | None:
    """Return the path of the module that an event was in, or its label if that is a root; None outside modules."""
    if event.module == "":
        return event.root
    return event.module


def result_of(event: Event, measured: Sequence[MeasuredOutput]) -> Result:
    """Return what an event returned. ``measured`` has the statistics of its outputs, or is ``()``."""
    if not event.outputs:
        return Result((), event.result)
    if is_summed_up(event):
        return Result(())
    statistics: Sequence[MeasuredOutput | None] = measured or [None] * len(event.outputs)
    items = [_item(*each) for each in zip(event.outputs, statistics, strict=True)]
    return Result(tuple(items))


def _item(value: Value, measured: MeasuredOutput | None) -> ResultTensor:
    return ResultTensor(
        value.role.removeprefix("out"), value.dtype, value.shape, value.layout, measured
    )


def changed_by(event: Event, measured: Sequence[MeasuredOutput]) -> Result:
    """Return the tensor that ``x[i] = y`` changed: the first argument."""
    changed = event.outputs[:1] or event.inputs[:1]
    statistics = None
    if measured:
        statistics = measured[0]
    items: list[ResultTensor] = []
    for value in changed:
        items.append(ResultTensor("", value.dtype, value.shape, value.layout, statistics))
    return Result(tuple(items))


def merged(outcomes: Iterable[Outcome | None]) -> Outcome:
    """Return one outcome with the results of several. It has parts only if all have the same number of them."""
    known = [each for each in outcomes if each]
    whole = Outcome()
    for each in known:
        for (result, path), times in each.counted.items():
            whole.add(result, path, times)
    parts = [each.parts for each in known if each.parts is not None]
    lengths = set(map(len, parts))
    if len(lengths) == 1:
        whole.parts = tuple([merged(column) or None for column in zip(*parts, strict=True)])
    return whole


# ---------------------------------------------------------------- parts of results


def part(outcome: Outcome, index: int, length: int, starred: bool = False) -> Outcome:
    """Return what one target of an unpacking was assigned: the one at ``index`` of ``length``, or ``*starred``.

    A negative index counts from the end.
    """
    taken = Outcome()
    for (result, path), times in outcome.counted.items():
        element = _element(result, index, length, starred)
        if element is not None:
            taken.add(element, path, times)
    if outcome.parts is None:
        return taken
    if starred:
        end = len(outcome.parts) + index - length + 1
        parts = outcome.parts[index:end]
    elif index == -1:
        parts = outcome.parts[-1:]
    else:
        parts = outcome.parts[index : index + 1]
    return merged([taken, *parts])


def _element(result: Result, index: int, length: int, starred: bool) -> Result | None:
    """Return the element at ``index`` of a result (several for ``starred``); None if it has no tensor."""
    if len(result.items) == 1 and result.items[0].role == "":
        return _row(result.items[0])
    places = _places(result)
    size = max(places.values(), default=-1) + 1
    if starred:
        last = size - (length - index)
        chosen = {head for head, place in places.items() if index <= place <= last}
    else:
        wanted = index
        if index < 0:
            wanted = size + index
        chosen = {head for head, place in places.items() if place == wanted}
    items = [item for item in result.items if _head(item.role) in chosen]
    if not items:
        return None
    if not starred:
        items = [item._replace(role=item.role[len(_head(item.role)) :]) for item in items]
    return Result(tuple(items))


def _places(result: Result) -> dict[str, int]:
    """Return the index of each element that has a tensor, keyed by the first part of its role."""
    heads = list(dict.fromkeys(_head(item.role) for item in result.items))
    if all(head[:1] == "[" and head[1:-1].isdecimal() for head in heads):
        # Elements without a tensor have no item, so take the index from the role.
        return {head: int(head[1:-1]) for head in heads}
    return {head: place for place, head in enumerate(heads)}


def _row(item: ResultTensor) -> Result | None:
    """Return one of the rows that a tensor is unpacked into."""
    if item.shape:
        return Result((item._replace(shape=item.shape[1:], measured=None),))
    return None


def _head(role: str) -> str:
    """Return the first part of a role: ``[1]`` for ``[1]['k']``."""
    for at, char in enumerate(role):
        if at > 0 and char in "[.":
            return role[:at]
    return role


# ---------------------------------------------------------------- merging


def forms_of(outcome: Outcome) -> list[list[MergedTensor]]:
    """Return the merged tensors of all results. Results of different structure or rank are merged separately."""
    results = [result for result, _ in outcome.counted if result.items]
    known = [each for each in results if not any(map(_is_unknown, each.items))]
    by_structure: dict[tuple[object, ...], list[Result]] = {}
    for result in known or results:
        by_structure.setdefault(tuple(map(_structure, result.items)), []).append(result)
    found: list[list[MergedTensor]] = []
    for alike in by_structure.values():
        columns = zip(*(result.items for result in alike), strict=True)
        found.append([_merge_column(column) for column in columns])
    return found


def _is_unknown(item: ResultTensor) -> bool:
    return item.shape is None and item.dtype == UNKNOWN


def _structure(item: ResultTensor) -> tuple[object, ...]:
    rank = None
    if item.shape is not None:
        rank = len(item.shape)
    return (item.role, rank, item.layout)


def _merge_column(items: Sequence[ResultTensor]) -> MergedTensor:
    stats: list[Stats] = []
    for item in items:
        if item.measured is not None:
            stats.extend(item.measured.stats())
    return merge_tensors(items, stats=stats)


def by_path(outcome: Outcome) -> list[tuple[tuple[str | None, ...], Outcome]]:
    """Split an outcome by the path of the module. Paths with equal results are in one group."""
    of_path: dict[str | None, Outcome] = {}
    for (result, path), times in outcome.counted.items():
        of_path.setdefault(path, Outcome()).add(result, path, times)
    groups: dict[object, list[str | None]] = {}
    for path, each in of_path.items():
        counted: dict[Result, int] = {}
        for (result, _), times in each.counted.items():
            plain = _unmeasured(result)
            counted[plain] = counted.get(plain, 0) + times
        groups.setdefault(frozenset(counted.items()), []).append(path)
    found: list[tuple[tuple[str | None, ...], Outcome]] = []
    for paths in groups.values():
        found.append((tuple(paths), merged(of_path[path] for path in paths)))
    return found


def _unmeasured(result: Result) -> Result:
    return Result(tuple(item._replace(measured=None) for item in result.items), result.text)
