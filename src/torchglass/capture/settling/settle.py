"""From raw records to the tables of a trace, on the first look; and one record at a time for live listeners."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from torchglass.capture.code.sites import NO_EXPRESSION
from torchglass.capture.log import END, ERROR, NONE, OUTPUTS, PARENT, RESULT, START, WHAT, WIDTH, ThreadLog
from torchglass.capture.session import FUNCTION, MARK, OP, UNSEEN, VARIABLE
from torchglass.capture.settling.places import Places
from torchglass.capture.settling.rows import MODULE, Rows, module_row
from torchglass.events.links import link_storages, link_values
from torchglass.events.tables import EVENT_COLUMNS, Tables
from torchglass.events.types import Event

if TYPE_CHECKING:
    from torchglass.capture.recorder import Recorder

Span = tuple[ThreadLog, int, int]
"""A log, and the first and last offset of the records that belong to a recording."""


class Settler:
    """The raw side of one recording, ready to become tables."""

    def __init__(self, recorder: Recorder) -> None:
        assert recorder.session is not None
        self.recorder = recorder
        self.session = recorder.session
        self.tables = Tables(process=recorder.process, name=recorder.options.name, started_at=recorder.started_at)
        self.rows = Rows(self.session, Places(self.session.stacks, recorder.shelf, self.tables), self.tables)

    def settle(self) -> Tables:
        """All events of the recording so far, in order of opening."""
        spans = [
            (window.log, window.begin, len(window.log.records) if window.end is None else window.end)
            for window in list(self.recorder.windows)
        ]
        self.rows.take_modules()
        over = self._fill(spans)
        if self.session.shared:
            self.rows.keep_own_modules()
        self.rows.take_values()
        link_values(self.tables)
        link_storages(self.tables, self.rows.addresses, self.rows.before)
        self._finish(over)
        return self.tables

    def _fill(self, spans: list[Span]) -> int:
        """Append a row an event; returns how many were over the limit."""
        tables, rows = self.tables, self.rows
        numbers = [[NONE] * ((end - begin) // WIDTH) for _, begin, end in spans]
        backward = [backward_marks(log, begin, end) for log, begin, end in spans]
        limit, over = self.recorder.options.max_events, 0
        for index, at in _in_order(spans):
            log, begin, _ = spans[index]
            slot = (at - begin) // WIDTH
            parent_at = log.records[at + PARENT]
            if parent_at >= begin:
                parent = numbers[index][(parent_at - begin) // WIDTH]
            else:
                parent = self._parent_elsewhere(log, spans, numbers) if parent_at == NONE else NONE
            if rows.is_nothing(log.records, at) or not self._asked_for(log.records[at + WHAT]):
                numbers[index][slot] = parent  # what it called belongs to its parent
                continue
            if len(tables) >= limit:
                over += 1
                continue
            what = log.records[at + WHAT]
            if what < 0:
                module = module_row(what)
            else:
                module = tables.module[parent] if parent != NONE else module_above(log, parent_at)
            numbers[index][slot] = len(tables)
            rows.append(log, at, parent, module, backward[index][slot])
        return over

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

    def _parent_elsewhere(self, log: ThreadLog, spans: list[Span], numbers: list[list[int]]) -> int:
        """For what the autograd engine runs in a thread of its own: the event that called backward."""
        if log.spawned_by is None:
            return NONE
        caller, at = log.spawned_by
        for index, (each, begin, end) in enumerate(spans):
            if each is caller and begin <= at < end:
                return numbers[index][(at - begin) // WIDTH]
        return NONE

    def _finish(self, over: int) -> None:
        tables, recorder = self.tables, self.recorder
        tables.complete = not recorder.running
        tables.left_by = recorder.left_by
        stopped = recorder.stopped_ns or max(tables.end_ns, default=recorder.started_ns)
        tables.duration_ns = max(stopped - recorder.started_ns, 0)
        tables.notes = list(self.session.notes)
        tables.notes += unread_files(tables)
        lost = over + sum(window.log.lost for window in recorder.windows)
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
        self.rows.append(log, at, parent, module, int(self.session.in_backward is not None))
        event = self.tables.event(0, self.count)
        for column in self.columns:
            del column[:]
        self.count += 1
        self.open[id(log), at] = (event, module)
        return event

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


def _in_order(spans: list[Span]) -> Iterator[tuple[int, int]]:
    """(index of the span, offset) of every record, in order of opening."""
    if len(spans) == 1:
        _, begin, end = spans[0]
        return ((0, at) for at in range(begin, end, WIDTH))
    each = [
        (log.records[at + START], index, at)
        for index, (log, begin, end) in enumerate(spans)
        for at in range(begin, end, WIDTH)
    ]
    return ((index, at) for _, index, at in sorted(each))


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
