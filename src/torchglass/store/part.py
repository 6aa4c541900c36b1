"""Writes one part of a bundle: the files that one process records.

While the program runs, a part holds the journal and the shards. Everything recorded is handed to the kernel at once, so
it survives a kill of the process. At the end, the journal is written again without unused room, and the part is sealed.
A trace that was recorded in memory and saved later has tables in SQLite (``events.sqlite``) instead of a journal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

from torchglass.errors import BundleError
from torchglass.events.database import APPLICATION, all_rows, cell_of, encoded, insert
from torchglass.events.schema import FORMAT, SAVED_TENSORS, SavedTensor, statements
from torchglass.events.tables import Tables
from torchglass.journal.backing import Backing, file_backing
from torchglass.journal.files import refusing_large_files
from torchglass.journal.layout import KEPT, Streams
from torchglass.journal.packed import file_content
from torchglass.settle.closing import values_with_copies
from torchglass.store import layout
from torchglass.store.bundle import Bundle, make_or_join, refused
from torchglass.store.shards import Region, Shards, new_tensor
from torchglass.store.tensors import Content, Maps, saved_rows
from torchglass.system import getpid

Number = Callable[[int], int]
"""A function that returns the number of a value in the tables, given its number in the journal."""


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
    """Open a part for this process in the bundle at ``path``. Make the bundle, or join it in a child process.

    ``run`` is the run that a child process belongs to. By default it is read from the environment.
    """
    bundle = make_or_join(path, run)
    part: Path | None = None
    try:
        part = bundle.new_part()
        return Part(bundle, part)
    # Usually the disk is full. Remove the folder, because an empty bundle would only be in the way.
    except BaseException:
        bundle.remove(part)
        raise


class Part:
    """A part that this process is writing."""

    def __init__(
        self, bundle: Bundle, path: Path, report: Callable[[str], None] | None = None
    ) -> None:
        self.bundle = bundle
        self.path = path
        self._report = report or _warn
        self.problem: str | None = None
        """A message about what could not be written, or None."""
        self._reason: str | None = None
        """The system's error text for that problem, or None."""
        self._process = getpid()
        self._hold = layout.Hold(path)
        self.shards = Shards(path)
        self._maps = Maps(bundle.path)

    # While the program runs

    def new_journal(self, recording: int) -> Backing:
        """Create the file for the journal of a recording."""
        return file_backing(self.path / layout.journal_name(recording))

    def refusal(self, problem: OSError) -> BundleError:
        """Remove the part, and return the error to raise because there is no room to begin a recording."""
        self._hold.release()
        self.bundle.remove(self.path)
        return refused(self.bundle.path, problem)

    def share_journal(self, home: Backing, recording: int) -> None:
        """Link the journal's file, which is in another bundle, into this one, if the file system allows that."""
        # It fails if the bundles are on different disks. Then a kill leaves the events only in the outer bundle.
        with contextlib.suppress(OSError):
            if home.path is not None:
                os.link(home.path, self.path / layout.journal_name(recording))

    def keep_source(self, digest: str, text: str) -> None:
        """Write a source text next to the parts, in a file named by its digest."""
        content = encoded(text)
        path = self.bundle.path / layout.SOURCES / f"{digest}.py"
        # Skip a text that is too large for readers, or that has been written already.
        if len(content) > layout.SOURCE_FILE or os.path.lexists(path):
            return
        try:
            layout.write_whole(path, content)
        except OSError as error:
            self.report(error)

    def keep_tensor(self, name: str, value: int, content: Bytes) -> tuple[int, int, int] | str:
        """Write the bytes of a value. Return its number, shard and offset, or a text if they could not be written."""
        if getpid() != self._process:
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
        """Return mapped memory of a shard for at least ``size`` bytes, or None if there is no room or no mapping."""
        if getpid() != self._process or self._reason is not None:
            return None
        try:
            return self.shards.new_region(size, unused)
        except OSError as error:
            self.report(error)
            return None

    def release_region(self, region: Any) -> None:
        """Release a region that is no longer written to."""
        self.shards.release_region(region)

    def copy_tensor(self, row: SavedTensor, content: Any) -> SavedTensor | None:
        """Copy the bytes of a tensor into this part. Return its new row, or None if the bytes could not be written."""
        try:
            return self.shards.append(row, [content])
        except OSError as error:
            self.report(error)
            return None

    def report(self, problem: OSError) -> None:
        """Report, once, that something could not be written. The recording continues in memory."""
        if self.problem is None:
            self._reason = problem.strerror or str(problem)
            shown = layout.spelt(self.path)
            self.problem = f"{shown} could not be written any more: {self._reason}; the trace there is incomplete"
            self._report(self.problem)

    @property
    def count(self) -> int:
        """The number of tensors that were passed to this part, without those in regions."""
        return len(self.shards.saved)

    def saved(self, number: Number) -> list[SavedTensor]:
        """Return the tensors in this part, with the numbers that their values have in the tables."""
        return [replace(saved, value=number(saved.value)) for saved in self.shards.saved]

    def open_tensor(self, saved: SavedTensor) -> Content:
        """Return the bytes of a tensor, mapped from its shard."""
        return self._maps.content(self.path, saved)

    # At the end

    def finish(self, packed: Streams, recording: int) -> None:
        """Write the journal again without the unused room of its chunks, and seal the part.

        If this fails, the files that were written while the program ran stay as they are.
        """
        if getpid() != self._process:
            return
        try:
            self.shards.close(self._in_regions(packed, recording))
            if self.problem is None:
                write_journal(self.path / layout.journal_name(recording), packed)
                seal(self.path)
        except OSError as error:
            self.report(error)
        finally:
            self._hold.release()

    def _in_regions(self, packed: Streams, recording: int) -> list[SavedTensor]:
        """Return the rows of the tensors in regions, numbered after the tensors that were passed to this part."""
        if not packed.of(KEPT):
            return []
        tables, copies = values_with_copies(packed, recording)
        return saved_rows(tables, copies, self.count)

    def finish_tables(self, tables: Tables) -> None:
        """Finish a part for a trace that was recorded in memory: write its tables as SQLite, and seal the part."""
        if getpid() != self._process:
            return
        try:
            self.shards.close()
            write_tables(self, tables, self.shards.saved)
            seal(self.path)
        except (OSError, sqlite3.Error) as error:
            self.report(error if isinstance(error, OSError) else OSError(str(error)))
            (self.path / layout.EVENTS).unlink(missing_ok=True)
        finally:
            self._hold.release()

    def give_up(self, reason: str) -> None:
        """Leave the part unfinished, for ``reason``, with its journal as it is."""
        self.problem = f"{layout.spelt(self.path)} was not finished: {reason}"
        try:
            with contextlib.suppress(OSError):
                self.shards.close()
        finally:
            self._hold.release()

    def forget(self) -> None:
        """Drop the lock on the part in a forked child, because the part belongs to the parent."""
        self._hold.forget()


