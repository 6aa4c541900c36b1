"""A value over the whole run, as numbers: the loss of each step, or the norm of a layer's output.

A *series* belongs to one expression in calls of one module (``SeriesKey``). Its *points* are the values of the kept
events, and of those that were dropped the sample that is left in the gap that stands for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

from torchglass.errors import NotRecorded, UsageError, closest
from torchglass.events.missing import Missing, ModuleKey, SeriesKey, code_range, missing_of
from torchglass.events.schema import NONE
from torchglass.events.selection import base_name, ends_with_path
from torchglass.events.tables import Tables
from torchglass.events.types import Location, Stats, location_dict

BARS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 12
"""Characters of a sparkline: enough to see a trend, short enough to fit beside a line of code."""
NOT_FINITE = "·"
"""The bar where no number is finite."""
VALUE = "value"
QUANTITIES = (VALUE, *Stats._fields)
"""What ``Series.numbers`` can return."""
_MAX_PLACES_NAMED = 4
"""Places that an error message names; more would not fit a line."""


class Point(NamedTuple):
    """A value at one time."""

    number: int
    """How many times the expression had run before; in a loop, the number of the iteration, from 0."""
    event: int | None
    """The event that gave the value; None if it was dropped."""
    stats: Stats

    @property
    def value(self) -> float:
        """The number itself or, for several numbers, their norm."""
        if self.stats.count == 1:
            return self.stats.mean
        return self.stats.norm


@dataclass(frozen=True)
class Series:
    """The numbers that one expression gave, from the first time it ran to the last."""

    name: str
    """The variable, expression or module that was asked for."""
    place: Location
    """Where the expression is written."""
    module: str | None
    """The path of the module that it ran in; None outside any module."""
    times: int
    """How often the expression ran, as far as is known."""
    points: tuple[Point, ...] = field(repr=False)
    """Every time that was kept, and a sample of the times that were dropped."""

    def __len__(self) -> int:
        return len(self.points)

    def iterations(self) -> list[int]:
        """Return the number of each point: which time it was, from 0 on."""
        return [point.number for point in self.points]

    def numbers(self, what: str = VALUE) -> list[float]:
        """Return a number for each point: its value (the norm if it has several numbers), or one of its statistics."""
        if what not in QUANTITIES:
            raise UsageError(f"a series has no {what!r}; {closest(what, QUANTITIES)}")
        if what == VALUE:
            return [point.value for point in self.points]
        return [float(getattr(point.stats, what)) for point in self.points]

    def sparkline(self, what: str = VALUE, width: int = SPARKLINE_WIDTH) -> str:
        """Return the curve as a few bars: ``▇▅▃▂▁``."""
        return bars(self.iterations(), self.numbers(what), width)

    def to_dict(self) -> dict[str, Any]:
        """Return the series as plain data for ``json.dump``."""
        return {
            "name": self.name,
            "place": location_dict(self.place),
            "module": self.module,
            "times": self.times,
            "points": [
                {"number": number, "event": event, **_finite(stats)}
                for number, event, stats in self.points
            ],
        }

    def __str__(self) -> str:
        numbers = self.numbers()
        ends = f"{numbers[0]:.4g} {self.sparkline()} {numbers[-1]:.4g}"
        kept = ""
        if len(self) < self.times:
            kept = f", {len(self):,} of them known"
        return f"{self.name} = {ends}  {_file_and_line(self.place)}, {self.times:,} times{kept}"


def _file_and_line(place: Location) -> str:
    return f"{base_name(place.file)}:{place.line}"


def _finite(stats: Stats) -> dict[str, float | None]:
    found: dict[str, float | None] = dict(zip(Stats._fields, stats, strict=True))
    for name, number in found.items():
        if number is not None and not isfinite(number):
            found[name] = None
    return found


def bars(iterations: Sequence[int], numbers: Sequence[float], width: int = SPARKLINE_WIDTH) -> str:
    """Return numbers as bars. Each bar is the mean of an equal share of the iterations."""
    means = _means_of_shares(iterations, numbers, width)
    finite = [mean for mean in means if mean is not None]
    lowest = min(finite, default=0.0)
    height = max(finite, default=0.0) - lowest
    text = ""
    for mean in means:
        if mean is None:
            text += NOT_FINITE
        elif height:
            text += BARS[min(int((mean - lowest) / height * len(BARS)), len(BARS) - 1)]
        else:
            text += BARS[0]
    return text


def _means_of_shares(
    iterations: Sequence[int], numbers: Sequence[float], width: int
) -> list[float | None]:
    """Return the mean of each of ``width`` equal shares of a run that has numbers; None if none of them is finite."""
    if not iterations:
        return []
    first = iterations[0]
    shares: list[list[float]] = [[] for _ in range(min(width, len(iterations)))]
    length = (iterations[-1] - first + 1) / len(shares)
    for iteration, number in zip(iterations, numbers, strict=True):
        shares[min(int((iteration - first) / length), len(shares) - 1)].append(number)
    means: list[float | None] = []
    for share in shares:
        finite = [number for number in share if isfinite(number)]
        if finite:
            means.append(sum(finite) / len(finite))
        elif share:
            means.append(None)
    return means


# ---------------------------------------------------------------- where a name gets its values


def series_of(
    tables: Tables, name: str, at: str | None = None, module: str | None = None
) -> Series:
    """Return the series of a variable, of an expression as it is written, or of the output of a module.

    ``at`` (``train.py:20``, or the line alone) and ``module`` choose among several places.
    """
    chosen: list[Series] = []
    for series in _all_series(tables, name).values():
        if at is not None and not _is_at(series.place, at):
            continue
        if module is not None and series.module != module:
            continue
        chosen.append(series)
    if not chosen:
        raise NotRecorded(_why_none(tables, name))
    if len(chosen) > 1:
        raise UsageError(
            f"{name!r} gets a value at {len(chosen)} places: {_list_of_places(chosen)}; "
            "choose one with at='file.py:line' or module='path'"
        )
    return chosen[0]


def _list_of_places(several: Sequence[Series]) -> str:
    """Return the places of the first few series, and how many more there are."""
    text = ", ".join(_place_word(series) for series in several[:_MAX_PLACES_NAMED])
    more = len(several) - _MAX_PLACES_NAMED
    if more > 0:
        text += f" and {more} more"
    return text


def _why_none(tables: Tables, name: str) -> str:
    """Return the message for a name without a series."""
    if not tables.value_measured:
        return "nothing was measured: record(values='stats') measures every tensor"
    targets = {text for site in tables.sites for text in site.target}
    names = targets | {row.path for row in tables.modules if row.path}
    if name in names or any(name == site.code for site in tables.sites):
        return f"{name!r} got no tensor that was measured there"
    return f"there is no value {name!r}; {closest(name, names)}"


def _is_at(place: Location, at: str) -> bool:
    """Return whether a place is at ``train.py:20`` or, without a file, at the line ``20``."""
    file, _, line = at.rpartition(":")
    if line != str(place.line):
        return False
    return not file or ends_with_path(place.file, file)


def _place_word(series: Series) -> str:
    word = _file_and_line(series.place)
    if series.module:
        return f"{word} in {series.module}"
    return word


def _all_series(tables: Tables, name: str) -> dict[SeriesKey, Series]:
    """Return the series of a name for each expression that gives it a value, in the order of the first values.

    If no expression has that name, it is taken as the path of a module.
    """
    calls = _calls_of_expression(tables, name)
    if calls:
        return _series_by_key(tables, name, calls, by_module=False)
    return _series_by_key(tables, name, _calls_of_module(tables, name), by_module=True)


def _calls_of_expression(tables: Tables, name: str) -> list[int]:
    """Return the calls that are written as ``name``, or that are assigned to it."""
    sites: set[int] = set()
    for number, site in enumerate(tables.sites):
        if name in site.target or name == site.code:
            sites.add(number)
    stacks = {number for number, site in enumerate(tables.stack_user) if site in sites}
    is_call = [callee.kind in ("function", "module") for callee in tables.callees]
    columns = zip(tables.stack, tables.direct, tables.callee, strict=True)
    return [
        event
        for event, (stack, is_direct, callee) in enumerate(columns)
        if stack in stacks and is_direct and is_call[callee]
    ]


def _calls_of_module(tables: Tables, path: str) -> list[int]:
    """Return the calls of the modules with this path that a line of the program made."""
    modules = {number for number, row in enumerate(tables.modules) if row.path == path}
    is_module = [callee.kind == "module" for callee in tables.callees]
    columns = zip(tables.module, tables.callee, strict=True)
    return [
        event
        for event, (module, callee) in enumerate(columns)
        if module in modules and is_module[callee] and _site(tables, event) != NONE
    ]


def series_of_event(tables: Tables, event: int) -> Series | None:
    """Return the series of the expression that an event is part of; None if the program itself called nothing."""
    while event != NONE and not tables.direct[event]:
        event = tables.parent[event]
    if event == NONE:
        return None
    site = _site(tables, event)
    if site == NONE:
        return None
    by_key = _all_series(tables, tables.sites[site].code)
    return by_key.get(_key(tables, site, tables.module[event]))


def series_of_events(tables: Tables, events: Sequence[int]) -> Series | None:
    """Return the series of these events if one expression in one module gave all of them; otherwise None."""
    if not all(tables.direct[event] and _site(tables, event) != NONE for event in events):
        return None
    by_key = _series_by_key(tables, "", events, by_module=False)
    if len(by_key) != 1:
        return None
    return next(iter(by_key.values()))


def _series_by_key(
    tables: Tables, name: str, events: Sequence[int], *, by_module: bool
) -> dict[SeriesKey, Series]:
    """Group these events into series. ``by_module`` says that they are calls of modules."""
    if not tables.value_measured:
        return {}
    gaps = {number: missing_of(tables.event(number)) for number in tables.gaps()}
    points: dict[SeriesKey, list[Point]] = {}
    times: dict[SeriesKey, int] = {}
    places: dict[SeriesKey, Location] = {}
    for number in sorted([*events, *gaps]):
        if number in gaps:
            _add_dropped(gaps[number], points, times, by_module=by_module)
            continue
        site = _site(tables, number)
        key = _key(tables, site, tables.module[number])
        places.setdefault(key, tables.sites[site].location)
        times_before = times.get(key, 0)
        times[key] = times_before + 1
        stats = _stats_of_first_output(tables, number)
        if stats is not None:
            points.setdefault(key, []).append(Point(times_before, number, stats))
    series: dict[SeriesKey, Series] = {}
    for key, place in places.items():
        if key in points:
            module = None
            if key.module is not None:
                module = key.module.path
            series[key] = Series(name, place, module, times[key], tuple(points[key]))
    return series


def _site(tables: Tables, event: int) -> int:
    """Return the site in the program that an event belongs to; NONE if there is none."""
    stack = tables.stack[event]
    if stack == NONE:
        return NONE
    return tables.stack_user[stack]


def _add_dropped(
    missing: Missing,
    points: dict[SeriesKey, list[Point]],
    times: dict[SeriesKey, int],
    *,
    by_module: bool,
) -> None:
    """Add the sampled points of dropped events, and how often each expression ran in them."""
    for key in {*times, *missing.series}:
        times_before = times.get(key, 0)
        sampled = [
            Point(times_before + index, None, stats) for index, stats in missing.series.get(key, ())
        ]
        if sampled:
            points.setdefault(key, []).extend(sampled)
        if by_module and key.module is not None:
            times[key] = times_before + missing.module_calls[key.module]
        else:
            times[key] = times_before + missing.executions[key.expression]


def _key(tables: Tables, site: int, module: int) -> SeriesKey:
    module_key = None
    if module != NONE:
        row = tables.modules[module]
        module_key = ModuleKey(row.root, row.path)
    return SeriesKey(code_range(tables.sites[site].location), module_key)


def _stats_of_first_output(tables: Tables, event: int) -> Stats | None:
    """Return the statistics of the first value that an event gave; None if it was not measured."""
    result = tables.result[event]
    if result == NONE or not tables.forms[result].roles:
        return None
    first = tables.first_io[event]
    if tables.args[event] != NONE:
        first += len(tables.forms[tables.args[event]].roles)
    return tables.stats(tables.io[first])
