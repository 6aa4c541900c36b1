"""Chooses the source text for the page, and what stands beside its lines.

The user's files are shown whole, unless they are very long. Of installed files only the functions
that ran are shown, in *pieces*. The *margin* of a line says how often it ran and what it gave.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchglass.events.selection import is_installed
from torchglass.events.types import Event, Location
from torchglass.program.by_line.ran import runs_by_line
from torchglass.program.dedup import DistinctEvents
from torchglass.views.graph.outline import Outline
from torchglass.views.page.columns import LONGEST_SOURCE, Texts
from torchglass.views.page.trail import Counts, NonFinite, counts_word
from torchglass.views.text.cells import shape_words
from torchglass.views.text.words import path_word

MAX_RESULTS = 2
"""How many different results of a line its margin lists. Of more, it has the first and the last."""
MAX_WHOLE_LINES = 3000
"""A file of the user with at most this many lines is included whole."""
MAX_LINES_BETWEEN = 2
"""Pieces with at most this many lines between them are shown as one."""

Span = tuple[int, int]
"""The first and the last line of a piece."""
Place = tuple[str, int]
"""A file and the number of a line in it."""
_DEFINES = re.compile(r"(?:async def|def|class) ")


def sources_of(
    outline: Outline, texts: Texts, bad: NonFinite | None = None
) -> list[dict[str, Any]]:
    """Return each file in which something happened: its name, pieces of its text, and the results
    of its lines.
    """
    trace = outline.trace
    used_lines = _used_lines(outline.distinct)
    margins = _margins(outline, bad)
    entries: list[dict[str, Any]] = []
    for file in sorted(used_lines, key=is_installed):  # the user's files first
        text = trace.sources.get(file)
        if text is None:
            continue
        name = texts.number(path_word(file))
        path = texts.number(file)
        rows = text.removesuffix("\n").split("\n")
        pieces: list[list[int]] = []
        for first, last in _pieces(file, rows, used_lines[file]):
            piece = "\n".join(rows[first - 1 : last])
            pieces.append([first, texts.number(piece, LONGEST_SOURCE)])
        lines: list[int] = []
        for line, margin in sorted(margins.get(file, {}).items()):
            lines += (line, margin.times, *texts.numbers(margin.texts()), int(margin.is_bad))
        entries.append({"name": name, "path": path, "pieces": pieces, "lines": lines})
    return entries


def _used_lines(distinct: DistinctEvents) -> dict[str, set[int]]:
    """Return for each file the lines with events, or that led to some if they are the user's."""
    lines: dict[str, set[int]] = {}
    for event in distinct.samples:
        for at in event.stack:
            if at.origin == "user":
                lines.setdefault(at.file, set()).add(at.line)
        if event.location is not None:
            lines.setdefault(event.location.file, set()).add(event.location.line)
    return lines


def _pieces(file: str, rows: Sequence[str], used: set[int]) -> list[Span]:
    """Return the first and last line numbers of each piece of a file to show."""
    if not rows:
        return [(1, 1)]
    if not is_installed(file) and len(rows) <= MAX_WHOLE_LINES:
        return [(1, len(rows))]
    pieces = [(line, line) for line in used if line <= len(rows)]
    for first, last in _definitions(rows):
        if not any(first <= line <= last for line in used):
            continue
        if rows[first - 1].lstrip().startswith("class "):
            # Of a class only its first line: its methods are definitions of their own.
            pieces.append((first, first))
        else:
            pieces.append((first, last))
    return _joined(pieces)


