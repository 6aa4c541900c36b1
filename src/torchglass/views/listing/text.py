"""The listing as text: source lines with a count before and shapes behind."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from torchglass.views import row as kinds
from torchglass.views.digest import Recorded
from torchglass.views.listing.files import FileListing, files_of
from torchglass.views.listing.lines import LineNote
from torchglass.views.listing.view import BACKWARD, pieces_of
from torchglass.views.options import ListingOptions
from torchglass.views.row import Cell, Row
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import narrowed, painted
from torchglass.views.text.words import clean, count, cut, known_as, link, path_word, plural, width_of, wrapped

NARROWEST = 8
TIME_WIDTH = 8


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """The lines of all files; each has columns of its own."""
    for alone, section in groupby(rows, lambda row: row.kind in (kinds.HEADING, kinds.BLANK)):
        here = list(section)
        if alone:
            yield from (_heading(row, page) if row.kind == kinds.HEADING else "" for row in here)
            continue
        columns = _columns([row for row in here if row.kind == kinds.LINE], page)
        for row in here:
            if row.kind == kinds.NOTE:
                yield from (page.paint("note", line) for line in wrapped(row.text(kinds.NOTE), page.width))
            elif row.kind == kinds.GAP:
                yield page.paint("dim", cut(" " * columns.number + " ⋮ " + row.text(kinds.COUNT), page.width))
            elif row.kind == BACKWARD:
                yield page.paint("dim", cut(" " * columns.gutter + "  " + row.text(kinds.GIVES), page.width))
            else:
                yield from _line(row, columns, page)


def _heading(row: Row, page: Page) -> str:
    steps = f" {row.text(kinds.COUNT)} "
    title = f"── {cut(row.text(kinds.NAME), page.width - len(steps) - 6)} ──{steps}"
    return page.paint("heading", (title + "─" * (page.width - width_of(title))).rstrip())


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class _Columns:
    """Widths: line numbers, counts, times (0: none), code, and notes behind it."""

    number: int
    often: int
    time: int
    code: int
    notes: int

    @property
    def gutter(self) -> int:
        return self.number + self.often + 3 + (self.time + 1 if self.time else 0)


def _columns(rows: list[Row], page: Page) -> _Columns:
    number = max((len(row.text(kinds.PLACE)) for row in rows), default=1)
    often = max((width_of(_often(row).text) for row in rows), default=1)
    time = TIME_WIDTH if any(row.cell(kinds.TIME) for row in rows) else 0
    fixed = number + often + 3 + (time + 1 if time else 0)
    code = _code_width(rows, page.width - fixed - 2)
    return _Columns(number, often, time, code, page.width - fixed - 2 - code)


def _code_width(rows: list[Row], room: int) -> int:
    """The width with which the fewest lines do not fit: their code before the notes, or the notes behind it."""
    widths = [
        (width_of(row.text(kinds.SOURCE)), max(width_of(piece.text) for piece in pieces))
        for row in rows
        if (pieces := _pieces(row))
    ]

    def misfits(width: int) -> int:
        return sum((code > width) + (notes > room - width) for code, notes in widths)

    return min(sorted({min(code, room - NARROWEST) for code, _ in widths}), key=misfits, default=0)


def _often(row: Row) -> Cell:
    """How often the line ran, or a sign for what is known instead."""
    return row.cell(kinds.NOTE) or row.cell(kinds.COUNT) or row.cell(kinds.REMARK) or Cell(kinds.REMARK)


def _pieces(row: Row) -> list[Cell]:
    """What is said behind a line, in pieces that should not be torn."""
    return [cell for cell in row.cells if cell.kind in (kinds.GIVES, kinds.ERROR)]


# ---------------------------------------------------------------- one line


def _line(row: Row, columns: _Columns, page: Page) -> Iterator[str]:
    """The line and its notes; notes that do not fit behind it stand below."""
    text = cut(row.text(kinds.SOURCE), page.width - columns.gutter)
    head = _gutter(row, columns, page) + _painted(text, row, page)
    end = columns.gutter + width_of(text)
    rest = _pieces(row)
    while rest:
        taken = _take(rest, columns.notes)
        width = min(sum(width_of(each.text) + 2 for each in taken) - 2, page.width - columns.gutter)
        column = min(columns.gutter + columns.code + 2, page.width - width)
        if column < end + 2 <= page.width - width:
            column = end + 2
        elif column < end + 2:  # no room behind the code
            yield head.rstrip()
            head, end = "", 0
        yield head + " " * (column - end) + _notes(taken, width, page)
        head, end = "", 0
    if head:
        yield head.rstrip()


def _take(rest: list[Cell], room: int) -> list[Cell]:
    """As many pieces as fit into the column; one that is wider may take the whole page."""
    taken = [rest.pop(0)]
    width = width_of(taken[0].text)
    while rest and width + 2 + width_of(rest[0].text) <= room:
        width += 2 + width_of(rest[0].text)
        taken.append(rest.pop(0))
    return taken


def _notes(pieces: list[Cell], width: int, page: Page) -> str:
    """Pieces on one line, cut where there is no room; what is not finite is painted as an error is."""
    text = narrowed("  ".join(each.text for each in pieces), width)
    style = "error" if any(each.kind == kinds.ERROR for each in pieces) else "output"
    return painted(text, style, page) if any(each.mark for each in pieces) else page.paint(style, text)


def _gutter(row: Row, columns: _Columns, page: Page) -> str:
    number, often = row.text(kinds.PLACE), _often(row)
    painted = page.paint("place", number)
    if page.links and row.place is not None:
        painted = link(painted, row.place.file, row.place.line)
    style = {kinds.NOTE: "error", kinds.COUNT: "fold"}.get(often.kind, "dim")
    counted = " " * (columns.often - width_of(often.text)) + page.paint(style, often.text)
    time = page.paint("time", f"{row.text(kinds.TIME):>{columns.time}}") + " " if columns.time else ""
    return f"{' ' * (columns.number - len(number))}{painted} {counted} {time} "


def _painted(text: str, row: Row, page: Page) -> str:
    often = _often(row)
    style = "error" if often.kind == kinds.NOTE else "dim" if often == Cell(kinds.REMARK, "·") else ""
    return page.paint(style, text) if style else text


# ---------------------------------------------------------------- comments

# A copy of a file with shapes as trailing comments: Python that does the same; the file itself is not touched.

LEGEND = (
    "x: f32[2, 3] ×12: what x got, and how often; →: returned; (…): computed on the line; "
    "1–12 {1, 7} f32|bf16: differed between calls"
)
NOT_EXACT = "characters that a terminal obeys are spelt out: this copy may differ from the file in them"
MOST_NAMED = 8
_SPACE = re.compile(r"([\t\f])")


def copy(trace: Recorded, options: ListingOptions) -> Iterator[str]:
    """The lines of one file, each with what it gave; what else is to be said stands in comments below."""
    files = files_of(trace, options)
    remarks: list[str] = []
    if not files.shown:
        what = "no step is selected" if options.only is not None and len(trace) else "no file of the program was seen"
        remarks.append(what)
    for listing in files.shown[:1]:
        lines, failed = _copied(listing, options)
        yield from lines
        remarks += failed
    others = [*files.shown[1:], *files.named]
    if others:
        names = ", ".join(path_word(known_as(each.file)) for each in others[:MOST_NAMED])
        more = len(others) - MOST_NAMED
        rest = f" and {more} more" if more > 0 else ""
        remarks.append(f"also ran: {names}{rest}; path= chooses the file")
    for remark in (*remarks, *trace.notes):
        yield f"# torchglass: {clean(' '.join(remark.split()))}"


def _copied(listing: FileListing, options: ListingOptions) -> tuple[list[str], list[str]]:
    """The copy and what is to be said of it."""
    if not listing.text:
        return [], [f"{path_word(known_as(listing.file))}: {listing.problem}"]
    text = "\n".join(listing.text)
    free = free_lines(text)
    lines = list(map(_safe, listing.text))
    told = left_out = 0
    for line, note in sorted(listing.lines.notes.items()):
        comment = _comment(note, options)
        place = _place(listing, line, free)
        if comment and place:
            lines[place - 1] = f"{lines[place - 1].rstrip()}  # {comment}"
            told += 1
        left_out += bool(comment and not place)
    remarks = [LEGEND] if told else []
    if left_out:
        remarks.append(f"{plural(left_out, 'line')} had no place for a comment")
    if listing.lines.loose:
        remarks.append(f"{plural(len(listing.lines.loose), 'line')} with steps are not in this text")
    if not _is_same(text, "\n".join(lines)):
        remarks.append(NOT_EXACT)
    return lines[:-1] if not lines[-1] else lines, remarks


def _comment(note: LineNote, options: ListingOptions) -> str:
    pieces = pieces_of(note, options.by == "module", names=True)
    if note.failed:
        pieces.insert(0, f"✗ {clean(note.failed)}")
    told = ", ".join(pieces)
    return f"{told} ×{count(note.runs)}" if told and note.runs is not None and note.runs > 1 else told


def _place(listing: FileListing, line: int, free: set[int]) -> int:
    """The first line of a statement, or the next of its lines that can end in a comment; 0: none can."""
    last = len(listing.text)
    at = line
    while at <= last and (at == line or listing.lines.first_line.get(at) == line):
        if at in free:
            return at
        at += 1
    return 0


def free_lines(text: str) -> set[int]:
    """Lines that can end in a comment: not inside a string, not before a backslash's continuation."""
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
    """A line of source without what a terminal obeys; tabs and form feeds are Python's own space and stay."""
    return (
        line if line.isprintable() else "".join(each if each in "\t\f" else clean(each) for each in _SPACE.split(line))
    )


def _is_same(text: str, copy: str) -> bool:
    try:
        return ast.dump(ast.parse(text)) == ast.dump(ast.parse(copy))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
