"""From the records of a journal to the tables of a trace.

The same for a block that has ended, for a look inside of it, for a bundle that grows and for one whose process died.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torchglass.events.schema import NONE, ORIGINS
from torchglass.events.tables import Tables, form_sizes
from torchglass.events.types import Location
from torchglass.events.unwritten import forget_unwritten
from torchglass.journal import layout
from torchglass.journal.layout import Streams
from torchglass.journal.ring import TURNS
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
from torchglass.settle.interned import Interned, RecordingState
from torchglass.settle.places import PlaceTable, Sources, Texts
from torchglass.settle.spans import (
    LONGEST_RECORDING,
    Ids,
    Ranges,
    RecordSpan,
    ThreadState,
    in_order,
    make_sound,
    spans_of,
)
from torchglass.settle.values import Nodes, Values, fill_measured, fill_sketches, link_storages, link_values
from torchglass.source.sites import NO_EXPRESSION

BEGIN = "begin"
_FIELDS = tuple(word for word in range(layout.RECORD_WORDS) if word != layout.NODES)
"""What is asked of each record."""


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
        self.recorded: RecordingState = self.interned.recordings[recording]
        self._is_here = source.is_here
        row = self.recorded.row
        self.options: dict[str, Any] = row.options
        self.tables = Tables(process=row.process, name=row.name, started_at=row.started_at)
        self.sources = Sources(self.interned, source.texts, source.is_here)
        self.values = Values(streams, self.interned, self.tables)
        self.columns = Columns(
            self.interned, PlaceTable(self.interned, self.sources, self.tables), self.values, self.tables
        )
        self._threads: dict[int, ThreadState] = {}
        self._ids: dict[int, Ids] = {}
        self._backward: dict[int, Ranges] = {}
        self._nodes = Nodes()
        self._nothing: set[Combination] = set()
        """What is no event, or was not asked for."""
        self._over = 0
        """How many were over the limit."""
        self._unreadable = 0
        self._made = 0
        """How many records there have been."""
        self._dropped = 0
        self._missing = 0
        """How many were dropped to stay within the limit, and how many are not there although they should be."""
        limit = self.options.get("max_events")
        self._most: int | None = limit if type(limit) is int else None
        self._keeps_begin = self.options.get("keep") == BEGIN

    def settle(self) -> Tables:
        """All events of the recording so far, in order of opening."""
        spans = self._spans()
        self.interned.update()  # other threads go on: what their records speak of was written before them
        for span, first, last in in_order(spans):
            self._fill_span(span, first, last)
        self._count_ends()
        self._check_values()
        modules = self.interned.modules.values()
        self.values.take(value for module in modules for _, value in module.parameters)
        self._take_modules()
        if self.options.get("values"):
            fill_measured(self.streams, self.values, self.tables)
            fill_sketches(self.streams, self.values, self.tables)
        self._nodes.link(self.tables, {thread: row.caller for thread, row in self.interned.threads.items()})
        link_values(self.tables)
        link_storages(self.tables, self.values.addresses, self.values.before)
        forget_unwritten(self.tables, self.values.addresses, self.values.before)
        self._finish()
        return self.tables

    def _check_values(self) -> None:
        """Each event has as many values as its forms have places."""
        counts = form_sizes(self.tables)
        places = sum(map(counts.__getitem__, self.tables.args)) + sum(map(counts.__getitem__, self.tables.result))
        if places != len(self.tables.io):
            raise ValueError("an event has another number of values than its form")

    # Which records

    def _ends(self) -> dict[int, int]:
        """Where each thread's part of the recording ended; none while it runs."""
        ended = self.recorded.ended
        return {} if ended is None else {end[0]: end[1] for end in ended.ends}

    def _spans(self) -> list[RecordSpan]:
        ends = self._ends()
        spans = spans_of(self.streams, self.recorded.windows, ends)
        gaps: dict[int, list[int]] = {}
        for thread, window in self.recorded.windows.items():
            self._threads[thread] = ThreadState(window.begin, window.module, window.begin)
            self._ids[thread] = Ids(self.streams, thread)
            own = [span for span in spans if span.thread == thread]
            behind = [window.begin, *(span.last for span in own)]
            gaps[thread] = [span.first for span, last in zip(own, behind, strict=False) if span.first > last]
            self._made += ends.get(thread, behind[-1]) - window.begin
        self._backward = {
            thread: Ranges(found, gaps.get(thread, [])) for thread, found in self.interned.backward.items()
        }
        return spans

    def _fill_span(self, span: RecordSpan, first: int, last: int) -> None:
        state = self._threads[span.thread]
        if first > state.behind:
            self._fill_gap(span, state, first)
        words = span.chunk.words(first, last).tolist()
        if not self._is_here:
            make_sound(words, first, self._times())
        self._fill(span.thread, state, words, self._backward_flags(span.thread, first, last))
        self._nodes.take(span.thread, words, state.numbers[-(last - first) :])

    def _times(self) -> range:
        """When something may have happened in this recording, in nanoseconds."""
        began = self.recorded.row.started_ns
        return range(began, began + LONGEST_RECORDING)

    def _fill_gap(self, span: RecordSpan, state: ThreadState, first: int) -> None:
        """Records are missing here; those that were still under way behind are repeated in the chunk."""
        copies = self._copies(span, state, first)
        missing = first - state.behind - len(copies)
        resumes = span.chunk.words(first, first + 1)[layout.START]
        begins = min([state.last_start or self.recorded.row.started_ns, *(words[layout.START] for _, words in copies)])
        parent = state.event_of(copies[0][1][layout.PARENT]) if copies else NONE
        state.skip_to(first)
        self._append_gap(span.thread, parent, (begins, max(resumes, begins)), missing)
        for number, words in copies:
            alone = ThreadState(state.begin, state.module, number, earlier=state.earlier)
            self._fill(span.thread, alone, words, self._backward_flags(span.thread, number, number + 1))
            state.earlier[number] = alone.numbers[0]

    def _copies(self, span: RecordSpan, state: ThreadState, first: int) -> list[tuple[int, list[int]]]:
        """The records that were still under way behind a gap, as the newest chunk that repeats them has them."""
        latest: dict[int, list[int]] = {}
        for chunk in self.streams.of(layout.RECORDS, span.thread):
            if chunk.first >= span.chunk.first:
                latest.update(chunk.copied())
        found = [(number, latest[number]) for number, _ in span.chunk.copied() if state.behind <= number < first]
        if not self._is_here:
            for number, words in found:
                make_sound(words, number, self._times())
        return found

    def _append_gap(self, thread: int, parent: int, times: tuple[int, int], missing: int) -> None:
        begins, resumes = times
        seconds = f"{missing:,} events in {(resumes - begins) / 1e9:,.3g} s"
        if self._is_over_the_limit():
            self._dropped += missing
            note = f"{seconds} are not kept: {self._limit_reached()}"
        else:
            self._missing += missing
            note = f"{seconds} are not there: the journal is damaged"
        fixed, batch = self.columns.add_gap(note), Batch(len(self.tables.io))
        module = self.tables.module[parent] if parent != NONE else NONE
        batch.fixed.append(fixed.columns)
        batch.varying += (parent, 0, begins, resumes, module, NONE, batch.first_io, 0, NONE, NONE, NONE)
        self.columns.extend(thread, batch)

    def _is_over_the_limit(self) -> bool:
        """Whether there were so many records that some had to go; threads leave part of their room unused."""
        if self._most is None or self._keeps_begin:
            return False
        return self._made + len(self.recorded.windows) * (self._most // TURNS) >= self._most

    def _limit_reached(self) -> str:
        return f"the limit of {self._most or 0:,} was reached; record(max_events=…) raises it"

    def _count_ends(self) -> None:
        """Records that are missing at the end of a thread: it ended long before the recording did."""
        missing = sum(max(end - state.behind, 0) for thread, end in self._ends().items()
                      if (state := self._threads.get(thread)) is not None)  # fmt: skip
        if self._is_over_the_limit():
            self._dropped += missing
        else:
            self._missing += missing

    def _backward_flags(self, thread: int, first: int, last: int) -> bytearray:
        """1 for each record made while the autograd engine ran."""
        if self.interned.thread(thread).caller != NONE:
            return bytearray(b"\1" * (last - first))
        ranges = self._backward.get(thread)
        return bytearray(last - first) if ranges is None else ranges.flags(first, last)

    # Rows

    def _fill(self, thread: int, state: ThreadState, words: list[int], backward: bytearray) -> None:
        """Append the rows of the records of a thread that come next.

        Settling spends its time in this loop: what can be done for many events at once is done outside of it.
        """
        tables, columns = self.tables, self.columns
        known, occurrences = columns.known, columns.occurrences
        limit = self._most if self._keeps_begin else None
        numbers, first_record, earlier, before = state.numbers, state.first, state.earlier, len(tables)
        batch, modules = Batch(len(tables.io)), list[int]()
        fixed_columns, varying, io = batch.fixed, batch.varying, batch.io
        found = self._ids[thread].read(words)
        ids, base, trusted = found.words, found.base, found.is_whole and self._is_here
        state.last_start = words[layout.START - layout.RECORD_WORDS]
        try:
            for (
                what, parent_at, stack, args, inputs, python_call, result, outputs, error, end, start, is_backward,
            ) in _records(words, backward):  # fmt: skip
                if parent_at >= first_record:
                    parent = numbers[parent_at - first_record]
                else:
                    parent = self._caller_of(thread) if parent_at == NONE else earlier.get(parent_at, NONE)
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
                call = columns.count_call(module) if what < 0 else NONE
                varying += (
                    parent, is_backward, start, end, module, call, batch.first_io + len(io), occurrences[stem],
                    NONE if error == NONE else columns.error(error), columns.python_call(python_call), NONE,
                )  # fmt: skip
                occurrences[stem] += 1
                if taken:
                    io += ids[inputs - base : inputs - base + taken] if trusted else found.some(inputs, taken)
                if given:
                    io += ids[outputs - base : outputs - base + given] if trusted else found.some(outputs, given)
        finally:
            columns.extend(thread, batch)

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
        row = self.interned.thread(thread)
        state = self._threads.get(row.caller)
        if state is None or not state.begin <= row.record < state.behind:
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
        if self._dropped:
            tables.notes.append(f"{self._dropped:,} events in the middle were not kept: {self._limit_reached()}")
        lost = self._over + (ended.lost if ended is not None else 0)
        if lost:
            tables.notes.append(f"{lost:,} events were not recorded: {self._limit_reached()}")
        if self._missing or self._unreadable:
            tables.notes.append(self._damage())
        faults = self.interned.faults.items() if ended is None else ended.faults
        for text, count in faults:
            tables.notes.append(f"torchglass failed to record {count:,} step(s); the program was not affected: {text}")
        if self.options.get("sources", True):
            tables.sources = self.sources.texts()
        if ended is not None:
            told = [each for each in ended.raised if [*map(type, each)] == [str, int, str, str] and each[3] in ORIGINS]
            tables.raised_at = tuple(_frame(tables, *each) for each in told)

    def _damage(self) -> str:
        parts = [
            f"{self._missing:,} events are not there" if self._missing else "",
            f"{self._unreadable:,} kinds of events name what is not there" if self._unreadable else "",
        ]
        return f"{' and '.join(filter(None, parts))}: the journal is damaged, or its disk was full"


def _records(words: list[int], backward: bytearray) -> Iterable[tuple[int, ...]]:
    """What is asked of each record, and whether it was made in backward."""
    return zip(*(words[field :: layout.RECORD_WORDS] for field in _FIELDS), backward, strict=True)


def _frame(tables: Tables, file: str, line: int, function: str, origin: str) -> Location:
    """A frame of a traceback, with its line where the text is kept."""
    text = tables.sources.get(file, "").splitlines()[line - 1 : line] if line > 0 else []
    return Location(file, line, line, 0, 0, function, text[0].strip() if text else "", origin)


def unread_files(tables: Tables) -> list[str]:
    """One note for each file whose text could not be shown, or must not be because it has changed."""
    problems = {site.location.file: site.problem for site in tables.sites if site.problem not in (None, NO_EXPRESSION)}
    return [f"{file}: {problem}; its steps are shown without their expressions" for file, problem in problems.items()]
