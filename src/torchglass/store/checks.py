"""What every cell and every number of a stored trace must be, checked in the one place where they come in."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from itertools import starmap
from math import nan
from operator import lt
from typing import Any, TypeVar, cast

from torchglass.events import schema
from torchglass.events.schema import KINDS, NONE, ORIGINS
from torchglass.events.tables import Tables
from torchglass.store.layout import Unsound

T = TypeVar("T")
FRAMES = 50_000_000
"""The most frames that all stacks together may have when they are written out."""


def int_of(cell: Any) -> int:
    """A cell that must hold a whole number."""
    if type(cell) is not int:
        raise Unsound("text stands where a number should")
    return cell


def text_of(cell: Any) -> str:
    """A cell that must hold text."""
    if type(cell) is str:
        return cell
    if type(cell) is bytes:
        return cell.decode("utf-8", "surrogatepass")
    raise Unsound("no text stands where some should")


def text_or_none(cell: Any) -> str | None:
    """A cell that may be empty."""
    return None if cell is None else text_of(cell)


def texts_of(cell: Any) -> tuple[str, ...]:
    """A JSON list of texts."""
    return _all_of(str, cell)


def sizes_of(cell: Any) -> tuple[int, ...] | None:
    """A JSON list of sizes, or nothing."""
    return None if cell is None else _all_of(int, cell)


def _all_of(kind: type[T], cell: Any) -> tuple[T, ...]:
    found = json.loads(text_of(cell))
    items = cast("list[Any]", found if isinstance(found, list) else [None])
    if not all(type(each) is kind for each in items):
        raise Unsound(f"no list of {kind.__name__} stands where one should")
    return tuple(items)


def ints_of(column: array[int], cells: Iterable[Any]) -> None:
    """Append cells that must all hold whole numbers."""
    try:
        column.extend(cells)
    except (TypeError, OverflowError):
        raise Unsound("text stands where a number should") from None


def reals_of(column: array[float], cells: Iterable[Any]) -> None:
    """Append cells that must all hold numbers or nothing, which is NaN."""
    try:
        column.extend([nan if each is None else each for each in cells])
    except TypeError:
        raise Unsound("text stands where a number should") from None


def row_ids(ids: Sequence[Any], first: int, table: str) -> None:
    """Rows are numbered without a gap."""
    if list(ids) != list(range(first, first + len(ids))):
        raise Unsound(f"rows of {table} are missing or come twice")


def check_tables(tables: Tables) -> None:
    """Every number points to something that is there; parents and bases come before what hangs on them."""
    for table in (schema.EVENT_ROWS, schema.VALUE_ROWS, schema.STACKS):
        for column in table.columns:
            if column.field:
                _check_numbers(tables, column)
    values = len(tables.value_meta)
    within("io", tables.io, 0, values)
    within("before", tables.value_before, -1 - values, values)
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
        if at.origin not in ORIGINS or max(at.line, at.end_line, at.col, at.end_col) >= 1 << 31:
            raise Unsound("a place in the code makes no sense")
        if min(at.line, at.end_line, at.col, at.end_col) < -1:
            raise Unsound("a place in the code makes no sense")
