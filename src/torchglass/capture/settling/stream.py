"""Settles while the program runs, in a thread of its own, and hands the growing tables to whoever keeps them."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
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
    RESULT,
    START,
    WHAT,
    WIDTH,
    ThreadLog,
)
from torchglass.capture.session import FUNCTION
from torchglass.capture.settling.rows import module_row
from torchglass.capture.settling.settle import Settler, Span, end_of
from torchglass.capture.threads import OUR_THREADS
from torchglass.events.links import link_storages, link_values
from torchglass.events.selection import Selection
from torchglass.events.tables import Tables

if TYPE_CHECKING:
    from torchglass.capture.recorder import Recorder, Window

FIRST_PAUSE = 0.25
"""Seconds before the first look: what ends sooner is settled when it has ended, and nothing is kept twice."""
PAUSE = 0.1
"""Seconds between two looks, at least: a look that finds nothing must not show …"""
LONGEST_PAUSE = 1.0
"""… and at most: so much is lost when the process is killed."""
SHARE = 20
"""Looking takes the interpreter from the program: the pause is so many times as long as the last look took."""
LONGEST_END = 0.1
"""Seconds that the system may take to end a thread that is over."""
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

    def rest(self) -> threading.Thread | None:
        """Have no thread until there is something to keep again; the one that ended is returned."""
        ...


class StreamSettler(Settler):
    """The tables of a recording under way, a little longer at each look."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self._last = False
        self._is_packed = True
        """Whether the values of the events stand in the order of the events."""

    def advance(self, last: bool) -> set[int]:
        """Settle what is new; returns the values that are described anew."""
        rows, self._last = self.rows, last
        spans = [self._rest(window, last) for window in list(self.recorder.windows)]
        rows.add_modules(NONE)
        before = len(self.tables.value_meta)
        self._fill_all([span for span in spans if span[1] < span[2]])
        self._close_ended()
        rows.take_modules()
        changed = rows.take_values()
        self.tables.value_address, self.tables.value_before = rows.addresses, rows.before
        return {value for value in changed if value < before}

    def _rest(self, window: Window, last: bool) -> Span:
        """The records of a window that are not settled yet, as far as they can be."""
        log, stop = window.log, end_of(window)
        first = window.begin + len(self._numbers.setdefault(id(log), [])) * WIDTH
        return log, first, stop if last else self._before_undecided(log, first, stop)

    def _before_undecided(self, log: ThreadLog, first: int, stop: int) -> int:
        """What some events are is known when they end: what they call waits for that, but not for ever."""
        records = log.records
        for number, result in enumerate(records[first + RESULT : stop : WIDTH]):
            if result == NONE:
                at = first + number * WIDTH
                start, end, error = records[at + START], records[at + END], records[at + ERROR]
                if not self._has_ended(start, end, error) and self._is_undecided(records, at):
                    return at
        return stop

    def _has_ended(self, start: int, end: int, error: int) -> bool:
        """The result comes some moments after the time of the end.

        Some events have none (a mark, whose end is its beginning, and what a fault of ours left): these wait a little.
        """
        if end == NONE:
            return False
        if error != NONE or end == start:
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

    def _close_ended(self) -> None:
        """Complete the rows of events that have ended since they were settled."""
        tables, rows = self.tables, self.rows
        for number, (log, at) in list(self._open.items()):
            records = log.records
            raw_result, start, end, error = (records[at + field] for field in (RESULT, START, END, ERROR))
            if raw_result == NONE and not self._has_ended(start, end, error):
                continue
            del self._open[number]
            tables.end_ns[number] = records[at + END]
            if error != NONE:
                tables.error[number] = rows.text(self.session.errors[error])
            if raw_result == NONE:
                continue
            self._is_packed = False
            result = tables.result[number] = rows.result(raw_result)
            taken = len(tables.forms[tables.args[number]].roles)
            given, outputs = len(tables.forms[result].roles), records[at + OUTPUTS]
            tables.first_io[number] = len(tables.io)
            tables.io.extend(log.values[records[at + INPUTS] : records[at + INPUTS] + taken])
            tables.io.extend(log.values[outputs : outputs + given])

    def finish(self) -> Tables:
        """All of it, and how it ended; values are not linked yet."""
        self._finish()
        return self.tables

    def linked(self) -> Tables:
        """The tables as a trace has them."""
        tables, rows = self.tables, self.rows
        link_values(tables)
        link_storages(tables, rows.addresses, rows.before)
        tables.value_address, tables.value_before = tables.value_address[:0], tables.value_before[:0]
        if not self._is_packed:
            tables.pack_values(tables.io)  # values of events that ended late stand behind those of later ones
        return tables


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
        self._due = time.perf_counter() + FIRST_PAUSE
        """When to look next; a program that forks all the time does not put it off."""
        self._codes = 0
        """How many code objects were known at the last look."""
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
            _wait_for_its_end(self._thread)

    def rest(self) -> None:
        """Nor is there a thread that writes copies."""
        ended = self._keeper.rest()
        if ended is not None:
            _wait_for_its_end(ended)

    def _work(self) -> None:
        while not self._stopping.wait(max(self._due - time.perf_counter(), 0)):
            begun = time.perf_counter()
            try:
                self._keep()
            except Exception as fault:  # a fault of ours costs events, never the program
                self._session.fault(fault)
            ended = time.perf_counter()
            self._due = ended + max(PAUSE, min(LONGEST_PAUSE, SHARE * (ended - begun)))

    def _keep(self) -> None:
        self._settle(last=False)
        if self._only is None:
            tables = self._settler.tables
            self._read_sources()
            tables.complete = False
            self._keeper.write(tables)

    def _settle(self, last: bool) -> None:
        changed = self._settler.advance(last)
        if changed:
            self._keeper.values_changed(changed)

    def _read_sources(self) -> None:
        """The texts of files that are new; they may change or go before the end."""
        codes = list(self._session.stacks.codes.values())
        if len(codes) > self._codes:
            self._shelf.read_all(codes[self._codes :])
            self._codes = len(codes)
            self._settler.tables.sources = self._shelf.texts()

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
            self._settle(last=True)
        except Exception as fault:
            self._session.fault(fault)
        tables = self._settler.finish()
        try:
            tables = self._settler.linked()
        except Exception as fault:  # whoever keeps the tables links them too, from the addresses
            self._session.fault(fault)
        if self._only is not None:
            tables = self._chosen(tables, self._only)
        self._keeper.finish(tables)
        return tables

    def _chosen(self, tables: Tables, only: Selection) -> Tables:
        try:
            return tables.keep([number for number in range(len(tables)) if only.matches(tables.event(number))])
        except Exception as fault:  # the program's own select(where=…)
            self._session.fault(fault)
            return tables


_streams: list[Stream] = []
"""Those under way in this process."""


def _wait_for_its_end(thread: threading.Thread) -> None:
    """Python says that a thread is over a moment before the system does, which is whom a fork asks."""
    task, last = Path(f"/proc/self/task/{thread.native_id}"), time.perf_counter() + LONGEST_END
    while task.exists() and time.perf_counter() < last:
        time.sleep(0.0005)


def pause_all() -> None:
    """Before a fork: a child must not inherit what our thread is in the middle of.

    Nor should Python (from 3.12 on) warn of a thread that the program did not start.
    """
    for stream in _streams:
        stream.pause()
        stream.rest()


def resume_all() -> None:
    """After it, in the parent."""
    for stream in _streams:
        stream.resume()


os.register_at_fork(before=pause_all, after_in_parent=resume_all, after_in_child=_streams.clear)
