"""Summarises the records that are missing in each gap, and writes the summary into the event of the gap.

Where the ring drops a chunk of records, it leaves a row with how often each callee ran from each stack there, and one
with a sample of the statistics. This is done in two steps, because the names are known only at the end:

1. ``add`` collects the rows of one gap when settling comes to it;
2. ``describe`` turns numbers of rows into names, and writes the summary (events/missing.py) as JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torchglass.events.missing import (
    CodeRange,
    Missing,
    ModuleKey,
    SampledOutput,
    SeriesKey,
    code_range,
)
from torchglass.events.schema import NONE
from torchglass.events.tables import Tables
from torchglass.journal import layout
from torchglass.journal.series import points_in
from torchglass.settle.columns import FIXED_COLUMNS, OP, Columns, FixedFields, module_row
from torchglass.settle.journal_rows import JournalRows
from torchglass.settle.measured import stats_of
from torchglass.settle.places import StackFrame

_CALLEE = FIXED_COLUMNS.index("callee")
_STACK = FIXED_COLUMNS.index("stack")
_DIRECT = FIXED_COLUMNS.index("direct")
_CallSite = tuple[int, int]
"""The callee and the stack of a call, as the journal numbers them."""


@dataclass(frozen=True)
class MissingRecords:
    """The missing records of one gap."""

    event: int
    """The event that stands for them."""
    counts: Counter[_CallSite]
    """How many there are of each call site."""
    is_complete: bool
    """Whether all of the missing records are counted."""
    series: dict[_CallSite, list[SampledOutput]]
    """Statistics of some of their outputs."""
    still_open: int
    """How many calls began in the gap and had not ended when it did."""


class Gaps:
    """The gaps of one recording."""

    def __init__(self, journal_rows: JournalRows, columns: Columns, tables: Tables) -> None:
        self._journal_rows = journal_rows
        self._columns = columns
        self._tables = tables
        self._gaps: list[MissingRecords] = []
        self._module_numbers: Mapping[int, int] = {}
        """By the row of a module, its number in the tables."""

    # ------------------------------------------------------------ 1. what is missing

    def add(
        self, event: int, thread: int, first: int, last: int, copies: list[tuple[int, list[int]]]
    ) -> None:
        """Note that ``event`` stands for the records ``first`` to ``last`` of a thread, without those in ``copies``.

        Also count the calls of modules among them, so that later calls get the right index.
        """
        missing = self._missing_records(event, thread, first, last, copies)
        self._gaps.append(missing)
        for (callee, _), number in missing.counts.items():
            if callee < 0 and number > 0:
                self._columns.skip_calls(module_row(callee), number)

    def _missing_records(
        self, event: int, thread: int, first: int, last: int, copies: list[tuple[int, list[int]]]
    ) -> MissingRecords:
        counts: Counter[_CallSite] = Counter()
        series: dict[_CallSite, list[SampledOutput]] = {}
        counted = 0
        counted_to = first
        for (owner, begin), row in sorted(self._journal_rows.dropped.items()):
            # A row for a part of another row's records was written before that row grew.
            if owner != thread or begin < counted_to or row.last > last:
                continue
            counted_to = row.last
            counted += row.last - begin
            self._add_series(series, counts, thread, begin)
            for entry in row.counts:
                if len(entry) == 3:
                    callee, stack, number = entry
                    counts[callee, stack] += number
        counts.subtract((words[layout.WHAT], words[layout.STACK]) for _, words in copies)
        return MissingRecords(event, counts, counted == last - first, series, len(copies))

    def _add_series(
        self,
        series: dict[_CallSite, list[SampledOutput]],
        times_before: Counter[_CallSite],
        thread: int,
        begin: int,
    ) -> None:
        """Add the series of the dropped records from ``begin`` on."""
        row = self._journal_rows.series.get((thread, begin))
        if row is None:
            return
        try:
            points = list(points_in(row.points))
        except ValueError:
            # The row is damaged.
            return
        for site, index, measured in points:
            stats = stats_of(measured)
            if stats is not None:
                output = SampledOutput(times_before[site] + index, stats)
                series.setdefault(site, []).append(output)

    # ------------------------------------------------------------ 2. with names

    def describe(self, module_numbers: Mapping[int, int]) -> None:
        """Write into the event of each gap what is known of its records, now that sites and modules have names.

        ``module_numbers`` has by the row of a module its number in the tables.
        """
        if not self._gaps:
            return
        self._module_numbers = module_numbers
        fields_of = {
            (callee, stack): fixed
            for (callee, _, stack, _, _), fixed in self._columns.fixed_fields.items()
        }
        kept_calls = self._kept_calls()
        callees = self._tables.callees
        for gap in self._gaps:
            text = self._summary(gap, fields_of, kept_calls).text()
            number = self._tables.callee[gap.event]
            callees[number] = replace(callees[number], detail=text)

    def _summary(
        self,
        gap: MissingRecords,
        fields_of: Mapping[_CallSite, FixedFields],
        kept_calls: Mapping[tuple[int, int, int], int],
    ) -> Missing:
        module_calls: Counter[ModuleKey] = Counter()
        alike_by_distance: Counter[int] = Counter()
        by_callee: Counter[tuple[CodeRange, int]] = Counter()
        is_from_one_place = self._is_from_one_place(gap, fields_of)
        mixed: set[CodeRange] = set()
        for (callee, stack), number in gap.counts.items():
            if number <= 0:
                continue
            if callee < 0:
                module = self._module_key(module_row(callee))
                if module is not None:
                    module_calls[module] += number
            fixed = fields_of.get((callee, stack))
            if fixed is None:
                continue
            called_module = self._called_module(callee)
            kept = kept_calls.get((fixed.columns[_CALLEE], fixed.columns[_STACK], called_module))
            if kept is not None:
                alike_by_distance[kept - gap.event] += number
            expression = self._code_range(fixed)
            if _is_direct(fixed) and expression is not None:
                by_callee[expression, callee] += number
                if not is_from_one_place[self._columns.places.innermost(stack)]:
                    mixed.add(expression)
        # One execution of an expression may call several functions.
        executions: Counter[CodeRange] = Counter()
        for (expression, _), number in by_callee.items():
            executions[expression] = max(executions[expression], number)
        return Missing(
            is_complete=gap.is_complete,
            module_calls=module_calls,
            executions=executions,
            mixed=frozenset(mixed),
            still_open=gap.still_open,
            series=self._series(gap),
            alike_by_distance=alike_by_distance,
        )

    def _is_from_one_place(
        self, gap: MissingRecords, fields_of: Mapping[_CallSite, FixedFields]
    ) -> dict[StackFrame | None, bool]:
        """Return by innermost frame whether all dropped calls that it made are of one call site.

        A call site without a kept event may be such a call, too.
        """
        is_from_one_place: dict[StackFrame | None, bool] = {}
        for (callee, stack), number in gap.counts.items():
            fixed = fields_of.get((callee, stack))
            if fixed is None:
                is_op = callee >= 0 and self._journal_rows.callees[callee].kind == OP
            else:
                is_op = not _is_direct(fixed)
            if number > 0 and not is_op:
                frame = self._columns.places.innermost(stack)
                is_from_one_place[frame] = frame not in is_from_one_place
        return is_from_one_place

    def _kept_calls(self) -> dict[tuple[int, int, int], int]:
        """Return the first kept event that ended without an error, by callee, stack and called module."""
        tables = self._tables
        is_module = [callee.kind == "module" for callee in tables.callees]
        kept: dict[tuple[int, int, int], int] = {}
        columns = zip(
            tables.callee, tables.stack, tables.module, tables.end_ns, tables.error, strict=True
        )
        for event, (callee, stack, module, end, error) in enumerate(columns):
            if end == NONE or error != NONE:
                continue
            called_module = NONE
            if is_module[callee]:
                called_module = module
            kept.setdefault((callee, stack, called_module), event)
        return kept

    def _called_module(self, callee: int) -> int:
        """Return the module that was called, as its number in the tables, or NONE if it is none."""
        if callee < 0:
            return self._module_numbers.get(module_row(callee), NONE)
        return NONE

    def _module_key(self, module: int) -> ModuleKey | None:
        """Return the root and path of a module by its row, or None if it is not in the tables."""
        number = self._module_numbers.get(module, NONE)
        if not 0 <= number < len(self._tables.modules):
            return None
        row = self._tables.modules[number]
        return ModuleKey(row.root, row.path)

    def _code_range(self, fixed: FixedFields) -> CodeRange | None:
        """Return the expression of the user's code that an event is of, or None if it has none."""
        stack = fixed.columns[_STACK]
        if stack == NONE:
            return None
        site = self._tables.stack_user[stack]
        if site == NONE:
            return None
        return code_range(self._tables.sites[site].location)

    def _series(self, gap: MissingRecords) -> dict[SeriesKey, list[SampledOutput]]:
        """Return the series of a gap: those of modules, and of calls that the user's code makes in one module only."""
        keys_by_site: dict[_CallSite, set[SeriesKey]] = {}
        for (callee, _, stack, module, _), fixed in self._columns.fixed_fields.items():
            if (callee, stack) not in gap.series or not (_is_direct(fixed) or callee < 0):
                continue
            expression = self._code_range(fixed)
            if expression is not None:
                key = SeriesKey(expression, self._module_key(module))
                keys_by_site.setdefault((callee, stack), set()).add(key)
        series: dict[SeriesKey, list[SampledOutput]] = {}
        for site, keys in keys_by_site.items():
            if len(keys) == 1:
                (key,) = keys
                # If several stacks lead to one line, use the one that ran most often.
                if len(gap.series[site]) > len(series.get(key, ())):
                    series[key] = gap.series[site]
        return series


def _is_direct(fixed: FixedFields) -> bool:
    """Return whether the expression at the site of an event is its call."""
    return bool(fixed.columns[_DIRECT])
