"""Find the records of a journal that belong to a recording, in the order of their start, and repair damaged ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import itemgetter

from torchglass.events.schema import NONE
from torchglass.journal.layout import (
    END,
    ERROR,
    IDS,
    INPUTS,
    NODES,
    OUTPUTS,
    PARENT,
    RECORD_WORDS,
    RECORDS,
    RESULT,
    START,
    Chunk,
    Streams,
)
from torchglass.journal.rows import WindowRow

NO_END = 1 << 62
"""The end of a range that has not ended. No number of a record is as large."""
MAX_RECORDING_NS = 1 << 53
"""The longest recording: a hundred days, in nanoseconds."""
LOST_ID = (1 << 62) - 1
"""Stands for an id that was dropped. No value has this number and metadata."""


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """Consecutive records of one thread in one chunk that belong to a recording."""

    thread: int
    chunk: Chunk
    first: int
    last: int


@dataclass(slots=True)
class ThreadState:
    """The events of the records of a thread that are settled so far."""

    begin: int
    """The first record that belongs to the recording."""
    module: int
    """The module that was running there."""
    first: int
    """The record that the first entry of ``numbers`` belongs to."""
    numbers: list[int] = field(default_factory=list[int])
    """The event of each record since the last gap. For a record that is not an event, that of its parent."""
    earlier: dict[int, int] = field(default_factory=dict[int, int])
    """The events of records before ``first``."""
    last_start: int = 0
    """When the last record started."""

    @property
    def next_record(self) -> int:
        """The number of the next record."""
        return self.first + len(self.numbers)

    def event_of(self, record: int) -> int:
        """Return the event of an earlier record, or NONE if it was dropped or belongs to another recording."""
        if self.first <= record < self.next_record:
            return self.numbers[record - self.first]
        return self.earlier.get(record, NONE)

    def event_records(self) -> list[tuple[int, int]]:
        """Return each record that is an event, with that event, in order."""
        every = self.earlier | dict(enumerate(self.numbers, self.first))
        records: dict[int, int] = {}
        for record in sorted(every):
            records.setdefault(every[record], record)
        records.pop(NONE, None)
        return sorted((record, event) for event, record in records.items())

    def skip_to(self, record: int) -> None:
        """Continue with a record after a gap."""
        self.earlier.update(enumerate(self.numbers, self.first))
        self.first = record
        self.numbers = []


def spans_of(
    streams: Streams, windows: dict[int, WindowRow], ends: dict[int, int]
) -> list[RecordSpan]:
    """Return all spans of a recording.

    ``ends`` has the number after the last record of each thread, if it has ended.
    """
    spans: list[RecordSpan] = []
    for thread, window in windows.items():
        for chunk in streams.of(RECORDS, thread):
            written = chunk.written()
            first = max(chunk.first, window.begin)
            last = min(written, ends.get(thread, written))
            if first < last:
                spans.append(RecordSpan(thread, chunk, first, last))
    return spans


def in_order(spans: list[RecordSpan]) -> Iterator[tuple[RecordSpan, int, int]]:
    """Yield the records of all spans in the order of their start, as runs of records of one span: span, first, last."""
    if len({span.thread for span in spans}) < 2:
        return (
            (span, span.first, span.last) for span in sorted(spans, key=lambda span: span.first)
        )
    return _runs(sorted(_record_starts(spans)), spans)


def _record_starts(spans: list[RecordSpan]) -> Iterator[tuple[int, int, int]]:
    """Yield the start of each record, the index of its span, and its number.

    No start is before that of the previous record of the thread, so that a damaged time does not change the order.
    """
    latest: dict[int, int] = {}
    for index, span in enumerate(spans):
        starts = span.chunk.words(span.first, span.last)[START::RECORD_WORDS].tolist()
        for number, start in enumerate(accumulate([latest.get(span.thread, 0), *starts], max)):
            if number:
                yield start, index, span.first + number - 1
            latest[span.thread] = start


def _runs(
    starts: list[tuple[int, int, int]], spans: list[RecordSpan]
) -> Iterator[tuple[RecordSpan, int, int]]:
    for index, run in groupby(starts, itemgetter(1)):
        (_, _, first), *rest = run
        yield spans[index], first, first + 1 + len(rest)


def repair_records(words: list[int], first: int, times: range) -> None:
    """Repair the words of records, of which ``first`` is the first, in a journal that may be damaged.

    Parents come before their children, and no event ends before it starts. A start that is not one of ``times`` becomes
    that of the record before. A record without a sound end gets no result either, because the process may have died
    while it wrote the closing words.
    """
    start = times.start
    for base in range(0, len(words), RECORD_WORDS):
        if not NONE <= words[base + PARENT] < first + base // RECORD_WORDS:
            words[base + PARENT] = NONE
        if words[base + START] not in times:
            words[base + START] = start
        start = words[base + START]
        if not (words[base + END] in times and start <= words[base + END]):
            for word in (RESULT, OUTPUTS, ERROR, NODES, END):
                words[base + word] = NONE


class BackwardRanges:
    """The ranges of records of a thread during which the autograd engine ran, merged where they overlap."""

    def __init__(self, ends: dict[int, int], gaps: list[int]) -> None:
        """Prepare ranges for lookups, given the end of each by its beginning. An unknown end, NONE, is the next gap."""
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in sorted(ends.items()):
            if end == NONE:
                end = next((gap for gap in gaps if gap > begin), NO_END)
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def flags(self, first: int, last: int) -> bytearray:
        """Return a byte for each record from ``first`` up to but without ``last``: 1 if it is in one of the ranges."""
        flags = bytearray(last - first)
        index = max(bisect_right(self._begins, first) - 1, 0)
        while index < len(self._begins) and self._begins[index] < last:
            low = max(self._begins[index], first)
            high = min(self._ends[index], last)
            if low < high:
                flags[low - first : high - first] = b"\1" * (high - low)
            index += 1
        return flags


class Ids:
    """The ids of the inputs and outputs of events of one thread, loaded for the records that come next."""

    def __init__(self, streams: Streams, thread: int) -> None:
        self._streams = streams
        self._thread = thread
        self.words: list[int] = []
        """The loaded ids."""
        self.base = 0
        """The number of the first of them."""
        self.is_whole = True
        """Whether all ids that the last records refer to are loaded."""

    def read(self, records: list[int]) -> Ids:
        """Load all ids that these records refer to."""
        numbers = [*records[INPUTS::RECORD_WORDS], *records[OUTPUTS::RECORD_WORDS]]
        numbers = [number for number in numbers if number >= 0]
        if numbers:
            low = min(numbers)
            high = max(numbers)
            if not self._has(low, high):
                self._read(low, high)
            self.is_whole = self._has(low, high)
        return self

    def _has(self, low: int, high: int) -> bool:
        return self.base <= low and high < self.base + len(self.words)

    def _read(self, low: int, high: int) -> None:
        chunks = [
            chunk
            for chunk in self._streams.of(IDS, self._thread)
            if chunk.last > low and chunk.first <= high
        ]
        if chunks:
            self.base = chunks[0].first
        else:
            self.base = low
        self.words = []
        for chunk in chunks:
            if chunk.first != self.base + len(self.words):
                return  # a chunk between was dropped
            self.words += chunk.words(chunk.first, chunk.last).tolist()

    def ids_at(self, first: int, count: int) -> list[int]:
        """Return ``count`` ids from number ``first`` on. Missing ones are LOST_ID."""
        ids: list[int] = []
        if self.is_whole:
            if first >= self.base:
                ids = self.words[first - self.base : first - self.base + count]
        elif first >= 0:
            ids = self._streams.ids(self._thread, first, count)
        return ids + [LOST_ID] * (count - len(ids))
