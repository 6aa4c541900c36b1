"""Count the records that the ring drops, for each function and call site, so that counts of a whole run stay right.

A chunk is counted when it is dropped, so that this costs nothing while events are recorded. Some of its values are
sampled at the same time (series.py). Both results are written as rows. To save room, the rows are written again only
when they have grown by some part, and once more when the journal is read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from torchglass.journal import layout
from torchglass.journal.layout import Chunk, Streams
from torchglass.journal.rows import DroppedRow, SeriesRow, encoded
from torchglass.journal.series import DroppedSeries
from torchglass.journal.shared import RowWriter

Site = tuple[int, int]
"""The numbers of a function and of a stack."""
REWRITE_DIVISOR = 8
"""Counts are written again when they have grown by an eighth."""


@dataclass(slots=True)
class DroppedRange:
    """Consecutive records of one thread that were dropped."""

    thread: int
    first: int
    last: int
    counts: Counter[Site] = field(default_factory=Counter[Site])
    series: DroppedSeries = field(default_factory=DroppedSeries)
    written: int = 0
    """The number of dropped records when the counts were last written."""
    series_written: int = 0
    """The number of dropped records when the series were last written. They take more room, so that is less often."""

    def add(self, chunk: Chunk, streams: Streams) -> None:
        """Add the records of a chunk that is being dropped."""
        words = chunk.words(chunk.first, chunk.last)
        callees = words[layout.WHAT :: layout.RECORD_WORDS].tolist()
        stacks = words[layout.STACK :: layout.RECORD_WORDS].tolist()
        self.counts.update(zip(callees, stacks, strict=True))
        self.series.add(chunk, callees, stacks, streams)
        self.last = chunk.last

    def join(self, later: DroppedRange) -> None:
        """Add a range that begins where this one ends."""
        self.series.join(later.series)
        self.counts.update(later.counts)
        self.last = later.last

    def row(self) -> bytes:
        """Return the row with the counts."""
        counts = [[callee, stack, number] for (callee, stack), number in self.counts.items()]
        return encoded(DroppedRow(self.thread, self.first, self.last, counts))


class Dropped:
    """The dropped records of a journal."""

    def __init__(self, streams: Streams) -> None:
        self.ranges: dict[tuple[int, int], DroppedRange] = {}
        """Keyed by thread and first record."""
        self._streams = streams
        self._total = 0
        self._written = 0
        """The number of dropped records when the counts were last written."""
        self._series_written = 0
        """The same of the series, which take more room."""

    def add(self, chunk: Chunk, rows: RowWriter) -> None:
        """Count a chunk that is being dropped, and write rows if the counts have grown enough."""
        dropped = self._range_before(chunk)
        dropped.add(chunk, self._streams)
        later = self.ranges.pop((dropped.thread, dropped.last), None)
        if later is not None:
            dropped.join(later)
        self._total += chunk.last - chunk.first
        if self._total * REWRITE_DIVISOR >= self._written * (REWRITE_DIVISOR + 1):
            self._write(rows)
        if self._total >= 2 * self._series_written:
            self._write_series(rows)

    def _range_before(self, chunk: Chunk) -> DroppedRange:
        """Return the dropped records that end where a chunk begins, or a new range."""
        for dropped in self.ranges.values():
            if (dropped.thread, dropped.last) == (chunk.owner, chunk.first):
                return dropped
        new = DroppedRange(chunk.owner, chunk.first, chunk.first)
        self.ranges[chunk.owner, chunk.first] = new
        return new

    def write(self, rows: RowWriter) -> None:
        """Write all counts and series that have changed since they were last written."""
        self._write(rows)
        self._write_series(rows)

    def _write(self, rows: RowWriter) -> None:
        for dropped in self.ranges.values():
            if dropped.written < dropped.last - dropped.first:
                rows.add(layout.DROPPED, dropped.thread, dropped.row())
                dropped.written = dropped.last - dropped.first
        self._written = self._total

    def _write_series(self, rows: RowWriter) -> None:
        for dropped in self.ranges.values():
            if dropped.series_written == dropped.last - dropped.first:
                continue
            dropped.series_written = dropped.last - dropped.first
            if dropped.series.thin(len(self.ranges)):
                row = SeriesRow(dropped.thread, dropped.first, dropped.last, dropped.series.text())
                rows.add(layout.SERIES, dropped.thread, encoded(row))
        self._series_written = self._total