def _definitions(rows: Sequence[str]) -> list[Span]:
    """Return the first and last lines of functions and classes, found by indentation.

    This is ten times as fast as a parser. If it is wrong, some lines too many or too few are shown,
    but lines that ran are always included.
    """
    definitions: list[Span] = []
    open_definitions: list[tuple[int, int]] = []
    """The indentation and the first line of each definition around the current line."""
    last = 0
    for number, row in enumerate(rows, 1):
        text = row.lstrip()
        if not text or text[0] in "#)]}":
            continue
        indent = len(row) - len(text)
        while open_definitions and indent <= open_definitions[-1][0]:
            _, first = open_definitions.pop()
            definitions.append((first, last))
        if _DEFINES.match(text):
            open_definitions.append((indent, number))
        last = number
    definitions += [(first, last) for _, first in open_definitions]
    return definitions


def _joined(spans: list[Span]) -> list[Span]:
    """Join spans that overlap or have only few lines between them."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + MAX_LINES_BETWEEN + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


# ---------------------------------------------------------------- margins


@dataclass(slots=True)
class _Margin:
    """What the margin of a source line shows."""

    times: int = 0
    """How often the line ran; 0 if that is not known."""
    results: list[str] = field(default_factory=list[str])
    """The different shapes that it gave, or its error."""
    counts: list[Counts] = field(default_factory=list[Counts])
    """How many numbers of each result are not finite."""
    is_bad: bool = False
    """Whether a result of the line is on the trail of the first bad value."""

    def texts(self) -> tuple[str, str]:
        """Return the shapes of the line's results, and how many of their numbers are not finite, as
        the listing prints them.
        """
        results = self.results
        if len(results) > MAX_RESULTS:
            results = [results[0], "…", results[-1]]
        return " | ".join(results), counts_word(self.counts)


def _margins(outline: Outline, bad: NonFinite | None) -> dict[str, dict[int, _Margin]]:
    """Return the margins by file and line."""
    margins: dict[str, dict[int, _Margin]] = {}
    for (file, line), steps in _outermost_steps(outline).items():
        margins.setdefault(file, {})[line] = _margin(outline, steps, bad)
    for (file, line), error in _errors(outline).items():
        margin = margins[file][line]
        margin.results = [*margin.results[:1], error]
    counts = runs_by_line(outline.trace)
    for file, by_line in margins.items():
        runs = counts.get(file, {})
        for line, margin in by_line.items():
            margin.times = runs.get(line, 0)
    return margins


def _margin(outline: Outline, steps: Sequence[int], bad: NonFinite | None) -> _Margin:
    """Return the margin of a line, given the steps whose results it shows."""
    margin = _Margin()
    for step in steps:
        event = outline.events[step]
        result = ""
        if not event.error:
            result = ", ".join(shape_words(event.outputs))
        if result and result not in margin.results:
            margin.results.append(result)
        if bad is not None:
            margin.counts.append(bad.counts(step))
            margin.is_bad = margin.is_bad or bad.is_reached(step)
    return margin


def _outermost_steps(outline: Outline) -> dict[Place, list[int]]:
    """Return for each line the steps whose expression is the longest on it, which contains the others."""
    longest: dict[Place, tuple[int, int]] = {}
    """The lines and columns from the begin of the expression to its end."""
    steps: dict[Place, list[int]] = {}
    for number, _, at in _shown_steps(outline):
        place = (at.file, at.line)
        extent = (at.end_line - at.line, at.end_col - at.col)
        if place not in longest or extent > longest[place]:
            longest[place] = extent
            steps[place] = [number]
        elif extent == longest[place]:
            steps[place].append(number)
    return steps


def _errors(outline: Outline) -> dict[Place, str]:
    """Return for each line on which a step failed its error. It is shown even if another step contains it."""
    errors: dict[Place, str] = {}
    for _, event, at in _shown_steps(outline):
        if event.error:
            errors.setdefault((at.file, at.line), "✗ " + event.error.partition(":")[0])
    return errors


def _shown_steps(outline: Outline) -> Iterator[tuple[int, Event, Location]]:
    """Yield the events that have boxes of their own, each with its number and its place."""
    for number, event in enumerate(outline.events):
        if outline.anchors[number] != number or event.location is None:
            continue
        if event.kind not in ("variable", "mark"):
            yield number, event, event.location
