"""Which records are kept when there are more than were asked for: the first tenth, and the newest.

Records are given up a chunk at a time, from behind the first tenth on; with them the ids, values and passing rows
that only they referred to. So a recording can be left on for a day: memory and file stay bounded, and what happened
last is always there.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torchglass.journal import layout
from torchglass.journal.homes import Home
from torchglass.journal.layout import Chunk
from torchglass.journal.shared import Chunks, RowWriter, ignore

HEAD = 10
"""One part in so many is kept from the beginning."""
TURNS = 8
"""How many chunks the rest is kept in, at least."""
ENTRIES = {layout.RECORDS: 1, layout.IDS: 3}
"""What an event takes of each stream, about; of those of values two."""
ROWS = (layout.ROWS, layout.PASSING)
OF_VALUES = (layout.VALUES, layout.MEASURED, layout.SKETCHED, layout.KEPT)
IN_ROWS = 64
"""Bytes that an event takes of rows, about."""


@dataclass(frozen=True)
class Limits:
    """How many records to keep (None: all), and which: those of the ``begin`` or of the ``end``."""

    events: int | None = None
    keep: str = "end"


class Thread(Protocol):
    """Of the writer of one thread's records, what is asked here."""

    number: int
    at: int
    id_at: int
    id_base: int

    def end_chunk(self) -> None: ...


