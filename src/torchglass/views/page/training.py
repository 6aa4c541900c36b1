"""What the page knows of training: the norm of each module's gradients and updates by step, and the tables of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import hypot, isfinite
from typing import Any

from torchglass.events.gradients import Gradients, Leaf
from torchglass.events.types import Value
from torchglass.program.recorded import Recorded
from torchglass.views import gradients, table
from torchglass.views.options import GradientsOptions, TableOptions
from torchglass.views.page.rounding import rounded
from torchglass.views.row import COUNT, GIVES, NAME, TIME, Row, Sheet
from torchglass.views.text.words import clean, count

MOST_POINTS = 60_000
"""How many points the series may have together. With more the page would be large, and the tables
show the rest.
"""
MOST_ROWS = 400
"""How many rows of a table the page has."""
LAYERS = {
    NAME: "layer",
    COUNT: "parameters",
    TIME: "time",
    table.CALLS: "calls",
    GIVES: "output",
}
GRADIENTS = {
    NAME: "parameter",
    gradients.GRADIENT: "gradient norm",
    gradients.UPDATE: "update norm",
    gradients.RATIO: "update / weight",
}
Point = tuple[int, float]
"""An event and a norm, which is NaN if any number was not finite."""


def series_data(found: Gradients) -> dict[str, list[list[Any]]]:
    """Return for gradients and for updates, by module: its root and path, the events, the norm of all its parameters.

    A norm that is not finite is None.
    """
    made = {
        "gradient": _by_module(found, gradient_points),
        "update": _by_module(found, _update_points),
    }
    points = sum(len(events) for rows in made.values() for _, _, events, _ in rows)
    if points > MOST_POINTS:
        return {}
    return {name: rows for name, rows in made.items() if rows}


def _by_module(found: Gradients, points_of: Callable[[Leaf], Iterator[Point]]) -> list[list[Any]]:
    modules: dict[tuple[str, str], dict[int, list[Point]]] = {}
    for leaf in found.leaves:
        if leaf.holder is None:
            continue
        rounds = modules.setdefault((leaf.holder.root, leaf.holder.path), {})
        for number, point in enumerate(points_of(leaf)):
            rounds.setdefault(number, []).append(point)
    rows: list[list[Any]] = []
    for (root, path), rounds in modules.items():
        events = [points[0][0] for points in rounds.values()]
        norms = [_number(hypot(*(norm for _, norm in points))) for points in rounds.values()]
        if events:
            rows.append([clean(root), clean(path), events, norms])
    return rows


def _number(norm: float) -> float | None:
    if isfinite(norm):
        return rounded(norm, 3)
    return None


def gradient_points(leaf: Leaf) -> Iterator[Point]:
    """Yield for each measured gradient the event that made it, and its norm."""
    yield from filter(None, map(_point, leaf.gradients))


def _update_points(leaf: Leaf) -> Iterator[Point]:
    for step in leaf.steps:
        point = None
        if step.update is not None:
            point = _point(step.update)
        norm = gradients.update_norm(step)
        if point is not None and norm is not None:
            yield point[0], norm
        elif point is not None:
            yield point


def _point(value: Value) -> Point | None:
    stats = value.stats
    if stats is None or value.producer is None:
        return None
    if stats.finite < stats.count:
        return value.producer, float("nan")
    return value.producer, stats.norm


def largest_gradient(found: Gradients) -> tuple[str, int, float] | None:
    """Return the name of the parameter with the largest gradient, the event that made the gradient,
    and its norm.
    """
    largest: tuple[str, int, float] | None = None
    roots = {leaf.holder.root for leaf in found.leaves if leaf.holder is not None}
    for leaf in found.leaves:
        for event, norm in gradient_points(leaf):
            if isfinite(norm) and (largest is None or norm > largest[2]):
                names = [leaf.name]
                if leaf.holder is not None:
                    names.insert(0, leaf.holder.path)
                if leaf.holder is not None and len(roots) > 1:
                    names.insert(0, leaf.holder.root)
                largest = (".".join(filter(None, names)), event, norm)
    return largest


# ---------------------------------------------------------------- tables


def tables_data(trace: Recorded, found: Gradients) -> Iterator[dict[str, Any]]:
    """Yield the tables of layers and of gradients, as the terminal prints them."""
    if trace.modules():
        yield _table("layers", table.sheet(trace, TableOptions()), LAYERS)
    made = gradients.sheet(trace, GradientsOptions(), found)
    if made.rows:
        yield _table("gradients", made, GRADIENTS)


def _table(title: str, sheet: Sheet, columns: dict[str, str]) -> dict[str, Any]:
    rows = sheet.rows[:MOST_ROWS]
    more = len(sheet.rows) - len(rows)
    known = [
        kind for kind in columns if any(cell.kind == kind for row in rows for cell in row.cells)
    ]
    below = [cell.text for cell in sheet.below]
    if more > 0:
        below.append(f"and {count(more)} more rows")
    return {
        "title": title,
        "columns": [columns[kind] for kind in known],
        "rows": [_row(row, known) for row in rows],
        "below": below,
    }


def _row(row: Row, columns: list[str]) -> list[Any]:
    """Return a row as a list: depth, event, the texts of the cells, and the indices of cells that
    are alarms.
    """
    cells = {cell.kind: cell for cell in row.cells}
    texts = [cells[kind].text if kind in cells else "" for kind in columns]
    alarms = [at for at, kind in enumerate(columns) if kind in cells and cells[kind].mark]
    return [row.depth, row.event, texts, alarms]
