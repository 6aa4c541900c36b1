"""Counts the results of an expression over all its runs, and merges, unpacks and compares them.

For ``h, c = cell(x)``, run twice, the line shows what each target was assigned in both runs::

    Result   what one run returned, as tensors with roles: [0] f32[4, 8], [1] f32[4, 8]
    Outcome  the results of all runs, counted: {that result: 2}
    part     the outcome of one target: for ``h``, the [0] of each result
    forms_of what the row shows: the tensors of all results, merged where they have one structure
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.types import Event, Stats, Value
from torchglass.program.inner import is_summed_up
from torchglass.program.merge import UNKNOWN, MergedTensor, merge_tensors
from torchglass.program.recorded import Recorded


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredOutput:
    """The statistics of one output of several events, read from the trace on demand."""

    trace: Recorded
    events: Sequence[int]
    """The ids of the events."""
    index: int
    """Which of their outputs."""

    def stats(self) -> Iterator[Stats]:
        """Yield the statistics of each value that was measured."""
        for event in self.events:
            stats = self.trace.event(event).outputs[self.index].stats
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
    """What one call returned: its tensors or, without tensors, its text."""

    tensors: tuple[ResultTensor, ...]
    text: str = ""


ResultCounts = dict[tuple[Result, str | None], int]
"""How often each result came, by the result and the path of the module that was running."""


@dataclass(slots=True)
class Outcome:
    """The results of an expression over several runs."""

    counts: ResultCounts = field(default_factory=ResultCounts)
    parts: tuple[Outcome | None, ...] | None = None
    """For a tuple that is written out (``return a, b``), the results of its elements; otherwise None."""

    def add(self, result: Result, path: str | None, times: int) -> None:
        """Add a result that came so many times while the module at ``path`` was running."""
        key = (result, path)
        self.counts[key] = self.counts.get(key, 0) + times

    def __bool__(self) -> bool:
        return bool(self.counts) or self.parts is not None

    @property
    def times(self) -> int:
        """How many results there are."""
        whole = sum(self.counts.values())
        in_parts = 0
        for part in self.parts or ():
            if part is not None:
                in_parts = max(in_parts, part.times)
        return whole + in_parts


def module_path(event: Event) -> str | None:
    """Return the path of the module that an event was in, or the label of a root module; None outside modules."""
    if event.module == "":
        return event.root
    return event.module


def result_of(event: Event, measured: Sequence[MeasuredOutput]) -> Result:
    """Return what an event gave. ``measured`` has the statistics of its outputs, or is empty."""
    if not event.outputs:
        return Result((), event.result)
    if is_summed_up(event):
        return Result(())
    tensors: list[ResultTensor] = []
    for index, value in enumerate(event.outputs):
        role = value.role.removeprefix("out")
        stats = None
        if measured:
            stats = measured[index]
        tensors.append(_result_tensor(value, role, stats))
    return Result(tuple(tensors))


def changed_by(event: Event, measured: Sequence[MeasuredOutput]) -> Result:
    """Return the tensor that ``x[i] = y`` changed: the first argument."""
    values = event.outputs or event.inputs
    if not values:
        return Result(())
    stats = None
    if measured:
        stats = measured[0]
    return Result((_result_tensor(values[0], "", stats),))


def _result_tensor(value: Value, role: str, stats: MeasuredOutput | None) -> ResultTensor:
    return ResultTensor(role, value.dtype, value.shape, value.layout, stats)


def merged(outcomes: Iterable[Outcome | None]) -> Outcome:
    """Return one outcome with the results of several. It has parts only if all have the same number of parts."""
    whole = Outcome()
    several_parts: list[tuple[Outcome | None, ...]] = []
    for outcome in outcomes:
        if not outcome:
            continue
        for (result, path), times in outcome.counts.items():
            whole.add(result, path, times)
        if outcome.parts is not None:
            several_parts.append(outcome.parts)
    if len({len(parts) for parts in several_parts}) == 1:
        by_element = zip(*several_parts, strict=True)
        whole.parts = tuple(merged(same_element) or None for same_element in by_element)
    return whole


# ---------------------------------------------------------------- parts of results


def part(outcome: Outcome, index: int, length: int, starred: bool = False) -> Outcome:
    """Return what one target of an unpacking was assigned: the one at ``index`` of ``length`` targets.

    A negative index counts from the end. ``starred`` says that the target is ``*rest``.
    """
    taken = Outcome()
    for (result, path), times in outcome.counts.items():
        element = _element(result, index, length, starred)
        if element is not None:
            taken.add(element, path, times)
    if outcome.parts is None:
        return taken
    if starred:
        end = len(outcome.parts) + index - length + 1
        parts = outcome.parts[index:end]
    else:
        parts = outcome.parts[index : index + 1 or None]
    return merged([taken, *parts])


def _element(result: Result, index: int, length: int, starred: bool) -> Result | None:
    """Return the element at ``index`` of a result (several for ``starred``); None if it has no tensor."""
    if len(result.tensors) == 1 and result.tensors[0].role == "":
        return _row(result.tensors[0])
    index_of_head = _element_indices(result)
    size = max(index_of_head.values(), default=-1) + 1
    first = index
    last = index
    if starred:
        targets_after = length - index - 1
        last = size - 1 - targets_after
    elif index < 0:
        first = last = size + index
    tensors: list[ResultTensor] = []
    for tensor in result.tensors:
        head = _head(tensor.role)
        if first <= index_of_head[head] <= last:
            if not starred:
                tensor = tensor._replace(role=tensor.role.removeprefix(head))
            tensors.append(tensor)
    if tensors:
        return Result(tuple(tensors))
    return None


def _element_indices(result: Result) -> dict[str, int]:
    """Return the index of each element that has a tensor, by the first part of its role."""
    heads = list(dict.fromkeys(_head(tensor.role) for tensor in result.tensors))
    if all(head[:1] == "[" and head[1:-1].isdecimal() for head in heads):
        # Elements without a tensor are missing here, so the number in the role is the index.
        return {head: int(head[1:-1]) for head in heads}
    return {head: index for index, head in enumerate(heads)}


def _row(tensor: ResultTensor) -> Result | None:
    """Return one of the rows that a tensor is unpacked into; None if it has no dimension."""
    if tensor.shape:
        return Result((tensor._replace(shape=tensor.shape[1:], measured=None),))
    return None


def _head(role: str) -> str:
    """Return the first part of a role: ``[1]`` for ``[1]['k']``."""
    for index in range(1, len(role)):
        if role[index] in "[.":
            return role[:index]
    return role


# ---------------------------------------------------------------- merging


def forms_of(outcome: Outcome) -> list[list[MergedTensor]]:
    """Return the merged tensors of all results. Results of different structure or rank are merged separately."""
    results = [result for result, _ in outcome.counts if result.tensors]
    known = [result for result in results if not any(map(_is_unknown, result.tensors))]
    by_structure: dict[Hashable, list[Result]] = {}
    for result in known or results:
        structure = tuple(map(_structure, result.tensors))
        by_structure.setdefault(structure, []).append(result)
    forms: list[list[MergedTensor]] = []
    for alike in by_structure.values():
        by_role = zip(*(result.tensors for result in alike), strict=True)
        forms.append([_merge(tensors) for tensors in by_role])
    return forms


def _is_unknown(tensor: ResultTensor) -> bool:
    return tensor.shape is None and tensor.dtype == UNKNOWN


def _structure(tensor: ResultTensor) -> Hashable:
    """Return a key that is equal for tensors that may be merged."""
    rank = None
    if tensor.shape is not None:
        rank = len(tensor.shape)
    return (tensor.role, rank, tensor.layout)


def _merge(tensors: Sequence[ResultTensor]) -> MergedTensor:
    stats: list[Stats] = []
    for tensor in tensors:
        if tensor.measured is not None:
            stats.extend(tensor.measured.stats())
    return merge_tensors(tensors, stats=stats)


class PathsOutcome(NamedTuple):
    """An outcome, and the paths of all modules that had it."""

    paths: tuple[str | None, ...]
    outcome: Outcome


def by_path(outcome: Outcome) -> list[PathsOutcome]:
    """Split an outcome by the path of the module. Paths with equal results are in one group."""
    of_path: dict[str | None, Outcome] = {}
    for (result, path), times in outcome.counts.items():
        of_path.setdefault(path, Outcome()).add(result, path, times)
    groups: dict[Hashable, list[str | None]] = {}
    for path, path_outcome in of_path.items():
        groups.setdefault(_comparable(path_outcome), []).append(path)
    return [
        PathsOutcome(tuple(paths), merged(of_path[path] for path in paths))
        for paths in groups.values()
    ]


def _comparable(outcome: Outcome) -> Hashable:
    """Return the results of one path without the path and the statistics, with how often each came."""
    counts: dict[Result, int] = {}
    for (result, _), times in outcome.counts.items():
        tensors = tuple(tensor._replace(measured=None) for tensor in result.tensors)
        unmeasured = Result(tensors, result.text)
        counts[unmeasured] = counts.get(unmeasured, 0) + times
    return frozenset(counts.items())
