"""The tables of a trace as rows of an SQLite database, after the schema in schema.py.

The same rows go into memory for ``sql()`` and into the file of a bundle, so both can be asked in the same way.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from torchglass.events import schema
from torchglass.events.schema import FORMAT, NONE, Column, Table
from torchglass.events.tables import Tables, form_sizes

MOST_PLACES = 999
"""How many question marks every SQLite takes in one statement."""
Row = tuple[Any, ...]


def fill_database(tables: Tables) -> sqlite3.Connection:
    """A database in memory with all tables filled, then closed to writing."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.text_factory = decoded
    connection.executescript(schema.statements())
    for table, rows in all_rows(tables):
        insert(connection, table, rows)
    connection.commit()
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(_reading_only)
    return connection


def all_rows(tables: Tables) -> Iterator[tuple[str, Iterator[Row]]]:
    """Every table of the schema that a trace has rows for, with its rows."""
    for table, rows in _ROWS.items():
        yield table, iter(rows(tables))


def insert(connection: sqlite3.Connection, table: str, rows: Iterator[Row], how: str = "INSERT") -> None:
    """Put rows into a table; ``how`` may be ``REPLACE``.

    Many rows a statement: sqlite3 lets other threads run after each statement, and to get the interpreter back from
    a busy program took longer than to store the row.
    """
    first = next(rows, None)
    if first is None:
        return
    places = f"({', '.join('?' * len(first))})"
    statement = f"{how} INTO {table} VALUES "
    size = MOST_PLACES // len(first)
    at_once = statement + ", ".join([places] * size)
    chunk = [first, *islice(rows, size - 1)]
    while len(chunk) == size:
        connection.execute(at_once, tuple(chain.from_iterable(chunk)))
        chunk = list(islice(rows, size))
    connection.executemany(statement + places, chunk)


def text(value: str | None) -> str | bytes | None:
    """Text as SQLite takes it: names of files may hold lone surrogates, which are no UTF-8, so they go as bytes."""
    if value is None or value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def decoded(raw: bytes) -> str:
    """Text as it was before ``text``."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogatepass")


def encoded(source: str) -> bytes:
    """The bytes of a source text."""
    return source.encode("utf-8", "surrogatepass")


def digest(source: str) -> str:
    """The name under which a bundle keeps a source text."""
    return hashlib.sha256(encoded(source)).hexdigest()


# ---------------------------------------------------------------- rows


def _trace(tables: Tables) -> Iterator[Row]:
    yield (
        FORMAT, text(tables.name), tables.process, tables.started_at, tables.duration_ns, int(tables.complete),
        json.dumps(tables.left_by), 1,
        json.dumps([[each.file, each.line, each.function, each.source, each.origin] for each in tables.raised_at]),
    )  # fmt: skip


def _numbers(table: Table) -> Callable[[Tables], Iterator[Row]]:
    """Rows of numbers: whole columns side by side, since making each row in Python took longer than storing it."""
    columns = table.columns[1:]

    def rows(tables: Tables) -> Iterator[Row]:
        count = len(getattr(tables, table.rows))
        return zip(range(count), *(_column(tables, column, count) for column in columns), strict=True)

    return rows


def _column(tables: Tables, column: Column, count: int) -> Iterable[Any]:
    if column.name == "io":
        return _id_lists(tables)
    known: Any = getattr(tables, column.field) if column.field else ()
    if column.field == "end_ns":
        return [None if end == NONE else end - begin for begin, end in zip(tables.start_ns, known, strict=True)]
    if column.type in ("int | None", "float | None") and not known:
        return [None] * count
    if column.type == "int | None" and column.low == NONE:
        return [None if each == NONE else each for each in known]
    return known  # SQLite takes NaN for NULL


def _id_lists(tables: Tables) -> list[str]:
    """What the events took and gave, as JSON; as many formats as there are lengths."""
    counts, io = form_sizes(tables), tuple(tables.io)
    lengths = [counts[args] + counts[result] for args, result in zip(tables.args, tables.result, strict=True)]
    formats = {length: f"[{','.join(['%d'] * length)}]" for length in set(lengths)}
    return [
        formats[length] % io[first : first + length] for first, length in zip(tables.first_io, lengths, strict=True)
    ]


def _objects(table: Table) -> Callable[[Tables], Iterator[Row]]:
    """Rows that are objects in memory, with a field for each column."""
    names = [column.name for column in table.columns[1:]]

    def rows(tables: Tables) -> Iterator[Row]:
        for number, each in enumerate(getattr(tables, table.rows)):
            yield number, *(cell_of(getattr(each, name)) for name in names)

    return rows


def cell_of(value: Any) -> Any:
    """A field as SQLite takes it."""
    if isinstance(value, str):
        return text(value)
    return json.dumps(value) if isinstance(value, tuple) else value


def _sites(tables: Tables) -> Iterator[Row]:
    for number, site in enumerate(tables.sites):
        at = site.location
        yield (
            number, text(at.file), at.line, at.end_line, at.col, at.end_col, text(at.function), text(at.source),
            at.origin, text(site.code), json.dumps(site.target), text(site.operator), text(site.problem),
        )  # fmt: skip


def _form_parts(tables: Tables) -> Iterator[Row]:
    for number, form in enumerate(tables.forms):
        for position, (piece, role) in enumerate(zip(form.pieces, (*form.roles, None), strict=True)):
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
        (number, text(name), value) for number, row in enumerate(tables.modules) for name, value in row.parameters
    ),
    "sources": lambda tables: ((text(file), text(each), digest(each)) for file, each in tables.sources.items()),
    "whats": _objects(schema.WHATS),
    "forms": lambda tables: ((number, len(form.roles)) for number, form in enumerate(tables.forms)),
    "form_parts": _form_parts,
    "metas": _objects(schema.METAS),
    "threads": lambda tables: (
        (number, text(name), tables.process_of(number)) for number, name in enumerate(tables.threads)
    ),
    "texts": lambda tables: _numbered(tables.texts),
    "operand_lists": lambda tables: ((number, json.dumps(each)) for number, each in enumerate(tables.operand_texts)),
    "sites": _sites,
    "sketches": lambda tables: iter(sorted(tables.sketches.items())),
    "stack_sites": lambda tables: (
        (number, position, site)
        for number, sites in enumerate(tables.stack_sites)
        for position, site in enumerate(sites)
    ),
}
"""By table: what makes its rows."""

_READING = {
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


def _reading_only(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
