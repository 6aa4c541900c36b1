"""Keeps tables that grow in one part of a bundle, in batches, so that a kill at any moment loses only the last batch.

How it is used, by one thread at a time::

    writer = open_writer("run.trace")          # BundleError when the path cannot become a bundle
    writer.write(tables)                       # again and again: all that is new, in one transaction
    writer.finish(tables)                      # the rest, the links between values, the seal

Between calls the event columns and the interned lists of the tables only get longer, with three exceptions: an
event that was open may be closed, a value that was not described (meta -1) may be described (one that is described
anew is told with ``values_changed``), and rows of ``modules`` and ``notes`` may be replaced. A number once given
never means anything else.

The caller need not keep the events that were written. It may empty the event columns and ``io`` after any ``write``
and say from then on, as ``offset``, which id the first event in the tables has; ``first_io`` counts in the ``io`` of
the tables given, ``parent`` and producers are ids. An event that was still open then is closed with ``close_event``;
one that is still in the tables is found closed there. Values and interned lists stay.

While a recording runs, nobody knows which event made a value and which values share memory. A caller that streams
gives what is needed to find out, ``value_address`` and ``value_before``; it is found at ``finish``, or when a part
that has no end is read. Tables without addresses are taken to be linked: a caller that has found the links itself
gives them to ``finish``, and values that were written without are written anew.

A write that fails (a full disk) never raises: ``problem`` says why, one warning is given, and from then on nothing
is written. What was committed stays readable.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from torchglass.errors import BundleError
from torchglass.events.database import (
    GROWING,
    encoded,
    event_rows,
    id_list,
    insert,
    module_row,
    note_rows,
    parameter_rows,
    text,
    trace_row,
    value_row,
    value_rows,
)
from torchglass.events.tables import NONE, ModuleRow, Tables
from torchglass.store.bundle import Bundle, make_or_join
from torchglass.store.descriptors import Owned, keep_for_ever
from torchglass.store.layout import (
    EVENTS,
    SOURCE_FILE,
    SOURCES,
    hold,
    let_go,
    spelt,
    write_whole,
)
from torchglass.store.part import linked_copy, new_database, seal, store_links, to_one_file
from torchglass.store.shards import Shards


@dataclass(frozen=True)
class Closing:
    """What is known of an event at its end; ``result`` and ``error`` are rows of forms and texts."""

    end_ns: int
    result: int = NONE
    error: int = NONE
    outputs: tuple[int, ...] = ()


def open_writer(path: Path | str, report: Callable[[str], None] | None = None, run: str | None = None) -> Writer:
    """A writer with a part of its own in the bundle at this path, which is made or, by a child process, joined.

    ``run`` is the run that a child belongs to; by default its environment says so.
    """
    bundle = make_or_join(path, run)
    part: Path | None = None
    try:
        part = bundle.new_part()
        return Writer(bundle, part, report or _warn)
    except BaseException:  # a full disk, as a rule: a folder without a recording would only be in the way
        bundle.unmake(part)
        raise


class Writer:
    """Writes one part; see above."""

    def __init__(self, bundle: Bundle, part: Path, report: Callable[[str], None], journal: str = "WAL") -> None:
        self.bundle = bundle
        self.part = part
        self.problem: str | None = None
        """Why nothing more could be written."""
        self._report = report
        self._process = os.getpid()
        self._held = hold(part)
        try:
            self._connection = new_database(part / EVENTS, journal)
        except (OSError, sqlite3.Error) as error:
            let_go(self._held)
            reason = getattr(error, "strerror", None) or error
            raise BundleError(f"{spelt(part / EVENTS)} cannot be made: {reason}; choose another path") from None
        self._files = Owned(*([] if self._held is None else [self._held]))
        self._files.add_below(part / EVENTS)
        self.shards = Shards(part, self._fail)
        """Where the contents of tensors go; their rows are committed by the next ``write``."""
        self._counts = dict.fromkeys(GROWING, 0)
        self._events = 0
        self._values = 0
        self._unlinked = False
        """The values were written without their links."""
        self._open: dict[int, tuple[int, list[int]]] = {}
        """Events that were written while open: when they began, and what they took."""
        self._closings: dict[int, Closing] = {}
        self._undescribed: set[int] = set()
        self._changed: set[int] = set()
        self._modules: list[ModuleRow] = []
        self._notes: list[str] = []
        self._trace: tuple[object, ...] = ()
        self._sources: set[str] = set()

    @property
    def usable(self) -> bool:
        """Nothing has gone wrong, and this is the process that writes (a forked child must not)."""
        return self.problem is None and os.getpid() == self._process

    def close_event(self, number: int, closing: Closing) -> None:
        """Say how an event ended whose row the tables no longer have; kept for the next ``write``."""
        self._closings[number] = closing

    def values_changed(self, numbers: Iterable[int]) -> None:
        """Say that values are described anew: the next ``write`` replaces their rows."""
        self._changed.update(numbers)

    def write(self, tables: Tables, offset: int = 0) -> bool:
        """Store everything new in one transaction; ``offset`` is the id of the first event in the tables.

        Returns whether all is stored. When it is not, nothing ever will be: drop what you hold all the same.
        """
        return self._attempt(lambda: self._transaction(tables, offset, complete=False, linked=not tables.value_address))

    def finish(self, tables: Tables, offset: int = 0) -> bool:
        """Store the rest and seal the part; returns whether it is sealed."""
        if os.getpid() != self._process:
            return False
        self.shards.close()
        stored = self._attempt(lambda: self._end(tables, offset))
        if not self._files.are_ours:
            keep_for_ever(self._connection)
            return False
        if not stored:
            self._note_problem()
        self._files = Owned()  # SQLite closes its own from here on
        alone = stored and to_one_file(self._connection)
        self._connection.close()
        sealed = alone and self._attempt(lambda: seal(self.part))
        let_go(self._held)
        return sealed

    def abandon(self) -> None:
        """Stop without an end: what was committed stays."""
        self.shards.close()
        if not self._files.are_ours:
            keep_for_ever(self._connection)
            return
        self._connection.close()
        let_go(self._held)

    def _end(self, tables: Tables, offset: int) -> None:
        if tables.value_address and offset == 0:
            tables = linked_copy(tables)
        linked = not tables.value_address
        self._transaction(tables, offset, complete=tables.complete, linked=linked)
        if not linked:
            store_links(self._connection)

    def _attempt(self, work: Callable[[], None]) -> bool:
        if not self.usable:
            return False
        try:
            self._files.check()
            work()
        except Exception as error:  # also a fault of ours must not reach the program
            self._fail(error)
            return False
        return True

    def _fail(self, error: Exception) -> None:
        """Keep and report the first problem; also called by the thread that writes tensors."""
        if self.problem is None:
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, OSError | sqlite3.Error):
                reason = getattr(error, "strerror", None) or str(error)
            self.problem = f"{spelt(self.part)} could not be written any more: {reason}; the trace there is incomplete"
            self._report(self.problem)

    def _note_problem(self) -> None:
        """Say in the trace itself why it ends, if there is room for that."""
        try:
            with self._connection:
                number = self._connection.execute("SELECT count(*) FROM notes").fetchone()[0]
                self._connection.execute("INSERT INTO notes VALUES (?, ?)", (number, text(self.problem or "")))
        except sqlite3.Error:
            pass

    def _transaction(self, tables: Tables, offset: int, complete: bool, linked: bool) -> None:
        connection = self._connection
        sources = self._new_sources(tables)
        tensors = self.shards.written()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for table, (field, rows) in GROWING.items():
                if len(getattr(tables, field)) > self._counts[table]:
                    insert(connection, table, rows(tables, self._counts[table]))
            self._write_values(tables, linked)
            started = self._write_events(tables, offset)
            closed = self._close_events(tables, offset, started)
            self._write_modules(tables)
            insert(connection, "sources", iter(sources))
            insert(connection, "saved_tensors", iter(tensors))
            row = trace_row(tables, complete, linked)
            self._replace("notes", tables.notes, self._notes, lambda: insert(connection, "notes", note_rows(tables)))
            self._replace("trace", row, self._trace, lambda: insert(connection, "trace", iter([row])))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._advance(tables, offset, started, closed)
        self._trace = row

    def _advance(
        self, tables: Tables, offset: int, started: dict[int, tuple[int, list[int]]], closed: list[int]
    ) -> None:
        """Only what is committed counts as written."""
        self._counts = {table: len(getattr(tables, field)) for table, (field, _) in GROWING.items()}
        self._events = max(self._events, offset + len(tables))
        self._values, self._unlinked = len(tables.value_meta), bool(tables.value_address)
        self._undescribed = {value for value in self._undescribed if tables.value_meta[value] == NONE}
        self._changed = set()
        self._open.update(started)
        for number in closed:
            del self._open[number]
            self._closings.pop(number, None)
        self._modules, self._notes = list(tables.modules), list(tables.notes)
        self._sources.update(tables.sources)

    def _replace(self, table: str, new: object, old: object, fill: Callable[[], None]) -> None:
        if new != old:
            self._connection.execute(f"DELETE FROM {table}")
            fill()

    def _write_values(self, tables: Tables, linked: bool) -> None:
        if linked and self._unlinked:  # nearly every row changes, and to insert is cheaper than to update
            self._connection.execute("DELETE FROM value_rows")
            insert(self._connection, "value_rows", value_rows(tables))
            return
        late = [value for value in self._undescribed if tables.value_meta[value] != NONE]
        late += [value for value in self._changed - self._undescribed if value < self._values]
        insert(self._connection, "value_rows", (value_row(tables, value) for value in late), "REPLACE")
        insert(self._connection, "value_rows", value_rows(tables, self._values))
        fresh = tables.value_meta[self._values :]
        if NONE in fresh:
            self._undescribed.update(self._values + at for at, meta in enumerate(fresh) if meta == NONE)

    def _write_events(self, tables: Tables, offset: int) -> dict[int, tuple[int, list[int]]]:
        """Add the rows of new events; returns those that are open."""
        start = self._events - offset
        if start < 0:
            raise sqlite3.IntegrityError(f"events {self._events} to {offset} were never given")
        insert(self._connection, "event_rows", event_rows(tables, start, offset))
        ends = tables.end_ns[start:]
        if NONE not in ends:
            return {}
        return {
            offset + start + at: (tables.start_ns[start + at], _taken(tables, start + at))
            for at, end in enumerate(ends)
            if end == NONE
        }

    def _close_events(self, tables: Tables, offset: int, started: dict[int, tuple[int, list[int]]]) -> list[int]:
        """Update the rows of events that have ended since they were written; returns those."""
        closed: list[int] = []
        for number, (begin, taken) in (self._open | started).items():
            at = number - offset
            closing = self._closings.get(number)
            if closing is None and at >= 0 and tables.end_ns[at] != NONE:
                closing = _closing(tables, at)
            if closing is None:
                continue
            self._connection.execute(
                "UPDATE event_rows SET duration_ns = ?, result = ?, error = ?, io = ? WHERE id = ?",
                (closing.end_ns - begin, closing.result, closing.error, id_list([*taken, *closing.outputs]), number),
            )
            closed.append(number)
        return closed

    def _write_modules(self, tables: Tables) -> None:
        """Modules may be known better later: their paths, settings and parameters."""
        known = self._modules
        fresh = [number for number, row in enumerate(tables.modules) if known[number : number + 1] != [row]]
        insert(self._connection, "modules", (module_row(tables, number) for number in fresh), "REPLACE")
        again = [(number,) for number in fresh if number < len(known)]
        self._connection.executemany("DELETE FROM parameters WHERE module = ?", again)
        insert(self._connection, "parameters", (row for number in fresh for row in parameter_rows(tables, number)))

    def _new_sources(self, tables: Tables) -> list[tuple[object, ...]]:
        """Put new source texts beside the parts, each once under the name of its content; returns their rows."""
        rows: list[tuple[object, ...]] = []
        for file, source in tables.sources.items():
            if file in self._sources:
                continue
            content = encoded(source)
            if len(content) > SOURCE_FILE:
                continue  # no reader would take it
            digest = hashlib.sha256(content).hexdigest()
            path = self.bundle.path / SOURCES / f"{digest}.py"
            if not os.path.lexists(path):  # whoever else writes it, writes the same
                write_whole(path, content)
            rows.append((text(file), None, digest))
        return rows


def _taken(tables: Tables, at: int) -> list[int]:
    first, args = tables.first_io[at], tables.args[at]
    return tables.io[first : first + (len(tables.forms[args].roles) if args != NONE else 0)].tolist()


def _closing(tables: Tables, at: int) -> Closing:
    first, result = tables.first_io[at] + len(_taken(tables, at)), tables.result[at]
    count = len(tables.forms[result].roles) if result != NONE else 0
    return Closing(tables.end_ns[at], result, tables.error[at], tuple(tables.io[first : first + count]))


def _warn(problem: str) -> None:
    """Where warnings are errors, ours still must not stop a program."""
    try:
        warnings.warn(f"torchglass: {problem}; the program goes on", RuntimeWarning, stacklevel=2)
    except Warning:
        pass
