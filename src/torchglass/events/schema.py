"""Declare the tables of a trace: each column once, with its type, the table it refers to, its range and its meaning.

Everything else is derived from these declarations: the columns of ``Tables`` in memory, the SQL statements, the checks
when a file is read, how the parts of a bundle are joined, and docs/format.md. To add a column, declare it here and fill
it where it is known. The SQL views over these tables, which use the words of the Python interface, are in views.sql.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, fields
from importlib.resources import files
from math import nan
from typing import Any, NamedTuple

from torchglass.events.column import (
    FORMAT,
    KINDS,
    MAX_TIME,
    NONE,
    ORIGINS,
    SQL,
    Column,
    cell,
    numbers,
    reals,
)
from torchglass.events.spelling import tensor_text
from torchglass.events.types import Location, Stats

# ---------------------------------------------------------------- columns of numbers, as Tables has them

# Each class declares the columns of one table. It inherits from the class before it for one reason only: so ``Tables``
# (events/tables.py), which inherits from the last, has the columns of all three tables as its fields.


@dataclass(slots=True)
class EventColumns:
    """One row for each event, in the order in which they began."""

    callee: array[int] = numbers("row of whats", name="what", to="whats")
    parent: array[int] = numbers(
        "an earlier row of event_rows, or -1", to="event_rows", none=True, is_back=True
    )
    thread: array[int] = numbers("row of threads", to="threads")
    backward: array[int] = numbers("1: in the backward pass", high=2)
    start_ns: array[int] = numbers("monotonic host clock", low=-MAX_TIME)
    # In memory this is the end; in the file it is the duration.
    end_ns: array[int] = numbers(
        "NULL when it had not ended", name="duration_ns", type="int | None", low=-MAX_TIME
    )
    module: array[int] = numbers("row of modules, or -1", to="modules", none=True)
    call: array[int] = numbers("module events: how often called before; else -1", none=True)
    stack: array[int] = numbers("row of stacks, or -1", to="stacks", none=True)
    owner: array[int] = numbers(
        "row of texts: Class.method of the innermost method of a module in the stack, or -1",
        to="texts",
        none=True,
    )
    operands: array[int] = numbers("row of operand_lists", to="operand_lists")
    direct: array[int] = numbers(
        "1: the expression at the innermost user frame made the call itself", high=2
    )
    args: array[int] = numbers("row of forms, or -1", to="forms", none=True)
    result: array[int] = numbers("row of forms, or -1", to="forms", none=True)
    occurrence: array[int] = numbers(
        "how many earlier events have the same module, place and callee"
    )
    error: array[int] = numbers("row of texts, or -1", to="texts", none=True)
    python_call: array[int] = numbers(
        "variables: the number of the Python call whose variable it is, or -1",
        none=True,
        counts_on=True,
        since=3,
    )
    forward: array[int] = numbers(
        "in backward: the row of event_rows that made the autograd node which was run, or -1", to="event_rows",
        none=True, since=4,
    )  # fmt: skip


@dataclass(slots=True)
class ValueColumns(EventColumns):
    """One row for each tensor at one version."""

    value_meta: array[int] = numbers("row of metas, or -1", to="metas", none=True)
    value_version: array[int] = numbers("in-place version counter, or -1", none=True)
    value_storage: array[int] = numbers(
        "equal numbers share memory; -1 not known", to="value_rows", none=True
    )
    value_producer: array[int] = numbers("row of event_rows, or -1", to="event_rows", none=True)
    value_measured: array[int] = numbers(
        "how its numbers were measured: 1 by numpy, 2 compiled, 3 by torch on its device, 4 by a kernel there; NULL: "
        "they were not", since=4, type="int | None", none=True,
    )  # fmt: skip
    value_count: array[int] = numbers(
        "how many numbers it holds", type="int | None", none=True, since=4
    )
    value_nan: array[int] = numbers("how many are NaN", type="int | None", none=True, since=4)
    value_posinf: array[int] = numbers("how many are +Inf", type="int | None", none=True, since=4)
    value_neginf: array[int] = numbers("how many are -Inf", type="int | None", none=True, since=4)
    value_zeros: array[int] = numbers("how many are 0", type="int | None", none=True, since=4)
    value_min: array[float] = reals("the smallest finite number", since=4)
    value_max: array[float] = reals("the largest finite number", since=4)
    value_mean: array[float] = reals("mean of the finite numbers", since=4)
    value_std: array[float] = reals("their standard deviation, of the population", since=4)
    value_norm: array[float] = reals("the square root of the sum of their squares", since=4)


@dataclass(slots=True)
class StackColumns(ValueColumns):
    """Stacks. A stack is another one, its base, and the frames that were called from there (stack_sites)."""

    stack_base: array[int] = numbers(
        "the stack that it continues, or NULL",
        to="stacks",
        type="int | None",
        none=True,
        is_back=True,
    )
    stack_user: array[int] = numbers(
        "row of sites: the innermost user frame of the whole stack, or NULL",
        to="sites",
        type="int | None",
        none=True,
    )


# ---------------------------------------------------------------- rows that are objects


@dataclass(frozen=True, slots=True)
class Callee:
    """What was called, without when and where."""

    kind: str = cell("module, function …", among=KINDS)
    name: str = cell("class, public name of the function, or the user's string")
    note: str | None = cell("what the reader should know", None)
    detail: str = cell(
        "of a variable: argument, assigned, deleted or changed (in place); of a gap: what was dropped, as JSON",
        "",
    )


@dataclass(frozen=True, slots=True)
class Form:
    """The arguments or results of a call: the role of each tensor, and the text around them."""

    roles: tuple[str, ...]
    pieces: tuple[str, ...]
    """The text before, between and after the tensors: one piece more than there are tensors."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What tensors of one kind have in common."""

    kind: str = cell("tensor")
    shape: tuple[int, ...] | None = cell("JSON list of sizes, or NULL")
    dtype: str = cell("float32")
    device: str = cell("cuda:0")
    stride: tuple[int, ...] | None = cell("JSON list, or NULL")
    layout: str = cell("strided, sparse_coo …")
    requires_grad: bool = cell("0 or 1")
    type: str = cell("Python class")
    word: str = cell("f32[8, 3]")

    @classmethod
    def of(
        cls, shape: tuple[int, ...] | None, dtype: str, device: str, stride: tuple[int, ...] | None, layout: str,
        requires_grad: bool, python_type: str, kind: str = "tensor",
    ) -> Meta:  # fmt: skip
        word = tensor_text(dtype, shape, kind)
        return cls(kind, shape, dtype, device, stride, layout, requires_grad, python_type, word)


