"""Write the tables of a trace into an SQLite database, with the schema in schema.py.

``sql()`` queries such a database in memory, and an exported file has the same rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from torchglass.events import schema
from torchglass.events.schema import FORMAT, NONE, Column, Table
from torchglass.events.tables import Tables, form_sizes

MAX_PARAMETERS = 999
"""Number of parameters, ``?``, that every version of SQLite accepts in one statement."""
APPLICATION = 0x74676C73
"""``tgls``, the application id by which `file` and other tools recognise such a database."""
Row = tuple[Any, ...]


def fill_database(tables: Tables) -> sqlite3.Connection:
    """Return a read-only database in memory with all tables."""
    connection = _filled(tables)
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(_reading_only)
    return connection


def database_file(tables: Tables) -> bytes:
    """Return the same database as the content of a file, which any SQLite tool opens."""
    with contextlib.closing(_filled(tables)) as connection:
        connection.execute(f"PRAGMA user_version = {schema.FORMAT}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        return connection.serialize()


def _filled(tables: Tables) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.text_factory = decoded
    connection.executescript(schema.statements())
    for table, rows in all_rows(tables):
        insert(connection, table, rows)
    connection.commit()
    return connection


def all_rows(tables: Tables) -> Iterator[tuple[str, Iterator[Row]]]:
    """Yield every table of the schema that a trace has rows for, with its rows."""
    for table, rows in _ROWS.items():
        yield table, iter(rows(tables))


def insert(
    connection: sqlite3.Connection, table: str, rows: Iterator[Row], how: str = "INSERT"
) -> None:
    """Put rows into a table. ``how`` is ``INSERT`` or ``REPLACE``.

    Each statement has many rows. sqlite3 releases the GIL in each statement, and getting it back from a busy program
    took longer than storing a row.
    """
    first = next(rows, None)
    if first is None:
        return
    parameters = f"({', '.join('?' * len(first))})"
    statement = f"{how} INTO {table} VALUES "
    size = MAX_PARAMETERS // len(first)
    at_once = statement + ", ".join([parameters] * size)
    chunk = [first, *islice(rows, size - 1)]
    while len(chunk) == size:
        connection.execute(at_once, tuple(chain.from_iterable(chunk)))
        chunk = list(islice(rows, size))
    connection.executemany(statement + parameters, chunk)


def text(value: str | None) -> str | bytes | None:
    """Return text for SQLite. File names may have lone surrogates, which are not UTF-8: these are stored as bytes."""
    if value is None or value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def decoded(raw: bytes) -> str:
    """Return the text that SQLite has stored; the reverse of ``text``."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogatepass")


def encoded(source: str) -> bytes:
    """Return the bytes of a source text."""
    return source.encode("utf-8", "surrogatepass")


def digest(source: str) -> str:
    """Return the SHA-256 of a source text, under which a bundle stores it."""
    return hashlib.sha256(encoded(source)).hexdigest()


# ---------------------------------------------------------------- rows


def _trace(tables: Tables) -> Iterator[Row]:
    raised_at = [
        [frame.file, frame.line, frame.function, frame.source, frame.origin]
        for frame in tables.raised_at
    ]
    yield (
        FORMAT, text(tables.name), tables.process, tables.started_at, tables.duration_ns, int(tables.complete),
        json.dumps(tables.left_by), 1, json.dumps(raised_at), text(tables.python), text(tables.torch),
    )  # fmt: skip


def _numbers(table: Table) -> Callable[[Tables], Iterator[Row]]:
    """Return a function that yields the rows of a table of numbers.

    It zips whole columns, because building each row in Python took longer than storing it.
    """
    columns = table.columns[1:]

    def rows(tables: Tables) -> Iterator[Row]:
        count = len(getattr(tables, table.rows))
        return zip(
            range(count), *(_column(tables, column, count) for column in columns), strict=True
        )

    return rows


