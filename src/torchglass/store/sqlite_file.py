"""Opens the SQLite file of a part, which may come from anyone: read-only, with limits, and only our schema's tables."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Generator
from functools import cache
from pathlib import Path
from urllib.parse import quote

from torchglass.events.column import FORMATS
from torchglass.events.database import decoded
from torchglass.events.schema import FORMAT, statements
from torchglass.store.layout import EVENTS, EVENTS_FILE, Unsound, plain_size

LONGEST_TEXT = 1 << 26
"""The most bytes of one cell, 64 MiB. A larger cell in a damaged or hostile file could fill the memory."""


@contextlib.contextmanager
def opened(part: Path) -> Generator[sqlite3.Connection | None]:
    """Open the database of a finished part. Yield None if the file is empty or has no tables."""
    path = part / EVENTS
    size = plain_size(path)
    if not size:
        yield None
        return
    if size > EVENTS_FILE:
        raise Unsound(f"it has {size:,} bytes, but at most {EVENTS_FILE:,} are allowed")
    address = f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1"
    with contextlib.closing(
        sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    ) as connection:
        distrust(connection)
        yield connection if check_schema(connection) else None


def distrust(connection: sqlite3.Connection) -> None:
    """Set up a connection so that the file cannot run code, cannot be written to and cannot return a huge text."""
    connection.text_factory = decoded
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for pragma in (
        "trusted_schema = OFF",
        "cell_size_check = ON",
        "query_only = ON",
        "mmap_size = 0",
    ):
        connection.execute(f"PRAGMA {pragma}")


def check_schema(connection: sqlite3.Connection) -> bool:
    """Return False if the file has no tables. Raise ``Unsound`` unless its tables are exactly those that we make.

    So a table with a computed column, or a view in place of a table, is rejected. Other objects in the file, such as
    an index or view that a user added, are never read.
    """
    found: dict[str, str] = {}
    for kind, name, sql in connection.execute(
        "SELECT type, name, sql FROM sqlite_master LIMIT 10000"
    ):
        if type(name) is not str or (kind == "table" and (type(sql) is not str or name in found)):
            raise Unsound("its list of tables has a name that is not a text, or a table twice")
        if kind == "table":
            found[name] = sql
    if not found:
        return False
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise Unsound(
            f"it has format {version}, but this version reads only up to {FORMAT}: update torchglass"
        )
    if version not in FORMATS:
        raise Unsound(f"it has format {version}, which this version does not read")
    for name, sql in expected_tables(version).items():
        if bare(found.get(name, "")) != sql:
            raise Unsound(
                f"the table {name} is {'missing' if name not in found else 'not the one that this version writes'}"
            )
    return True


@cache
def expected_tables(number: int) -> dict[str, str]:
    """Return the SQL statement of each table in files of a format, without comments."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(statements(number))
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
    return {name: bare(sql) for name, sql in rows}


def bare(sql: str) -> str:
    """Return a statement without its comments and line breaks, which may differ between versions."""
    return " ".join(re.sub(r"--[^\n]*", "", sql).split())