@dataclass(frozen=True, slots=True)
class SiteNames:
    """Places in the code, and the source text there."""

    location: Location
    code: str = cell("the exact expression, or ''")
    target: tuple[str, ...] = cell("JSON list of the names the result is assigned to")
    operator: str | None = cell("@ + += [] …")
    problem: str | None = cell("why the source could not be read")


@dataclass(frozen=True, slots=True)
class ModulePath:
    """One row for each module under one path of one root."""

    root: str = cell("label of the root: its class, #2 when two share it")
    path: str = cell("'' is the root itself")
    name: str = cell("class")
    detail: str = cell("its settings, such as in_features=4, out_features=8")
    parameters: tuple[tuple[str, int], ...] = ()
    """Name and value id: rows of ``parameters``."""


# It is not frozen: there may be one for each value, and a frozen one takes five times as long to create.
@dataclass(slots=True)
class SavedTensor:
    """One row for each tensor whose content was kept."""

    id: int
    name: str = cell("given by the user, or ''")
    value: int = cell("row of tensor_values, or -1", to="value_rows", low=NONE)
    event: int = cell("row of events: the mark that saved it, or -1", to="event_rows", low=NONE)
    shard: int = cell("3 means the file tensors-0003.safetensors", high=10_000)
    offset: int = cell("of the first byte of its storage, from the beginning of the file")
    length: int = cell("bytes of its storage")
    dtype: str = cell("float32; the shard says U8 where safetensors has no name for it")
    shape: tuple[int, ...] = cell("JSON list")
    stride: tuple[int, ...] | None = cell("JSON list, counted in elements; NULL when contiguous")
    storage_offset: int = cell("elements before its first one in its storage")
    part: int = 0
    """The part of the bundle that it is in."""


# ---------------------------------------------------------------- the tables


