"""From the records of a journal to the tables of a trace.

The same for a block that has ended, for a look inside of it, for a bundle that grows and for one whose process died.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import groupby
from operator import itemgetter
from typing import Any

from torchglass.events.links import form_sizes, link_storages, link_values
from torchglass.events.tables import NONE, Tables
from torchglass.journal.chunks import Chunk, Streams
from torchglass.journal.layout import ARGS as ARGS_WORD
from torchglass.journal.layout import (
    END,
    ERROR,
    INPUTS,
    OUTPUTS,
    PARENT,
    RECORD_WORDS,
    RECORDS,
    RESULT,
    STACK,
    START,
    WHAT,
)
from torchglass.settle.columns import (
    FUNCTION,
    MARK,
    MODULE,
    OP,
    UNSEEN,
    VARIABLE,
    Batch,
    Columns,
    Combination,
    Fixed,
)
from torchglass.settle.interned import Interned, Recorded
from torchglass.settle.places import Places
from torchglass.settle.sources import Sources, Texts
from torchglass.settle.values import Values
from torchglass.source.sites import NO_EXPRESSION

BEGIN = "begin"
LONGEST_TIME = 1 << 62
LOST_ID = (1 << 62) - 1
"""Stands for an id that was dropped: no value has this number, nor metadata."""


@dataclass(frozen=True, slots=True)
class Span:
    """Records of one thread that follow each other in one chunk and belong to a recording."""

    thread: int
    chunk: Chunk
    first: int
    last: int


@dataclass(slots=True)
class ThreadState:
    """How far the records of a thread are settled."""

    begin: int
    """The first record that belongs to the recording."""
    module: int
    """The module that was under way there."""
    first: int
    """The first record of ``numbers``."""
    numbers: list[int] = field(default_factory=list[int])
    """The event of each record settled so far (of its parent, where it is none)."""
    earlier: dict[int, int] = field(default_factory=dict[int, int])
    """The events of records before ``first``."""
    last_start: int = 0
    ids: list[int] = field(default_factory=list[int])
    id_base: int = 0
    """The ids that were read last, and the number of the first of them."""

    def event_of(self, record: int) -> int:
        """The event of a record that came before; NONE where it is not kept, or not of this recording."""
        if record >= self.first:
            return self.numbers[record - self.first]
        return self.earlier.get(record, NONE)

    def skip_to(self, record: int) -> None:
        """Go on behind a gap."""
        self.earlier.update(enumerate(self.numbers, self.first))
        self.first, self.numbers = record, []


@dataclass(frozen=True)
class Source:
    """Where a journal's kept texts are, and whether it is this process's own."""

    texts: Texts
    is_here: bool


class Settler:
    """One recording of a journal, ready to become tables."""

    def __init__(self, streams: Streams, recording: int, source: Source, interned: Interned | None = None) -> None:
        self.streams = streams
        self.interned = interned or Interned(streams)
        self.interned.update()
        self.recording = recording
        self.recorded: Recorded = self.interned.recordings[recording]
        self._is_here = source.is_here
        row = self.recorded.row
        self.options: dict[str, Any] = row.options
        self.tables = Tables(process=row.process, name=row.name, started_at=row.started_at)
        self.sources = Sources(self.interned, source.texts, source.is_here)
        self.values = Values(streams, self.interned, self.tables)
        self.columns = Columns(
            self.interned, Places(self.interned, self.sources, self.tables), self.values, self.tables
        )
        self._threads: dict[int, ThreadState] = {}
        self._nothing: set[Combination] = set()
        """What is no event, or was not asked for."""
        self._over = 0
        """How many were over the limit."""
        self._unreadable = 0
        self._missing = 0
        """How many were dropped."""
        limit = self.options.get("max_events")
        self._limit: int | None = limit if self.options.get("keep") == BEGIN else None

    def settle(self) -> Tables:
        """All events of the recording so far, in order of opening."""
        for span, first, last in _in_order(self._spans()):
            self._fill_span(span, first, last)
        self._check_values()
        modules = self.interned.modules.values()
        self.values.take(value for module in modules for _, value in module.parameters)
        self._take_modules()
        link_values(self.tables)
        link_storages(self.tables, self.values.addresses, self.values.before)
        self._finish()
        return self.tables

    def _check_values(self) -> None:
        """Each event has as many values as its forms have places."""
        counts = form_sizes(self.tables)
        places = sum(map(counts.__getitem__, self.tables.args)) + sum(map(counts.__getitem__, self.tables.result))
        if places != len(self.tables.io):
            raise ValueError("an event has another number of values than its form")

    # Which records

    def _spans(self) -> list[Span]:
        ends = dict(map(tuple, self.recorded.ended.ends)) if self.recorded.ended else {}
        found: list[Span] = []
        for thread, window in self.recorded.windows.items():
            self._threads[thread] = ThreadState(window.begin, window.module, window.begin)
            for chunk in self.streams.of(RECORDS, thread):
                written = chunk.written()
                first, last = max(chunk.first, window.begin), min(written, ends.get(thread, written))
                if first < last:
                    found.append(Span(thread, chunk, first, last))
        return found

    def _fill_span(self, span: Span, first: int, last: int) -> None:
        state = self._threads[span.thread]
        if first > state.first + len(state.numbers):
            self._fill_gap(span, state, first)
        words = span.chunk.words(first, last).tolist()
        if not self._is_here:
            _make_sound(words, first)
        self._fill(span.thread, state, words, self._backward_flags(span.thread, first, last))

    def _fill_gap(self, span: Span, state: ThreadState, first: int) -> None:
        """Records are missing here; those that were still under way behind are repeated in the chunk."""
        copies = [each for each in span.chunk.copied() if each[0] >= state.first + len(state.numbers)]
        missing = first - state.first - len(state.numbers) - len(copies)
        resumes = span.chunk.words(first, first + 1)[START]
        begins = min([state.last_start or self.recorded.row.started_ns, *(words[START] for _, words in copies)])
        parent = state.event_of(copies[0][1][PARENT]) if copies else NONE
        state.skip_to(first)
        self._missing += missing
        note = (
            f"{missing:,} events in {(resumes - begins) / 1e9:,.3g} s are not kept: the limit of "
            f"{self.options.get('max_events') or 0:,} was reached; record(max_events=…) raises it"
        )
        self._append_gap(span.thread, parent, begins, resumes, note)
        for number, words in copies:
            alone = ThreadState(state.begin, state.module, number, earlier=state.earlier)
            self._fill(span.thread, alone, words, bytearray(1))
            state.earlier[number] = alone.numbers[0]

    def _append_gap(self, thread: int, parent: int, begins: int, resumes: int, note: str) -> None:
        fixed, batch = self.columns.add_gap(note), Batch(len(self.tables.io))
        module = self.tables.module[parent] if parent != NONE else NONE
        batch.fixed.append(fixed.columns)
        batch.varying += (parent, 0, begins, resumes, module, NONE, batch.first_io, 0, NONE)
        self.columns.extend(thread, batch)

    def _backward_flags(self, thread: int, first: int, last: int) -> bytearray:
        """1 for each record made while the autograd engine ran."""
        if self.interned.threads[thread].caller != NONE:
            return bytearray(b"\1" * (last - first))
        flags = bytearray(last - first)
        for begin, end in self.interned.backward.get(thread, {}).items():
            low, high = max(begin, first), min(last if end == NONE else end, last)
            if low < high:
                flags[low - first : high - first] = b"\1" * (high - low)
        return flags

    # Rows

    def _fill(self, thread: int, state: ThreadState, words: list[int], backward: bytearray) -> None:
        """Append the rows of the records of a thread that come next.

        Settling spends its time in this loop: what can be done for many events at once is done outside of it.
        """
        tables, columns = self.tables, self.columns
        known, occurrences, calls, limit = columns.known, columns.occurrences, columns.calls, self._limit
        numbers, first_record, before = state.numbers, state.first, len(tables)
        batch, modules = Batch(len(tables.io)), list[int]()
        fixed_columns, varying, io = batch.fixed, batch.varying, batch.io
        ids, base = self._ids(thread, words)
        trusted = self._is_here
        state.last_start = words[START - RECORD_WORDS]
        try:
            for what, parent_at, stack, args, inputs, result, outputs, error, end, start, is_backward in zip(
                *(words[field::RECORD_WORDS] for field in _FIELDS), backward, strict=True
            ):
                if parent_at >= first_record:
                    parent = numbers[parent_at - first_record]
                else:
                    parent = self._caller_of(thread) if parent_at == NONE else state.earlier.get(parent_at, NONE)
                if what < 0:
                    module = -2 - what  # module_row(what), which a call would make dearer than the rest of the line
                elif parent >= before:
                    module = modules[parent - before]
                elif parent != NONE:
                    module = tables.module[parent]
                else:
                    module = state.module if parent_at != NONE and parent_at < state.begin else NONE
                combination = (what, args, stack, module, result)
                fixed = known.get(combination) or self._work_out(combination)
                number = before + len(modules)
                if fixed is None or (limit is not None and number >= limit):
                    numbers.append(parent if fixed is None else NONE)  # what nothing called belongs to its parent
                    self._over += fixed is not None
                    continue
                numbers.append(number)
                modules.append(module)
                entries, stem, taken, given = fixed
                fixed_columns.append(entries)
                call = NONE
                if what < 0:
                    call = calls[module] = calls.get(module, NONE) + 1
                varying += (
                    parent, is_backward, start, end, module, call, batch.first_io + len(io), occurrences[stem],
                    NONE if error == NONE else columns.error(error),
                )  # fmt: skip
                occurrences[stem] += 1
                if taken:
                    io += ids[inputs - base : inputs - base + taken] if trusted else _some(ids, inputs - base, taken)
                if given:
                    io += ids[outputs - base : outputs - base + given] if trusted else _some(ids, outputs - base, given)
        finally:
            columns.extend(thread, batch)

    def _ids(self, thread: int, words: list[int]) -> tuple[list[int], int]:
        """The ids of a thread that these records refer to, and the number of the first of them."""
        state = self._threads[thread]
        positions = [each for column in (INPUTS, OUTPUTS) for each in words[column::RECORD_WORDS] if each != NONE]
        if not positions:
            return [], 0
        low, high = min(positions), max(positions)
        if not (state.ids and state.id_base <= low and high <= state.id_base + len(state.ids)):
            state.id_base, state.ids = self._read_ids(thread, low, high)
        return state.ids, state.id_base

    def _read_ids(self, thread: int, low: int, high: int) -> tuple[int, list[int]]:
        """All ids between two places and as many as there are around them; what was dropped in between is not known."""
        chunks = self.streams.of_ids(thread)
        base = max((each.first for each in chunks if each.first <= low), default=low)
        found: list[int] = []
        for chunk in chunks:
            if chunk.first >= base:
                found += [LOST_ID] * (chunk.first - base - len(found))
                found += chunk.words(chunk.first, chunk.last).tolist()
        return base, found

    def _work_out(self, combination: Combination) -> Fixed | None:
        """What is the same whenever this occurs; None when it is no event of this recording."""
        if combination in self._nothing:
            return None
        what, args, _, _, result = combination
        try:
            if not self.columns.is_nothing(what, args, result) and self._asked_for(what):
                return self.columns.fixed(combination)
        except (KeyError, IndexError, ValueError):
            if self._is_here:
                raise
            self._unreadable += 1  # what it refers to was lost with the process, or damaged since
        self._nothing.add(combination)
        return None

    def _caller_of(self, thread: int) -> int:
        """For what the autograd engine runs in a thread of its own: the event that called backward."""
        row = self.interned.threads[thread]
        state = self._threads.get(row.caller)
        if state is None or not state.begin <= row.record < state.first + len(state.numbers):
            return NONE
        return state.event_of(row.record)

    def _asked_for(self, what: int) -> bool:
        """Recordings that share a journal may have asked for different probes."""
        options = self.options
        kind = MODULE if what < 0 else self.interned.whats[what].kind
        if kind == FUNCTION:
            return bool(options.get("functions"))
        if kind == VARIABLE:
            name = self.interned.whats[what].name
            return any(name == wanted or fnmatchcase(name, wanted) for wanted in options.get("variables", ()))
        return bool(options.get("ops") if kind == OP else options.get("modules") or kind in (UNSEEN, MARK))

    # The rest

    def _take_modules(self) -> None:
        """Where recordings share a journal: only the modules that this one met."""
        is_alone, numbers = len(self.interned.recordings) == 1, sorted(self.interned.modules)
        if is_alone and numbers == list(range(len(numbers))):
            self.columns.take_modules(numbers)
            return
        own = numbers if is_alone else sorted(set(self.tables.module) - {NONE})
        place = {row: number for number, row in enumerate(own)}
        place[NONE] = NONE
        self.tables.module[:] = type(self.tables.module)("q", [place[row] for row in self.tables.module])
        self.columns.take_modules(own)

    def _finish(self) -> None:
        tables, ended, row = self.tables, self.recorded.ended, self.recorded.row
        tables.complete = ended is not None
        stopped = max(tables.end_ns, default=row.started_ns)
        if ended is not None:
            tables.left_by, stopped = tuple(ended.left_by), ended.stopped_ns
        tables.duration_ns = max(stopped - row.started_ns, 0)
        tables.notes = list(self.interned.notes)
        tables.notes += unread_files(tables)
        if self._missing:
            tables.notes.append(
                f"{self._missing:,} events in the middle were not kept: the limit of "
                f"{self.options.get('max_events') or 0:,} was reached; record(max_events=…) raises it"
            )
        lost = self._over + (ended.lost if ended is not None else 0)
        if lost:
            tables.notes.append(
                f"{lost:,} events were not recorded: the limit of {self.options.get('max_events') or 0:,} was reached; "
                "record(max_events=…) raises it"
            )
        if self._unreadable:
            tables.notes.append(f"{self._unreadable:,} kinds of events could not be read: the journal is damaged")
        faults = dict(map(tuple, ended.faults)) if ended is not None else self.interned.faults
        for text, count in faults.items():
            tables.notes.append(f"torchglass failed to record {count:,} step(s); the program was not affected: {text}")
        if self.options.get("sources", True):
            tables.sources = self.sources.texts()


_FIELDS = (WHAT, PARENT, STACK, ARGS_WORD, INPUTS, RESULT, OUTPUTS, ERROR, END, START)


def _some(ids: list[int], first: int, count: int) -> list[int]:
    """So many ids; what is not there is not known."""
    found = ids[first : first + count] if first >= 0 else []
    return found + [LOST_ID] * (count - len(found))


def _make_sound(words: list[int], first: int) -> None:
    """Of records that nobody vouches for: parents come before their children, and no event ends before it begins."""
    for at in range(0, len(words), RECORD_WORDS):
        if not NONE <= words[at + PARENT] < first + at // RECORD_WORDS:
            words[at + PARENT] = NONE
        if not words[at + START] <= words[at + END] < LONGEST_TIME:
            words[at + END] = NONE
        if not 0 <= words[at + START] < LONGEST_TIME:
            words[at + START] = words[at + END] = 0


def unread_files(tables: Tables) -> list[str]:
    """One note for each file whose text could not be shown, or must not be because it has changed."""
    problems = {site.location.file: site.problem for site in tables.sites if site.problem not in (None, NO_EXPRESSION)}
    return [f"{file}: {problem}; its steps are shown without their expressions" for file, problem in problems.items()]


def _in_order(spans: list[Span]) -> Iterator[tuple[Span, int, int]]:
    """The records of all spans in order of opening, in runs of one span."""
    if len({span.thread for span in spans}) < 2:
        return ((span, span.first, span.last) for span in sorted(spans, key=lambda span: span.first))
    each = [
        (start, index, span.first + number)
        for index, span in enumerate(spans)
        for number, start in enumerate(span.chunk.words(span.first, span.last)[START::RECORD_WORDS].tolist())
    ]
    return _runs(sorted(each), spans)


def _runs(each: list[tuple[int, int, int]], spans: list[Span]) -> Iterator[tuple[Span, int, int]]:
    for index, run in groupby(each, itemgetter(1)):
        (_, _, first), *rest = run
        yield spans[index], first, first + 1 + len(rest)
