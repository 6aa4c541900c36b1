"""What every cell and every number of a stored trace must be, checked in the one place where they come in."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from array import array
from collections.abc import Generator, Iterable, Sequence
from functools import cache
from itertools import starmap
from math import nan
from operator import lt
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

from torchglass.events import schema
from torchglass.events.column import FORMATS
from torchglass.events.database import decoded
from torchglass.events.schema import FORMAT, KINDS, NONE, ORIGINS, statements
from torchglass.events.tables import Tables
from torchglass.events.types import Location
from torchglass.store.layout import EVENTS, EVENTS_FILE, Unsound, plain_size

T = TypeVar("T")
FRAMES = 50_000_000
"""The most frames that all stacks together may have when they are written out."""


def int_of(cell: Any) -> int:
    """A cell that must hold a whole number."""
    if type(cell) is not int:
        raise Unsound("a cell that must hold a number holds something else")
    return cell


def text_of(cell: Any) -> str:
    """A cell that must hold text."""
    if type(cell) is str:
        return cell
    if type(cell) is bytes:
        return cell.decode("utf-8", "surrogatepass")
    raise Unsound("a cell that must hold text holds something else")


def text_or_none(cell: Any) -> str | None:
    """A cell that may be empty."""
    return None if cell is None else text_of(cell)


def texts_of(cell: Any) -> tuple[str, ...]:
    """A JSON list of texts."""
    return _all_of(str, cell)


def frames_of(cell: Any) -> tuple[Location, ...]:
    """A JSON list of frames: file, line, function, source line, origin."""
    found = json.loads(text_of(cell))
    frames = cast("list[Any]", found if isinstance(found, list) else [None])
    kinds = [list(map(type, cast("list[Any]", each))) if isinstance(each, list) else [] for each in frames]
    if any(each != [str, int, str, str, str] for each in kinds) or any(each[4] not in ORIGINS for each in frames):
        raise Unsound("trace.raised_at is no list of frames")
    return tuple(Location(file, line, line, 0, 0, *rest) for file, line, *rest in frames)


def sizes_of(cell: Any) -> tuple[int, ...] | None:
    """A JSON list of sizes, or nothing."""
    return None if cell is None else _all_of(int, cell)


def _all_of(kind: type[T], cell: Any) -> tuple[T, ...]:
    found = json.loads(text_of(cell))
    items = cast("list[Any]", found if isinstance(found, list) else [None])
    if not all(type(each) is kind for each in items):
        raise Unsound(f"a cell that must hold a list of {kind.__name__} holds something else")
    return tuple(items)


def ints_of(column: array[int], cells: Iterable[Any]) -> None:
    """Append cells that must all hold whole numbers."""
    try:
        column.extend(cells)
    except (TypeError, OverflowError):
        raise Unsound("a cell that must hold a number holds something else") from None


def reals_of(column: array[float], cells: Iterable[Any]) -> None:
    """Append cells that must all hold numbers or nothing, which is NaN."""
    try:
        column.extend([nan if each is None else each for each in cells])
    except TypeError:
        raise Unsound("a cell that must hold a number holds something else") from None


def row_ids(ids: Sequence[Any], first: int, table: str) -> None:
    """Rows are numbered without a gap."""
    if list(ids) != list(range(first, first + len(ids))):
        raise Unsound(f"rows of {table} are missing or come twice")


def check_tables(tables: Tables) -> None:
    """Every number points to something that is there; parents and bases come before what hangs on them."""
    for column in schema.NUMBERS:
        _check_numbers(tables, column)
    values = len(tables.value_meta)
    within("io", tables.io, 0, values)
    _check_places(tables)
    if not {what.kind for what in tables.whats} <= set(KINDS):
        raise Unsound("an event is of a kind that is not known here")
    for module in tables.modules:
        if not all(0 <= value < values for _, value in module.parameters):
            raise Unsound("a parameter is a value that is not there")


def _check_numbers(tables: Tables, column: schema.Column) -> None:
    found = getattr(tables, column.field)
    if column.type == "float | None":
        return
    if column.is_back:
        _before_own(column.name, found)
    else:
        rows = schema.BY_NAME[column.to].rows if column.to else ""
        within(column.name, found, column.low, len(getattr(tables, rows)) if rows else column.high)


def within(name: str, column: Sequence[int], low: int, high: int) -> None:
    """All numbers from ``low`` to before ``high``."""
    if column and (min(column) < low or max(column) >= high):
        raise Unsound(f"a number in {name} points to nothing")


def _before_own(name: str, column: Sequence[int]) -> None:
    if column and (min(column) < NONE or not all(starmap(lt, zip(column, range(len(column)), strict=True)))):
        raise Unsound(f"a number in {name} does not point back")


def _check_places(tables: Tables) -> None:
    depths: list[int] = []
    for base, sites in zip(tables.stack_base, tables.stack_sites, strict=True):
        within("site", sites, 0, len(tables.sites))
        depths.append(len(sites) + (depths[base] if base != NONE else 0))
    if sum(depths) > FRAMES:
        raise Unsound(f"its stacks have more than {FRAMES:,} frames")
    for site in tables.sites:
        at = site.location
        numbers = (at.line, at.end_line, at.col, at.end_col)
        if at.origin not in ORIGINS or min(numbers) < -1 or max(numbers) >= 1 << 31:
            raise Unsound("a place in the code has a line, column or origin that cannot be")


# ---------------------------------------------------------------- opening

# Opening the events of a part without trusting the file: read-only, within limits, and only tables we made.

LONGEST_TEXT = 1 << 26


@contextlib.contextmanager
def opened(part: Path) -> Generator[sqlite3.Connection | None]:
    """The events of a part, which nobody writes any more; None when there is nothing in the file."""
    path = part / EVENTS
    size = plain_size(path)
    if not size:
        yield None
        return
    if size > EVENTS_FILE:
        raise Unsound(f"it has {size:,} bytes, and at most {EVENTS_FILE:,} make sense")
    address = f"file:{quote(str(path))}?mode=ro&immutable=1"
    with contextlib.closing(
        sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    ) as connection:
        distrust(connection)
        yield connection if check_schema(connection) else None


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
            raise Unsound("its list of tables has a name that is no text, or a table twice")
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
