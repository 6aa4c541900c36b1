"""The Trace class: the object that users hold and query.

It reads the tables itself, and imports views, answers and bundles only when they are needed. The module's name has an
underscore because ``torchglass.trace`` is the function that records a call.
"""

from __future__ import annotations

import importlib
import os
import re
import sqlite3
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeVar

from torchglass.errors import MissingExtra, NotRecorded, UsageError, WrongType, closest, expect
from torchglass.events import schema
from torchglass.events.database import fill_database
from torchglass.events.gradients import gradients_of, is_about_gradients, missed_words
from torchglass.events.likeness import Occurrence, find
from torchglass.events.schema import NONE
from torchglass.events.selection import Selection, select
from torchglass.events.spelling import clean
from torchglass.events.tables import Tables
from torchglass.events.types import Event, Location, ModuleInfo, Stats, Value

if TYPE_CHECKING:
    from torchglass.answers.bad_story import FirstBad
    from torchglass.answers.diff import Diff
    from torchglass.answers.failure import Failure
    from torchglass.answers.finding import Finding
    from torchglass.program.series import Series

_Made = TypeVar("_Made")
ROWS_AT_PROMPT = 12
"""Lines of the tree that ``repr`` of a trace shows at a Python prompt."""
LARGEST_AT_PROMPT = 50_000
"""Events of the largest trace that ``repr`` makes a tree of; a larger one would keep the prompt waiting."""
_ERROR_OF_CHILD = re.compile(
    r"Caught (?P<error>\w+) in (?P<worker>DataLoader worker) process (?P<number>\d+)\.|-- Process \d+ terminated with"
)
"""The error that torch raises in the parent if a child process failed. The text of the child's error may be cut."""


class Settles(Protocol):
    """Where a trace gets its tables from: a recorder, or a file."""

    @property
    def running(self) -> bool: ...

    def progress(self) -> int:
        """Return a number that grows with every event, so a trace knows whether there is more to read."""
        ...

    def tables(self) -> Tables: ...


class OpensTensors(Protocol):
    """Where the contents of values come from: the recorder's memory, or a bundle."""

    def tensor(self, value: int) -> Any:
        """Return the content of a value; None if it was not kept."""
        ...

    def kept(self) -> dict[int, str]:
        """Return the values whose content was kept, with their names."""
        ...

    def kept_contents(self) -> Iterator[Any]:
        """Return what a store needs to save each content again."""
        ...


