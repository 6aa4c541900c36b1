"""Which records of a journal belong to a recording, in which order, and as far as they can be believed."""

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

LONGEST_TIME = 1 << 62
LONGEST_RECORDING = 1 << 53
"""Nanoseconds: a hundred days."""
LOST_ID = (1 << 62) - 1
"""Stands for an id that was dropped: no value has this number, nor metadata."""


@dataclass(frozen=True, slots=True)
class RecordSpan:
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

    @property
    def behind(self) -> int:
        """The number of the next record."""
        return self.first + len(self.numbers)

    def event_of(self, record: int) -> int:
        """The event of a record that came before; NONE where it is not kept, or not of this recording."""
        if record >= self.first:
            return self.numbers[record - self.first]
        return self.earlier.get(record, NONE)

    def skip_to(self, record: int) -> None:
        """Go on behind a gap."""
        self.earlier.update(enumerate(self.numbers, self.first))
        self.first, self.numbers = record, []


def spans_of(streams: Streams, windows: dict[int, WindowRow], ends: dict[int, int]) -> list[RecordSpan]:
    """All that is there of a recording; ``ends`` says where each thread's part of it ended, if it has."""
    found: list[RecordSpan] = []
    for thread, window in windows.items():
        for chunk in streams.of(RECORDS, thread):
            written = chunk.written()
            first, last = max(chunk.first, window.begin), min(written, ends.get(thread, written))
            if first < last:
                found.append(RecordSpan(thread, chunk, first, last))
    return found


def in_order(spans: list[RecordSpan]) -> Iterator[tuple[RecordSpan, int, int]]:
    """The records of all spans in order of opening, in runs of one span."""
    if len({span.thread for span in spans}) < 2:
        return ((span, span.first, span.last) for span in sorted(spans, key=lambda span: span.first))
    return _runs(sorted(_openings(spans)), spans)


def _openings(spans: list[RecordSpan]) -> Iterator[tuple[int, int, int]]:
    """When each record was opened, its span, and its number.

    Never before the one in front of it in its thread: a time that was damaged changes no order.
    """
    latest: dict[int, int] = {}
    for index, span in enumerate(spans):
        starts = span.chunk.words(span.first, span.last)[START::RECORD_WORDS].tolist()
        for number, start in enumerate(accumulate([latest.get(span.thread, 0), *starts], max)):
            if number:
                yield start, index, span.first + number - 1
            latest[span.thread] = start


def _runs(each: list[tuple[int, int, int]], spans: list[RecordSpan]) -> Iterator[tuple[RecordSpan, int, int]]:
    for index, run in groupby(each, itemgetter(1)):
        (_, _, first), *rest = run
        yield spans[index], first, first + 1 + len(rest)


def make_sound(words: list[int], first: int, times: range) -> None:
    """Of records that nobody vouches for: parents come before their children, and no event ends before it begins.

    What has no end has no result either: the process may have died while it wrote that. ``times`` are those of the
    recording; a time that is none of them becomes that of the record before.
    """
    before = times.start
    for at in range(0, len(words), RECORD_WORDS):
        if not NONE <= words[at + PARENT] < first + at // RECORD_WORDS:
            words[at + PARENT] = NONE
        if words[at + START] not in times:
            words[at + START] = before
        before = words[at + START]
        if not (words[at + END] in times and before <= words[at + END]):
            for word in (RESULT, OUTPUTS, ERROR, NODES, END):
                words[at + word] = NONE


class Ranges:
    """Ranges of records while the autograd engine ran, ready to be asked for many."""

    def __init__(self, found: dict[int, int], gaps: list[int]) -> None:
        """``found``: by beginning, the end, NONE where that is not known; then it is the next gap."""
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, told in sorted(found.items()):
            end = told if told != NONE else next((gap for gap in gaps if gap > begin), LONGEST_TIME)
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def flags(self, first: int, last: int) -> bytearray:
        """1 for each record from ``first`` to before ``last`` that is in one of them."""
        flags = bytearray(last - first)
        at = max(bisect_right(self._begins, first) - 1, 0)
        while at < len(self._begins) and self._begins[at] < last:
            low, high = max(self._begins[at], first), min(self._ends[at], last)
            if low < high:
                flags[low - first : high - first] = b"\1" * (high - low)
            at += 1
        return flags


class Ids:
    """What the events of one thread took and gave; kept for the records that come next."""

    def __init__(self, streams: Streams, thread: int) -> None:
        self._streams = streams
        self._thread = thread
        self.words: list[int] = []
        self.base = 0
        """The ids that were read last, and the number of the first of them."""
        self.is_whole = True
        """Whether all that was asked for is among these."""

    def read(self, records: list[int]) -> Ids:
        """Have all ids at hand that these records refer to."""
        places = [each for column in (INPUTS, OUTPUTS) for each in records[column::RECORD_WORDS] if each >= 0]
        if places:
            low, high = min(places), max(places)
            if not self._has(low, high):
                self._read(low, high)
            self.is_whole = self._has(low, high)
        return self

    def _has(self, low: int, high: int) -> bool:
        return self.base <= low and high < self.base + len(self.words)

    def _read(self, low: int, high: int) -> None:
        chunks = [each for each in self._streams.of(IDS, self._thread) if each.last > low and each.first <= high]
        self.base, self.words = chunks[0].first if chunks else low, []
        for chunk in chunks:
            if chunk.first != self.base + len(self.words):
                return  # some in between were dropped
            self.words += chunk.words(chunk.first, chunk.last).tolist()

    def some(self, first: int, count: int) -> list[int]:
        """So many from a place on; what is not there is not known."""
        if self.is_whole:
            found = self.words[first - self.base : first - self.base + count] if first >= self.base else []
        else:
            found = self._streams.ids(self._thread, first, count) if first >= 0 else []
        return found + [LOST_ID] * (count - len(found))
