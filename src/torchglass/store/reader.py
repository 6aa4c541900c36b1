"""Read the SQLite rows of a part into ``Tables``, and check each number before it is used as an index."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from itertools import accumulate, chain
from operator import add
from typing import Any, cast

from torchglass.events import schema
from torchglass.events.column import FORMATS
from torchglass.events.database import decoded
from torchglass.events.schema import (
    NONE,
    Callee,
    Column,
    Form,
    Meta,
    ModulePath,
    SavedTensor,
    SiteNames,
    Table,
)
from torchglass.events.tables import NewRound, Tables, form_sizes
from torchglass.events.types import SKETCH, Location, without_hash
from torchglass.store.checks import (
    check_tables,
    frames_of,
    int_of,
    ints_of,
    reals_of,
    row_ids,
    sizes_of,
    text_of,
    text_or_none,
    texts_of,
    within,
)
from torchglass.store.layout import Unsound

Progress = Callable[[float], None]
"""Called with the share of the work that is done, from 0 to 1. It may go back if a part is read again."""
CHUNK_ROWS = 500
"""Number of rows read at a time. They are too few to trigger the garbage collector."""
EVENT_SHARE = 0.6
"""The share of the time that is spent on reading events. The rest is for values, checks and links."""


@dataclass
class PartContents:
    """The contents of a part."""

    tables: Tables
    digests: dict[str, str] = field(default_factory=dict[str, str])
    """The digest of the source text of each file."""
    tensors: list[SavedTensor] = field(default_factory=list[SavedTensor])
    format: int = schema.FORMAT


READERS: dict[str, Callable[[Any], Any]] = {
    "int": int_of,
    "bool": lambda cell: bool(int_of(cell)),
    "str": text_of,
    "str | None": text_or_none,
    "tuple[str, ...]": texts_of,
    "tuple[int, ...]": lambda cell: sizes_of(text_of(cell)),
    "tuple[int, ...] | None": sizes_of,
    "id": int_of,
}
"""The function that checks and converts the cells of a column, by the type of the column."""


def read_contents(connection: sqlite3.Connection, progress: Progress) -> PartContents:
    """Read everything in one part."""
    tables = Tables()
    contents = PartContents(tables)
    contents.format = _read_trace(connection, tables)
    _read_lists(connection, tables)
    _read_places(connection, tables)
    _read_events(connection, tables, contents.format, progress)
    _read_values(connection, tables, contents)
    if contents.format >= schema.NEW_ROUNDS.columns[0].since:
        tables.rounds = _read_rounds(connection, len(tables))
    tables.modules = _read_modules(connection)
    contents.digests = _read_digests(connection)
    contents.tensors = read_tensors(connection)
    check_tables(tables)
    _describe_unknown(tables)
    for saved in contents.tensors:
        if not (NONE <= saved.value < len(tables.value_meta) and NONE <= saved.event < len(tables)):
            raise Unsound(
                f"the saved tensor {saved.id} belongs to a value or event that is missing"
            )
    return contents


def _read_trace(connection: sqlite3.Connection, tables: Tables) -> int:
    """Read the table ``trace``, which describes the trace as a whole. Return its format."""
    rows = connection.execute("SELECT * FROM trace LIMIT 2").fetchall()
    if not rows:
        raise Unsound("the table trace has no row")
    if len(rows) > 1:
        raise Unsound("the table trace has more than one row")
    file_format, name, process, started_at, duration, complete, left_by, linked, *more = rows[0]
    if file_format not in FORMATS:
        raise Unsound(f"its rows have format {file_format!r}, which this version does not read")
    if linked != 1:
        raise Unsound("a version of before the first release left it without an end")
    if type(started_at) not in (int, float):
        raise Unsound("trace.started_at is not a number")
    tables.name = text_of(name)
    tables.process = int_of(process)
    tables.duration_ns = int_of(duration)
    tables.started_at = float(started_at)
    tables.complete = bool(int_of(complete))
    tables.left_by = texts_of(left_by)
    tables.raised_at = ()
    if more:
        tables.raised_at = frames_of(more[0])
    if len(more) > 1:
        tables.python = text_of(more[1])
        tables.torch = text_of(more[2])
    tables.notes = [text_of(text) for _, text in _rows(connection, "notes")]
    return int_of(file_format)


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table, numbered from 0 without a gap."""
    cursor = connection.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY id")
    for number, row in enumerate(cursor):
        if row[0] != number:
            raise Unsound(f"row {number} of {table} is missing")
        yield row


