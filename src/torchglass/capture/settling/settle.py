"""From raw records to the tables of a trace, on the first look; and one record at a time for live listeners."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from torchglass.capture.log import (
    ARGS,
    END,
    ERROR,
    INPUTS,
    NONE,
    OUTPUTS,
    PARENT,
    RESULT,
    STACK,
    START,
    WHAT,
    WIDTH,
    ThreadLog,
)
from torchglass.capture.session import FUNCTION, MARK, OP, UNSEEN, VARIABLE
from torchglass.capture.settling.places import Places
from torchglass.capture.settling.rows import MODULE, Batch, Combination, Fixed, Rows, module_row
from torchglass.events.links import link_storages, link_values
from torchglass.events.tables import EVENT_COLUMNS, Tables
from torchglass.events.types import Event
from torchglass.source.sites import NO_EXPRESSION

if TYPE_CHECKING:
    from torchglass.capture.recorder import Recorder, Window

Span = tuple[ThreadLog, int, int]
"""A log, and the first and last offset of the records that belong to a recording."""
Run = tuple[int, int, int]
"""The number of a span, and the first and last offset of records in it that follow each other."""


class Settler:
    """The raw side of one recording, ready to become tables."""

    def __init__(self, recorder: Recorder) -> None:
        assert recorder.session is not None
        self.recorder = recorder
        self.session = recorder.session
        self.tables = Tables(process=recorder.process, name=recorder.options.name, started_at=recorder.started_at)
        self.rows = Rows(self.session, Places(self.session.stacks, recorder.shelf, self.tables), self.tables)
        self._numbers: dict[int, list[int]] = {}
        """By log: the event of each record settled so far (of its parent, where it is none)."""
        self._open: dict[int, tuple[ThreadLog, int]] = {}
        """Events that had not ended when they were settled: their record."""
        self._nothing: set[Combination] = set()
        """What is no event, or was not asked for."""
        self._over = 0
        """How many were over the limit."""

    def settle(self) -> Tables:
        """All events of the recording so far, in order of opening."""
        self.rows.take_modules()
        self._fill_all([(window.log, window.begin, end_of(window)) for window in list(self.recorder.windows)])
        if self.session.shared:
            self.rows.keep_own_modules()
        self.rows.take_values()
        link_values(self.tables)
        link_storages(self.tables, self.rows.addresses, self.rows.before)
        self._finish()
        return self.tables

    def _fill_all(self, spans: list[Span]) -> None:
        """Append a row an event; those of several threads in the order of their beginning."""
        marks = [backward_marks(*span) for span in spans]
        for index, first, stop in _in_order(spans):
            log, begin, _ = spans[index]
            self._fill(log, first, stop, marks[index][(first - begin) // WIDTH : (stop - begin) // WIDTH])

    def _fill(self, log: ThreadLog, first: int, stop: int, backward: bytearray) -> None:
        """Append the rows of the records of a log that come next.

        Settling spends its time in this loop: what can be done for many events at once is done outside of it.
        """
        tables, rows = self.tables, self.rows
        known, occurrences, calls, limit = rows.known, rows.occurrences, rows.calls, self.recorder.options.max_events
        numbers = self._numbers.setdefault(id(log), [])
        begin, before, values = first - len(numbers) * WIDTH, len(tables), log.values
        block = log.records[first:stop]  # a copy, taken at once: the program goes on writing
        batch = Batch(len(tables.io))
        columns, varying, io, modules = batch.fixed, batch.varying, batch.io, list[int]()
        try:
            for what, parent_at, stack, start, end, args, inputs, result, outputs, error, is_backward in zip(
                *(block[field::WIDTH] for field in range(WIDTH)), backward, strict=True
            ):
                if parent_at >= begin:
                    parent = numbers[(parent_at - begin) // WIDTH]
                else:
                    parent = self._caller_of(log) if parent_at == NONE else NONE
                if what < 0:
                    module = -2 - what  # module_row(what), which a call would make dearer than the rest of the line
                elif parent >= before:
                    module = modules[parent - before]
                else:
                    module = tables.module[parent] if parent != NONE else module_above(log, parent_at)
                combination = (what, args, stack, module, result)
                fixed = known.get(combination) or self._work_out(combination)
                number = before + len(modules)
                if fixed is None or number >= limit:
                    numbers.append(parent if fixed is None else NONE)  # what nothing called belongs to its parent
                    self._over += fixed is not None
                    continue
                if result == NONE and not self._has_ended(start, end, error):
                    self._open[number] = (log, begin + len(numbers) * WIDTH)
                    end = NONE
                numbers.append(number)
                modules.append(module)
                entries, stem, taken, given = fixed
                columns.append(entries)
                call = NONE
                if what < 0:
                    call = calls[module] = calls.get(module, NONE) + 1
                varying += (
                    parent, is_backward, start, end, module, call, batch.first_io + len(io), occurrences[stem],
                    NONE if error == NONE else rows.text(self.session.errors[error]),
                )  # fmt: skip
                occurrences[stem] += 1
                io += values[inputs : inputs + taken]
                io += values[outputs : outputs + given]
        finally:
            rows.extend(log, batch)

    def _work_out(self, combination: Combination) -> Fixed | None:
        """What is the same whenever this occurs; None when it is no event of this recording."""
        if combination in self._nothing:
            return None
        what, args, _, _, result = combination
        if self.rows.is_nothing(what, args, result) or not self._asked_for(what):
            self._nothing.add(combination)
            return None
        return self.rows.fixed(combination)

    def _has_ended(self, start: int, end: int, error: int) -> bool:
        """Whether all is written that will be known of an event without a result."""
        return end != NONE

    def _caller_of(self, log: ThreadLog) -> int:
        """For what the autograd engine runs in a thread of its own: the event that called backward."""
        if log.spawned_by is None:
            return NONE
        caller, at = log.spawned_by
        begin = next((window.begin for window in self.recorder.windows if window.log is caller), 0)
        numbers = self._numbers.get(id(caller), [])
        return numbers[(at - begin) // WIDTH] if begin <= at < begin + len(numbers) * WIDTH else NONE

    def _asked_for(self, what: int) -> bool:
        """Recordings that share a session may have asked for different probes."""
        options = self.recorder.options
        kind = MODULE if what < 0 else self.session.whats[what].kind
        if kind == FUNCTION:
            return options.functions
        if kind == VARIABLE:
            name = self.session.whats[what].subject
            return any(name == wanted or fnmatchcase(name, wanted) for wanted in options.variables)
        return options.ops if kind == OP else options.modules or kind in (UNSEEN, MARK)

    def _finish(self) -> None:
        tables, recorder = self.tables, self.recorder
        tables.complete = not recorder.running
        tables.left_by = recorder.left_by
        stopped = recorder.stopped_ns or max(tables.end_ns, default=recorder.started_ns)
        tables.duration_ns = max(stopped - recorder.started_ns, 0)
        tables.notes = list(self.session.notes)
        tables.notes += unread_files(tables)
        lost = self._over + sum(window.log.lost for window in recorder.windows)
        if lost:
            tables.notes.append(
                f"{lost:,} events were not recorded: the limit of {recorder.options.max_events:,} was reached; "
                "record(max_events=…) raises it"
            )
        for text, count in self.session.faults.items():
            tables.notes.append(f"torchglass failed to record {count:,} step(s); the program was not affected: {text}")
        tables.sources = recorder.shelf.texts()


class LiveSettler(Settler):
    """Gives the event of a record at once, for those who listen while the program runs."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.open: dict[tuple[int, int], tuple[Event, int]] = {}
        """Events that are open and their modules, by log and offset."""
        self.count = 0
        self.columns = [*(getattr(self.tables, name) for name in EVENT_COLUMNS), self.tables.io]
        """One row at a time is made and forgotten; what it refers to stays."""

    def event(self, log: ThreadLog, at: int, edge: str) -> Event:
        """The event as it is now; its id is its place in the order of opening."""
        self.rows.take_values()
        if edge == "open":
            return self._opened(log, at)
        event, module = self.open.pop((id(log), at))
        return self._closed(event, module, log, at)

    def _opened(self, log: ThreadLog, at: int) -> Event:
        parent_at, what = log.records[at + PARENT], log.records[at + WHAT]
        above = self.open.get((id(log), parent_at))
        self.rows.add_modules(NONE)
        if what < 0:
            module = module_row(what)
        else:
            module = above[1] if above is not None else module_above(log, parent_at)
        parent = above[0].id if above is not None else NONE
        self._append(log, at, parent, module)
        event = self.tables.event(0, self.count)
        for column in self.columns:
            del column[:]
        self.count += 1
        self.open[id(log), at] = (event, module)
        return event

    def _append(self, log: ThreadLog, at: int, parent: int, module: int) -> None:
        records, rows, values, batch = log.records, self.rows, log.values, Batch(0)
        what, result, error = records[at + WHAT], records[at + RESULT], records[at + ERROR]
        fixed = rows.fixed((what, records[at + ARGS], records[at + STACK], module, result))
        call = NONE
        if what < 0:
            call = rows.calls[module] = rows.calls.get(module, NONE) + 1
        batch.fixed.append(fixed.columns)
        batch.varying += (
            parent, int(self.session.in_backward is not None), records[at + START], records[at + END], module, call, 0,
            rows.occurrences[fixed.stem], NONE if error == NONE else rows.text(self.session.errors[error]),
        )  # fmt: skip
        rows.occurrences[fixed.stem] += 1
        batch.io += values[records[at + INPUTS] : records[at + INPUTS] + fixed.taken]
        batch.io += values[records[at + OUTPUTS] : records[at + OUTPUTS] + fixed.given]
        rows.extend(log, batch)

    def _closed(self, event: Event, module: int, log: ThreadLog, at: int) -> Event:
        """The same event with what is known at its end; nothing else can have changed."""
        if event.kind == MODULE:
            self.rows.add_modules(module)
        error, raw_result, tables = log.records[at + ERROR], log.records[at + RESULT], self.tables
        result = NONE if raw_result == NONE else self.rows.result(raw_result)
        if result != NONE:
            outputs = log.records[at + OUTPUTS]
            tables.io.extend(log.values[outputs : outputs + len(tables.forms[result].roles)])
        closed = event._replace(
            end_ns=log.records[at + END],
            detail=tables.modules[module].detail if event.kind == MODULE else "",
            result=tables.text_of(result, 0),
            outputs=tables.values_of(result, 0),
            error=None if error == NONE else self.session.errors[error],
        )
        del tables.io[:]
        return closed


