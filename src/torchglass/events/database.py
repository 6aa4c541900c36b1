"""The tables of a trace as rows of an SQLite database, after the commented schema in schema.sql.

The same rows go into memory for ``sql()`` and into the file of a bundle, so both can be asked in the same way.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import chain, islice
from typing import Any

from torchglass.events.links import form_sizes
from torchglass.events.tables import NONE, Tables

FORMAT = 3
FORMATS = (2, 3)
"""What is written, and what is read."""
SCHEMA = files("torchglass.events").joinpath("schema.sql").read_text(encoding="utf-8")
TABLES, COMPACT = (
    tuple(re.findall(r"^CREATE (?:TABLE|VIEW) (\w+)", part, re.MULTILINE))
    for part in SCHEMA.split("-- PART Behind the views")
)
"""What people ask; and what stands behind the views of it."""

MOST_PLACES = 999
"""How many question marks every SQLite takes in one statement."""
Row = tuple[Any, ...]
Rows = Callable[[Tables, int], Iterator[Row]]
"""The rows of a table that were added to the tables since there were this many."""


def fill_database(tables: Tables) -> sqlite3.Connection:
    """A database in memory with all tables filled, then closed to writing."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.text_factory = decoded
    connection.executescript(SCHEMA)
    for table, rows in all_rows(tables):
        insert(connection, table, rows)
    connection.commit()
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(_reading_only)
    return connection


def all_rows(tables: Tables) -> Iterator[tuple[str, Iterator[Row]]]:
    """Every table of the schema that has rows, with its rows."""
    yield "trace", iter([trace_row(tables, tables.complete, not tables.value_address)])
    yield "notes", note_rows(tables)
    yield "event_rows", event_rows(tables)
    yield "value_rows", value_rows(tables)
    yield "modules", (module_row(tables, number) for number in range(len(tables.modules)))
    yield "parameters", (row for number in range(len(tables.modules)) for row in parameter_rows(tables, number))
    yield "sources", ((text(file), text(source), digest(source)) for file, source in tables.sources.items())
    for table, (_, rows) in GROWING.items():
        yield table, rows(tables, 0)


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


# One row at a time


def trace_row(tables: Tables, complete: bool, linked: bool) -> Row:
    """The row that says what the trace is."""
    return (
        FORMAT,
        text(tables.name),
        tables.process,
        tables.started_at,
        tables.duration_ns,
        int(complete),
        json.dumps(tables.left_by),
        int(linked),
    )


def note_rows(tables: Tables) -> Iterator[Row]:
    """The notes; they may be written anew."""
    return ((number, text(note)) for number, note in enumerate(tables.notes))


def module_row(tables: Tables, number: int) -> Row:
    """A module; it may be written anew."""
    row = tables.modules[number]
    return number, text(row.root), text(row.path), text(row.name), text(row.detail)


def parameter_rows(tables: Tables, module: int) -> Iterator[Row]:
    """The parameters of one module."""
    return ((module, text(name), value) for name, value in tables.modules[module].parameters)


def event_rows(tables: Tables, start: int = 0, offset: int = 0) -> Iterator[Row]:
    """Events from the ``start``-th in the tables on; ``offset`` is the id of the first one that the tables hold.

    Whole columns side by side: making each row in Python took longer than SQLite takes to store it.
    """
    begins, ends = tables.start_ns[start:], tables.end_ns[start:]
    return zip(
        range(start + offset, len(tables) + offset), tables.what[start:], tables.parent[start:], tables.thread[start:],
        tables.backward[start:], begins,
        [None if end == NONE else end - begin for begin, end in zip(begins, ends, strict=True)],
        tables.module[start:], tables.call[start:], tables.stack[start:], tables.owner[start:],
        tables.operands[start:], tables.direct[start:], tables.args[start:], tables.result[start:],
        tables.occurrence[start:], tables.error[start:], _id_lists(tables, start),
        strict=True,
    )  # fmt: skip


def _id_lists(tables: Tables, start: int) -> list[str]:
    """What the events took and gave, each as ``id_list`` spells it; as many formats as there are lengths."""
    counts, firsts = form_sizes(tables), tables.first_io[start:]
    below = min(firsts, default=0)
    io = tuple(tables.io[below:])
    lengths = [
        counts[args] + counts[result] for args, result in zip(tables.args[start:], tables.result[start:], strict=True)
    ]
    formats = {length: f"[{','.join(['%d'] * length)}]" for length in set(lengths)}
    return [
        formats[length] % io[first - below : first - below + length]
        for first, length in zip(firsts, lengths, strict=True)
    ]