def _objects(connection: sqlite3.Connection, table: Table) -> Iterator[list[Any]]:
    """Yield the rows of a table, with each cell checked against the schema."""
    readers = [READERS[column.type] for column in table.columns[1:]]
    for row in _rows(connection, table.name):
        yield [read(cell) for read, cell in zip(readers, row[1:], strict=True)]


def _read_lists(connection: sqlite3.Connection, tables: Tables) -> None:
    tables.callees = [Callee(*cells) for cells in _objects(connection, schema.WHATS)]
    tables.forms = _read_forms(connection)
    tables.metas = [Meta(*cells) for cells in _objects(connection, schema.METAS)]
    processes: list[int] = []
    for name, process in _objects(connection, schema.THREADS):
        tables.threads.append(name)
        processes.append(process)
    if any(process != tables.process for process in processes):
        tables.thread_processes = processes
    tables.texts = [text for (text,) in _objects(connection, schema.TEXTS)]
    tables.operand_texts = [texts for (texts,) in _objects(connection, schema.OPERAND_LISTS)]


def _read_forms(connection: sqlite3.Connection) -> list[Form]:
    pieces: list[list[str]] = []
    roles: list[list[str]] = []
    counts: list[int] = []
    for _, tensors in _rows(connection, "forms"):
        counts.append(int_of(tensors))
        pieces.append([])
        roles.append([])
    query = "SELECT form, position, text, role FROM form_parts ORDER BY form, position"
    for form, position, text, role in connection.execute(query):
        if type(form) is not int or not 0 <= form < len(counts) or position != len(pieces[form]):
            raise Unsound("the pieces of the forms are not in order")
        pieces[form].append(text_of(text))
        if position < counts[form]:
            roles[form].append(text_of(role))
        elif role is not None:
            raise Unsound(f"form {form} has another number of tensors than it says")
    forms: list[Form] = []
    for number, count in enumerate(counts):
        if len(pieces[number]) != count + 1:
            raise Unsound(f"form {number} has another number of pieces than it needs")
        forms.append(Form(tuple(roles[number]), tuple(pieces[number])))
    return forms


def _read_places(connection: sqlite3.Connection, tables: Tables) -> None:
    count = len(fields(Location))
    for cells in _objects(connection, schema.SITES):
        tables.sites.append(SiteNames(Location(*cells[:count]), *cells[count:]))
    stacks: list[list[int]] = []
    for _, base, user in _rows(connection, "stacks"):
        tables.stack_base.append(_int_or_none(base))
        tables.stack_user.append(_int_or_none(user))
        stacks.append([])
    query = "SELECT stack, position, site FROM stack_sites ORDER BY stack, position"
    for stack, position, site in connection.execute(query):
        if type(stack) is not int or not 0 <= stack < len(stacks) or position != len(stacks[stack]):
            raise Unsound("the frames of the stacks are not in order")
        stacks[stack].append(int_of(site))
    tables.stack_sites = [tuple(sites) for sites in stacks]


def _int_or_none(cell: Any) -> int:
    """Read a cell that holds a whole number, or nothing for NONE."""
    if cell is None:
        return NONE
    return int_of(cell)


