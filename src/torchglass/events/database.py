"""The tables of a trace as an SQLite database, after the commented schema in schema.sql."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from torchglass.events.tables import NONE, Tables

FORMAT = 1
SCHEMA = files("torchglass.events").joinpath("schema.sql").read_text(encoding="utf-8")
TABLES = tuple(re.findall(r"CREATE TABLE (\w+)", SCHEMA))

Row = tuple[Any, ...]


def fill_database(tables: Tables) -> sqlite3.Connection:
    """A database in memory with all tables filled, then closed to writing."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.executescript(SCHEMA)
    for table, rows in table_rows(tables):
        first = next(rows, None)
        if first is None:
            continue
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(first))})"
        connection.execute(insert, first)
        connection.executemany(insert, rows)
    connection.commit()
    connection.execute("PRAGMA query_only = ON")
    connection.set_authorizer(_reading_only)
    return connection


def table_rows(tables: Tables) -> Iterator[tuple[str, Iterator[Row]]]:
    """Every table of the schema with its rows."""
    yield "trace", iter([_trace_row(tables)])
    yield "notes", ((number, text) for number, text in enumerate(tables.notes))
    yield "events", (_event_row(tables, number) for number in range(len(tables)))
    yield "event_values", _event_values(tables)
    yield "tensor_values", (_value_row(tables, number) for number in range(len(tables.value_meta)))
    yield "modules", ((n, row.root, row.path, row.name, row.detail) for n, row in enumerate(tables.modules))
    yield (
        "parameters",
        ((number, name, value) for number, row in enumerate(tables.modules) for name, value in row.parameters),
    )
    yield (
        "stacks",
        ((number, None if base == NONE else base) for number, base in enumerate(tables.stack_base)),
    )
    yield "frames", _frame_rows(tables)
    yield "sources", iter(tables.sources.items())


def _trace_row(tables: Tables) -> Row:
    return (
        FORMAT,
        tables.name,
        tables.process,
        tables.started_at,
        tables.duration_ns,
        int(tables.complete),
        json.dumps(tables.left_by),
    )


def _event_row(tables: Tables, number: int) -> Row:
    event = tables.event(number)
    module, stack = tables.module[number], tables.stack[number]
    return (
        event.id, event.kind, event.name, event.parent, event.thread, event.phase, event.start_ns, event.end_ns,
        None if module == NONE else module, event.call, event.args, event.result,
        None if stack == NONE else stack, event.owner, event.operator, event.code, int(event.direct),
        ", ".join(event.target), " | ".join(event.operands), event.file, event.line, event.key, event.error,
        event.note,
    )  # fmt: skip


def _event_values(tables: Tables) -> Iterator[Row]:
    for number in range(len(tables)):
        offset = tables.first_io[number]
        for direction, form in (("in", tables.args[number]), ("out", tables.result[number])):
            if form == NONE:
                continue
            for position, role in enumerate(tables.forms[form].roles):
                yield number, direction, position, role, tables.io[offset]
                offset += 1


def _value_row(tables: Tables, number: int) -> Row:
    value = tables.value(number, "")
    return (
        value.id, value.kind, _json(value.shape), value.dtype, value.device, _json(value.stride), value.layout,
        int(value.requires_grad), value.type, value.storage, value.version, value.producer,
    )  # fmt: skip


def _json(sizes: tuple[int, ...] | None) -> str | None:
    return None if sizes is None else json.dumps(list(sizes))


def _frame_rows(tables: Tables) -> Iterator[Row]:
    for number, sites in enumerate(tables.stack_sites):
        for position, site in enumerate(sites):
            at = tables.sites[site].location
            yield (
                number, position, at.file, at.line, at.end_line, at.col, at.end_col, at.function, at.source, at.origin
            )  # fmt: skip


_READING = {
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


def _reading_only(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
