"""Writes results as Markdown tables, readable in a terminal too."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence

import torch
from measure import Result

HEAD = ("", "ratio to plain", "quartiles", "ms a run", "events", "µs an event over the floor", "fastest")


def conditions(rounds: int, slow_rounds: int) -> str:
    """Under what the figures were taken; they hold for nothing else."""
    return (
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, "
        f"{os.cpu_count()} cores, one torch thread, CPU time; medians of {rounds} interleaved rounds "
        f"({slow_rounds} for the slow tools, against plain runs of their own)."
    )


def comparison(workload: str, results: Sequence[Result]) -> Iterator[str]:
    """One workload: a row a tool."""
    yield f"### {workload}"
    yield from table(HEAD, [_row(result) for result in results])


def _row(result: Result) -> tuple[str, ...]:
    if result.missing:
        return (result.subject, result.missing, *[""] * (len(HEAD) - 2))
    low, high = result.ratio_quartiles
    return (
        result.subject,
        f"{result.ratio:.2f}",
        f"{low:.2f}–{high:.2f}",
        f"{result.seconds * 1e3:.2f}",
        "" if result.events is None else f"{result.events:,}",
        _known(result.over_floor_us),
        _known(result.best_over_floor_us),
    )


def _known(figure: float | None) -> str:
    return "" if figure is None else f"{figure:,.1f}"


def figures(found: Sequence[tuple[str, float, str]]) -> Iterator[str]:
    """The single figures."""
    yield "### The recorder alone"
    yield from table(("", "", ""), [(name, f"{value:,.2f}", unit) for name, value, unit in found])


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Markdown, padded so that the columns stand under each other; figures to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    yield _line(head, widths)
    rules = ["-" * widths[0], *("-" * (w - 1) + ":" if w > 1 else "-:" for w in widths[1:])]
    yield _line(tuple(rules), widths)
    for row in rows:
        yield _line(row, widths)
    yield ""


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
    return f"| {' | '.join(cells)} |"
