"""Settle a journal: turn the records of one recording into the tables of a trace.

The same code settles a recording that has ended, one that is still running, and one whose process died. These are the
steps::

    spans      find the records of the recording in each thread, in the order of their start (spans.py)
    rows       add a row of event columns for each record (columns.py), and a *gap* event where records are missing
    values     read the values that the events refer to, their statistics and fingerprints
    links      find the producer and the storage of each value, and the forward event of each backward event (links.py)
    notes      say what is missing, and why

A gap has a thread's records 1,000 to 1,999, for example, if the ring has dropped them (gaps.py). Records before it that
had not ended are repeated at the front of the next chunk, and are added after the gap event.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torchglass.events.schema import NONE, ORIGINS
from torchglass.events.tables import NewRound, Tables, form_sizes
from torchglass.events.types import Location
from torchglass.events.uninitialised import forget_uninitialised
from torchglass.journal import layout
from torchglass.journal.layout import Streams
from torchglass.journal.ring import chunk_count
from torchglass.journal.rows import RoundRow
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
    FixedFields,
)
from torchglass.settle.gaps import Gaps
from torchglass.settle.journal_rows import JournalRows, RecordingState
from torchglass.settle.links import Nodes, link_storages, link_values
from torchglass.settle.measured import fill_measured, fill_sketches
from torchglass.settle.places import PlaceTable
from torchglass.settle.sources import Sources, StoredText
from torchglass.settle.spans import (
    MAX_RECORDING_NS,
    BackwardRanges,
    Ids,
    RecordSpan,
    ThreadState,
    in_order,
    repair_records,
    spans_of,
)
from torchglass.settle.value_columns import ValueFiller
from torchglass.source.sites import NO_EXPRESSION

KEEP_BEGIN = "begin"
FUSED_FUNCTION = "F.scaled_dot_product_attention"
"""A function of torch that ``fused="open"`` does not open."""
_FIELDS = tuple(word for word in range(layout.RECORD_WORDS) if word != layout.NODES)
"""The words of a record that ``_fill`` reads, in its order."""


@dataclass(frozen=True)
class Source:
    """Where a journal comes from."""

    texts: StoredText
    """Returns the source texts that were stored with it."""
    is_here: bool
    """Whether it was written by this process, so that its content is certain to be sound."""


class Settler:
    """Settles one recording of a journal into tables."""

    def __init__(
        self,
        streams: Streams,
        recording: int,
        source: Source,
        journal_rows: JournalRows | None = None,
    ) -> None:
        self.streams = streams
        self.journal_rows = journal_rows or JournalRows(streams)
        self.journal_rows.update()
        self.recording = recording
        self.recorded: RecordingState = self.journal_rows.recordings[recording]
        self._is_here = source.is_here
        row = self.recorded.row
        self.options: dict[str, Any] = row.options
        self.tables = Tables(process=row.process, name=row.name, started_at=row.started_at)
        journal = self.journal_rows.journal
        if journal is not None:
            self.tables.python = ".".join(map(str, journal.python))
            self.tables.torch = journal.torch or ""
        self.sources = Sources(self.journal_rows, source.texts, source.is_here)
        self.values = ValueFiller(streams, self.journal_rows, self.tables)
        self.columns = Columns(
            self.journal_rows,
            PlaceTable(self.journal_rows, self.sources, self.tables),
            self.values,
            self.tables,
        )
        self._threads: dict[int, ThreadState] = {}
        self._ids: dict[int, Ids] = {}
        self._backward: dict[int, BackwardRanges] = {}
        self._nodes = Nodes()
        self._no_events: set[Combination] = set()
        """Combinations that are not events, or were not requested."""
        self._over_limit = 0
        """The number of events after the limit, with ``keep="begin"``."""
        self._unreadable = 0
        """The number of combinations whose rows are lost or damaged."""
        self._record_count = 0
        """The number of records that the recording wrote, also those that were dropped."""
        self._dropped = 0
        """The number of records that were dropped because of the limit."""
        self._missing = 0
        """The number of records that are missing although they should be there."""
        self._gaps = Gaps(self.journal_rows, self.columns, self.tables)
        self._module_numbers: dict[int, int] = {}
        """Keyed by the row of a module: its number in the tables."""
        self._max_events: int | None = None
        limit = self.options.get("max_events")
        if type(limit) is int:
            self._max_events = limit
        self._keeps_begin = self.options.get("keep") == KEEP_BEGIN

    def settle(self) -> Tables:
        """Return the tables with all events of the recording so far, in the order of their start."""
        spans = self._spans()
        # Other threads may be writing. The rows that a record refers to are written before it, so read them after it.
        self.journal_rows.update()
        for span, first, last in in_order(spans):
            self._fill_span(span, first, last)
        self._fill_ends()
        self._check_values()
        modules = self.journal_rows.modules.values()
        self.values.read(value for module in modules for _, value in module.parameters)
        self._set_modules()
        for thread, rounds in self.journal_rows.rounds.items():
            self._add_rounds(thread, rounds)
        if self.options.get("values"):
            fill_measured(self.streams, self.values, self.tables)
            fill_sketches(self.streams, self.values, self.tables)
        self._nodes.link(
            self.tables, {thread: row.caller for thread, row in self.journal_rows.threads.items()}
        )
        link_values(self.tables)
        link_storages(self.tables, self.values.addresses, self.values.previous)
        forget_uninitialised(self.tables, self.values.addresses, self.values.previous)
        self._finish()
        return self.tables

    def _check_values(self) -> None:
        """Check that the events have as many inputs and outputs as their forms have tensors."""
        counts = form_sizes(self.tables)
        inputs = sum(map(counts.__getitem__, self.tables.args))
        outputs = sum(map(counts.__getitem__, self.tables.result))
        if inputs + outputs != len(self.tables.io):
            raise ValueError("an event has more or fewer values than its form")

    def _add_rounds(self, thread: int, rounds: set[RoundRow]) -> None:
        """Add the new rounds of outer loops to the tables, each at its first event."""
        state = self._threads.get(thread)
        if state is None:
            return
        records = state.event_records()
        for row in sorted(rounds):
            first = bisect_left(records, (row.record,))
            code = self.journal_rows.code_rows.get(row.code)
            if code is None or not 0 < first < len(records):
                continue
            _, event = records[first]
            last = bisect_left(records, (row.before + 1,)) - 1
            if last >= 0:
                new = NewRound(records[last][1], code.file, row.line, row.column)
                self.tables.rounds.setdefault(event, []).append(new)

    # ------------------------------------------------------------ records and gaps

    def _ends(self) -> dict[int, int]:
        """Return the number after the last record of each thread, or {} while the recording runs."""
        ended = self.recorded.ended
        if ended is None:
            return {}
        return {end[0]: end[1] for end in ended.ends}

    def _spans(self) -> list[RecordSpan]:
        """Return the spans of the recording, and prepare the state of each thread."""
        ends = self._ends()
        spans = spans_of(self.streams, self.recorded.windows, ends)
        gaps: dict[int, list[int]] = {}
        for thread, window in self.recorded.windows.items():
            self._threads[thread] = ThreadState(window.begin, window.module, window.begin)
            self._ids[thread] = Ids(self.streams, thread)
            next_record = window.begin
            gaps[thread] = []
            for span in spans:
                if span.thread == thread:
                    if span.first > next_record:
                        gaps[thread].append(span.first)
                    next_record = span.last
            self._record_count += ends.get(thread, next_record) - window.begin
        self._backward = {
            thread: BackwardRanges(range_ends, gaps.get(thread, []))
            for thread, range_ends in self.journal_rows.backward.items()
        }
        return spans

    def _fill_span(self, span: RecordSpan, first: int, last: int) -> None:
        state = self._threads[span.thread]
        if first > state.next_record:
            self._fill_gap(span, state, first)
        words = span.chunk.words(first, last).tolist()
        if not self._is_here:
            repair_records(words, first, self._times())
        self._fill(span.thread, state, words, self._backward_flags(span.thread, first, last))
        self._nodes.read(span.thread, words, state.numbers[-(last - first) :])

    def _times(self) -> range:
        """Return the times that can be in this recording, in nanoseconds."""
        started = self.recorded.row.started_ns
        return range(started, started + MAX_RECORDING_NS)

    def _fill_gap(self, span: RecordSpan, state: ThreadState, first: int) -> None:
        """Add the event of a gap before record ``first``, and then the records of the gap that had not ended.

        These are repeated at the front of the next chunk.
        """
        copies = self._copies(span, state, first)
        missing = first - state.next_record - len(copies)
        first_missing = state.next_record
        resumed_words = span.chunk.words(first, first + 1).tolist()
        # The outermost call that began in the gap and goes on after it shows what was running all the time.
        _, words_around = (copies or [(first, resumed_words)])[0]
        if words_around[layout.PARENT] == NONE:
            parent = self._caller_of(span.thread)
        else:
            parent = state.event_of(words_around[layout.PARENT])
        last_start = state.last_start or self.recorded.row.started_ns
        begin = min([last_start, *(words[layout.START] for _, words in copies)])
        resumed = resumed_words[layout.START]
        state.skip_to(first)
        event = len(self.tables)
        self._append_gap(span.thread, parent, begin, max(resumed, begin), missing)
        self._gaps.add(event, span.thread, first_missing, first, copies)
        for number, words in copies:
            one_record = ThreadState(state.begin, state.module, number, earlier=state.earlier)
            flags = self._backward_flags(span.thread, number, number + 1)
            self._fill(span.thread, one_record, words, flags)
            state.earlier[number] = one_record.numbers[0]

    def _copies(
        self, span: RecordSpan, state: ThreadState, first: int
    ) -> list[tuple[int, list[int]]]:
        """Return the records of a gap that had not ended: number and words, from the newest chunk that repeats them."""
        latest: dict[int, list[int]] = {}
        for chunk in self.streams.of(layout.RECORDS, span.thread):
            if chunk.first >= span.chunk.first:
                latest.update(chunk.copied())
        copies = [
            (number, latest[number])
            for number, _ in span.chunk.copied()
            if state.next_record <= number < first
        ]
        if not self._is_here:
            for number, words in copies:
                repair_records(words, number, self._times())
        return copies

    def _append_gap(self, thread: int, parent: int, begin: int, end: int, missing: int) -> None:
        """Add the event that stands for missing records of a thread, between two times in nanoseconds."""
        count_and_time = f"{missing:,} events in {(end - begin) / 1e9:,.3g} s"
        self._count_missing(missing)
        if self._has_reached_limit():
            note = f"{count_and_time} are not kept: {self._limit_reached()}"
        else:
            note = f"{count_and_time} are not there: the journal is damaged"
        fixed = self.columns.add_gap(note)
        batch = Batch(len(self.tables.io))
        module = NONE
        if parent != NONE:
            module = self.tables.module[parent]
        batch.fixed.append(fixed.columns)
        is_backward = 0
        call = NONE
        occurrence = 0
        error = NONE
        python_call = NONE
        forward = NONE
        batch.varying += (
            parent, is_backward, begin, end, module, call, batch.first_io, occurrence, error, python_call, forward,
        )  # fmt: skip
        self.columns.extend(thread, batch)

    def _count_missing(self, missing: int) -> None:
        if self._has_reached_limit():
            self._dropped += missing
        else:
            self._missing += missing

    def _has_reached_limit(self) -> bool:
        """Return whether there were so many records that some were dropped on purpose."""
        if self._max_events is None or self._keeps_begin:
            return False
        # Each thread may leave one chunk unused.
        unused = len(self.recorded.windows) * (self._max_events // chunk_count(self._max_events))
        return self._record_count + unused >= self._max_events

    def _limit_reached(self) -> str:
        return f"the limit of {self._max_events or 0:,} was reached; record(max_events=…) or --max-events raises it"

    def _fill_ends(self) -> None:
        """Add the event of a gap where records are missing at the end of a thread, which may have ended long ago."""
        ended = self.recorded.ended
        for thread, end in self._ends().items():
            state = self._threads.get(thread)
            if ended is None or state is None or end <= state.next_record:
                continue
            first = state.next_record
            if first == state.begin:
                # Nothing of the thread was kept, so there is nothing to show a gap in.
                self._count_missing(end - first)
                continue
            begin = state.last_start or self.recorded.row.started_ns
            event = len(self.tables)
            self._append_gap(
                thread, self._caller_of(thread), begin, max(ended.stopped_ns, begin), end - first
            )
            self._gaps.add(event, thread, first, end, [])

    def _backward_flags(self, thread: int, first: int, last: int) -> bytearray:
        """Return a byte for each record: 1 if the autograd engine was running."""
        if self.journal_rows.thread(thread).caller != NONE:
            return bytearray(b"\1" * (last - first))
        ranges = self._backward.get(thread)
        if ranges is None:
            return bytearray(last - first)
        return ranges.flags(first, last)

    # ------------------------------------------------------------ rows

    def _fill(self, thread: int, state: ThreadState, words: list[int], backward: bytearray) -> None:
        """Append the rows of the next records of a thread.

        Settling spends its time in this loop. Whatever can be done for many events at once is done outside of it.
        """
        tables = self.tables
        columns = self.columns
        fixed_fields = columns.fixed_fields
        occurrences = columns.occurrences
        limit = None
        if self._keeps_begin:
            limit = self._max_events
        numbers = state.numbers
        first_record = state.first
        earlier = state.earlier
        before = len(tables)
        batch = Batch(len(tables.io))
        modules: list[int] = []
        fixed_columns = batch.fixed
        varying = batch.varying
        io = batch.io
        thread_ids = self._ids[thread].read(words)
        ids = thread_ids.words
        base = thread_ids.base
        trusted = thread_ids.is_whole and self._is_here
        state.last_start = words[layout.START - layout.RECORD_WORDS]
        try:
            for (
                callee, parent_at, stack, args, inputs, python_call, result, outputs, error, end, start, is_backward,
            ) in _records(words, backward):  # fmt: skip
                if parent_at >= first_record:
                    parent = numbers[parent_at - first_record]
                elif parent_at == NONE:
                    parent = self._caller_of(thread)
                else:
                    parent = earlier.get(parent_at, NONE)
                if callee < 0:
                    # This is module_row(callee), without the cost of a call.
                    module = -2 - callee
                elif parent >= before:
                    module = modules[parent - before]
                elif parent != NONE:
                    module = tables.module[parent]
                else:
                    module = NONE
                    if parent_at != NONE and parent_at < state.begin:
                        module = state.module
                combination = (callee, args, stack, module, result)
                fixed = fixed_fields.get(combination) or self._fixed_fields(combination)
                if fixed is None:
                    # Whatever it called belongs to its parent.
                    numbers.append(parent)
                    continue
                number = before + len(modules)
                if limit is not None and number >= limit:
                    numbers.append(NONE)
                    self._over_limit += 1
                    continue
                numbers.append(number)
                modules.append(module)
                entries, stem, input_count, output_count = fixed
                fixed_columns.append(entries)
                call = NONE
                if callee < 0:
                    call = columns.count_call(module)
                varying += (
                    parent, is_backward, start, end, module, call, batch.first_io + len(io), occurrences[stem],
                    NONE if error == NONE else columns.error(error), columns.python_call(python_call), NONE,
                )  # fmt: skip
                occurrences[stem] += 1
                if input_count:
                    if trusted:
                        io += ids[inputs - base : inputs - base + input_count]
                    else:
                        io += thread_ids.ids_at(inputs, input_count)
                if output_count:
                    if trusted:
                        io += ids[outputs - base : outputs - base + output_count]
                    else:
                        io += thread_ids.ids_at(outputs, output_count)
        finally:
            columns.extend(thread, batch)

    def _fixed_fields(self, combination: Combination) -> FixedFields | None:
        """Return the fixed fields of a combination, or None if its records are not events of this recording."""
        if combination in self._no_events:
            return None
        callee, args, _, _, result = combination
        try:
            if self.columns.is_event(callee, args, result) and self._is_requested(callee):
                return self.columns.fixed(combination)
        except (KeyError, IndexError, ValueError):
            # A row that it refers to was lost with the process, or damaged later.
            if self._is_here:
                raise
            self._unreadable += 1
        self._no_events.add(combination)
        return None

    def _caller_of(self, thread: int) -> int:
        """Return the event that called backward for a thread of the autograd engine, or NONE for other threads."""
        row = self.journal_rows.thread(thread)
        state = self._threads.get(row.caller)
        if state is None or not state.begin <= row.record < state.next_record:
            return NONE
        return state.event_of(row.record)

    def _is_requested(self, callee: int) -> bool:
        """Return whether this recording has the option for such events.

        Another one that shares the journal may have it.
        """
        options = self.options
        if callee < 0:
            kind = MODULE
        else:
            kind = self.journal_rows.callees[callee].kind
        if kind == FUNCTION:
            return bool(options.get("functions"))
        if kind == VARIABLE:
            name = self.journal_rows.callees[callee].name
            patterns = options.get("variables", ())
            return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
        if kind == OP:
            return bool(options.get("ops"))
        return bool(options.get("modules")) or kind in (UNSEEN, MARK)

    # ------------------------------------------------------------ modules, notes and sources

    def _set_modules(self) -> None:
        """Put the modules of this recording into the tables.

        Another recording that shares the journal may have more.
        """
        is_alone = len(self.journal_rows.recordings) == 1
        rows = sorted(self.journal_rows.modules)
        if is_alone and rows == list(range(len(rows))):
            self.columns.set_modules(rows)
            self._module_numbers = {row: row for row in rows}
            return
        if not is_alone:
            rows = sorted(set(self.tables.module) - {NONE})
        numbers = {row: number for number, row in enumerate(rows)}
        numbers[NONE] = NONE
        self.tables.module[:] = type(self.tables.module)(
            "q", [numbers[row] for row in self.tables.module]
        )
        self.columns.set_modules(rows)
        self._module_numbers = numbers

    def _finish(self) -> None:
        """Fill what the tables say of the recording as a whole: its end, notes and sources."""
        self._gaps.describe(self._module_numbers)
        tables = self.tables
        ended = self.recorded.ended
        row = self.recorded.row
        tables.complete = ended is not None
        stopped = max(tables.end_ns, default=row.started_ns)
        if ended is not None:
            tables.left_by = tuple(ended.left_by)
            stopped = ended.stopped_ns
        tables.duration_ns = max(stopped - row.started_ns, 0)
        tables.notes = list(self.journal_rows.notes)
        tables.notes += unread_files(tables)
        names = {callee.name for callee in self.journal_rows.callees.values()}
        if self.options.get("fused") == "open" and FUSED_FUNCTION in names:
            tables.notes.append(
                f'fused="open" opens the layers of torch.nn; {FUSED_FUNCTION} stays one step, '
                "since torch runs it as one"
            )
        if self._dropped:
            tables.notes.append(
                f"{self._dropped:,} events in the middle were not kept: {self._limit_reached()}"
            )
        lost = self._over_limit
        if ended is not None:
            lost += ended.lost
        if lost:
            tables.notes.append(f"{lost:,} events were not recorded: {self._limit_reached()}")
        if self._missing or self._unreadable:
            tables.notes.append(self._damage_note())
        if ended is None and layout.STOPPED in self.streams.notes:
            tables.notes.append(self._full_file_note())
        if ended is None:
            faults = self.journal_rows.faults.items()
        else:
            faults = ended.faults
        for text, count in faults:
            tables.notes.append(
                f"torchglass failed to record {count:,} step(s); the program was not affected: {text}"
            )
        if self.options.get("sources", True):
            tables.sources = self.sources.users_texts()
        if ended is not None:
            tables.raised_at = tuple(
                _frame(tables, *frame)
                for frame in ended.raised
                if [*map(type, frame)] == [str, int, str, str] and frame[3] in ORIGINS
            )

    def _damage_note(self) -> str:
        """Return the note of a damaged journal."""
        parts: list[str] = []
        if self._missing:
            parts.append(f"{self._missing:,} events are not there")
        if self._unreadable:
            parts.append(f"{self._unreadable:,} kinds of events name what is not there")
        return f"{' and '.join(parts)}: the journal is damaged, or its disk was full"

    def _full_file_note(self) -> str:
        """Return the note of a recording that continued in memory when its file was full."""
        notes = self.streams.notes
        in_file = sum(
            chunks[-1].written()
            for (stream, _), chunks in self.streams.chunks.items()
            if stream == layout.RECORDS
        )
        error = notes[layout.STOPPED]
        reason = "the file could not be used"
        if error > 0:
            reason = f"the file could take no more ({os.strerror(error)})"
        total = notes.get(layout.MADE, NONE)
        if total < in_file:
            return f"what happened after the first {in_file:,} steps was not kept: {reason}"
        return f"{total - in_file:,} of {total:,} steps were not kept: {reason}"


def _records(words: list[int], backward: bytearray) -> Iterable[tuple[int, ...]]:
    """Yield the words of each record in ``_FIELDS``, and whether the autograd engine was running."""
    return zip(*(words[field :: layout.RECORD_WORDS] for field in _FIELDS), backward, strict=True)


def _frame(tables: Tables, file: str, line: int, function: str, origin: str) -> Location:
    """Return a frame of a traceback, with the text of its line if the trace has it."""
    lines = tables.sources.get(file, "").split("\n")
    text = ""
    if 0 < line <= len(lines):
        text = lines[line - 1].strip()
    return Location(file, line, line, 0, 0, function, text, origin)


def unread_files(tables: Tables) -> list[str]:
    """Return a note for each file whose text could not be read, or is not shown because it has changed."""
    problems = {
        site.location.file: site.problem
        for site in tables.sites
        if site.problem not in (None, NO_EXPRESSION)
    }
    return [
        f"{file}: {problem}; its steps are shown without their expressions"
        for file, problem in problems.items()
    ]
