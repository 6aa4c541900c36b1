"""The trace: what was recorded, to be asked in many ways. It cannot draw itself."""

from __future__ import annotations

import importlib
import re
import sqlite3
from array import array
from collections.abc import Callable, Hashable, Iterator
from operator import add
from typing import Any, ClassVar, Protocol

from torchglass.errors import MissingExtra, NotRecorded, UsageError, closest, expect
from torchglass.events import schema
from torchglass.events.database import fill_database
from torchglass.events.gradients import gradients_of, missed_words, tells_of_gradients
from torchglass.events.likeness import Occurrence, find
from torchglass.events.schema import NONE
from torchglass.events.selection import Selection, select
from torchglass.events.spelling import clean
from torchglass.events.tables import Tables, form_sizes
from torchglass.events.types import Event, Location, ModuleInfo, Value

_OF_A_CHILD = re.compile(
    r"Caught (?P<error>\w+) in (?P<worker>DataLoader worker) process (?P<number>\d+)\.|-- Process \d+ terminated with"
)
"""What torch raises in the parent of a process that failed; the text of the error itself may be cut off."""


class Settles(Protocol):
    """Where a trace gets its tables from: a recorder, or a file."""

    @property
    def running(self) -> bool: ...

    def progress(self) -> int:
        """Grows with every event, so that a look inside the block knows whether there is more to see."""
        ...

    def tables(self) -> Tables: ...


class OpensTensors(Protocol):
    """Where the contents of values come from: the recorder's memory, or a bundle."""

    def tensor(self, value: int) -> Any:
        """The content of a value; None when it was not kept."""
        ...

    def kept(self) -> dict[int, str]:
        """The values whose content there is, with the names under which it was kept."""
        ...

    def stored(self) -> Iterator[Any]:
        """What a store needs to keep each content once more."""
        ...