class Table(NamedTuple):
    """One table of the database."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: str = ""
    """The primary key, if it has several columns."""
    rows: str = ""
    """The field of ``Tables`` that has as many entries as the table has rows."""

    def of_format(self, number: int) -> tuple[Column, ...]:
        """Return the columns that the table has in files of a format."""
        return tuple(column for column in self.columns if column.since <= number)


def cells(cls: type[Any]) -> tuple[Column, ...]:
    """Return the columns that a class declares whose objects are rows."""
    columns: list[Column] = []
    for declared in fields(cls):
        if "column" in declared.metadata:
            column: Column = declared.metadata["column"]
            columns.append(column._replace(name=declared.name, type=str(declared.type)))
    return tuple(columns)


def _columns(cls: type[Any], prefix: str = "") -> tuple[Column, ...]:
    """Return the columns of numbers that a class adds to those of its bases."""
    columns: list[Column] = []
    for declared in fields(cls):
        if declared.name in cls.__annotations__:
            column: Column = declared.metadata["column"]
            name = column.name or declared.name.removeprefix(prefix)
            columns.append(column._replace(name=name, field=declared.name))
    return tuple(columns)


def _id(meaning: str) -> Column:
    return Column("id", "id", meaning)


def _row(to: str, name: str = "") -> Column:
    return Column(name or to.removesuffix("s"), "int", f"row of {to}", to=to)


_LOCATION = (
    Column("file", "str", "file name"),
    Column("line", "int", "first line"),
    Column("end_line", "int", "last line"),
    Column("col", "int", "first column, from 0"),
    Column("end_col", "int", "the column after the last one"),
    Column("function", "str", "qualified name"),
    Column("source", "str", "the source line"),
    Column("origin", "str", "user, torch, stdlib, generated", among=ORIGINS),
)
_POSITION = Column("position", "int", "from 0")

TRACE = Table("trace", "One row: what the trace as a whole is.", (
    Column("format", "int", "version of this schema"),
    Column("name", "str", "the name given to record(), or ''"),
    Column("process", "int", "process id"),
    Column("started_at", "float", "seconds since 1970"),
    Column("duration_ns", "int", "from start to stop, host time"),
    Column("complete", "int", "0 while the recording is still running, and when its end was lost"),
    Column("left_by", "str", "JSON list: the exception that left the block, then what it was raised in answer to"),
    Column("linked", "int", "1: storage and producer of values are known"),
    Column("raised_at", "str", "JSON list: the frames from the block to where that exception was raised, each as "
           "[file, line, function, source line, origin]", since=7),
    Column("python", "str", "the version of Python that ran, or ''", since=8),
    Column("torch", "str", "the version of PyTorch that ran, or ''", since=8),
))  # fmt: skip
NOTES = Table("notes", "What was lost, not seen, or went wrong in the recorder itself.", (
    _id("order"), Column("text", "str", "the note"),
))  # fmt: skip
MODULES = Table(
    "modules",
    ModulePath.__doc__ or "",
    (_id("from 0, in order of first call"), *cells(ModulePath)),
    rows="modules",
)
PARAMETERS = Table("parameters", "The parameters a module has itself, not its children's; in order of rowid.", (
    _row("modules"),
    Column("name", "str", "weight"),
    Column("value", "int", "row of tensor_values; a shared parameter is the same value", to="value_rows"),
))  # fmt: skip
STACKS = Table(
    "stacks",
    StackColumns.__doc__ or "",
    (_id("from 0"), *_columns(StackColumns, "stack_")),
    rows="stack_sites",
)
SOURCES = Table("sources", "The user's source files that ran.", (
    Column("file", "str key", "file name"),
    Column("text", "str | None", "whole text; NULL in a bundle, which keeps it as the file sources/<sha256>.py"),
    Column("sha256", "str", "of the text in UTF-8"),
))  # fmt: skip
THREADS = Table("threads", "The threads that were recorded.", (
    _id("from 0, in order of first event"),
    Column("name", "str", "#2 is added when two share it"),
    Column("process", "int", "process id"),
), rows="threads")  # fmt: skip
SAVED_TENSORS = Table(
    "saved_tensors",
    SavedTensor.__doc__ or "",
    (_id("from 0, in order of saving"), *cells(SavedTensor)),
)
EVENT_ROWS = Table("event_rows", EventColumns.__doc__ or "", (
    _id("from 0, in order of opening"),
    *_columns(EventColumns),
    Column("io", "str", "JSON list of rows of value_rows: those it took, then those it gave"),
), rows="callee")  # fmt: skip
_OF_VALUES = _columns(ValueColumns, "value_")
VALUE_ROWS = Table("value_rows", ValueColumns.__doc__ or "", (
    _id("from 0, in order of first sight"),
    *_OF_VALUES[:4],
    Column("address", "int | None", "always NULL; earlier versions filled it"),
    Column("before", "int | None", "always NULL; earlier versions filled it"),
    *_OF_VALUES[4:],
), rows="value_meta")  # fmt: skip
WHATS = Table("whats", Callee.__doc__ or "", (_id("from 0"), *cells(Callee)), rows="callees")
FORMS = Table("forms", "The arguments or results of calls, without their tensors.", (
    _id("from 0"), Column("tensors", "int", "how many tensors it has places for"),
), rows="forms")  # fmt: skip
FORM_PARTS = Table("form_parts", "The text of a form, piece by piece, each but the last followed by a tensor.", (
    _row("forms"),
    _POSITION,
    Column("text", "str", "before the tensor; in the last row: after all of them"),
    Column("role", "str | None", "of the tensor; NULL in the last row"),
), key="form, position")  # fmt: skip
METAS = Table("metas", Meta.__doc__ or "", (_id("from 0"), *cells(Meta)), rows="metas")
TEXTS = Table(
    "texts",
    "The texts of errors, and the names of owners.",
    (_id("from 0"), Column("text", "str", "the text")),
    rows="texts",
)
OPERAND_LISTS = Table("operand_lists", "The source text of the tensor arguments of a call.", (
    _id("from 0"), Column("texts", "tuple[str, ...]", "JSON list"),
), rows="operand_texts")  # fmt: skip
SITES = Table(
    "sites", SiteNames.__doc__ or "", (_id("from 0"), *_LOCATION, *cells(SiteNames)), rows="sites"
)
STACK_SITES = Table("stack_sites", "The sites of a stack below its base, outermost first.", (
    _row("stacks"), _POSITION, _row("sites"),
), key="stack, position")  # fmt: skip

SKETCHES = Table("sketches", "Fingerprints of the numbers of values, where they were asked for.", (
    Column("value", "id", "row of value_rows", since=5),
    Column("sketch", "bytes", "hash of its bits (8 bytes; 0 where it is not known), 17 + 17 float32, 7 float64, count "
           "of what was not summed (8 bytes), in the machine's byte order; in format 5 it is another hash", since=5),
))  # fmt: skip
NEW_ROUNDS = Table("new_rounds", "Where an outer loop began a new round, if no stack shows that; in order of rowid.", (
    Column("event", "int", "row of event_rows: the first event in the round", since=8),
    Column("before", "int", "row of event_rows: an event that was still in the round before", since=8),
    Column("file", "str", "file name", since=8),
    Column("line", "int", "where the head of the loop assigns its first name", since=8),
    Column("col", "int", "the column of that, in bytes", since=8),
))  # fmt: skip
HASH_SINCE = 6
"""The first format whose sketches have the current hash."""

PUBLIC_TABLES = (TRACE, NOTES, MODULES, PARAMETERS, STACKS, SOURCES, THREADS, SAVED_TENSORS)
INTERNAL_TABLES = (
    EVENT_ROWS,
    VALUE_ROWS,
    WHATS,
    FORMS,
    FORM_PARTS,
    METAS,
    TEXTS,
    OPERAND_LISTS,
    SITES,
    STACK_SITES,
    SKETCHES,
    NEW_ROUNDS,
)
ALL = (*PUBLIC_TABLES, *INTERNAL_TABLES)
BY_NAME = {table.name: table for table in ALL}
EVENT_COLUMNS = tuple(each.field for each in EVENT_ROWS.columns if each.field)
"""The fields of ``Tables`` that have an entry for each event."""


# ---------------------------------------------------------------- SQL views and statements

SQL_VIEWS = files("torchglass.events").joinpath("views.sql").read_text(encoding="utf-8")
SQL_VIEW_NAMES = tuple(re.findall(r"^CREATE VIEW (\w+)", SQL_VIEWS, re.MULTILINE))
PUBLIC_NAMES = (*SQL_VIEW_NAMES, *(table.name for table in PUBLIC_TABLES))
"""The views and tables that users query. The internal tables hold the data of the views."""


def statement(table: Table, number: int = FORMAT) -> str:
    """Return the statement that creates a table, with a comment for each column."""
    columns = table.of_format(number)
    name_width = max(len(column.name) for column in columns)
    type_width = max(len(SQL[column.type]) for column in columns)
    lines = [f"CREATE TABLE {table.name} ("]
    for index, column in enumerate(columns):
        type_text = SQL[column.type]
        if index < len(columns) - 1 or table.key:
            type_text += ","
        lines.append(
            f"    {column.name:<{name_width}}  {type_text:<{type_width + 1}}  -- {column.meaning}"
        )
    if table.key:
        lines.append(f"    PRIMARY KEY ({table.key})")
        lines.append(") WITHOUT ROWID;")
    else:
        lines.append(");")
    return "\n".join(lines)


def statements(number: int = FORMAT) -> str:
    """Return the statements that create an empty database."""
    return "\n\n".join(
        [*(statement(table, number) for table in ALL if table.of_format(number)), SQL_VIEWS]
    )


MEASURED = tuple(
    column for column in VALUE_ROWS.columns if column.name in ("measured", *Stats._fields)
)
"""The columns of statistics. In memory they are all empty if no value was measured."""
MEASURED_FIELDS = tuple(column.field for column in MEASURED)
NOT_MEASURED = tuple(nan if column.type == "float | None" else NONE for column in MEASURED)
"""The entries of these columns for a value that was not measured."""
NUMBERS = tuple(
    column for table in (EVENT_ROWS, VALUE_ROWS, STACKS) for column in table.columns if column.field
)
"""All columns of numbers."""
