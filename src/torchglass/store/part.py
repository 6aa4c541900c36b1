"""One part of a bundle: what a process writes while it runs, and what becomes of that at its end.

While the program runs, a part holds the journal and the shards; both are in the kernel's hands as soon as something
is recorded. At the end the tables are written as SQLite and sealed, and then the journal goes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from torchglass.errors import BundleError
from torchglass.events.database import all_rows, cell_of, encoded, insert
from torchglass.events.schema import FORMAT, SAVED_TENSORS, SavedTensor, statements
from torchglass.events.tables import Tables
from torchglass.journal.homes import Home, file_home
from torchglass.store import layout
from torchglass.store.bundle import Bundle, make_bundle, make_or_join, refused
from torchglass.store.shards import Region, Shards, new_tensor
from torchglass.store.tensors import Content, Maps

APPLICATION = 0x74676C73
"""``tgls``: tells `file` and other tools what this database is."""
Number = Callable[[int], int]
"""The number of a value in the tables, by the one that it had when it was written."""


class Bytes(Protocol):
    """The content of a tensor, a piece at a time."""

    @property
    def pieces(self) -> Iterable[memoryview]: ...
    @property
    def length(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


def open_part(path: Path | str, run: str | None = None) -> Part:
    """A part of this process's own in the bundle at this path, which is made or, by a child process, joined.

    ``run`` is the run that a child belongs to; by default its environment says so.
    """
    bundle = make_or_join(path, run)
    part: Path | None = None
    try:
        part = bundle.new_part()
        return Part(bundle, part)
    except BaseException:  # a full disk, as a rule: a folder without a recording would only be in the way
        bundle.unmake(part)
        raise


class Part:
    """A part while this process writes it."""

    def __init__(self, bundle: Bundle, path: Path, report: Callable[[str], None] | None = None) -> None:
        self.bundle = bundle
        self.path = path
        self._report = report or _warn
        self.problem: str | None = None
        """Why not everything could be written …"""
        self._reason: str | None = None
        """… in the system's words."""
        self._process = os.getpid()
        self._hold = layout.Hold(path)
        self.shards = Shards(path)
        self._maps = Maps(bundle.path)
        self._journal: Path | None = None

    # While it runs

    def new_journal(self, recording: int) -> Home:
        """A file for the journal, named for the recording that this part is of."""
        self._journal = self.path / layout.journal_name(recording)
        return file_home(self._journal)

    def refusal(self, problem: OSError) -> BundleError:
        """There is no room to begin: nothing is left, and this is what to say."""
        self._hold.let_go()
        self.bundle.unmake(self.path)
        return refused(self.bundle.path, problem)

    def _drop_journal(self) -> None:
        if self._journal is not None:
            self._journal.unlink(missing_ok=True)

    def share_journal(self, home: Home, recording: int) -> None:
        """The journal has a file in another bundle: the same file is in this one too, where the system can do that."""
        self._journal = self.path / layout.journal_name(recording)
        with contextlib.suppress(OSError):  # another disk: then a kill leaves only the outer bundle
            if home.path is not None:
                os.link(home.path, self._journal)

    def keep_source(self, digest: str, text: str) -> None:
        """Put a source text beside the parts, under the name of its content."""
        content = encoded(text)
        path = self.bundle.path / layout.SOURCES / f"{digest}.py"
        if len(content) > layout.SOURCE_FILE or os.path.lexists(path):  # no reader would take it; or it is there
            return
        try:
            layout.write_whole(path, content)
        except OSError as error:
            self.report(error)

    def keep_tensor(self, name: str, value: int, content: Bytes) -> tuple[int, int, int] | str:
        """Write the bytes of a value; returns number, shard and offset, or why they could not be written."""
        if os.getpid() != self._process:
            return "this is another process"
        if self._reason is not None:
            return self._reason
        try:
            new = new_tensor(name, content.dtype, content.shape, content.length, value)
            saved = self.shards.append(new, content.pieces)
        except OSError as error:
            self.report(error)
            return self._reason or str(error)
        return saved.id, saved.shard, saved.offset

    def new_region(self, size: int, unused: int = -1) -> Region | None:
        """Room in a shard for so many bytes at least, mapped; None where there is none, or it must not be mapped."""
        if os.getpid() != self._process or self._reason is not None:
            return None
        try:
            return self.shards.new_region(size, unused)
        except OSError as error:
            self.report(error)
            return None

    def release_region(self, region: Any) -> None:
        """Nobody writes to a region any more."""
        self.shards.release_region(region)

    def copy_tensor(self, row: SavedTensor, content: Any) -> SavedTensor | None:
        """Write bytes that another part has; None where there is no room."""
        try:
            return self.shards.append(row, [content])
        except OSError as error:
            self.report(error)
            return None

    def report(self, problem: OSError) -> None:
        """Something could not be written: say so once, and go on in memory."""
        if self.problem is None:
            self._reason = problem.strerror or str(problem)
            shown = layout.spelt(self.path)
            self.problem = f"{shown} could not be written any more: {self._reason}; the trace there is incomplete"
            self._report(self.problem)

    @property
    def count(self) -> int:
        """How many tensors it was given."""
        return len(self.shards.saved)

    def saved(self, number: Number) -> list[SavedTensor]:
        """The tensors in this part, with the numbers that their values have in the tables."""
        return [replace(saved, value=number(saved.value)) for saved in self.shards.saved]

    def open_tensor(self, saved: SavedTensor) -> Content:
        """The bytes of a tensor, mapped from its shard."""
        return self._maps.content(self.path, saved)

    # At the end

    def finish(self, tables: Tables, number: Number, others: Sequence[SavedTensor] = ()) -> None:
        """Write the tables, seal them, and let the journal go; what cannot be written stays a journal.

        ``others`` are the tensors in regions, numbered behind those that were given here.
        """
        if os.getpid() != self._process:
            return
        try:
            self.shards.close(others)
            if self.problem is None:
                write_tables(self, tables, [*self.saved(number), *others])
                seal(self.path)
                self._drop_journal()
        except (OSError, sqlite3.Error) as error:
            self.report(error if isinstance(error, OSError) else OSError(str(error)))
            (self.path / layout.EVENTS).unlink(missing_ok=True)
        self._hold.let_go()

    def give_up(self, reason: str) -> None:
        """Leave the part as it is: a journal without an end."""
        self.problem = f"{layout.spelt(self.path)} has no tables: {reason}"
        with contextlib.suppress(OSError):
            self.shards.close()
        self._hold.let_go()

    def forget(self) -> None:
        """In a forked child: it is the parent's, and nothing here keeps it open."""
        self._hold.forget()