class Trace:
    """Everything recorded between start and stop. Looked at inside its block it is a snapshot."""

    in_notebook: ClassVar[Callable[[Trace], dict[str, str]] | None] = None
    """What a notebook shows of a trace; put here by the layer that knows views (api.py)."""
    at_prompt: ClassVar[Callable[[Trace], str] | None] = None
    """The first rows of a trace, for a prompt; put here likewise."""
    describes: ClassVar[Callable[[Any], Value] | None] = None
    """A tensor as a value with a sketch; put here by a layer that knows torch (recording.py)."""

    def __init__(self, source: Settles, contents: OpensTensors | None = None) -> None:
        self._source = source
        self._contents = contents
        self._tables: Tables | None = None
        self._seen = -1
        self._while_running = False
        self._database: sqlite3.Connection | None = None

    @property
    def tables(self) -> Tables:
        """The tables as columns, settled on the first look."""
        progress = self._source.progress()
        if self._tables is None or progress != self._seen or self._while_running:
            # Asked first: what ends in between is looked at once more.
            self._while_running = self._source.running
            tables = self._source.tables()
            self._database = self._database if tables is self._tables else None
            self._tables, self._seen = tables, progress
        return self._tables

    def __len__(self) -> int:
        return len(self.tables)

    def __bool__(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return self.tables.name

    @property
    def notes(self) -> tuple[str, ...]:
        """What was lost, not seen, or went wrong in the recorder itself."""
        return tuple(self.tables.notes)

    @property
    def left_by(self) -> tuple[str, ...]:
        """The exception that left the block, then what it was raised in answer to; empty when the block ended well."""
        return self.tables.left_by

    @property
    def left_process(self) -> int:
        """Of a trace of several processes the one that the exception left; 0 where there is but one."""
        return self.tables.left_process

    @property
    def raised_at(self) -> tuple[Location, ...]:
        """The frames between the block and the place where the exception was raised that left it, outermost first."""
        return self.tables.raised_at

    @property
    def duration_ns(self) -> int:
        return self.tables.duration_ns

    @property
    def engine(self) -> str:
        """Which engine recorded it, ``compiled`` or ``python``, and why not the first; "" where it is not known."""
        return str(getattr(self._source, "engine", ""))

    @property
    def complete(self) -> bool:
        """Whether the recording came to its end: not while it runs, nor when the program was killed."""
        return self.tables.complete

    @property
    def running(self) -> bool:
        return self._source.running

    @property
    def measured(self) -> bool:
        """Whether it has statistics of values: ``record(values="stats")`` takes them."""
        return bool(self.tables.value_measured)

    @property
    def sources(self) -> dict[str, str]:
        """The text of the user's files that ran, by file name."""
        return dict(self.tables.sources)

    def event(self, number: int) -> Event:
        """One event by its id."""
        tables = self.tables
        if type(number) is not int or not 0 <= number < len(tables):
            raise NotRecorded(f"no event {number!r}: this trace has {len(tables):,} events, numbered from 0")
        return tables.event(number)

    def events(self, selection: Selection | None = None, /, **criteria: Any) -> Iterator[Event]:
        """Events in order of opening; all, or those of a selection: ``trace.events(module="encoder.*")``."""
        if selection is not None:
            expect(selection, Selection, "events() takes a selection made by torchglass.select(…)")
        if selection is not None and criteria:
            raise UsageError("give either a selection or its criteria, not both")
        chosen = select(**criteria) if criteria else selection
        return self._events(chosen)

    def _events(self, chosen: Selection | None) -> Iterator[Event]:
        tables = self.tables
        for number in range(len(tables)):
            event = tables.event(number)
            if chosen is None or chosen.matches(event):
                yield event

    def alike(self) -> Iterator[tuple[Hashable, int, int]]:
        """For each event something equal for events that look the same, its parent (-1: none), and its time in ns.

        For views of big traces: a hundred thousand events are a few hundred looks, and need not all be made.
        """
        tables = self.tables
        counts = form_sizes(tables)
        # A column at a time, and the metas of an event's values as a slice of bytes: two thirds of a loop that
        # makes the tuples one by one, and all views of a big trace begin with this.
        metas = array("q", map(tables.value_meta.__getitem__, tables.io)).tobytes()
        given = map(add, map(counts.__getitem__, tables.args), map(counts.__getitem__, tables.result))
        looks = zip(
            tables.what, tables.stack, tables.module, map(NONE.__eq__, tables.call), tables.args, tables.result,
            tables.error, tables.thread, map(NONE.__eq__, tables.end_ns),
            [metas[8 * first : 8 * (first + count)] for first, count in zip(tables.first_io, given, strict=True)],
            strict=True,
        )  # fmt: skip
        spent = [0 if end == NONE else end - start for start, end in zip(tables.start_ns, tables.end_ns, strict=True)]
        return zip(looks, tables.parent, spent, strict=True)

    def modules(self) -> tuple[ModuleInfo, ...]:
        """Every module that was called, and those beside them that hold parameters, with settings and parameters."""
        return self.tables.module_infos()

    def values(self) -> Iterator[Value]:
        """Every value once, under the role of its first mention, in order of that mention."""
        tables = self.tables
        seen: set[int] = set()
        for _, value, role in tables.mentions():
            if value not in seen:
                seen.add(value)
                yield tables.value(value, role)

    def tensor(self, value: Value | int) -> Any:
        """The content of a value as it was when it was marked or saved: a tensor, or an array."""
        number = value.id if isinstance(value, Value) else value
        if type(number) is not int or not 0 <= number < len(self.tables.value_meta):
            raise NotRecorded(f"no value {number!r}: this trace has {len(self.tables.value_meta):,} values")
        found = None if self._contents is None else self._contents.tensor(number)
        if found is None:
            raise NotRecorded(
                f"the content of value {number} was not kept, only its shape; torchglass.mark(name, tensor) keeps one, "
                "record(values='all') keeps them all, values=select(…) those of some events (of one that was marked, "
                "the trace's notes say why not)"
            )
        return found

    def find(self, tensor: Any, tolerance: float | None = None) -> list[Occurrence]:
        """Where the numbers of a tensor (an array, or a value of another trace) occur, and how alike they are.

        In order of the events; also rounded to another dtype, reshaped, transposed or in another order. The trace must
        have been recorded with ``values="stats+sketch"``; ``tolerance`` is that of ``torchglass.same``.
        """
        if not self.tables.sketches:
            raise NotRecorded(
                "this trace has no sketches, by which numbers are found: record(values='stats+sketch') keeps them"
            )
        if isinstance(tensor, Value):
            return find(self.tables, tensor, tolerance)
        describes = type(self).describes
        assert describes is not None
        return find(self.tables, describes(tensor), tolerance)

    def kept(self) -> dict[int, str]:
        """The ids of the values whose content was kept, with the names under which it was."""
        return {} if self._contents is None else self._contents.kept()

    def stored(self) -> Iterator[Any]:
        """What a store needs to keep the contents once more."""
        return iter(()) if self._contents is None else self._contents.stored()

    def outputs(self, path: str, call: int = 0) -> tuple[Value, ...]:
        """What the module at this path gave on its n-th call; ``root:path`` where several roots have it."""
        root, _, below = path.rpartition(":")
        tables = self.tables
        called = {each for each in tables.module if each != NONE}
        rows = [n for n in called if tables.modules[n].path == below and root in ("", tables.modules[n].root)]
        if not rows:
            paths = {tables.modules[n].path or "'' (the root)" for n in called}
            raise NotRecorded(f"no module {path!r} was called; {closest(path, paths)}")
        calls = [n for n in range(len(tables)) if tables.module[n] in rows and tables.call[n] != NONE]
        if not -len(calls) <= call < len(calls):
            raise NotRecorded(f"{path!r} was called {len(calls)} time(s): no call {call}")
        return tables.event(calls[call]).outputs

    def failure(self) -> Event | None:
        """The innermost event that the exception left which also left the block; None when no event was.

        Of a worker of a DataLoader, or a process that torch started, the one that it failed in.
        """
        tables = self.tables
        failed = [number for number in reversed(range(len(tables))) if tables.error[number] != NONE]
        for text in tables.left_by:
            for number in failed:
                if tables.texts[tables.error[number]] == text:
                    return tables.event(number)
        for told in filter(None, map(_OF_A_CHILD.search, tables.left_by)):
            name = f"DataLoader worker {told['number']}" if told["worker"] else "Process-"
            for number in failed:
                if name in tables.threads[tables.thread[number]] and (
                    told["error"] is None or tables.texts[tables.error[number]].startswith(told["error"])
                ):
                    return tables.event(number)
        return None

    def columns(self, table: str = "events") -> dict[str, list[Any]]:
        """One table as lists by column name, in the form of the file format (see docs/format.md)."""
        if table not in (*schema.ASKED, *schema.BY_NAME):
            raise NotRecorded(f"no table {table!r}; {closest(table, schema.ASKED)}")
        cursor = self._connection().execute(f"SELECT * FROM {table}")
        names = [each[0] for each in cursor.description]
        rows = cursor.fetchall()
        return {name: [row[index] for row in rows] for index, name in enumerate(names)}

    def to_pandas(self, table: str = "events") -> Any:
        """One table as a pandas DataFrame; needs the extra ``pandas``."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise MissingExtra(
                "to_pandas() needs pandas: pip install 'torchglass[pandas]'; columns() gives the same as lists"
            ) from None
        return pandas.DataFrame(self.columns(table))

    def sql(self, query: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Ask in SQL; the tables are those of docs/format.md. Reading only."""
        expect(query, str, "sql() takes the text of a query")
        try:
            return self._connection().execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            # "not authorized", "authorization denied", "cannot modify events because it is a view"
            if "authoriz" in str(error) or " view" in str(error):
                raise UsageError(f"sql() only reads a trace, and {query.split()[0].upper()} is no reading") from None
            raise UsageError(f"{error}; the tables are: {', '.join(schema.ASKED)} (docs/format.md)") from None

    def _connection(self) -> sqlite3.Connection:
        tables = self.tables
        if self._database is None:
            self._database = fill_database(tables)
        return self._database

    def __str__(self) -> str:
        return summary(self.tables, self.running, self.engine)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """A bare trace in a cell of a notebook: the page, and text where that cannot be shown."""
        shows = type(self).in_notebook
        return {"text/plain": str(self)} if shows is None else shows(self)

    def __repr__(self) -> str:
        """What a prompt shows: the summary, and the first rows of the tree."""
        shows = type(self).at_prompt
        rows = shows(self) if shows is not None and len(self) and not self.running else ""
        return f"{self}\n{rows}" if rows else str(self)


def summary(tables: Tables, running: bool = False, engine: str = "") -> str:
    """A few lines: what was recorded, how long it took, what was lost or not seen."""
    kinds: dict[str, int] = {}
    for number in tables.what:
        kind = tables.whats[number].kind
        kinds[kind] = kinds.get(kind, 0) + 1
    counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items(), key=lambda each: -each[1]))
    roots = list(dict.fromkeys(row.root for row in tables.modules))
    known = tables.complete or tables.duration_ns  # how long it took is written at the end
    took = f" in {tables.duration_ns / 1e6:.1f} ms" if known else ""
    state = "" if tables.complete else " (still recording)" if running else " (incomplete)"
    lines = [
        f"Trace{' of ' + clean(tables.name) if tables.name else ''}: {len(tables):,} events{took}{state}",
        f"  {counted or _why_nothing(tables.complete, running)}",
    ]
    if roots:
        shown = ", ".join(roots[:5]) + (f" and {len(roots) - 5} more" if len(roots) > 5 else "")
        lines.append(f"  roots: {shown}; {len(tables.modules)} modules")
    if engine:
        lines.append(f"  engine: {engine}")
    measured = sum(how != NONE for how in tables.value_measured)
    if measured:
        ways = sorted({_WAYS[how] for how in set(tables.value_measured) - {NONE}})
        lines.append(f"  statistics of {measured:,} values, by {' and '.join(ways)}")
    missed = _without_gradient(tables)
    if missed:
        lines.append(f"  no gradient: {missed}")
    if len(tables.threads) > 1:
        lines.append(f"  threads: {', '.join(tables.threads)}")
    failed = [n for n in range(len(tables)) if tables.error[n] != NONE and not _is_meant(tables.texts[tables.error[n]])]
    if failed:
        lines.append(
            f"  {len(failed)} event(s) left by an exception, the last by {tables.texts[tables.error[failed[-1]]]}"
        )
    lines += [f"  note: {note}" for note in tables.notes]
    # Names, errors and notes come from the program: no line may hold what a terminal obeys.
    return "\n".join(map(clean, lines))


def _is_meant(error: str) -> bool:
    """A checkpoint ends a recomputation by an exception as soon as it has what backward needs."""
    return error == "_StopRecomputationError"


def _without_gradient(tables: Tables) -> str:
    """The parameters that got none although backward ran; "" when there are none."""
    telling = {at for at, what in enumerate(tables.whats) if tells_of_gradients(what.kind, what.name)}
    # Of events that took and gave what bears the same names one is enough.
    first: dict[tuple[int, int, int], int] = {}
    for at, look in enumerate(zip(tables.what, tables.args, tables.result, strict=True)):
        if look[0] in telling:
            first.setdefault(look, at)
    events = map(tables.event, first.values())
    return missed_words(gradients_of(events, tables.module_infos())) if first else ""


_WAYS = {1: "numpy", 2: "the compiled engine", 3: "torch on their device", 4: "a kernel on their device"}


def _why_nothing(complete: bool, running: bool) -> str:
    """Only a recording that came to its end knows that nothing ran."""
    if complete:
        return "nothing was recorded: no module or torch function ran in the block"
    return "nothing was recorded so far" if running else "nothing was written before the recording stopped"
