"""Opening the events of a part without trusting the file: read-only, within limits, and only tables we made."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path
from urllib.parse import quote

from torchglass.events.column import FORMATS
from torchglass.events.database import decoded
from torchglass.events.schema import FORMAT, statements
from torchglass.store.layout import EVENTS, EVENTS_FILE, Unsound, plain_size

LONGEST_TEXT = 1 << 26
WAIT_SECONDS = 10.0
BESIDE = ("-wal", "-journal")
"""What SQLite keeps beside a database that is being written."""


@contextlib.contextmanager
def opened(part: Path, finished: bool) -> Generator[sqlite3.Connection | None]:
    """One consistent look at the events of a part; None when nothing was written yet.

    A part that is being written, or was when its process died, is read with what SQLite keeps beside it. Where that
    cannot be done without writing (a journal to be played back, a read-only folder), a copy is read instead.
    """
    path = part / EVENTS
    if not _check_files(path):
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(_connected(path, "mode=ro&immutable=1" if finished else "mode=ro"))
        except sqlite3.OperationalError:
            if finished:
                raise
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torchglass-")))
            connection = stack.enter_context(_connected(_copied(path, folder), "mode=rw"))
        yield connection if check_schema(connection) else None


def _check_files(path: Path) -> bool:
    """Whether there is something to open; everything SQLite will touch is a plain file of bounded size."""
    size = plain_size(path)
    for suffix in (*BESIDE, "-shm"):
        beside = plain_size(path.with_name(path.name + suffix))
        if beside is not None and beside > EVENTS_FILE:
            raise Unsound(f"{beside:,} bytes beside it are more than make sense")
    if size is None:
        return False
    if size > EVENTS_FILE:
        raise Unsound(f"it has {size:,} bytes, and at most {EVENTS_FILE:,} make sense")
    return size > 0 or bool(plain_size(path.with_name(path.name + "-wal")))


def _copied(path: Path, folder: Path) -> Path:
    for suffix in ("", *BESIDE):
        beside = path.with_name(path.name + suffix)
        if plain_size(beside) is not None:
            shutil.copyfile(beside, folder / beside.name)
    return folder / path.name


@contextlib.contextmanager
def _connected(path: Path, how: str) -> Generator[sqlite3.Connection]:
    address = f"file:{quote(str(path))}?{how}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=WAIT_SECONDS, check_same_thread=False)
    try:
        distrust(connection)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield connection
    finally:
        connection.close()


def distrust(connection: sqlite3.Connection) -> None:
    """Let nothing in the file run, nothing be written, and no text grow beyond bounds."""
    connection.text_factory = decoded
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")


def check_schema(connection: sqlite3.Connection) -> bool:
    """Whether the tables are there; each must be the table we make: no view, no trigger, no computed column.

    What else is in the file (a user's own index or view) is never read.
    """
    found: dict[str, str] = {}
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master LIMIT 10000"):
        if type(name) is not str or (kind == "table" and (type(sql) is not str or name in found)):
            raise Unsound("its list of tables makes no sense")
        if kind == "table":
            found[name] = sql
    if not found:
        return False
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise Unsound(f"it has format {version}, and up to {FORMAT} is read here: update torchglass")
    if version not in FORMATS:
        raise Unsound(f"it has format {version}, which is not read here")
    for name, sql in expected_tables(version).items():
        if bare(found.get(name, "")) != sql:
            raise Unsound(f"the table {name} is {'missing' if name not in found else 'another than is made here'}")
    return True


@cache
def expected_tables(number: int) -> dict[str, str]:
    """The statement of each table in files of a format, without comments."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(statements(number))
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    return {name: bare(sql) for name, sql in rows}


def bare(sql: str) -> str:
    """A statement without its comments, which may be worded otherwise in another version."""
    return " ".join(re.sub(r"--[^\n]*", "", sql).split())
