"""Limit how many records are kept: the first tenth, the newest, and those in which something first became NaN or Inf.

So a recording can be left on for a day: memory and file stay bounded, and what happened last is always there. Records
are dropped a chunk at a time, with the ids, values and passing rows that only they referred to. This is an example with
``max_events=10_000``, one thread and chunks of 1,000 records::

    records 0 to 999            the first tenth, which is always kept
    1,000 to 9,999              more chunks; the limit is reached
    10,000 to 10,999            the chunk with 1,000 to 1,999 is dropped to make room, and so on

A dropped chunk that holds the first bad value of a call site is *pinned* instead, with the chunk before it: both are
kept to the end, and count towards the limit, and so is the chunk after it. A chunk in which a call site runs for the
first time stays too, and one chunk in so many as a sample; samples become rarer as the run grows.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torchglass.journal import layout
from torchglass.journal.backing import Backing
from torchglass.journal.bad_sites import BadSites, Extent, IndexRange
from torchglass.journal.chunks import Chunks, ignore
from torchglass.journal.dropped import Dropped
from torchglass.journal.layout import Chunk
from torchglass.journal.shared import RowWriter

HEAD_DIVISOR = 10
"""The first tenth of the records is always kept."""
MIN_CHUNKS = 8
"""Number of chunks that the newest records are kept in, at least."""
MAX_CHUNKS = 64
"""Number of chunks that the newest records are kept in, at most."""
MIN_RECORDS_PER_CHUNK = 1024
"""There are more than MIN_CHUNKS only if each has at least this many records."""
PINNED_DIVISOR = 4
"""A quarter of the chunks may be pinned."""
NEW_SITES_DIVISOR = 4
"""A quarter may be kept because a call site runs there for the first time."""
SAMPLES_DIVISOR = 4
"""A quarter may be kept as samples of what happened between."""
ENTRIES_PER_EVENT = {layout.RECORDS: 1, layout.IDS: 3}
"""About how many entries an event takes in these streams. In the streams of values it takes two."""
ROW_BYTES_PER_EVENT = 64
"""About how many bytes of rows an event takes."""
ROWS = (layout.ROWS, layout.PASSING)
OF_VALUES = (layout.VALUES, layout.MEASURED, layout.SKETCHED, layout.KEPT)
"""The streams that have one entry for each value."""


def chunk_count(events: int) -> int:
    """Return how many chunks the newest records are kept in. Few cost less time; with many, less is dropped at once."""
    return min(max(events // MIN_RECORDS_PER_CHUNK, MIN_CHUNKS), MAX_CHUNKS)


@dataclass(frozen=True)
class Limits:
    """How many records to keep, or None for all, and which: those of the ``begin`` or of the ``end``."""

    events: int | None = None
    keep: str = "end"


class Thread(Protocol):
    """The part of a thread's writer that the ring uses. See writer.ThreadWriter."""

    number: int
    at: int
    id_at: int
    id_base: int
    over: bool
    """Whether the thread has ended."""

    def end_chunk(self) -> None: ...
    def shrink(self) -> None: ...


@dataclass(eq=False)
class FinishedChunk:
    """A chunk of records, after the first tenth, to which nothing more is written."""

    thread: Thread
    chunk: Chunk
    extent: Extent
    """The ids, values and passing rows that its records refer to."""
    number: int = 0
    """Which of the chunks it was, from 1, that were to be dropped."""
    has_new_bad_site: bool | None = None
    """Whether a call site is bad for the first time in it. None if that was not checked yet."""

    def refers_to(self, stream: int, chunk: Chunk) -> bool:
        """Return whether its records refer to entries in a chunk of another stream."""
        if stream == layout.IDS:
            return chunk.owner == self.thread.number and _overlaps(self.extent.ids, chunk)
        if stream == layout.PASSING:
            return _overlaps(self.extent.passing, chunk)
        return _overlaps(self.extent.values, chunk)


def _overlaps(numbers: IndexRange, chunk: Chunk) -> bool:
    return numbers.first < chunk.last and chunk.first < numbers.end


