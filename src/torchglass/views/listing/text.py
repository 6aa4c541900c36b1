"""Prints the listing: before each source line how often it ran, and after it what it assigned or
returned::

     7 3×      scores = q @ k.transpose(-2, -1)  f32[2, 3–5, 3–5]
     8 3×      if scores.shape[-1] > 100:
     9  ·          scores = scores.tril()
    └ gutter ┘└ code                           ┘└ results        ┘

The *gutter* has the number of the line, how often it ran, and with ``times=True`` how long it took.
A result that does not fit beside its line stands below it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from torchglass.program.by_line.notes import LineNote
from torchglass.program.recorded import Recorded
from torchglass.views import row as kinds
from torchglass.views.listing.files import FileListing, files_of
from torchglass.views.listing.view import BACKWARD, pieces_of
from torchglass.views.options import ListingOptions
from torchglass.views.row import Cell, Row
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import narrowed, painted
from torchglass.views.text.words import (
    clean,
    count,
    cut,
    known_as,
    link,
    path_word,
    plural,
    width_of,
    wrapped,
)

MIN_RESULTS_WIDTH = 8
TIME_WIDTH = 8
GUTTER_GAPS = 3
"""The spaces in the gutter: one after the number, two before the code."""
GAP = "  "
"""What is between the code and the results, and between two results."""


BETWEEN_FILES = (kinds.HEADING, kinds.BLANK)
"""The kinds of rows between two files."""


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield the lines of all files. Each file has columns of its own width."""
    for are_between_files, section in groupby(rows, lambda row: row.kind in BETWEEN_FILES):
        section_rows = list(section)
        if are_between_files:
            for row in section_rows:
                yield _heading(row, page) if row.kind == kinds.HEADING else ""
            continue
        columns = _columns([row for row in section_rows if row.kind == kinds.LINE], page)
        for row in section_rows:
            yield from _row_lines(row, columns, page)


def _row_lines(row: Row, columns: _Columns, page: Page) -> Iterator[str]:
    if row.kind == kinds.NOTE:
        for line in wrapped(row.text(kinds.NOTE), page.width):
            yield page.paint("note", line)
    elif row.kind == kinds.GAP:
        text = " " * columns.number + " ⋮ " + row.text(kinds.COUNT)
        yield page.paint("dim", cut(text, page.width))
    elif row.kind == BACKWARD:
        text = " " * columns.gutter + GAP + row.text(kinds.GIVES)
        yield page.paint("dim", cut(text, page.width))
    else:
        yield from _line(row, columns, page)
        yield from _findings(row, columns, page)


def _findings(row: Row, columns: _Columns, page: Page) -> Iterator[str]:
    """Yield the findings of a line, which are printed below it."""
    before = " " * columns.gutter
    for cell in row.below:
        for line in wrapped(cell.text, page.width - columns.gutter):
            yield before + page.paint("error", line)


def _heading(row: Row, page: Page) -> str:
    steps = f" {row.text(kinds.COUNT)} "
    title = f"── {cut(row.text(kinds.NAME), page.width - len(steps) - 6)} ──{steps}"
    return page.paint("heading", (title + "─" * (page.width - width_of(title))).rstrip())


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class _Columns:
    """Widths of the columns."""

    number: int
    """The number of the line."""
    runs: int
    """How often the line ran."""
    time: int
    """How long it took; 0 if that is not shown."""
    code: int
    results: int

    @property
    def gutter(self) -> int:
        return _gutter_width(self.number, self.runs, self.time)


def _gutter_width(number: int, runs: int, time: int) -> int:
    width = number + runs + GUTTER_GAPS
    if time:
        width += time + 1
    return width


def _columns(rows: list[Row], page: Page) -> _Columns:
    number = max((len(row.text(kinds.PLACE)) for row in rows), default=1)
    runs = max((width_of(_runs(row).text) for row in rows), default=1)
    time = 0
    if any(row.cell(kinds.TIME) for row in rows):
        time = TIME_WIDTH
    room = page.width - _gutter_width(number, runs, time) - len(GAP)
    code = _code_width(rows, room)
    return _Columns(number, runs, time, code, results=room - code)


