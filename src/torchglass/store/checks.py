"""Checks every cell and every number of a stored trace when it is read, so that all other code can rely on them."""

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
from torchglass.events.types import Location
from torchglass.store.layout import Unsound

T = TypeVar("T")
FRAMES = 50_000_000
"""The most frames that all stacks together may have. Stacks share frames in the file, so a small file could otherwise
fill the memory when the stacks are expanded."""


def int_of(cell: Any) -> int:
    """Read a cell that must hold a whole number."""
    if type(cell) is not int:
        raise Unsound("a cell that must hold a number holds something else")
    return cell


def text_of(cell: Any) -> str:
    """Read a cell that must hold text."""
    if type(cell) is str:
        return cell
    if type(cell) is bytes:
        return cell.decode("utf-8", "surrogatepass")
    raise Unsound("a cell that must hold text holds something else")


def text_or_none(cell: Any) -> str | None:
    """Read a cell that holds text or nothing."""
    if cell is None:
        return None
    return text_of(cell)


def texts_of(cell: Any) -> tuple[str, ...]:
    """Read a JSON list of texts."""
    return _all_of(str, cell)


def frames_of(cell: Any) -> tuple[Location, ...]:
    """Read a JSON list of frames: file, line, function, source line, origin."""
    found = json.loads(text_of(cell))
    if not isinstance(found, list) or not all(map(_is_frame, cast("list[Any]", found))):
        raise Unsound("trace.raised_at is not a list of frames")
    frames = cast("list[Any]", found)
    return tuple(Location(file, line, line, 0, 0, *rest) for file, line, *rest in frames)


def _is_frame(given: Any) -> bool:
    if not isinstance(given, list):
        return False
    words = cast("list[Any]", given)
    return list(map(type, words)) == [str, int, str, str, str] and words[4] in ORIGINS


def sizes_of(cell: Any) -> tuple[int, ...] | None:
    """Read a cell that holds a JSON list of sizes or nothing."""
    if cell is None:
        return None
    return _all_of(int, cell)


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
    """Append cells that must all hold numbers or nothing. An empty cell becomes NaN."""
    try:
        column.extend([nan if each is None else each for each in cells])
    except TypeError:
        raise Unsound("a cell that must hold a number holds something else") from None


def row_ids(ids: Sequence[Any], first: int, table: str) -> None:
    """Check that rows are numbered from ``first`` without a gap."""
    if list(ids) != list(range(first, first + len(ids))):
        raise Unsound(f"rows of {table} are missing or come twice")


def check_tables(tables: Tables) -> None:
    """Check that every number refers to an existing row, and that parents and bases come before their children."""
    for column in schema.NUMBERS:
        _check_numbers(tables, column)
    values = len(tables.value_meta)
    within("io", tables.io, 0, values)
    _check_places(tables)
    if not {callee.kind for callee in tables.callees} <= set(KINDS):
        raise Unsound("an event has an unknown kind")
    for module in tables.modules:
        if not all(0 <= value < values for _, value in module.parameters):
            raise Unsound("a parameter refers to a missing value")


def _check_numbers(tables: Tables, column: schema.Column) -> None:
    found = getattr(tables, column.field)
    if column.type == "float | None":
        return
    if column.is_back:
        _before_own(column.name, found)
    else:
        rows = ""
        if column.to:
            rows = schema.BY_NAME[column.to].rows
        within(column.name, found, column.low, len(getattr(tables, rows)) if rows else column.high)


def within(name: str, column: Sequence[int], low: int, high: int) -> None:
    """Check that ``low <= number < high`` holds for all numbers of a column."""
    if column and (min(column) < low or max(column) >= high):
        raise Unsound(f"a number in {name} points to nothing")


def _before_own(name: str, column: Sequence[int]) -> None:
    if column and (
        min(column) < NONE or not all(starmap(lt, zip(column, range(len(column)), strict=True)))
    ):
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
            raise Unsound("a place in the code has an impossible line, column or origin")
