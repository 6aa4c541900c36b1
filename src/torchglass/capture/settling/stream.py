"""Settles while the program runs, in a thread of its own, and hands the growing tables to whoever keeps them."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from torchglass.capture.contents import Bytes, CannotKeep, bytes_of
from torchglass.capture.copies import refuse
from torchglass.capture.log import (
    ARGS,
    END,
    ERROR,
    INPUTS,
    NONE,
    OUTPUTS,
    PARENT,
    RESULT,
    START,
    WHAT,
    WIDTH,
    ThreadLog,
)
from torchglass.capture.session import FUNCTION
from torchglass.capture.settling.rows import module_row
from torchglass.capture.settling.settle import Settler, backward_marks, module_above
from torchglass.capture.threads import OUR_THREADS
from torchglass.events.links import link_storages, link_values
from torchglass.events.selection import Selection
from torchglass.events.tables import Tables

if TYPE_CHECKING:
    from torchglass.capture.recorder import Recorder

PAUSE = 0.05
"""Seconds between two looks."""
PATIENCE_NS = 1_000_000_000
"""How long the events inside of one wait for it to be decided what that one is."""


class Keeper(Protocol):
    """Keeps tables that grow; never raises."""

    def write(self, tables: Tables) -> object: ...

    def finish(self, tables: Tables) -> object: ...

    def values_changed(self, numbers: set[int]) -> None:
        """Values that may have been written before are described anew."""
        ...

    def keep_tensor(self, name: str, value: int, content: Bytes) -> None:
        """Keep the bytes of a value; waits while too many are on their way."""
        ...


class StreamSettler(Settler):
    """The tables of a recording under way, a little longer at each look."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self._seen: dict[int, list[int]] = {}
        """By log: the event of each record settled so far (of its parent, where it is none)."""
        self._open: dict[int, tuple[ThreadLog, int]] = {}
        """Events that had not ended when they were settled: their record."""
        self._over = 0
        self._last = False

    def advance(self, last: bool) -> set[int]:
        """Settle what is new; returns the values that are described anew."""
        rows, self._last = self.rows, last
        spans = [self._rest(window.log, window.begin, window.end, last) for window in list(self.recorder.windows)]
        rows.add_modules(NONE)
        before = len(self.tables.value_meta)
        for log, at in _by_time([span for span in spans if span[1] < span[2]]):
            self._settle(log, at)
        self._close_ended()
        rows.take_modules()
        changed = rows.take_values()
        self.tables.value_address, self.tables.value_before = rows.addresses, rows.before
        return {value for value in changed if value < before}

    def _rest(self, log: ThreadLog, begin: int, end: int | None, last: bool) -> tuple[ThreadLog, int, int]:
        """The records of a window that are not settled yet, as far as they can be."""
        seen = self._seen.setdefault(id(log), [])
        first = begin + len(seen) * WIDTH
        stop = len(log.records) if end is None else end
        return log, first, stop if last else self._before_undecided(log, first, stop)

    def _before_undecided(self, log: ThreadLog, first: int, stop: int) -> int:
        """What some events are is known when they end: what they call waits for that, but not for ever."""
        records = log.records
        for at in range(first, stop, WIDTH):
            if not self._has_ended(records, at) and self._is_undecided(records, at):
                return at
        return stop

    def _has_ended(self, records: list[int], at: int) -> bool:
        """Whether all is written that is known of an event: its result comes some moments after the time of its end.

        Some events have none (a mark, whose end is its beginning, and what a fault of ours left): these wait a little.
        """
        end = records[at + END]
        if end == NONE:
            return False
        if records[at + RESULT] != NONE or records[at + ERROR] != NONE or end == records[at + START]:
            return True
        return self._last or time.perf_counter_ns() - end > PATIENCE_NS

    def _is_undecided(self, records: list[int], at: int) -> bool:
        """A function without tensors is an event only if it gives one; a lazy module becomes one of another class."""
        what = records[at + WHAT]
        if time.perf_counter_ns() - records[at + START] > PATIENCE_NS:
            return False
        if what < 0:
            module = self.session.modules[module_row(what)]
            return not module.described and hasattr(module.cls, "cls_to_become")
        return self.session.whats[what].kind == FUNCTION and not self.rows.takes_tensors(what, records[at + ARGS])

    def _settle(self, log: ThreadLog, at: int) -> None:
        """Append the row of a record, unless it is none."""
        tables, records = self.tables, log.records
        seen = self._seen[id(log)]
        begin = at - len(seen) * WIDTH
        parent_at, what = records[at + PARENT], records[at + WHAT]
        if parent_at >= begin:
            parent = seen[(parent_at - begin) // WIDTH]
        else:
            parent = self._caller_of(log) if parent_at == NONE else NONE
        ended = self._has_ended(records, at)
        if self.rows.is_nothing(records, at) or not self._asked_for(what):
            seen.append(parent)
            return
        if len(tables) >= self.recorder.options.max_events:
            self._over += 1
            seen.append(NONE)
            return
        if what < 0:
            module = module_row(what)
        else:
            module = tables.module[parent] if parent != NONE else module_above(log, parent_at)
        if not ended:
            self._open[len(tables)] = (log, at)
        seen.append(len(tables))
        self.rows.append(log, at, parent, module, backward_marks(log, at, at + WIDTH)[0])
        if not ended:
            tables.end_ns[-1] = NONE

    def _caller_of(self, log: ThreadLog) -> int:
        """For what the autograd engine runs in a thread of its own: the event that called backward."""
        if log.spawned_by is None:
            return NONE
        caller, at = log.spawned_by
        begin = next((window.begin for window in self.recorder.windows if window.log is caller), 0)
        seen = self._seen.get(id(caller), [])
        return seen[(at - begin) // WIDTH] if begin <= at < begin + len(seen) * WIDTH else NONE

    def _close_ended(self) -> None:
        """Complete the rows of events that have ended since they were settled."""
        tables, rows = self.tables, self.rows
        for number, (log, at) in list(self._open.items()):
            records = log.records
            if not self._has_ended(records, at):
                continue
            del self._open[number]
            tables.end_ns[number] = records[at + END]
            if records[at + ERROR] != NONE:
                tables.error[number] = rows.text(self.session.errors[records[at + ERROR]])
            if records[at + RESULT] == NONE:
                continue
            result = tables.result[number] = rows.result(records[at + RESULT])
            taken = len(tables.forms[tables.args[number]].roles)
            given, outputs = len(tables.forms[result].roles), records[at + OUTPUTS]
            tables.first_io[number] = len(tables.io)
            tables.io.extend(log.values[records[at + INPUTS] : records[at + INPUTS] + taken])
            tables.io.extend(log.values[outputs : outputs + given])

    def finish(self) -> Tables:
        """All of it, and how it ended; values are linked when it has been kept."""
        self._finish(self._over)
        return self.tables

    def linked(self) -> Tables:
        """The tables as a trace has them."""
        tables, rows = self.tables, self.rows
        link_values(tables)
        link_storages(tables, rows.addresses, rows.before)
        tables.value_address, tables.value_before = tables.value_address[:0], tables.value_before[:0]
        tables.pack_values(tables.io)  # values of events that ended late stand behind those of later ones
        return tables


def _by_time(spans: list[tuple[ThreadLog, int, int]]) -> list[tuple[ThreadLog, int]]:
    each = [
        (log.records[at + START], index, at) for index, (log, a, b) in enumerate(spans) for at in range(a, b, WIDTH)
    ]
    if len(spans) > 1:
        each.sort()
    return [(spans[index][0], at) for _, index, at in each]


class Stream:
    """The thread that settles and keeps while the program runs."""

    def __init__(self, recorder: Recorder, keeper: Keeper, only: Selection | None = None) -> None:
        self._settler = StreamSettler(recorder)
        self._keeper = keeper
        self._only = only
        """What is to be kept: as a whole at the end, since it may depend on how an event ends."""
        self._session = self._settler.session
        self._shelf = recorder.shelf
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        _streams.append(self)
        self.resume()

    def resume(self) -> None:
        """Begin, or go on after a fork."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._work, name=f"{OUR_THREADS}stream", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Let the thread end what it is at, and end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while not self._stopping.wait(PAUSE):
            try:
                self._keep(last=False)
            except Exception as fault:  # a fault of ours costs events, never the program
                self._session.fault(fault)

    def _keep(self, last: bool) -> None:
        changed = self._settler.advance(last)
        if changed:
            self._keeper.values_changed(changed)
        if not last and self._only is None:
            self._shelf.read_all(list(self._session.stacks.codes.values()))
            self._settler.tables.sources = self._shelf.texts()
            self._settler.tables.complete = False
            self._keeper.write(self._settler.tables)

    def take_copy(self, name: str, value: int, copy: Any) -> bool:
        """Hand the bytes of a copy on; those of a kind that has none stay in memory."""
        try:
            content = bytes_of(copy)
        except CannotKeep as reason:
            refuse(self._session, name, "in the bundle", str(reason))
            return False
        self._keeper.keep_tensor(name, value, content)
        return True

    def stop(self) -> Tables:
        """Settle and keep the rest; returns the tables of the whole trace."""
        _streams.remove(self)
        self.pause()
        try:
            self._keep(last=True)
        except Exception as fault:
            self._session.fault(fault)
        tables = self._settler.finish()
        if self._only is not None:
            tables = self._chosen(self._settler.linked(), self._only)
        self._keeper.finish(tables)
        return tables if self._only is not None else self._settler.linked()

    def _chosen(self, tables: Tables, only: Selection) -> Tables:
        try:
            return tables.keep([number for number in range(len(tables)) if only.matches(tables.event(number))])
        except Exception as fault:  # the program's own select(where=…)
            self._session.fault(fault)
            return tables


_streams: list[Stream] = []
"""Those under way in this process."""


def _pause_all() -> None:
    """Before a fork: a child must not inherit what our thread is in the middle of.

    Nor should Python (from 3.12 on) warn of a thread that the program did not start.
    """
    for stream in _streams:
        stream.pause()


def _resume_all() -> None:
    for stream in _streams:
        stream.resume()


os.register_at_fork(before=_pause_all, after_in_parent=_resume_all, after_in_child=_streams.clear)