def _chunks(connection: sqlite3.Connection, query: str) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows of numbers in chunks, with text as bytes."""
    connection.text_factory = bytes
    try:
        cursor = connection.execute(query)
        while rows := cursor.fetchmany(CHUNK_ROWS):
            yield rows
    finally:
        connection.text_factory = decoded


def _numbers(table: Table, file_format: int) -> list[Column]:
    """Return the columns of numbers that files of a format have."""
    return [column for column in table.of_format(file_format) if column.field]


def _fill_missing(tables: Tables, table: Table, file_format: int) -> None:
    """Fill the columns that files of an earlier format do not have."""
    for column in table.columns:
        if column.field and column.since > file_format and column not in schema.MEASURED:
            count = len(getattr(tables, table.rows))
            setattr(tables, column.field, array("q", [NONE]) * count)


def _read_events(
    connection: sqlite3.Connection, tables: Tables, file_format: int, progress: Progress
) -> None:
    """Read the events by columns, so that a hundred thousand of them take less than a second."""
    declared = _numbers(schema.EVENT_ROWS, file_format)
    columns = [getattr(tables, column.field) for column in declared]
    names = [column.name for column in declared]
    if "duration_ns" in names:
        # The file has the duration of an event, and the tables its end.
        end = "CASE WHEN duration_ns IS NULL THEN -1 ELSE start_ns + duration_ns END"
        names[names.index("duration_ns")] = end
    query = f"SELECT id, {', '.join(names)}, io FROM event_rows NOT INDEXED ORDER BY id"
    lengths: list[int] = []
    (last,) = connection.execute("SELECT max(id) FROM event_rows").fetchone()
    for rows in _chunks(connection, query):
        ids, *cells_by_column, io = zip(*rows, strict=True)
        row_ids(ids, len(tables), "event_rows")
        for column, cells in zip(columns, cells_by_column, strict=True):
            ints_of(column, cells)
        lists = _id_lists(io)
        lengths += map(len, lists)
        ints_of(tables.io, chain.from_iterable(lists))
        progress(EVENT_SHARE * len(tables) / max(int_of(last), 1))
    _fill_missing(tables, schema.EVENT_ROWS, file_format)
    _index_values(tables, lengths)


def _index_values(tables: Tables, lengths: list[int]) -> None:
    """Fill ``first_io``, and check that each event has as many values as its forms need."""
    within("args", tables.args, NONE, len(tables.forms))
    within("result", tables.result, NONE, len(tables.forms))
    sizes = form_sizes(tables)
    inputs = map(sizes.__getitem__, tables.args)
    outputs = map(sizes.__getitem__, tables.result)
    if lengths != list(map(add, inputs, outputs)):
        raise Unsound("an event has more or fewer values than its form")
    tables.first_io = array("q", accumulate(lengths, initial=0))
    tables.first_io.pop()


def _id_lists(texts: tuple[Any, ...]) -> list[Any]:
    """Read many JSON lists at once."""
    lists: Any = json.loads(b"[%b]" % b",".join(texts))
    if type(lists) is not list or len(cast("list[Any]", lists)) != len(texts):
        raise Unsound("the values of an event are not a list")
    if set(map(type, cast("list[Any]", lists))) != {list}:
        raise Unsound("the values of an event are not a list")
    return cast("list[Any]", lists)


def _read_values(connection: sqlite3.Connection, tables: Tables, contents: PartContents) -> None:
    declared = [
        column
        for column in _numbers(schema.VALUE_ROWS, contents.format)
        if column not in schema.MEASURED
    ]
    names = ", ".join(column.name for column in declared)
    columns = [getattr(tables, column.field) for column in declared]
    for rows in _chunks(connection, f"SELECT id, {names} FROM value_rows NOT INDEXED ORDER BY id"):
        ids, *cells = zip(*rows, strict=True)
        row_ids(ids, len(tables.value_meta), "value_rows")
        for column, cell in zip(columns, cells, strict=True):
            ints_of(column, cell)
    _fill_missing(tables, schema.VALUE_ROWS, contents.format)
    if contents.format >= schema.MEASURED[0].since:
        _read_measured(connection, tables)
    if contents.format >= schema.SKETCHES.columns[0].since:
        tables.sketches = _read_sketches(connection, len(tables.value_meta), contents.format)


def _read_sketches(
    connection: sqlite3.Connection, values: int, file_format: int
) -> dict[int, bytes]:
    query = "SELECT value, sketch FROM sketches NOT INDEXED ORDER BY value"
    sketches: dict[int, bytes] = {}
    for value, sketch in connection.execute(query):
        has_size = type(sketch) is bytes and len(sketch) == SKETCH.size
        if not has_size or not 0 <= int_of(value) < values:
            raise Unsound("a fingerprint has the wrong size, or belongs to a missing value")
        if file_format < schema.HASH_SINCE:
            sketch = without_hash(sketch)
        sketches[value] = sketch
    return sketches


def _read_rounds(connection: sqlite3.Connection, events: int) -> dict[int, list[NewRound]]:
    rounds: dict[int, list[NewRound]] = {}
    query = "SELECT event, before, file, line, col FROM new_rounds NOT INDEXED ORDER BY rowid"
    for event, before, file, line, column in connection.execute(query):
        new = NewRound(int_of(before), text_of(file), int_of(line), int_of(column))
        if not 0 <= new.before < int_of(event) < events:
            raise Unsound("a round of a loop begins at a missing event")
        rounds.setdefault(event, []).append(new)
    return rounds


def _read_measured(connection: sqlite3.Connection, tables: Tables) -> None:
    """Read the statistics of values, if there are any."""
    query = "SELECT 1 FROM value_rows NOT INDEXED WHERE measured IS NOT NULL LIMIT 1"
    if connection.execute(query).fetchone() is None:
        return
    names = ", ".join(column.name for column in schema.MEASURED)
    for rows in _chunks(connection, f"SELECT {names} FROM value_rows NOT INDEXED ORDER BY id"):
        for column, cells in zip(schema.MEASURED, zip(*rows, strict=True), strict=True):
            if column.type == "float | None":
                reals_of(getattr(tables, column.field), cells)
            else:
                numbers = [NONE if cell is None else cell for cell in cells]
                ints_of(getattr(tables, column.field), numbers)


def _describe_unknown(tables: Tables) -> None:
    """Describe as unknown any value that was used but not yet described when its process died."""
    if NONE not in tables.value_meta:
        return
    unknown = len(tables.metas)
    tables.metas.append(Meta.of(None, "?", "?", None, "?", False, "?"))
    for value, meta in enumerate(tables.value_meta):
        if meta == NONE:
            tables.value_meta[value] = unknown


def _read_modules(connection: sqlite3.Connection) -> list[ModulePath]:
    parameters: dict[int, list[tuple[str, int]]] = {}
    last = None
    query = "SELECT rowid, module, name, value FROM parameters NOT INDEXED ORDER BY rowid"
    for row, module, name, value in connection.execute(query):
        if last is not None and row <= last:
            raise Unsound("the rows of parameters are not in order")
        last = row
        parameters.setdefault(int_of(module), []).append((text_of(name), int_of(value)))
    modules: list[ModulePath] = []
    for number, cells in enumerate(_objects(connection, schema.MODULES)):
        own = tuple(parameters.pop(number, ()))
        modules.append(ModulePath(*cells, parameters=own))
    if parameters:
        raise Unsound("a parameter belongs to no module")
    return modules


def _read_digests(connection: sqlite3.Connection) -> dict[str, str]:
    digests: dict[str, str] = {}
    query = "SELECT file, sha256 FROM sources NOT INDEXED ORDER BY rowid LIMIT 100000"
    for cell, digest in connection.execute(query):
        file = text_of(cell)
        if file in digests:
            raise Unsound("a source file comes twice")
        digests[file] = text_of(digest)
    return digests


def read_tensors(connection: sqlite3.Connection) -> list[SavedTensor]:
    """Read the rows of saved tensors. Their numbers may have gaps, if bytes were lost."""
    tensors: list[SavedTensor] = []
    for row in connection.execute("SELECT * FROM saved_tensors NOT INDEXED ORDER BY id"):
        if tensors and row[0] <= tensors[-1].id:
            raise Unsound("the rows of saved_tensors are not in order")
        tensors.append(_saved_tensor(row))
    return tensors


def _saved_tensor(row: tuple[Any, ...]) -> SavedTensor:
    cells = [
        READERS[column.type](cell)
        for column, cell in zip(schema.SAVED_TENSORS.columns, row, strict=True)
    ]
    saved = SavedTensor(*cells)
    check_saved(saved)
    return saved


def check_saved(saved: SavedTensor) -> None:
    """Check that the row of a tensor has possible sizes, and a possible shard."""
    sizes = saved.shape
    strides = saved.stride
    if min((saved.offset, saved.length, saved.storage_offset, *sizes, *(strides or ()))) < 0:
        raise Unsound(f"the saved tensor {saved.id} has a negative size")
    if not 0 <= saved.shard <= 9999 or (strides is not None and len(strides) != len(sizes)):
        raise Unsound(f"the saved tensor {saved.id} has no place")