def _code_width(rows: list[Row], room: int) -> int:
    """Return the width of the code column with which most lines fit, of those that have results."""
    widths: list[tuple[int, int]] = []
    """Of each line: the width of its code, and that of its widest result."""
    for row in rows:
        results = _results(row)
        if results:
            code = width_of(row.text(kinds.SOURCE))
            widths.append((code, max(width_of(result.text) for result in results)))

    def misfits(width: int) -> int:
        return sum((code > width) + (result > room - width) for code, result in widths)

    choices = sorted({min(code, room - MIN_RESULTS_WIDTH) for code, _ in widths})
    return min(choices, key=misfits, default=0)


def _runs(row: Row) -> Cell:
    """Return the cell of how often the line ran, or of a sign for what is known instead."""
    return (
        row.cell(kinds.NOTE)
        or row.cell(kinds.COUNT)
        or row.cell(kinds.REMARK)
        or Cell(kinds.REMARK)
    )


def _results(row: Row) -> list[Cell]:
    """Return the results and errors after a line. None of them should be broken."""
    return [cell for cell in row.cells if cell.kind in (kinds.GIVES, kinds.ERROR)]


# ---------------------------------------------------------------- one line


def _line(row: Row, columns: _Columns, page: Page) -> Iterator[str]:
    """Yield the line with its results. Those that do not fit beside it are on lines below it."""
    text = cut(row.text(kinds.SOURCE), page.width - columns.gutter)
    line = _gutter(row, columns, page) + _painted(text, row, page)
    line_end = columns.gutter + width_of(text)
    results = _results(row)
    if not results:
        yield line.rstrip()
    while results:
        taken = _take(results, columns.results)
        widths = [width_of(each.text) for each in taken]
        width = min(sum(widths) + len(GAP) * (len(taken) - 1), page.width - columns.gutter)
        last_column = page.width - width
        column = min(columns.gutter + columns.code + len(GAP), last_column)
        if column < line_end + len(GAP):
            if line_end + len(GAP) <= last_column:
                column = line_end + len(GAP)
            else:  # no room beside the code
                yield line.rstrip()
                line = ""
                line_end = 0
        yield line + " " * (column - line_end) + _joined(taken, width, page)
        line = ""
        line_end = 0


def _take(results: list[Cell], room: int) -> list[Cell]:
    """Remove and return as many results as fit into a column, at least one. A single one may be
    wider.
    """
    taken = [results.pop(0)]
    width = width_of(taken[0].text)
    while results and width + len(GAP) + width_of(results[0].text) <= room:
        width += len(GAP) + width_of(results[0].text)
        taken.append(results.pop(0))
    return taken


def _joined(results: list[Cell], width: int, page: Page) -> str:
    """Join results on one line, cut to a width. Numbers that are not finite are painted as an error."""
    text = narrowed(GAP.join(each.text for each in results), width)
    style = "output"
    if any(each.kind == kinds.ERROR for each in results):
        style = "error"
    if any(each.mark for each in results):
        return painted(text, style, page)
    return page.paint(style, text)


def _gutter(row: Row, columns: _Columns, page: Page) -> str:
    number = row.text(kinds.PLACE)
    number_space = " " * (columns.number - len(number))
    number = page.paint("place", number)
    if page.links and row.place is not None:
        number = link(number, row.place.file, row.place.line)
    runs = _runs(row)
    runs_space = " " * (columns.runs - width_of(runs.text))
    style = {kinds.NOTE: "error", kinds.COUNT: "fold"}.get(runs.kind, "dim")
    time = ""
    if columns.time:
        time = page.paint("time", f"{row.text(kinds.TIME):>{columns.time}}") + " "
    return f"{number_space}{number} {runs_space}{page.paint(style, runs.text)} {time} "


def _painted(text: str, row: Row, page: Page) -> str:
    """Paint a source line: red if it failed, dim if it may not have run."""
    runs = _runs(row)
    if runs.kind == kinds.NOTE:
        return page.paint("error", text)
    if runs == Cell(kinds.REMARK, "·"):
        return page.paint("dim", text)
    return text


# ---------------------------------------------------------------- comments

# A copy of a file, with shapes as comments at the ends of lines. It is Python that does the same as the file.

