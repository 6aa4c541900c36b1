"""The listing as text: source lines with a count before and shapes behind, or a copy with comments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchglass.views.listing.comments import copy_lines
from torchglass.views.listing.lines import NEVER, RAN, UNSEEN, Gap, LineNote
from torchglass.views.listing.view import FileListing, ListingOptions, ListingView, base_name, listing_view
from torchglass.views.listing.words import pieces_of
from torchglass.views.recorded import Recorded
from torchglass.views.text.around import how_it_ended, notes_of, nothing_recorded, wrapped
from torchglass.views.text.source import known_as
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, cut, duration, link, path_word, plural, width_of

Options = ListingOptions
MARKS = {RAN: "✓", UNSEEN: "·", NEVER: "0×"}
FAILED = "✗"
TAB = 8
NARROWEST = 8
MOST_NAMED = 8
MOST_FUNCTIONS = 3
LEGEND = (
    ("count", "12×: how often it ran"),
    ("✓", "✓: ran, steps do not tell how often"),
    ("·", "·: no step seen, may not have run"),
    ("0×", "0×: never ran"),
    ("→", "→: returned"),
    ("(", "(…): computed on the line"),
    ("–", "1–12 {1, 7} f32|bf16: differed between calls"),
)


def render(trace: Recorded, options: ListingOptions, page: Page) -> Iterator[str]:
    """The lines of the listing; a trace that an exception left begins with how it ended."""
    if options.style == "comments":
        yield from copy_lines(trace, options)
        return
    yield from how_it_ended(trace, page)
    if not len(trace):
        yield from nothing_recorded(trace, page)
        return
    view = listing_view(trace, options)
    used: set[str] = set()
    for each in view.shown:
        yield from _file(each, options, page, used)
    yield from _footer(trace, view, options, page, used)


# ---------------------------------------------------------------- one file


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


@dataclass(frozen=True, slots=True)
class _Row:
    """One line before it is laid out."""

    line: int
    text: str
    note: LineNote | None
    pieces: list[str]


def _file(listing: FileListing, options: ListingOptions, page: Page, used: set[str]) -> Iterator[str]:
    yield _heading(listing, page)
    if listing.problem:
        for line in wrapped(f"{listing.problem}: only the lines with steps are known", "", page):
            yield page.paint("note", line)
    rows = _rows(listing, options)
    loose = [_loose_row(note, options) for note in listing.lines.loose]
    columns = _columns([*(row for row in rows if isinstance(row, _Row)), *loose], options, page)
    for row in rows:
        if isinstance(row, Gap):
            yield from _gap(row, columns, page)
        else:
            yield from _line(row, columns, listing, page, used)
    if loose and listing.text:
        for line in wrapped("lines of code whose text is not in this file (changed, or made while it ran):", "", page):
            yield page.paint("note", line)
    for row in loose:
        yield from _line(row, columns, listing, page, used)
    yield ""


def _heading(listing: FileListing, page: Page) -> str:
    told = f" {plural(listing.steps, 'step')} on {plural(listing.step_lines, 'line')} "
    if not listing.steps:
        told = " no step of its own "
    title = f"── {cut(path_word(known_as(listing.file)), page.width - len(told) - 6)} ──{told}"
    return page.paint("heading", (title + "─" * (page.width - width_of(title))).rstrip())


def _rows(listing: FileListing, options: ListingOptions) -> list[_Row | Gap]:
    rows: list[_Row | Gap] = []
    shown = listing.lines.shown
    if listing.text and not listing.text[-1] and shown and shown[-1] == len(listing.text):
        shown = shown[:-1]  # the end of the last line is no line
    for each in shown:
        if isinstance(each, Gap):
            rows.append(each)
            continue
        note = listing.lines.notes.get(each)
        rows.append(_Row(each, _plain(listing.text[each - 1]), note, _pieces(note, options)))
    return rows


def _loose_row(note: LineNote, options: ListingOptions) -> _Row:
    text = f"{clean(note.source) or '(text not known)'}  # in {clean(note.function)}"
    return _Row(note.line, text, note, _pieces(note, options))


def _pieces(note: LineNote | None, options: ListingOptions) -> list[str]:
    if note is None:
        return []
    pieces = pieces_of(note, options.by == "module", names=False)
    return [f"✗ {clean(note.failed)}", *pieces] if note.failed else pieces


def _plain(text: str) -> str:
    """A source line as it can be shown: tabs as spaces, nothing that a terminal obeys."""
    return clean(text.rstrip().expandtabs(TAB))


def _columns(rows: list[_Row], options: ListingOptions, page: Page) -> _Columns:
    number = len(str(max((row.line for row in rows), default=0)))
    often = max((width_of(_mark(row.note)) for row in rows), default=1)
    time = 8 if options.times else 0
    fixed = number + often + 3 + (time + 1 if time else 0)
    code = _code_width([row for row in rows if row.pieces], page.width - fixed - 2)
    return _Columns(number, often, time, code, page.width - fixed - 2 - code)


def _code_width(told: list[_Row], room: int) -> int:
    """The width with which the fewest lines do not fit: their code before the notes, or the notes behind it."""
    widths = [(width_of(row.text), max(map(width_of, row.pieces))) for row in told]

    def misfits(width: int) -> int:
        return sum((code > width) + (notes > room - width) for code, notes in widths)

    return min(sorted({min(code, room - NARROWEST) for code, _ in widths}), key=misfits, default=0)


# ---------------------------------------------------------------- one line


def _mark(note: LineNote | None) -> str:
    """How often the line ran, or what is known instead."""
    if note is None:
        return ""
    if note.failed:
        return FAILED
    return f"{count(note.runs)}×" if note.runs is not None else MARKS.get(note.state, "")


def _line(row: _Row, columns: _Columns, listing: FileListing, page: Page, used: set[str]) -> Iterator[str]:
    """The line and its notes; notes that do not fit behind it stand below."""
    _remember(row, used)
    text = cut(row.text, page.width - columns.gutter)
    head = _gutter(row, columns, listing, page) + _painted_text(text, row, page)
    end = columns.gutter + width_of(text)
    rest = list(row.pieces)
    while rest:
        word = _take(rest, columns.notes, page.width - columns.gutter)
        column = min(columns.gutter + columns.code + 2, page.width - width_of(word))
        if column < end + 2 <= page.width - width_of(word):
            column = end + 2
        elif column < end + 2:  # no room behind the code
            yield head.rstrip()
            head, end = "", 0
        yield head + " " * (column - end) + _painted_note(word, row, page)
        head, end = "", 0
    if head:
        yield head.rstrip()


def _take(rest: list[str], room: int, most: int) -> str:
    """As many pieces as fit into the column; one that is wider may take the whole page."""
    taken = rest.pop(0)
    while rest and width_of(taken) + 2 + width_of(rest[0]) <= room:
        taken += "  " + rest.pop(0)
    return cut(taken, most)


def _gutter(row: _Row, columns: _Columns, listing: FileListing, page: Page) -> str:
    note, mark = row.note, _mark(row.note)
    number = str(row.line)
    space = " " * (columns.number - len(number))
    painted = page.paint("place", number)
    if page.links:
        painted = link(painted, listing.file, row.line)
    style = "error" if mark == FAILED else "dim" if note is None or note.state != RAN else "fold"
    often = " " * (columns.often - width_of(mark)) + page.paint(style, mark)
    time = ""
    if columns.time:
        spent = duration(note.spent_ns) if note is not None and note.spent_ns else ""
        time = page.paint("time", f"{spent:>{columns.time}}") + " "
    return f"{space}{painted} {often} {time} "


def _painted_text(text: str, row: _Row, page: Page) -> str:
    if row.note is not None and row.note.failed:
        return page.paint("error", text)
    return page.paint("dim", text) if row.note is not None and row.note.state in (UNSEEN, NEVER) else text


def _painted_note(word: str, row: _Row, page: Page) -> str:
    failed = "✗" in word and row.note is not None and (row.note.failed or row.note.errors)
    return page.paint("error" if failed else "output", word)


def _remember(row: _Row, used: set[str]) -> None:
    """Which marks the legend has to explain."""
    mark = _mark(row.note)
    if mark:
        used.add("count" if mark[:-1].replace(",", "").isdecimal() and mark != "0×" else mark)
    for piece in row.pieces:
        used.update(piece[:1])
        if any(sign in piece for sign in ("–", "{", "|")):
            used.add("–")


def _gap(gap: Gap, columns: _Columns, page: Page) -> Iterator[str]:
    told = plural(gap.lines, "line")
    if gap.functions:
        ordered = sorted(gap.functions, key=lambda name: name.endswith("__"))
        names = [clean(name) for name in ordered[:MOST_FUNCTIONS]]
        more = len(gap.functions) - len(names)
        told += f": no step seen in {', '.join(names)}" + (f" and {more} more" if more else "")
    yield page.paint("dim", cut(" " * columns.number + " ⋮ " + told, page.width))


# ---------------------------------------------------------------- the end


def _footer(trace: Recorded, view: ListingView, options: ListingOptions, page: Page, used: set[str]) -> Iterator[str]:
    if not view.shown and not view.named:
        what = "No step is selected" if options.only is not None else "No step has a line of your program"
        yield from wrapped(f"{what}. The tree shows what was recorded.", "", page)
    if view.named:
        stepping = [each for each in view.named if each.steps][:MOST_NAMED] or view.named[:1]
        names = [f"{path_word(known_as(each.file))} ({plural(each.steps, 'step')})" for each in stepping]
        more = len(view.named) - len(names)
        rest = f" and {plural(more, 'file')} with fewer or none" if more else ""
        first = base_name(view.named[0].file)
        told = f"also ran: {', '.join(names)}{rest}; path={first!r} lists one of them"
        for line in wrapped(told, "", page):
            yield page.paint("dim", line)
    told = "; ".join(text for mark, text in LEGEND if mark in used)
    if told:
        for line in wrapped(told, "", page):
            yield page.paint("dim", line)
    yield from notes_of(trace, page)