class Trace:
    """Everything recorded between start and stop. Inside its block it shows what has been recorded so far."""

    def __init__(self, source: Settles, contents: OpensTensors | None = None) -> None:
        self._source = source
        self._contents = contents
        self._settled: Tables | None = None
        self._seen = -1
        self._while_running = False
        self._database: sqlite3.Connection | None = None
        self._made: dict[Callable[[Tables], Any], Any] = {}

    @property
    def _tables(self) -> Tables:
        """The tables as columns, settled on first use."""
        progress = self._source.progress()
        if self._settled is None or progress != self._seen or self._while_running:
            # Ask this first, so that a recording which ends in between is read once more.
            self._while_running = self._source.running
            tables = self._source.tables()
            if tables is not self._settled:
                self._database = None
                self._made = {}
            self._settled = tables
            self._seen = progress
        return self._settled

    def _once(self, make: Callable[[Tables], _Made]) -> _Made:
        """Return what a function makes of the tables, cached until there are more events."""
        tables = self._tables
        if make not in self._made:
            self._made[make] = make(tables)
        return self._made[make]

    def __len__(self) -> int:
        return len(self._tables)

    def __bool__(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return self._tables.name

    @property
    def notes(self) -> tuple[str, ...]:
        """What was lost, what could not be seen, and what went wrong in the recorder itself."""
        return tuple(self._tables.notes)

    @property
    def left_by(self) -> tuple[str, ...]:
        """The exception that left the block, followed by its causes; empty if the block ended well."""
        return self._tables.left_by

    @property
    def _left_process(self) -> int:
        """The process that the exception left; 0 if the trace has only one process."""
        return self._tables.left_process

    @property
    def raised_at(self) -> tuple[Location, ...]:
        """The frames from the block to the place where its exception was raised, outermost first."""
        return self._tables.raised_at

    @property
    def duration_ns(self) -> int:
        return self._tables.duration_ns

    @property
    def engine(self) -> str:
        """Which engine recorded it: ``compiled``, or ``python`` with the reason; "" if that is not known."""
        return str(getattr(self._source, "engine", ""))

    @property
    def complete(self) -> bool:
        """Whether the recording has ended: False while it runs, and if the program was killed."""
        return self._tables.complete

    @property
    def running(self) -> bool:
        return self._source.running

    @property
    def measured(self) -> bool:
        """Whether it has statistics of values, as with ``record(values="stats")``."""
        return bool(self._tables.value_measured)

    @property
    def sources(self) -> dict[str, str]:
        """The text of the user's files that ran, by file name."""
        return dict(self._tables.sources)

    def event(self, number: int) -> Event:
        """Return the event with this id."""
        tables = self._tables
        if type(number) is not int or not 0 <= number < len(tables):
            raise NotRecorded(
                f"no event {number!r}: this trace has {len(tables):,} events, numbered from 0"
            )
        return tables.event(number)

    def events(self, selection: Selection | None = None, /, **criteria: Any) -> Iterator[Event]:
        """Yield all events, or those of a selection, in the order in which they began.

        ``trace.events(module="encoder.*")``.
        """
        if selection is not None:
            expect(selection, Selection, "events() takes a selection made by torchglass.select(…)")
        if selection is not None and criteria:
            raise UsageError("give either a selection or its criteria, not both")
        chosen = selection
        if criteria:
            chosen = select(**criteria)
        return self._events(chosen)

    def _events(self, chosen: Selection | None) -> Iterator[Event]:
        tables = self._tables
        for number in range(len(tables)):
            event = tables.event(number)
            if chosen is None or chosen.matches(event):
                yield event

    def modules(self) -> tuple[ModuleInfo, ...]:
        """Return every module that was called or holds parameters, with its settings and parameters."""
        return self._tables.module_infos()

    def values(self) -> Iterator[Value]:
        """Yield every value once, in the order in which they first occur, with the role that they have there."""
        tables = self._tables
        seen: set[int] = set()
        for _, value, role in tables.mentions():
            if value not in seen:
                seen.add(value)
                yield tables.value(value, role)

    def tensor(self, value: Value | int) -> Any:
        """Return the content that was kept of a value, as it was at that time: a tensor or an array."""
        number = value
        if isinstance(value, Value):
            number = value.id
        if type(number) is not int or not 0 <= number < len(self._tables.value_meta):
            raise NotRecorded(
                f"no value {number!r}: this trace has {len(self._tables.value_meta):,} values"
            )
        found = None
        if self._contents is not None:
            found = self._contents.tensor(number)
        if found is None:
            raise NotRecorded(
                f"only the shape of value {number} was kept, not its numbers; torchglass.mark(name, tensor) keeps one "
                "tensor, record(values='all') all of them, values=select(…) those of some events (if it was marked, "
                "the trace's notes say why it was not kept)"
            )
        return found

    def find(self, tensor: Any, tolerance: float | None = None) -> list[Occurrence]:
        """Find where the numbers of a tensor (an array, or a value of another trace) occur, and how alike they are.

        Returns the places in the order of the events. Numbers are found even if they were rounded to another dtype,
        reshaped, transposed or reordered. The trace must have been recorded with ``values="stats+sketch"``.
        ``tolerance`` is that of ``torchglass.same``.
        """
        if not self._tables.sketches:
            raise NotRecorded(
                "this trace has no fingerprints to search by: record(values='stats+sketch') keeps them"
            )
        if isinstance(tensor, Value):
            return find(self._tables, tensor, tolerance)
        from torchglass.capture.statistics.sketch import described

        return find(self._tables, described(tensor), tolerance)

    def diff(
        self,
        other: Trace,
        *,
        again: Trace | Sequence[Trace] = (),
        other_again: Trace | Sequence[Trace] = (),
    ) -> Diff:
        """Find where this run and another one first really differ: ``print(reference.diff(port))``.

        This trace is A, the other one is B. The programs need to share only their numbers. Record both with
        ``ops=True, values="stats+sketch"``: without ops, functions and modules are compared; without fingerprints,
        only what ran. ``again`` is a second run of A, or several, and ``other_again`` the same for B: what differs
        between runs of one program counts as noise.
        """
        if isinstance(again, Trace):
            runs_of_a = [again]
        else:
            runs_of_a = list(again)
        if isinstance(other_again, Trace):
            runs_of_b = [other_again]
        else:
            runs_of_b = list(other_again)
        for each in (other, *runs_of_a, *runs_of_b):
            expect(each, Trace, "diff() takes another trace")
        from torchglass.answers.diff import compare

        return compare(
            self._snapshot(),
            other._snapshot(),
            [each._snapshot() for each in runs_of_a],
            [each._snapshot() for each in runs_of_b],
        )

    def kept(self) -> dict[int, str]:
        """Return the ids of the values whose content was kept, with their names."""
        if self._contents is None:
            return {}
        return self._contents.kept()

    def _stored(self) -> Iterator[Any]:
        """Return what a store needs to save the contents again."""
        if self._contents is None:
            return iter(())
        return self._contents.kept_contents()

    def outputs(self, path: str, call: int = 0) -> tuple[Value, ...]:
        """Return the outputs of the n-th call of a module. If several roots have the path, write ``root:path``."""
        root, _, below = path.rpartition(":")
        tables = self._tables
        called = {each for each in tables.module if each != NONE}
        rows = [
            n
            for n in called
            if tables.modules[n].path == below and root in ("", tables.modules[n].root)
        ]
        if not rows:
            paths = {tables.modules[n].path or "'' (the root)" for n in called}
            raise NotRecorded(f"no module {path!r} was called; {closest(path, paths)}")
        calls = [
            n for n in range(len(tables)) if tables.module[n] in rows and tables.call[n] != NONE
        ]
        if not -len(calls) <= call < len(calls):
            raise NotRecorded(
                f"{path!r} was called {len(calls)} time(s), so there is no call {call}"
            )
        return tables.event(calls[call]).outputs

    def series(self, name: str, *, at: str | None = None, module: str | None = None) -> Series:
        """Return a value over the whole run: ``print(trace.series("loss"))``.

        ``name`` is a variable, an expression as it is written, or the path of a module (its output). If it gets a value
        at several places, choose one with ``at="train.py:20"`` or ``module="encoder"``. ``numbers()`` returns a number
        for each time that is known, and ``iterations()`` which time each was, from 0 on. If events were dropped, only a
        sample of their times is known. The trace must have been recorded with ``values="stats"``.
        """
        from torchglass.program.series import series_of

        return series_of(self._tables, name, at, module)

    def failure(self) -> Event | None:
        """Return the innermost event that raised the exception which left the block; None if no event did.

        If a DataLoader worker or a process that torch started failed, it is the event that failed there.
        """
        tables = self._tables
        failed = [number for number in reversed(range(len(tables))) if tables.error[number] != NONE]
        for text in tables.left_by:
            for number in failed:
                if tables.texts[tables.error[number]] == text:
                    return tables.event(number)
        for match in filter(None, map(_ERROR_OF_CHILD.search, tables.left_by)):
            process = "Process-"
            if match["worker"]:
                process = f"DataLoader worker {match['number']}"
            for number in failed:
                if process not in tables.threads[tables.thread[number]]:
                    continue
                error = tables.texts[tables.error[number]]
                if match["error"] is None or error.startswith(match["error"]):
                    return tables.event(number)
        return None

    def findings(self, ignore: Collection[str] = ()) -> list[Finding]:
        """Return what looks wrong in the program, the most certain first; ``ignore`` names findings to leave out.

        ``print(finding)`` shows the evidence and the fix, ``finding.to_dict()`` returns them as data. A comment
        ``# torchglass: ignore[broadcast]`` at its line silences a finding. docs/findings.md explains each.
        """
        from torchglass.answers.findings.check import check

        return check(self._snapshot(), ignore).findings

    def columns(self, table: str = "events") -> dict[str, list[Any]]:
        """Return one table as lists by column name (docs/format.md lists the tables)."""
        if table not in (*schema.PUBLIC_NAMES, *schema.BY_NAME):
            raise NotRecorded(f"no table {table!r}; {closest(table, schema.PUBLIC_NAMES)}")
        cursor = self._connection().execute(f"SELECT * FROM {table}")
        names = [each[0] for each in cursor.description]
        rows = cursor.fetchall()
        return {name: [row[index] for row in rows] for index, name in enumerate(names)}

    def to_pandas(self, table: str = "events") -> Any:
        """Return one table as a pandas DataFrame; needs the extra ``pandas``."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise MissingExtra(
                "to_pandas() needs pandas: pip install 'torchglass[pandas]'; columns() gives the same as lists"
            ) from None
        return pandas.DataFrame(self.columns(table))

    def sql(self, query: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run a read-only SQL query; docs/format.md lists the tables."""
        return self._ask(query, parameters).fetchall()

    def _ask(self, query: str, parameters: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Return the cursor of a query, which also knows the names of its columns."""
        expect(query, str, "sql() takes the text of a query")
        try:
            return self._connection().execute(query, parameters)
        except sqlite3.Error as error:
            # "not authorized", "authorization denied", "cannot modify events because it is a view"
            if "authoriz" in str(error) or " view" in str(error):
                raise UsageError(
                    f"sql() only reads a trace, so {query.split()[0].upper()} is refused"
                ) from None
            raise UsageError(
                f"{error}; the tables are: {', '.join(schema.PUBLIC_NAMES)} (docs/format.md)"
            ) from None

    def _connection(self) -> sqlite3.Connection:
        tables = self._tables
        if self._database is None:
            self._database = fill_database(tables)
            # Python 3.13 warns of connections that nobody closed.
            weakref.finalize(self, self._database.close)
        return self._database

    # ------------------------------------------------------------ views

    def show(
        self,
        view: str | None = None,
        *,
        file: TextIO | None = None,
        width: int | None = None,
        color: bool | None = None,
        **options: Any,
    ) -> None:
        """Print a view: ``tree``, ``code``, ``listing``, ``calls``, ``table`` …

        Without a name it prints the tree, or the ``failure`` view if an exception left the block.
        """
        from torchglass.views.render import view_lines
        from torchglass.views.text.style import page_for, writable

        if file is not None and not hasattr(file, "write"):
            raise WrongType(
                f"show(file=…) takes something to print to, such as an open file, not {type(file).__name__}; "
                "to choose the source files of the listing, use path="
            )
        stream = file
        if stream is None:
            stream = sys.stdout
        page = page_for(stream, width=width, color=color)
        for line in view_lines(self._snapshot(), view, page, options):
            print(writable(line, stream), file=stream)

    def render(
        self,
        view: str | None = None,
        *,
        width: int | None = None,
        color: bool | None = None,
        **options: Any,
    ) -> str:
        """Return what ``show`` prints, as text."""
        from torchglass.views.render import view_lines
        from torchglass.views.text.style import page_for

        page = page_for(None, width=width, color=color)
        return "\n".join(view_lines(self._snapshot(), view, page, options))

    def to_dict(self, view: str | None = None, **options: Any) -> dict[str, Any]:
        """Return what ``show`` prints, as plain data for ``json.dump``: rows of cells (docs/json.md)."""
        from torchglass.views.render import view_data

        return view_data(self._snapshot(), view, options)

    # ------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the trace as a bundle: a new folder with its events, tensors and sources."""
        from torchglass import store

        contents = list(self._stored())
        saved = {row.value for row, _ in contents}
        lost = sorted(
            {name or "(no name)" for value, name in self.kept().items() if value not in saved}
        )
        tables = self._tables
        if lost:
            reason = "their tensors have no plain bytes"
            if self.running:
                reason += ", or are still on their way into another bundle: save the trace after its block"
            note = f"the marks {', '.join(map(repr, lost))} are not in the bundle: {reason}"
            tables = replace(tables, notes=[*tables.notes, note])
        store.save(tables, Path(os.fspath(path)), contents)

    def export(self, path: str | os.PathLike[str], /, **options: Any) -> None:
        """Write the trace to a file for other programs; the suffix chooses the format.

        ``.html`` is the page: code, steps, data flow and tensors in one file. ``.svg`` and ``.png`` are pictures of
        the data flow, ``.dot`` and ``.mmd`` the same for Graphviz and Mermaid; they take the options of the view
        ``graph``. ``against=other`` writes a page of two runs, with both codes side by side where they first differ.
        ``.perfetto.json`` is a timeline for Perfetto and Chrome, ``.sqlite`` holds all tables.
        """
        from torchglass.capture.transparency.ours import unseen
        from torchglass.views.export import export

        if "against" in options:
            expect(options["against"], Trace, "export(against=…) takes another trace")
            options["against"] = options["against"]._snapshot()
        with unseen():
            export(self._snapshot(), Path(os.fspath(path)), options)

    # ------------------------------------------------------------ answers

    def first_bad(
        self, when: str | Callable[[Stats], bool] = "nonfinite", *, allow: str | Sequence[str] = ()
    ) -> FirstBad | None:
        """Return where the first bad value came from: the event that made it, not those that passed it on.

        Returns None if there is no bad value. ``when`` says what is bad: ``"nonfinite"``, a condition such as
        ``"abs>1e4"``, or a function of ``Value.stats``. ``allow`` names functions (``"log"``) or places
        (``"model.py:12"``) whose results are never bad. A mask of -inf is not bad if it is written as such, or only
        added to scores before a softmax. Print the result to see the expression, line and module, the inputs and where
        they came from, and what the bad value reached.
        """
        from torchglass.answers.bad_story import first_bad_story

        if isinstance(allow, str):
            allow = (allow,)
        return first_bad_story(self._snapshot(), when, tuple(allow))

    def failure_story(self) -> Failure | None:
        """Return why the block failed; None if it ended well.

        The result has the failing call, what does not fit in it, its inputs and where they came from.
        ``show("failure")`` prints all of it.
        """
        from torchglass.answers.failure import failure_of

        return failure_of(self._snapshot())

    # ------------------------------------------------------------ as a whole

    def __str__(self) -> str:
        return summary(self._tables, self.running, self.engine)

    def __repr__(self) -> str:
        """Return what a prompt shows: the summary, and the first rows of the tree."""
        if not len(self) or self.running:
            return str(self)
        return f"{self}\n{self._first_rows()}"

    def _first_rows(self) -> str:
        """Return the first rows of the tree; for a large trace only how to see them."""
        from torchglass.views.render import view_lines
        from torchglass.views.text.style import page_for

        hint = "show(trace) shows all"
        if len(self) > LARGEST_AT_PROMPT:
            return f"  {hint}"
        tree = view_lines(self, "tree", page_for(None, color=False), {})
        lines = list(islice(tree, ROWS_AT_PROMPT + 1))
        if len(lines) > ROWS_AT_PROMPT:
            lines[-1] = f"… {hint}, show(trace, 'listing') your lines with shapes"
        return "\n".join(lines)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the page for a notebook cell, and text for notebooks that cannot show it."""
        from torchglass.capture.transparency.ours import unseen
        from torchglass.views.page.html import mimebundle

        with unseen():
            return mimebundle(self._snapshot())

    def _snapshot(self) -> Trace:
        """Return a trace that does not change while a view or an answer reads it.

        While the block runs, each access to the tables would decode the whole journal again. A trace whose recording
        has ended is returned as it is.
        """
        if not self._source.running:
            return self
        return Trace(FixedTables(self._tables, self.engine, running=True), self._contents)

    def _with_tables(self, tables: Tables) -> Trace:
        """Return a trace with these tables, which are a part of this one's."""
        return Trace(FixedTables(tables))


class FixedTables:
    """A source of tables that do not change (``Settles``)."""

    def __init__(self, tables: Tables, engine: str = "", *, running: bool = False) -> None:
        self._tables = tables
        self.engine = engine
        self.running = running

    def progress(self) -> int:
        return 0

    def tables(self) -> Tables:
        return self._tables


def summary(tables: Tables, running: bool = False, engine: str = "") -> str:
    """Return a few lines: what was recorded, how long it took, what was lost or not seen."""
    kinds: dict[str, int] = {}
    for number in tables.callee:
        kind = tables.callees[number].kind
        kinds[kind] = kinds.get(kind, 0) + 1
    counted = ", ".join(
        f"{count:,} {kind}" for kind, count in sorted(kinds.items(), key=lambda each: -each[1])
    )
    roots = list(dict.fromkeys(row.root for row in tables.modules))
    known = tables.complete or tables.duration_ns  # how long it took is written at the end
    took = ""
    if known:
        took = f" in {tables.duration_ns / 1e6:.1f} ms"
    if tables.complete:
        state = ""
    elif running:
        state = " (still recording)"
    else:
        state = " (incomplete)"
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
    failed = [
        n
        for n in range(len(tables))
        if tables.error[n] != NONE and not _is_expected(tables.texts[tables.error[n]])
    ]
    if failed:
        lines.append(
            f"  {len(failed)} event(s) left by an exception, the last by {tables.texts[tables.error[failed[-1]]]}"
        )
    lines += [f"  note: {note}" for note in tables.notes]
    # Names, errors and notes come from the program, so they may have control characters for the terminal.
    return "\n".join(map(clean, lines))


def _is_expected(error: str) -> bool:
    """Return whether an error is part of normal work: a checkpoint raises one to end its recomputation early."""
    return error == "_StopRecomputationError"


def _without_gradient(tables: Tables) -> str:
    """Return the parameters that got no gradient although backward ran; "" if there are none."""
    is_about = [is_about_gradients(callee.kind, callee.name) for callee in tables.callees]
    # Events with the same names of inputs and outputs say the same, so the first of them is enough.
    first: dict[tuple[int, int, int], int] = {}
    for number, key in enumerate(zip(tables.callee, tables.args, tables.result, strict=True)):
        if is_about[key[0]]:
            first.setdefault(key, number)
    if not first:
        return ""
    events = map(tables.event, first.values())
    return missed_words(gradients_of(events, tables.module_infos()))


_WAYS = {
    1: "numpy",
    2: "the compiled engine",
    3: "torch on their device",
    4: "a kernel on their device",
}


def _why_nothing(complete: bool, running: bool) -> str:
    """Say why there are no events: only a recording that has ended knows that nothing ran."""
    if complete:
        return "nothing was recorded: no module or torch function ran in the block"
    if running:
        return "nothing was recorded so far"
    return "nothing was written before the recording stopped"