def write_tables(part: Part, tables: Tables, saved: list[SavedTensor]) -> None:
    """Write the tables as ``events.sqlite``, and the source texts next to the parts."""
    for source in tables.sources.values():
        part.keep_source(hashlib.sha256(encoded(source)).hexdigest(), source)
    with (
        refusing_large_files(),
        contextlib.closing(new_database(part.path / layout.EVENTS)) as connection,
    ):
        fill(connection, tables, saved)


def fill(connection: sqlite3.Connection, tables: Tables, saved: Iterable[SavedTensor]) -> None:
    """Write all rows in one transaction."""
    connection.execute("BEGIN")
    for table, rows in all_rows(tables):
        insert(
            connection,
            table,
            ((row[0], None, row[2]) for row in rows) if table == "sources" else rows,
        )
    insert(connection, "saved_tensors", iter(saved_table(saved)))
    connection.execute("COMMIT")


def saved_table(tensors: Iterable[SavedTensor]) -> Iterable[tuple[Any, ...]]:
    """Return the rows of the table ``saved_tensors``, in the order of the schema's columns."""
    saved = list(tensors)
    columns: list[Iterable[Any]] = []
    for column in SAVED_TENSORS.columns:
        cells: Iterable[Any] = map(attrgetter(column.name), saved)
        if column.type not in ("id", "int"):
            cells = map(_cell_of, cells)
        columns.append(cells)
    return zip(*columns, strict=True)


_cell_of = lru_cache(maxsize=1024)(cell_of)  # thousands of values have a few dtypes and shapes


def new_database(path: Path) -> sqlite3.Connection:
    """Create an empty database with the schema.

    SQLite's safety measures are off, because the file is not read before the part is sealed.
    """
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


def write_journal(path: Path, packed: Streams) -> None:
    """Replace the journal that the program wrote to by a packed one. If this fails, the old file stays."""
    with layout.whole_file(path) as draft:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file, refusing_large_files():
            for piece in file_content(packed, getpid()):
                file.write(piece)
            file.flush()


def seal(part: Path, has_lost: bool = False) -> None:
    """Write the file ``done``, which marks a part as finished and lists its files, with a digest or size of each.

    With ``has_lost``, the file says that files of the part are lost, so that readers do not report them as missing.
    """
    content: dict[str, object] = {"format": layout.FORMAT}
    record = layout.record_path(part)
    if record is not None:
        content[record.name] = layout.digest_of(record)
    if has_lost:
        content[layout.HAS_LOST] = True
    for path in layout.shard_paths(part).values():
        content[path.name] = layout.plain_size(path)
    layout.write_whole(part / layout.DONE, json.dumps(content, indent=1).encode())


def _warn(problem: str) -> None:
    """Warn, but never stop a program that turns warnings into errors."""
    try:
        warnings.warn(f"torchglass: {problem}; the program goes on", RuntimeWarning, stacklevel=2)
    except Warning:
        pass
