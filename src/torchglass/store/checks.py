"""Checks every cell and every number of a stored trace when it is read, so that all other code can rely on them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
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
    frames = json.loads(text_of(cell))
    if not isinstance(frames, list):
        raise Unsound("trace.raised_at is not a list of frames")
    return tuple(map(_frame_of, cast("list[Any]", frames)))


def _frame_of(item: Any) -> Location:
    if isinstance(item, list):
        fields = cast("list[Any]", item)
        if list(map(type, fields)) == [str, int, str, str, str] and fields[-1] in ORIGINS:
            file, line, *rest = fields
            return Location(file, line, line, 0, 0, *rest)
    raise Unsound("trace.raised_at is not a list of frames")


def sizes_of(cell: Any) -> tuple[int, ...] | None:
    """Read a cell that holds a JSON list of sizes or nothing."""
    if cell is None:
        return None
    return _all_of(int, cell)


def _all_of(kind: type[T], cell: Any) -> tuple[T, ...]:
    items = json.loads(text_of(cell))
    if not isinstance(items, list) or set(map(type, cast("list[Any]", items))) - {kind}:
        raise Unsound(f"a cell that must hold a list of {kind.__name__} holds something else")
    return tuple(cast("list[T]", items))


def ints_of(column: array[int], cells: Iterable[Any]) -> None:
    """Append cells that must all hold whole numbers."""
    try:
        column.extend(cells)
    except (TypeError, OverflowError):
        raise Unsound("a cell that must hold a number holds something else") from None


def reals_of(column: array[float], cells: Iterable[Any]) -> None:
    """Append cells that must all hold numbers or nothing. An empty cell becomes NaN."""
    try:
        column.extend([nan if cell is None else cell for cell in cells])
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
    """Check that all numbers of a column are in its range: those of existing rows, if it refers to a table."""
    if column.type == "float | None":
        return
    numbers = getattr(tables, column.field)
    if column.is_back:
        _check_points_back(column.name, numbers)
        return
    high = column.high
    if column.to and schema.BY_NAME[column.to].rows:
        high = len(getattr(tables, schema.BY_NAME[column.to].rows))
    within(column.name, numbers, column.low, high)


def within(name: str, column: Sequence[int], low: int, high: int) -> None:
    """Check that ``low <= number < high`` holds for all numbers of a column."""
    if column and (min(column) < low or max(column) >= high):
        raise Unsound(f"a number in {name} points to nothing")


def _check_points_back(name: str, column: Sequence[int]) -> None:
    """Check that the number in each row is that of an earlier row, or NONE."""
    points_back = all(map(lt, column, range(len(column))))
    if column and (min(column) < NONE or not points_back):
        raise Unsound(f"a number in {name} does not point back")


def _check_places(tables: Tables) -> None:
    """Check the sites of all stacks, and that there are not too many frames in all."""
    depths: list[int] = []
    for base, sites in zip(tables.stack_base, tables.stack_sites, strict=True):
        within("site", sites, 0, len(tables.sites))
        depth = len(sites)
        if base != NONE:
            depth += depths[base]
        depths.append(depth)
    if sum(depths) > FRAMES:
        raise Unsound(f"its stacks have more than {FRAMES:,} frames")
    for site in tables.sites:
        at = site.location
        numbers = (at.line, at.end_line, at.col, at.end_col)
        if at.origin not in ORIGINS or min(numbers) < -1 or max(numbers) >= 1 << 31:
            raise Unsound("a place in the code has an impossible line, column or origin")
