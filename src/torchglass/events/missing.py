"""The summary of dropped events: how often each module was called, how often each line ran, some statistics of values.

The gap event that stands for them has the summary as JSON in its ``detail``::

    {"whole": true,                                         all of them were counted
     "modules": [["model", "encoder", 40]],                 root, path, number of calls
     "places": [["train.py", 12, 12, 4, 20, 40]],           file, lines, columns, number of executions
     "mixed": [["train.py", 9, 9, 4, 15]],                  expressions that ran in several calls of their function
     "calls": [[-7, 40]],                                   40 were like the event that is 7 events before the gap
     "open": 2,                                             the next two events began among them
     "series": [["train.py", 12, 12, 4, 20, null,           an expression, outside all modules, with
                 [[0, 1, 0, …]]]]}                          the index of an execution and the fields of ``Stats``
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from math import isnan, nan
from typing import Any, NamedTuple, cast

from torchglass.events.types import Event, Location, Stats


class CodeRange(NamedTuple):
    """Where an expression of the program is written."""

    file: str
    line: int
    end_line: int
    col: int
    end_col: int


class ModuleKey(NamedTuple):
    """Which module ran."""

    root: str
    """The label of its root."""
    path: str


class SeriesKey(NamedTuple):
    """What gave a series of values: an expression, in calls of one module."""

    expression: CodeRange
    module: ModuleKey | None
    """The module in which it ran; None outside all modules."""


class SampledOutput(NamedTuple):
    """The statistics of the first output of one execution."""

    times_before: int
    """How many times the expression had run before in the gap."""
    stats: Stats


@dataclass(frozen=True)
class Missing:
    """The summary of the events that one gap stands for."""

    is_complete: bool = False
    """Whether all of them were counted."""
    module_calls: Counter[ModuleKey] = field(default_factory=Counter[ModuleKey])
    """The number of calls of each module."""
    executions: Counter[CodeRange] = field(default_factory=Counter[CodeRange])
    """The number of executions of each call that the program's code makes."""
    mixed: frozenset[CodeRange] = frozenset()
    """The expressions that were executed from several stacks, or of which not all executions were counted."""
    still_open: int = 0
    """How many calls began among them and had not ended when events were kept again. These are the next events."""
    series: dict[SeriesKey, list[SampledOutput]] = field(
        default_factory=dict[SeriesKey, list[SampledOutput]]
    )
    """Statistics of some outputs of such calls, in order."""
    alike_by_distance: Counter[int] = field(default_factory=Counter[int])
    """How many of them were like a kept event, by its distance: its id minus that of the gap."""

    def text(self) -> str:
        """Return the summary as JSON."""
        series: list[list[Any]] = []
        for (expression, module), samples in self.series.items():
            module_fields = None
            if module:
                module_fields = list(module)
            series.append([*expression, module_fields, list(map(_json_sample, samples))])
        return json.dumps(
            {
                "whole": self.is_complete,
                "modules": [[*module, number] for module, number in self.module_calls.items()],
                "places": [[*expression, number] for expression, number in self.executions.items()],
                "calls": [
                    [distance, number] for distance, number in self.alike_by_distance.items()
                ],
                "mixed": [list(expression) for expression in sorted(self.mixed)],
                "open": self.still_open,
                "series": series,
            }
        )


_COUNTS = Stats._fields.index("min")
"""How many fields of ``Stats`` come before ``min``. They are counts, which are whole numbers."""
_RANGE_TYPES = (str, int, int, int, int)
"""The types of the fields of ``CodeRange``."""


def is_gap(event: Event) -> bool:
    """Return whether an event stands for others that were dropped."""
    return event.kind == "unseen" and event.name == "gap"


def missing_of(event: Event) -> Missing:
    """Return the summary of the events that a gap stands for. It may come from a file, so it is checked."""
    return _read(event.detail)


@lru_cache(maxsize=64)
def _read(text: str) -> Missing:
    try:
        summary = json.loads(text)
    except ValueError:
        return Missing()
    if not isinstance(summary, dict):
        return Missing()
    fields = cast("dict[str, Any]", summary)
    modules = _read_counts(fields.get("modules"), (str, str))
    executions = _read_counts(fields.get("places"), _RANGE_TYPES)
    alike = _read_counts(fields.get("calls"), (int,))
    mixed = [_as_list(each) for each in _as_list(fields.get("mixed"))]
    still_open = fields.get("open")
    if type(still_open) is not int:
        still_open = 0
    return Missing(
        is_complete=fields.get("whole") is True,
        module_calls=Counter({ModuleKey(*key): number for key, number in modules.items()}),
        executions=Counter({CodeRange(*key): number for key, number in executions.items()}),
        mixed=frozenset(
            CodeRange(*each) for each in mixed if tuple(map(type, each)) == _RANGE_TYPES
        ),
        still_open=still_open,
        series=_read_series(fields.get("series")),
        alike_by_distance=Counter({distance: number for (distance,), number in alike.items()}),
    )


def _json_sample(sample: SampledOutput) -> list[float | None]:
    """Return a sample for JSON, with six digits for each number, and None for NaN, which JSON does not have."""
    numbers: list[float | None] = [sample.times_before]
    for number in sample.stats:
        if isnan(number):
            numbers.append(None)
        else:
            numbers.append(float(f"{number:.6g}"))
    return numbers


def _as_list(item: Any) -> list[Any]:
    """Return an item if it is a list, or else an empty list."""
    if isinstance(item, list):
        return cast("list[Any]", item)
    return []


def _read_series(item: Any) -> dict[SeriesKey, list[SampledOutput]]:
    """Return the samples of each series. Leave out anything that is not well-formed."""
    series: dict[SeriesKey, list[SampledOutput]] = {}
    for row in map(_as_list, _as_list(item)):
        if len(row) != len(CodeRange._fields) + 2:
            continue
        *expression, module_fields, samples = row
        if tuple(map(type, expression)) != _RANGE_TYPES or not isinstance(samples, list):
            continue
        module = None
        if isinstance(module_fields, list):
            names = list(map(str, cast("list[Any]", module_fields)))
            if len(names) != len(ModuleKey._fields):
                continue
            module = ModuleKey(*names)
        series[SeriesKey(CodeRange(*expression), module)] = [
            _read_sample(numbers)
            for numbers in map(_as_list, _as_list(samples))
            if _is_sample(numbers)
        ]
    return series


def _is_sample(numbers: list[Any]) -> bool:
    if len(numbers) != 1 + len(Stats._fields):
        return False
    return all(number is None or type(number) in (int, float) for number in numbers)


def _read_sample(numbers: list[Any]) -> SampledOutput:
    times_before, *statistics = numbers
    counts = [_whole(count) for count in statistics[:_COUNTS]]
    reals = [nan if real is None else float(real) for real in statistics[_COUNTS:]]
    return SampledOutput(_whole(times_before), Stats(*counts, *reals))


def _whole(number: float | None) -> int:
    """Return a number as an int, or 0 if it is missing."""
    if number is None or isnan(number):
        return 0
    return int(number)


def _read_counts(item: Any, types: tuple[type, ...]) -> Counter[Any]:
    """Return the counts of a list of rows, each with fields of some types and a count. Leave out all other rows."""
    counts: Counter[Any] = Counter()
    for fields in map(_as_list, _as_list(item)):
        if tuple(map(type, fields)) == (*types, int):
            counts[tuple(fields[:-1])] += fields[-1]
    return counts


def code_range(location: Location) -> CodeRange:
    """Return where the expression at a location is written."""
    return CodeRange(
        location.file,
        location.line,
        location.end_line,
        location.col,
        location.end_col,
    )