def _column(tables: Tables, column: Column, count: int) -> Iterable[Any]:
    if column.name == "io":
        return _id_lists(tables)
    entries: Any = ()
    if column.field:
        entries = getattr(tables, column.field)
    if column.field == "end_ns":
        return [
            None if end == NONE else end - begin
            for begin, end in zip(tables.start_ns, entries, strict=True)
        ]
    if column.type in ("int | None", "float | None") and not entries:
        return [None] * count
    if column.type == "int | None" and column.low == NONE:
        return [None if entry == NONE else entry for entry in entries]
    # SQLite stores NaN as NULL.
    return entries


def _id_lists(tables: Tables) -> list[str]:
    """Return the inputs and outputs of each event as JSON. A format string for each length makes that fast."""
    counts = form_sizes(tables)
    io = tuple(tables.io)
    lengths = [
        counts[args] + counts[result]
        for args, result in zip(tables.args, tables.result, strict=True)
    ]
    formats = {length: f"[{','.join(['%d'] * length)}]" for length in set(lengths)}
    return [
        formats[length] % io[first : first + length]
        for first, length in zip(tables.first_io, lengths, strict=True)
    ]


def _objects(table: Table) -> Callable[[Tables], Iterator[Row]]:
    """Return a function that yields the rows of a table of objects, which have a field for each column."""
    names = [column.name for column in table.columns[1:]]

    def rows(tables: Tables) -> Iterator[Row]:
        for number, item in enumerate(getattr(tables, table.rows)):
            yield number, *(cell_of(getattr(item, name)) for name in names)

    return rows


def cell_of(value: Any) -> Any:
    """Return a field in a form that SQLite can store."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, tuple):
        return json.dumps(value)
    return value


def _sites(tables: Tables) -> Iterator[Row]:
    for number, site in enumerate(tables.sites):
        at = site.location
        yield (
            number, text(at.file), at.line, at.end_line, at.col, at.end_col, text(at.function), text(at.source),
            at.origin, text(site.code), json.dumps(site.target), text(site.operator), text(site.problem),
        )  # fmt: skip


def _form_parts(tables: Tables) -> Iterator[Row]:
    for number, form in enumerate(tables.forms):
        for position, (piece, role) in enumerate(
            zip(form.pieces, (*form.roles, None), strict=True)
        ):
            yield number, position, text(piece), text(role)


def _numbered(texts: Iterable[str]) -> Iterator[Row]:
    return ((number, text(each)) for number, each in enumerate(texts))


_ROWS: dict[str, Callable[[Tables], Iterable[Row]]] = {
    "trace": _trace,
    "notes": lambda tables: _numbered(tables.notes),
    "event_rows": _numbers(schema.EVENT_ROWS),
    "value_rows": _numbers(schema.VALUE_ROWS),
    "stacks": _numbers(schema.STACKS),
    "modules": _objects(schema.MODULES),
    "parameters": lambda tables: (
        (number, text(name), value)
        for number, row in enumerate(tables.modules)
        for name, value in row.parameters
    ),
    "sources": lambda tables: (
        (text(file), text(each), digest(each)) for file, each in tables.sources.items()
    ),
    "whats": _objects(schema.WHATS),
    "forms": lambda tables: ((number, len(form.roles)) for number, form in enumerate(tables.forms)),
    "form_parts": _form_parts,
    "metas": _objects(schema.METAS),
    "threads": lambda tables: (
        (number, text(name), tables.process_of(number))
        for number, name in enumerate(tables.threads)
    ),
    "texts": lambda tables: _numbered(tables.texts),
    "operand_lists": lambda tables: (
        (number, json.dumps(each)) for number, each in enumerate(tables.operand_texts)
    ),
    "sites": _sites,
    "sketches": lambda tables: iter(sorted(tables.sketches.items())),
    "new_rounds": lambda tables: (
        (event, each.before, text(each.file), each.line, each.column)
        for event, rounds in sorted(tables.rounds.items())
        for each in rounds
    ),
    "stack_sites": lambda tables: (
        (number, position, site)
        for number, sites in enumerate(tables.stack_sites)
        for position, site in enumerate(sites)
    ),
}
"""The function that yields the rows of each table."""

_READING = {
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


def _reading_only(action: int, *_: Any) -> int:
    if action in _READING:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