def write_tables(part: Part, tables: Tables, saved: list[SavedTensor]) -> None:
    """The tables as ``events.sqlite``, and the source texts beside the parts."""
    for source in tables.sources.values():
        part.keep_source(hashlib.sha256(encoded(source)).hexdigest(), source)
    connection = new_database(part.path / layout.EVENTS)
    try:
        fill(connection, tables, saved)
    finally:
        connection.close()


def fill(connection: sqlite3.Connection, tables: Tables, saved: Iterable[SavedTensor]) -> None:
    """All rows in one transaction."""
    connection.execute("BEGIN")
    for table, rows in all_rows(tables):
        insert(connection, table, ((row[0], None, row[2]) for row in rows) if table == "sources" else rows)
    insert(connection, "saved_tensors", iter(saved_table(saved)))
    connection.execute("COMMIT")


def saved_table(tensors: Iterable[SavedTensor]) -> Iterable[tuple[Any, ...]]:
    """The rows of ``saved_tensors``, with the columns that the schema has."""
    saved = list(tensors)
    columns = [
        cells if column.type in ("id", "int") else map(_cell_of, cells)
        for column in SAVED_TENSORS.columns
        for cells in [map(attrgetter(column.name), saved)]
    ]
    return zip(*columns, strict=True)


_cell_of = lru_cache(maxsize=1024)(cell_of)  # of thousands of values a few dtypes and shapes


def new_database(path: Path) -> sqlite3.Connection:
    """An empty database with the schema; it is nobody's until it is sealed, so SQLite need not guard it."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    try:
        for pragma in ("synchronous = OFF", "journal_mode = OFF", "locking_mode = EXCLUSIVE"):
            connection.execute(f"PRAGMA {pragma}")
        connection.executescript(
            f"BEGIN; PRAGMA user_version = {FORMAT}; PRAGMA application_id = {APPLICATION};\n{statements()}\nCOMMIT;"
        )
    except BaseException:
        connection.close()
        raise
    return connection


def seal(part: Path) -> None:
    """Write the file ``done``: what the finished files are; the events are on the disk by then."""
    content: dict[str, object] = {"format": FORMAT, layout.EVENTS: _synced_digest(part / layout.EVENTS)}
    for path in layout.shard_paths(part).values():
        content[path.name] = layout.plain_size(path)
    layout.write_whole(part / layout.DONE, json.dumps(content, indent=1).encode())


def _synced_digest(path: Path) -> str:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _warn(problem: str) -> None:
    """Where warnings are errors, ours still must not stop a program."""
    try:
        warnings.warn(f"torchglass: {problem}; the program goes on", RuntimeWarning, stacklevel=2)
    except Warning:
        pass


# ---------------------------------------------------------------- saving

# Keeping a whole trace at once, as a finished bundle.

Tensors = Iterable[tuple[SavedTensor, Any]]


def save(tables: Tables, path: Path | str, tensors: Tensors = ()) -> None:
    """Keep a trace as a bundle, with tensors (their rows and their bytes); all of it, or a ``BundleError``."""
    bundle = make_bundle(path)
    try:
        part = Part(bundle, bundle.new_part(), report=lambda _: None)
        there: dict[tuple[int, int, int, int], SavedTensor | None] = {}
        for row, content in tensors:
            place = (row.part, row.shard, row.offset, row.length)
            known = there.get(place) if row.length else None
            row = replace(row, length=memoryview(content).nbytes, part=0)
            if known is None:
                there[place] = part.copy_tensor(row, content)
            else:
                part.shards.share(row, known)
        part.finish(tables, lambda value: value)
        if part.problem is not None:
            raise BundleError(f"{part.problem}; nothing was kept there")
    except BaseException:  # also Ctrl-C, or tensors that cannot be read
        shutil.rmtree(bundle.path, ignore_errors=True)
        raise
