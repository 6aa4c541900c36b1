"""The listing: each file that ran, with what its lines assigned or returned, how often, and what differed."""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.events.selection import base_name
from torchglass.events.types import Location
from torchglass.views import row as kinds
from torchglass.views.backward import NOTHING, words_by_line
from torchglass.views.digest import Recorded
from torchglass.views.listing import Options
from torchglass.views.listing.excerpt import Gap
from torchglass.views.listing.files import FileListing, Files, files_of
from torchglass.views.listing.lines import RAN, UNSEEN, LineNote
from torchglass.views.listing.words import pieces_of
from torchglass.views.row import Cell, Row, Sheet
from torchglass.views.text.statistics import alarms_in, is_measured
from torchglass.views.text.words import clean, count, duration, known_as, path_word, plural

BACKWARD = "backward"
"""The kind of a row below a line: what backward ran for it."""
STATES = {RAN: "✓", UNSEEN: "·"}
FAILED = "✗"
TAB = 8
MOST_NAMED = 8
MOST_FUNCTIONS = 3
LEGEND = (
    ("count", "12×: how often it ran"),
    ("✓", "✓: ran, steps do not tell how often"),
    ("·", "·: no step seen, may not have run"),
    ("→", "→: returned"),
    ("(", "(…): computed on the line"),
    ("–", "1–12 {1, 7} f32|bf16: differed between calls"),
)


def sheet(trace: Recorded, options: Options) -> Sheet:
    """The rows of all files that are shown, and which others ran."""
    files = files_of(trace, options)
    rows = [row for each in files.shown for row in _file(each, options)]
    below: list[Cell] = []
    if is_measured(trace):
        rows = list(map(_with_alarms, rows))
    if options.backward:
        words = words_by_line(trace)
        rows = list(_with_backward(rows, words))
        below += [] if words else [Cell(kinds.REMARK, NOTHING)]
    if not files.shown and not files.named:
        what = "No step is selected" if options.only is not None else "No step has a line of your program"
        below.append(Cell(kinds.HEADING, f"{what}. The tree shows what was recorded."))
    if files.named:
        below.append(Cell(kinds.REMARK, _also_ran(files)))
    used = set[str]().union(*map(_signs, rows))
    below.append(Cell(kinds.REMARK, "; ".join(text for sign, text in LEGEND if sign in used)))
    return Sheet(rows, below)


def _with_alarms(row: Row) -> Row:
    """A row whose cells know where they first say what is not finite."""
    alarms = [alarms_in(cell.text)[:1] if cell.kind == kinds.GIVES else [] for cell in row.cells]
    pairs = zip(row.cells, alarms, strict=True)
    row.cells = tuple(cell._replace(mark=found[0]) if found else cell for cell, found in pairs)
    return row


def _with_backward(rows: list[Row], words: dict[tuple[str, int], str]) -> Iterator[Row]:
    """Below each line what backward ran for it."""
    for row in rows:
        yield row
        at = row.place if row.kind == kinds.LINE else None
        text = "" if at is None else words.get((at.file, at.line), "")
        if text:
            yield Row(0, BACKWARD, (Cell(kinds.GIVES, text),))


def _also_ran(files: Files) -> str:
    stepping = [each for each in files.named if each.steps][:MOST_NAMED] or files.named[:1]
    names = [f"{path_word(known_as(each.file))} ({plural(each.steps, 'step')})" for each in stepping]
    more = len(files.named) - len(names)
    rest = f" and {plural(more, 'file')} with fewer or none" if more else ""
    return f"also ran: {', '.join(names)}{rest}; path={base_name(files.named[0].file)!r} lists one of them"


# ---------------------------------------------------------------- one file


def _file(listing: FileListing, options: Options) -> Iterator[Row]:
    steps = f"{plural(listing.steps, 'step')} on {plural(listing.step_lines, 'line')}"
    name = Cell(kinds.NAME, path_word(known_as(listing.file)))
    yield Row(0, kinds.HEADING, (name, Cell(kinds.COUNT, steps if listing.steps else "no step of its own")))
    if listing.problem:
        yield Row(0, kinds.NOTE, (Cell(kinds.NOTE, f"{listing.problem}: only the lines with steps are known"),))
    shown = listing.lines.shown
    if listing.text and not listing.text[-1] and shown and shown[-1] == len(listing.text):
        shown = shown[:-1]  # the end of the last line is no line
    for each in shown:
        if isinstance(each, Gap):
            yield Row(0, kinds.GAP, (Cell(kinds.COUNT, _gap(each)),))
        else:
            yield _line(listing, each, _plain(listing.text[each - 1]), listing.lines.notes.get(each), options)
    if listing.lines.loose and listing.text:
        what = "lines of code whose text is not in this file (changed, or made while it ran):"
        yield Row(0, kinds.NOTE, (Cell(kinds.NOTE, what),))
    for note in listing.lines.loose:
        text = f"{clean(note.source) or '(text not known)'}  # in {clean(note.function)}"
        yield _line(listing, note.line, text, note, options)
    yield Row(0, kinds.BLANK)


def _plain(text: str) -> str:
    """A source line as it can be shown: tabs as spaces, nothing that a terminal obeys."""
    return clean(text.rstrip().expandtabs(TAB))


def _line(listing: FileListing, line: int, text: str, note: LineNote | None, options: Options) -> Row:
    at = Location(listing.file, line, line, 0, 0, "", text, "user")
    cells = [Cell(kinds.PLACE, str(line), at=at), *_state(note)]
    if options.times:
        cells.append(Cell(kinds.TIME, duration(note.spent_ns) if note is not None and note.spent_ns else ""))
    cells.append(Cell(kinds.SOURCE, text, at=at))
    if note is not None:
        pieces = pieces_of(note, options.by == "module", names=False)
        failed = [Cell(kinds.ERROR, f"{FAILED} {clean(note.failed)}")] if note.failed else []
        cells += [*failed, *(Cell(kinds.ERROR if piece[0] == FAILED else kinds.GIVES, piece) for piece in pieces)]
    return Row(0, kinds.LINE, tuple(cells))


def _state(note: LineNote | None) -> list[Cell]:
    """How often the line ran, or what is known instead."""
    if note is None:
        return []
    if note.failed:
        return [Cell(kinds.NOTE, FAILED)]
    text = f"{count(note.runs)}×" if note.runs is not None else STATES.get(note.state, "")
    return [Cell(kinds.COUNT if note.state == RAN else kinds.REMARK, text)]


def _gap(gap: Gap) -> str:
    text = plural(gap.lines, "line")
    if not gap.functions:
        return text
    ordered = sorted(gap.functions, key=lambda name: name.endswith("__"))
    names = [clean(name) for name in ordered[:MOST_FUNCTIONS]]
    more = len(gap.functions) - len(names)
    return f"{text}: no step seen in {', '.join(names)}" + (f" and {more} more" if more else "")


def _signs(row: Row) -> set[str]:
    """Which signs of a row the legend has to explain."""
    signs: set[str] = set()
    for cell in row.cells if row.kind == kinds.LINE else ():
        if cell.kind in (kinds.COUNT, kinds.REMARK) and cell.text:
            signs.add("count" if cell.text[:-1].replace(",", "").isdecimal() else cell.text)
        elif cell.kind in (kinds.GIVES, kinds.ERROR):
            signs.update(cell.text[:1])
            if any(sign in cell.text for sign in ("–", "{", "|")):
                signs.add("–")
    return signs