class Ring(Chunks):
    """Hands out chunks within the limit on records, and drops or pins the oldest chunk of records to make room."""

    threads: list[Any]
    """The writers of all threads; each is a ``Thread``."""

    def __init__(self, backing: Backing, limits: Limits) -> None:
        super().__init__(backing)
        self.limits = limits
        self.passing = RowWriter(self, layout.PASSING)
        self.on_drop: Callable[[int, int], None] = ignore
        """Called with the range of values that were dropped: the first, and the end."""
        self.is_dropping = False
        """Whether the first tenth is full, so that a new chunk may require dropping the oldest."""
        self._head_used = 0
        """The number of records in the first tenth that have room."""
        self._head_chunks: dict[int, Chunk] = {}
        """Keyed by thread: the chunk of the first tenth that it is writing to."""
        self._finished: deque[FinishedChunk] = deque()
        """Finished chunks after the first tenth, oldest first."""
        self._pinned_chunks: list[FinishedChunk] = []
        """Chunks that are kept to the end, since something became bad there."""
        self._first_runs: list[FinishedChunk] = []
        """Chunks that are kept to the end, since a call site ran there for the first time."""
        self._samples: list[FinishedChunk] = []
        """Chunks that are kept until there are too many samples."""
        self._sample_step = 1
        """Every so many chunks one is a sample."""
        self._passed = 0
        """How many chunks were to be dropped."""
        self._last_bad = -1
        """The number of the chunk in which something last became bad."""
        self._call_sites = CallSites()
        self._bad_sites = BadSites(self.streams)
        self._dropped = Dropped(self.streams)
        self.rows = RowWriter(self, layout.ROWS)
        self._current: dict[int, Chunk] = {}
        """Keyed by thread: the chunk after the first tenth that it is writing to."""
        self._head_ends: dict[tuple[int, int], int] = {}
        """Keyed by stream and owner: the end of the entries that the first tenth refers to, which are always kept."""

    def widen(self, events: int | None) -> None:
        """Raise the limit to this many records, or remove it with None. A higher limit stays as it is."""
        limit = None
        if events is not None and self.limits.events is not None:
            limit = max(events, self.limits.events)
        self.limits = Limits(limit, self.limits.keep)

    def max_bytes(self, stream: int) -> int:
        """Return the largest size of a stream's chunk. It is small under a limit, since whole chunks are dropped."""
        events = self.limits.events
        if events is None:
            return sys.maxsize
        bytes_per_event = ROW_BYTES_PER_EVENT
        if stream not in ROWS:
            bytes_per_event = ENTRIES_PER_EVENT.get(stream, 2) * layout.WIDTHS[stream]
        return max(events // chunk_count(events), 64) * bytes_per_event

    def room_for(self, thread: Thread) -> int:
        """Return the bytes for the next records of a thread, or 0 if no more are kept. Drop old chunks if necessary."""
        size = self.next_size(layout.RECORDS, thread.number)
        events = self.limits.events
        if events is None:
            return size
        if self.limits.keep == "begin":
            return min(size, (events - thread.at) * layout.RECORD)
        head = max(events // HEAD_DIVISOR, 1)
        if self._head_used < head:
            return min(size, (head - self._head_used) * layout.RECORD)
        if not self.is_dropping:
            self._start_dropping()
        max_records = max((events - head) // chunk_count(events), 1)
        records = max(min(size // layout.RECORD, max_records), 1)
        self.ended(thread)
        left = events - head - self._records_reserved()
        if 0 < left < records:
            return left * layout.RECORD
        while self._finished and self._records_reserved() + records > events - head:
            self._drop_or_pin_oldest()
        return records * layout.RECORD

    def _start_dropping(self) -> None:
        """Begin new chunks in all threads, since what is written from now on may refer to rows that will be dropped."""
        self.is_dropping = True
        for thread in self.threads:
            thread.end_chunk()
        self._note_sites_of_head()

    def began(self, thread: Thread, chunk: Chunk) -> None:
        """Note that a chunk was handed out to a thread."""
        if self.limits.events is None or self.limits.keep == "begin":
            return
        if not self.is_dropping:
            self._head_used += chunk.last - chunk.first
            self._head_chunks[thread.number] = chunk
            return
        if not self._head_ends:
            # The current chunks of the streams of values also have some of the first tenth, so they are kept.
            self._head_ends[layout.VALUES, 0] = chunk.since.value + 1
            self._head_ends[layout.PASSING, 0] = chunk.since.passing
            for stream in OF_VALUES[1:]:
                self._head_ends[stream, 0] = self._first_of_newest(stream) + 1
        self._head_ends.setdefault((layout.IDS, thread.number), chunk.since.id)
        self._current[thread.number] = chunk

    def ended(self, thread: Thread) -> None:
        """Note that a thread writes nothing more to its chunk. Its unused room no longer counts towards the limit."""
        chunk = self._current.pop(thread.number, None)
        if chunk is not None:
            chunk.last = min(chunk.last, max(thread.at, chunk.first))
            self._finished.append(FinishedChunk(thread, chunk, self._extent(thread, chunk)))
        head_chunk = self._head_chunks.pop(thread.number, None)
        if head_chunk is not None and not self.is_dropping and thread.at < head_chunk.last:
            self._head_used -= head_chunk.last - thread.at
            head_chunk.last = thread.at

    def _extent(self, thread: Thread, chunk: Chunk) -> Extent:
        """Return the ids, values and passing rows that the records of a finished chunk may refer to."""
        since = chunk.since
        newest = self.streams.newest(layout.VALUES)
        value_end = since.value
        if newest is not None:
            value_end = newest.last
        return Extent(
            IndexRange(since.id, thread.id_base + thread.id_at),
            IndexRange(since.value, value_end),
            IndexRange(since.passing, self.passing.position()),
        )

    def write_drop_summaries(self) -> None:
        """Write rows that say how many records were dropped, for each function and call site."""
        if not self.dead:
            self._dropped.write(self.rows)

    def retire(self, thread: Thread) -> None:
        """Free the unused room in the chunks of a thread that has ended."""
        with self.lock:
            if self.dead:
                return
            thread.end_chunk()
            self.ended(thread)
            thread.shrink()

    def _records_reserved(self) -> int:
        """Return for how many records there is room in the chunks after the first tenth."""
        finished = [each.chunk for each in (*self._finished, *self._staying())]
        return sum(chunk.last - chunk.first for chunk in (*finished, *self._current.values()))

    def _drop_or_pin_oldest(self) -> None:
        """Drop the oldest chunk of records, or pin it. Then drop the other entries that no kept record refers to."""
        oldest = self._finished.popleft()
        thread = oldest.thread
        self._passed += 1
        oldest.number = self._passed
        chunks = chunk_count(self.limits.events or 0)
        has_new_sites = self._call_sites.has_new(oldest.chunk)
        if self._should_pin(oldest):
            self._pinned_chunks.append(oldest)
        elif has_new_sites and len(self._first_runs) < chunks // NEW_SITES_DIVISOR:
            self._first_runs.append(oldest)
        elif oldest.number % self._sample_step == 0:
            self._samples.append(oldest)
            self._thin_samples(chunks // SAMPLES_DIVISOR)
        else:
            self._drop_records(oldest)
        self._drop_ids(thread)
        if self._finished:
            since = self._finished[0].chunk.since
            first_value = since.value
            first_passing = since.passing
        else:
            first_value = self._first_of_newest(layout.VALUES)
            first_passing = self.passing.position()
        for stream in OF_VALUES:
            self._drop_up_to(stream, 0, first_value)
        for chunk in self._current.values():
            if chunk.since.passing < first_passing:
                self._copy_passing_rows(chunk, first_passing)
        self._drop_up_to(layout.PASSING, 0, first_passing)

    def _drop_records(self, finished: FinishedChunk) -> None:
        self._dropped.add(finished.chunk, self.rows)
        self.drop(finished.chunk)

    def _thin_samples(self, most: int) -> None:
        """Drop every second sample, as often as there are too many."""
        while len(self._samples) > most:
            self._sample_step *= 2
            for each in self._samples:
                if each.number % self._sample_step:
                    self._drop_records(each)
            self._samples = [each for each in self._samples if each.number % self._sample_step == 0]

    def _staying(self) -> list[FinishedChunk]:
        """Return the chunks that are kept although they were to be dropped."""
        return [*self._pinned_chunks, *self._first_runs, *self._samples]

    def _drop_ids(self, thread: Thread) -> None:
        """Drop the ids of a thread that none of its kept records refers to."""
        kept = [each.chunk for each in self._finished] + list(self._current.values())
        first_ids = [chunk.since.id for chunk in kept if chunk.owner == thread.number]
        end = thread.id_base + thread.id_at
        self._drop_up_to(layout.IDS, thread.number, min(first_ids, default=end))
        if thread.over and not first_ids:
            self._drop_last_ids(thread)

    def _should_pin(self, oldest: FinishedChunk) -> bool:
        """Return whether a call site is bad for the first time in a chunk, or in the one before or after it."""
        events = self.limits.events
        if events is None or len(self._pinned_chunks) >= chunk_count(events) // PINNED_DIVISOR:
            return False
        is_after_bad = self._last_bad == oldest.number - 1 > 0
        if self._check_bad_sites(oldest):
            self._last_bad = oldest.number
            return True
        if is_after_bad:
            return True
        following = next((each for each in self._finished if each.thread is oldest.thread), None)
        return following is not None and self._check_bad_sites(following)

    def _check_bad_sites(self, finished: FinishedChunk) -> bool:
        """Return whether a call site is bad for the first time in a chunk. Check each chunk only once."""
        if finished.has_new_bad_site is None:
            finished.has_new_bad_site = self._bad_sites.has_new(finished.chunk, finished.extent)
        return finished.has_new_bad_site

    def _note_sites_of_head(self) -> None:
        """Remember the call sites that ran or were bad in the first tenth. It is kept anyway."""
        for thread in self.threads:
            for chunk in self.streams.of(layout.RECORDS, thread.number):
                self._call_sites.has_new(chunk)
        newest = self.streams.newest(layout.VALUES)
        if newest is None:
            return
        for thread in self.threads:
            extent = Extent(
                IndexRange(0, thread.id_base + thread.id_at),
                IndexRange(0, newest.last),
                IndexRange(0, 0),
            )
            for chunk in self.streams.of(layout.RECORDS, thread.number):
                self._bad_sites.has_new(chunk, extent)

    def _first_of_newest(self, stream: int) -> int:
        """Return the first number of the newest chunk in a stream of values."""
        newest = self.streams.newest(stream)
        if newest is None:
            return 0
        return newest.first

    def _drop_up_to(self, stream: int, owner: int, end: int) -> None:
        """Drop the chunks of a stream before number ``end``, except those that the head or a pinned chunk refers to."""
        head_end = self._head_ends.get((stream, owner), 0)
        staying = self._staying()
        for chunk in self.streams.of(stream, owner)[:-1]:
            if not head_end <= chunk.first or not chunk.last <= end:
                continue
            if any(each.refers_to(stream, chunk) for each in staying):
                continue
            self.drop(chunk)
            if stream == layout.VALUES:
                self.on_drop(chunk.first, chunk.last)

    def _drop_last_ids(self, thread: Thread) -> None:
        """Drop the last chunk of ids of a thread that has ended, unless the head or a pinned chunk refers to it."""
        newest = self.streams.newest(layout.IDS, thread.number)
        if newest is None:
            return
        if any(each.refers_to(layout.IDS, newest) for each in self._staying()):
            return
        if self._head_ends.get((layout.IDS, thread.number), 0) <= newest.first:
            self.drop(newest)

    def _copy_passing_rows(self, chunk: Chunk, end: int) -> None:
        """Copy the forms and errors that a thread's current chunk refers to, from before ``end``, to the newest chunk.

        If the thread is idle, its chunk is old and would keep old chunks of the passing rows.
        """
        forms, errors = _rows_referred_to(chunk)
        head_end = self._head_ends[layout.PASSING, 0]
        for passing in self.streams.of(layout.PASSING):
            if not chunk.since.passing < passing.last <= end or passing.first < head_end:
                continue
            for _, (kind, number, payload) in layout.rows_in(passing):
                is_needed = (
                    (kind == layout.FORM and number in forms)
                    or (kind == layout.ERROR_ROW and number in errors)
                    or (kind == layout.BACKWARD and number == chunk.owner)
                )
                if is_needed:
                    self.passing.add(kind, number, payload)
        chunk.since = chunk.since._replace(passing=end)


class CallSites:
    """Remembers what was called, and from which stacks."""

    def __init__(self) -> None:
        self._known: set[tuple[int, int]] = set()

    def has_new(self, chunk: Chunk) -> bool:
        """Return whether a chunk has a call site that no chunk before had."""
        words = chunk.words(chunk.first, chunk.written())
        callees = words[layout.WHAT :: layout.RECORD_WORDS].tolist()
        stacks = words[layout.STACK :: layout.RECORD_WORDS].tolist()
        before = len(self._known)
        self._known.update(zip(callees, stacks, strict=True))
        return len(self._known) > before


def _rows_referred_to(chunk: Chunk) -> tuple[set[int], set[int]]:
    """Return the forms and errors that the records of a chunk refer to, including those repeated at its front."""
    words = chunk.words(chunk.first, chunk.written()).tolist()
    for _, copy in chunk.copied():
        words += copy
    args = words[layout.ARGS :: layout.RECORD_WORDS]
    results = words[layout.RESULT :: layout.RECORD_WORDS]
    errors = words[layout.ERROR :: layout.RECORD_WORDS]
    return {*args, *results}, set(errors)