class Ring(Chunks):
    """Counts the chunks of records that were handed out, and gives up the oldest when that is too much."""

    threads: list[Any]
    """The writers of the threads: each is a ``Thread``."""

    def __init__(self, home: Home, limits: Limits) -> None:
        super().__init__(home)
        self.limits = limits
        self.passing = RowWriter(self, layout.PASSING)
        self.on_drop: Callable[[int, int], None] = ignore
        """Told of the values that were dropped: the first, and behind the last."""
        self.is_turning = False
        """The first tenth is full: from now on each chunk may lose the one before it."""
        self._head_used = 0
        self._full: deque[tuple[Thread, Chunk]] = deque()
        """Chunks behind the first tenth that are not written to any more, the oldest first."""
        self._turning: dict[int, Chunk] = {}
        """By thread: the chunk behind the first tenth that is written to now."""
        self._head_ends: dict[tuple[int, int], int] = {}
        """By stream and owner: where what is kept for ever ends."""

    def widen(self, events: int | None) -> None:
        """Keep more from now on."""
        known = self.limits.events
        wider = None if events is None or known is None else max(events, known)
        self.limits = Limits(wider, self.limits.keep)

    def most_bytes(self, stream: int) -> int:
        """Bytes of a chunk of a stream, at most: what is given up a chunk at a time must come in small chunks."""
        events = self.limits.events
        of_an_event = IN_ROWS if stream in ROWS else ENTRIES.get(stream, 2) * layout.WIDTHS[stream]
        return sys.maxsize if events is None else max(events // TURNS, 64) * of_an_event

    def room_for(self, thread: Thread) -> int:
        """Bytes for the next records of a thread; 0 when no more are to be kept."""
        wanted = self.next_size(layout.RECORDS, thread.number)
        events = self.limits.events
        if events is None:
            return wanted
        if self.limits.keep == "begin":
            return min(wanted, (events - thread.at) * layout.RECORD)
        head = max(events // HEAD, 1)
        if self._head_used < head:
            return min(wanted, (head - self._head_used) * layout.RECORD)
        if not self.is_turning:
            self._begin_to_turn()
        piece = max((events - head) // TURNS, 1)
        room = max(min(wanted // layout.RECORD, piece), 1)
        self.ended(thread)
        left = events - head - self._room_used()
        if 0 < left < room:
            return left * layout.RECORD
        while self._full and self._room_used() + room > events - head:
            self._give_up()
        return room * layout.RECORD

    def _begin_to_turn(self) -> None:
        """What a thread writes from now on refers to rows that may go: it must not be among what is kept for ever."""
        self.is_turning = True
        for thread in self.threads:
            thread.end_chunk()

    def began(self, thread: Thread, chunk: Chunk) -> None:
        """A chunk was handed out."""
        if self.limits.events is None or self.limits.keep == "begin":
            return
        if not self.is_turning:
            self._head_used += chunk.last - chunk.first
            return
        if not self._head_ends:
            # The chunks that values go to now hold some of the first tenth's: they stay.
            self._head_ends[layout.VALUES, 0], self._head_ends[layout.PASSING, 0] = chunk.since[1] + 1, chunk.since[2]
            for stream in OF_VALUES[1:]:
                self._head_ends[stream, 0] = self._newest_value(stream) + 1
        self._head_ends.setdefault((layout.IDS, thread.number), chunk.since[0])
        self._turning[thread.number] = chunk

    def ended(self, thread: Thread) -> None:
        """Nothing more is written to a thread's chunk: it goes when it is the oldest."""
        chunk = self._turning.pop(thread.number, None)
        if chunk is not None:
            self._full.append((thread, chunk))

    def _room_used(self) -> int:
        """Records that there is room for behind the first tenth."""
        kept = [*(chunk for _, chunk in self._full), *self._turning.values()]
        return sum(chunk.last - chunk.first for chunk in kept)

    def _give_up(self) -> None:
        """Drop the oldest chunk of records, and what nothing that is kept refers to any more."""
        thread, chunk = self._full.popleft()
        self.drop(chunk)
        kept = [each for _, each in self._full] + list(self._turning.values())
        own = [each.since[0] for each in kept if each.owner == thread.number]
        self._drop_before(layout.IDS, thread.number, min(own, default=thread.id_base + thread.id_at))
        if self._full:
            _, values, passing = self._full[0][1].since
        else:
            values, passing = self._newest_value(layout.VALUES), self.passing.position()
        for stream in OF_VALUES:
            self._drop_before(stream, 0, values)
        for idle in self._turning.values():
            if idle.since[2] < passing:
                self._write_again(idle, passing)
        self._drop_before(layout.PASSING, 0, passing)

    def _newest_value(self, stream: int) -> int:
        """The first number of the chunk that entries of a stream of values go to now."""
        newest = self.streams.newest(stream)
        return 0 if newest is None else newest.first

    def _drop_before(self, stream: int, owner: int, kept: int) -> None:
        head = self._head_ends.get((stream, owner), 0)
        for chunk in self.streams.of(stream, owner)[:-1]:
            if head <= chunk.first and chunk.last <= kept:
                self.drop(chunk)
                if stream == layout.VALUES:
                    self.on_drop(chunk.first, chunk.last)

    def _write_again(self, idle: Chunk, passing: int) -> None:
        """A thread that has done nothing for long keeps its records: so the rows that they name must stay too."""
        forms, errors = _named(idle)
        for chunk in self.streams.of(layout.PASSING):
            if idle.since[2] < chunk.last <= passing and self._head_ends[layout.PASSING, 0] <= chunk.first:
                for _, (kind, number, payload) in layout.rows_in(chunk):
                    is_named = (kind == layout.FORM and number in forms) or (
                        kind == layout.ERROR_ROW and number in errors
                    )
                    if is_named or (kind == layout.BACKWARD and number == idle.owner):
                        self.passing.add(kind, number, payload)
        idle.since = (*idle.since[:2], passing)


def _named(chunk: Chunk) -> tuple[set[int], set[int]]:
    """The forms and errors that the records of a chunk name, those repeated at its front too."""
    words = chunk.words(chunk.first, chunk.written()).tolist()
    for _, copy in chunk.copied():
        words += copy
    forms = {*words[layout.ARGS :: layout.RECORD_WORDS], *words[layout.RESULT :: layout.RECORD_WORDS]}
    return forms, set(words[layout.ERROR :: layout.RECORD_WORDS])