LEGEND = (
    "x: f32[2, 3] ×12: what x got, and how often; →: returned; (…): computed on the line; "
    "1–12 {1, 7} f32|bf16: differed between calls"
)
NOT_EXACT = (
    "characters that a terminal obeys are spelt out: this copy may differ from the file in them"
)
MAX_FILES_NAMED = 8
"""How many other files the remark below a copy names."""
_SPACE = re.compile(r"([\t\f])")


def copy(trace: Recorded, options: ListingOptions) -> Iterator[str]:
    """Yield the lines of one file with their notes as comments. Remarks follow, also as comments."""
    files = files_of(trace, options)
    remarks: list[str] = []
    if not files.shown:
        reason = "no file of the program was seen"
        if options.only is not None and len(trace):
            reason = "no step is selected"
        remarks.append(reason)
    for listing in files.shown[:1]:
        lines, remarks = _copied(listing, options)
        yield from lines
    others = [*files.shown[1:], *files.named]
    if others:
        names = ", ".join(path_word(known_as(each.file)) for each in others[:MAX_FILES_NAMED])
        more = len(others) - MAX_FILES_NAMED
        rest = ""
        if more > 0:
            rest = f" and {more} more"
        remarks.append(f"also ran: {names}{rest}; path= chooses the file")
    for remark in (*remarks, *trace.notes):
        yield f"# torchglass: {clean(' '.join(remark.split()))}"


def _copied(listing: FileListing, options: ListingOptions) -> tuple[list[str], list[str]]:
    """Return the lines of the copy of a file, and the remarks about it."""
    if not listing.text:
        return [], [f"{path_word(known_as(listing.file))}: {listing.problem}"]
    text = "\n".join(listing.text)
    free = free_lines(text)
    lines = list(map(_safe, listing.text))
    commented = 0
    without_comment = 0
    for line, note in sorted(listing.lines.notes.items()):
        comment = _comment(note, options)
        if not comment:
            continue
        place = _place(listing, line, free)
        if place:
            lines[place - 1] = f"{lines[place - 1].rstrip()}  # {comment}"
            commented += 1
        else:
            without_comment += 1
    remarks: list[str] = []
    if commented:
        remarks.append(LEGEND)
    if without_comment:
        remarks.append(f"{plural(without_comment, 'line')} had no place for a comment")
    if listing.lines.without_source:
        remarks.append(
            f"{plural(len(listing.lines.without_source), 'line')} with steps are not in this text"
        )
    if not _is_same(text, "\n".join(lines)):
        remarks.append(NOT_EXACT)
    if not lines[-1]:  # the text ends with a line break
        lines.pop()
    return lines, remarks


def _comment(note: LineNote, options: ListingOptions) -> str:
    pieces = pieces_of(note, options.by == "module", for_comment=True)
    if note.failed:
        pieces.insert(0, f"✗ {clean(note.failed)}")
    comment = ", ".join(pieces)
    if comment and note.runs is not None and note.runs > 1:
        return f"{comment} ×{count(note.runs)}"
    return comment


def _place(listing: FileListing, line: int, free: set[int]) -> int:
    """Return the first line of a statement that can end in a comment, or 0 if there is none."""
    last = len(listing.text)
    at = line
    while at <= last and (at == line or listing.lines.first_line.get(at) == line):
        if at in free:
            return at
        at += 1
    return 0


def free_lines(text: str) -> set[int]:
    """Return the lines that can end in a comment: those that end neither inside a string nor in a
    backslash.
    """
    free: set[int] = set()
    strings = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
            name = tokenize.tok_name[token.type]
            strings += (name == "FSTRING_START") - (name == "FSTRING_END")
            if name in ("NEWLINE", "NL") and not strings:
                free.add(token.start[0])
    except (tokenize.TokenError, SyntaxError, UnicodeEncodeError):
        return set()
    return free


def _safe(line: str) -> str:
    """Escape what a terminal would interpret in a source line, except tabs and form feeds."""
    if line.isprintable():
        return line
    return "".join(each if each in "\t\f" else clean(each) for each in _SPACE.split(line))


def _is_same(text: str, copy: str) -> bool:
    """Return whether a copy is the same Python code as a text, comments aside."""
    try:
        return ast.dump(ast.parse(text)) == ast.dump(ast.parse(copy))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