def id_list(ids: list[int]) -> str:
    """A JSON list; a list of ints is spelt the same in Python, and quicker."""
    return str(ids).replace(" ", "")


def value_row(tables: Tables, number: int) -> Row:
    """One value; it may be written anew."""
    raw = (tables.value_address[number], tables.value_before[number]) if tables.value_address else (None, None)
    return (
        number, tables.value_meta[number], tables.value_version[number], tables.value_storage[number],
        tables.value_producer[number], *raw,
    )  # fmt: skip


def value_rows(tables: Tables, start: int = 0) -> Iterator[Row]:
    """Values from the ``start``-th on; address and the value before only where links are not known yet."""
    raw = tables.value_address
    return zip(
        range(start, len(tables.value_meta)),
        tables.value_meta[start:],
        tables.value_version[start:],
        tables.value_storage[start:],
        tables.value_producer[start:],
        raw[start:] if raw else [None] * (len(tables.value_meta) - start),
        tables.value_before[start:] if raw else [None] * (len(tables.value_meta) - start),
        strict=True,
    )


# Tables that only grow


def _whats(tables: Tables, start: int) -> Iterator[Row]:
    for number, what in enumerate(tables.whats[start:], start):
        yield number, what.kind, text(what.name), text(what.note), text(what.detail)


def _forms(tables: Tables, start: int) -> Iterator[Row]:
    return ((number, len(form.roles)) for number, form in enumerate(tables.forms[start:], start))


def _form_parts(tables: Tables, start: int) -> Iterator[Row]:
    for number, form in enumerate(tables.forms[start:], start):
        for position, (piece, role) in enumerate(zip(form.pieces, (*form.roles, None), strict=True)):
            yield number, position, text(piece), text(role)


def _metas(tables: Tables, start: int) -> Iterator[Row]:
    for number, meta in enumerate(tables.metas[start:], start):
        yield (
            number, text(meta.kind), _sizes(meta.shape), text(meta.dtype), text(meta.device), _sizes(meta.stride),
            text(meta.layout), int(meta.requires_grad), text(meta.type), text(meta.word),
        )  # fmt: skip


def _sizes(sizes: tuple[int, ...] | None) -> str | None:
    return None if sizes is None else json.dumps(sizes)


def _threads(tables: Tables, start: int) -> Iterator[Row]:
    for number, name in enumerate(tables.threads[start:], start):
        yield number, text(name), tables.process_of(number)


def _texts(tables: Tables, start: int) -> Iterator[Row]:
    return ((number, text(each)) for number, each in enumerate(tables.texts[start:], start))


def _operand_lists(tables: Tables, start: int) -> Iterator[Row]:
    return ((number, json.dumps(each)) for number, each in enumerate(tables.operand_texts[start:], start))


def _sites(tables: Tables, start: int) -> Iterator[Row]:
    for number, site in enumerate(tables.sites[start:], start):
        at = site.location
        yield (
            number, text(at.file), at.line, at.end_line, at.col, at.end_col, text(at.function), text(at.source),
            at.origin, text(site.code), json.dumps(site.target), text(site.operator), text(site.problem),
        )  # fmt: skip


def _stacks(tables: Tables, start: int) -> Iterator[Row]:
    for number, (base, user) in enumerate(
        zip(tables.stack_base[start:], tables.stack_user[start:], strict=True), start
    ):
        yield number, None if base == NONE else base, None if user == NONE else user


def _stack_sites(tables: Tables, start: int) -> Iterator[Row]:
    for number, sites in enumerate(tables.stack_sites[start:], start):
        for position, site in enumerate(sites):
            yield number, position, site


GROWING: dict[str, tuple[str, Rows]] = {
    "whats": ("whats", _whats),
    "forms": ("forms", _forms),
    "form_parts": ("forms", _form_parts),
    "metas": ("metas", _metas),
    "threads": ("threads", _threads),
    "texts": ("texts", _texts),
    "operand_lists": ("operand_texts", _operand_lists),
    "sites": ("sites", _sites),
    "stacks": ("stack_sites", _stacks),
    "stack_sites": ("stack_sites", _stack_sites),
}
"""By table: the field of ``Tables`` whose length counts its rows' subjects, and what makes the rows."""

_READING = {
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


def _reading_only(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