def unread_files(tables: Tables) -> list[str]:
    """One note for each file whose text could not be shown, or must not be because it has changed."""
    problems = {site.location.file: site.problem for site in tables.sites if site.problem not in (None, NO_EXPRESSION)}
    return [f"{file}: {problem}; its steps are shown without their expressions" for file, problem in problems.items()]


def _in_order(spans: list[Span]) -> Iterator[Run]:
    """The records of all spans in order of opening, in runs of one thread."""
    if len(spans) == 1:
        _, begin, end = spans[0]
        return iter([(0, begin, end)])
    each = [
        (start, index, begin + number * WIDTH)
        for index, (log, begin, end) in enumerate(spans)
        for number, start in enumerate(log.records[begin + START : end : WIDTH])
    ]
    return _runs(sorted(each))


def _runs(each: list[tuple[int, int, int]]) -> Iterator[Run]:
    for index, run in groupby(each, itemgetter(1)):
        (_, _, first), *rest = run
        yield index, first, first + (1 + len(rest)) * WIDTH


def end_of(window: Window) -> int:
    """Behind the last record of a recording in one log, so far."""
    return len(window.log.records) if window.end is None else window.end


def backward_marks(log: ThreadLog, begin: int, end: int) -> bytearray:
    """1 for each record made while the autograd engine ran."""
    marks = bytearray((end - begin) // WIDTH)
    if log.spawned_by is not None:
        return bytearray(b"\1" * len(marks))
    for first, last in list(log.backward_spans):
        low, high = max(first, begin), min(last, end)
        if low < high:
            marks[(low - begin) // WIDTH : (high - begin) // WIDTH] = b"\1" * ((high - low) // WIDTH)
    return marks


def module_above(log: ThreadLog, at: int) -> int:
    """The innermost module under way above a record that is not part of the recording itself."""
    while at >= 0:
        if log.records[at + WHAT] < 0:
            return module_row(log.records[at + WHAT])
        at = log.records[at + PARENT]
    return NONE
