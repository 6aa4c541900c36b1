"""Rows set in columns: arrows under arrows, places at the right edge, cut where it hurts least."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from torchglass.events.types import Location
from torchglass.views import row as kinds
from torchglass.views.digest import ById
from torchglass.views.row import Cell, Row
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import narrowed
from torchglass.views.text.words import Places, clean, cut, link, whole_place, width_of, wrapped

ARROW = " → "
SHORTEST_LABEL = 24
MOST_FIT = 0.9
"""Columns are as wide as nine in ten lines need; the others step out of line rather than be cut."""
MOST_KNOWN = 10_000
_ALONE = (kinds.HEADING, kinds.VARIABLE, kinds.BLANK)
"""Rows after which others begin that have columns of their own."""


@lru_cache(maxsize=4096)
def guides(depth: int, width: int) -> str:
    """A bar for each level; from a sixth of the page on, the number of the level instead of more bars."""
    most = max(6, width // 12)
    return "│ " * depth if depth <= most else "│ " * (most - 2) + f"┆{depth} "


def suits_most(widths: list[int], slack: int, part: float = MOST_FIT) -> int:
    """What the given part of the lines needs; what all need, when that is only a little more."""
    if not widths:
        return 0
    ordered = sorted(widths)
    most = ordered[int((len(ordered) - 1) * part + 0.5)]
    return ordered[-1] if ordered[-1] <= most + slack else most


# ---------------------------------------------------------------- lines of their own


OF_PROCESSES = ("rank ", "process ", "DataLoader worker ", "SpawnProcess-", "ForkProcess-")
"""How names of threads begin that are named after their process."""


def thread_line(name: str, edge: int, page: Page) -> str:
    """``── thread loader ────``, up to the edge; of a main thread what its process is called."""
    word = "" if name.startswith(OF_PROCESSES) else "thread "
    title = f"── {word}{cut(clean(name), page.width - 14)} "
    return page.paint("heading", title + "─" * (edge - width_of(title)))


def repeat_line(row: Row, before: str, page: Page) -> str:
    """``layers.0–23 × 24, 3 steps each:``."""
    rest = row.text(kinds.COUNT)
    often = cut(row.text(kinds.FOLD), max(page.width - len(before) - len(rest), 1))
    rest = cut(rest, page.width - len(before) - width_of(often))
    return page.paint("guide", before) + page.paint("fold", often) + page.paint("dim", rest)


# ---------------------------------------------------------------- one line before it is laid out


class _Words(NamedTuple):
    """What the cells of a row say, column by column."""

    prefix: str
    """Which module, or how often."""
    label: str
    times: str
    """How many rounds."""
    what: str
    plain: str
    """What remains of ``what`` on a narrow page."""
    takes: str
    first: str
    """What remains of ``takes``."""
    gives: str
    alarm: tuple[int, int]  # the part of ``gives`` that says what is not finite
    failed: bool
    folded: bool


class _Line(NamedTuple):
    before: str
    words: _Words
    place: str
    time: str
    at: Location | None

    @property
    def tail(self) -> int:
        """Columns that time and place take at the right, with the gaps before them."""
        return (len(self.time) + 2 if self.time else 0) + (width_of(self.place) + 2 if self.place else 0)


def _words_of(cells: Sequence[Cell], width: int) -> _Words:
    said = {cell.kind: cell for cell in cells}
    fold, name, label = (said[kind].text if kind in said else "" for kind in (kinds.FOLD, kinds.NAME, kinds.EXPRESSION))
    prefix = cut(fold, width // 3) if fold else name
    whats = [said[kind] for kind in (kinds.CLASS, kinds.COUNT, kinds.ROUNDS, kinds.SAME) if kind in said]
    takes, gives = said.get(kinds.TAKES), said.get(kinds.ERROR) or said.get(kinds.GIVES)
    return _Words(
        prefix=prefix if label else "",
        label=label or prefix,
        times=f"  {said[kinds.TIMES].text}" if kinds.TIMES in said else "",
        what="  ".join(cell.text for cell in whats),
        plain="  ".join(filter(None, (_short(cell) for cell in whats))),
        takes=takes.text if takes else "",
        first=_short(takes) if takes else "",
        gives=gives.text if gives else "",
        alarm=(gives and gives.mark) or (0, 0),
        failed=kinds.ERROR in said,
        folded=kinds.FOLD in said,
    )


def _short(cell: Cell) -> str:
    return cell.text if cell.short is None else cell.short


def _label_end(before: str, words: _Words) -> int:
    prefix = width_of(words.prefix) + 2 if words.prefix else 0
    return len(before) + prefix + width_of(words.label) + width_of(words.times)


def _needed(before: str, words: _Words, tab: int) -> int:
    left = _label_end(before, words)
    if words.what:
        left = max(left, tab) + 2 + width_of(words.what)
    return left + (2 + width_of(words.takes) if words.takes else 0)


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where things begin: classes at ``tab``, arrows at ``arrow``; lines end at ``edge``."""

    tab: int
    arrow: int
    edge: int


def _columns_for(lines: Iterable[_Line], width: int) -> _Columns:
    """Columns that suit most of the different lines and fit on the page."""
    different = list(dict.fromkeys((line.before, line.words, line.tail) for line in lines))
    slack = width // 6
    tab = suits_most([_label_end(before, words) for before, words, _ in different if words.what], slack)
    tab = min(tab, width * 2 // 5)
    gives = suits_most([width_of(words.gives) for _, words, _ in different if words.gives], slack=6)
    # A file's name stands on few lines; those give way, so that the others need not.
    tail = suits_most([tail for _, _, tail in different], slack=2, part=0.75)
    right = min(gives, width // 3) + len(ARROW) + tail
    needed = suits_most([_needed(before, words, tab) for before, words, _ in different if words.gives], slack)
    arrow = max(min(needed, width - right), 0)
    # Arrows leave the results a third of the page; places stand behind them, where there is more room.
    return _Columns(tab, arrow, min(width, arrow + len(ARROW) + gives + tail))


# ---------------------------------------------------------------- rows


def draw(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """The lines of all rows; those between two headings share their columns."""
    noted: set[str] = set()
    for alone, section in groupby(rows, lambda row: row.kind in _ALONE):
        if alone:
            yield from (_heading(row, page) for row in section)
        else:
            yield from _Section(list(section), page, noted).lines()


def _heading(row: Row, page: Page) -> str:
    if row.kind == kinds.BLANK:
        return ""
    if row.kind == kinds.VARIABLE:
        name = cut(row.text(kinds.NAME), page.width // 2)
        return page.paint("name", name) + cut(row.text(kinds.COUNT), page.width - width_of(name))
    style = "fold" if row.cell(kinds.FOLD) else "heading"
    text = row.text(kinds.FOLD) or row.text(kinds.HEADING)
    return " " * row.indent + page.paint(style, cut(text, page.width - row.indent))


class _Section:
    """Rows that share columns; those that say the same are laid out once."""

    def __init__(self, rows: Sequence[Row], page: Page, noted: set[str]) -> None:
        self._rows, self._page, self._noted = rows, page, noted
        self._equal: dict[_Words, _Words] = {}
        self._words_of = ById(self._make_words)
        self._laid_out: dict[tuple[str, int, int], tuple[str, int]] = {}
        self._lines = self._make_lines()
        self._columns = _columns_for(filter(None, self._lines), page.width)

    def lines(self) -> Iterator[str]:
        """Each row, and what stands below it."""
        page, edge = self._page, self._columns.edge
        for row, line in zip(self._rows, self._lines, strict=True):
            before = " " * row.indent + guides(row.depth, page.width)
            if row.kind == kinds.THREAD:
                yield thread_line(row.text(kinds.NAME), edge, page)
            elif row.kind == kinds.REPEAT:
                yield repeat_line(row, before, page)
            elif row.kind == kinds.GAP:
                yield before + page.paint("dim", cut(row.text(kinds.COUNT), page.width - 4))
            elif line is not None:
                yield self._drawn(line).rstrip()
                if row.below:
                    yield from self._below(row, before)

    def _make_lines(self) -> list[_Line | None]:
        """Places name their file where it changes, so they are found in order, before the columns are."""
        page, places = self._page, Places(self._page.width)
        made: list[_Line | None] = []
        for row in self._rows:
            if row.kind in (kinds.THREAD, kinds.REPEAT, kinds.GAP):
                if row.kind == kinds.THREAD:
                    places = Places(page.width)  # a block by itself, maybe of another process
                made.append(None)
                continue
            at = row.place
            place = ""
            if at is not None:
                longest = max(page.width // 4, 12)
                place = whole_place(at, longest) if row.kind == kinds.PATH else places.place(row.depth, at)
            before = " " * row.indent + guides(row.depth, page.width)
            made.append(
                _Line(before, self._words_of(row.cells), place, row.text(kinds.TIME), at if page.links else None)
            )
        return made

    def _make_words(self, cells: tuple[Cell, ...]) -> _Words:
        words = _words_of(cells, self._page.width)
        return self._equal.setdefault(words, words)

    def _below(self, row: Row, before: str) -> Iterator[str]:
        """Notes and remarks; a note that was said before is not said again in full."""
        page = self._page
        inside = guides(row.depth + 1, page.width)
        for cell in row.below:
            bars, gap, text = (before, "  ", cell.text) if cell.kind == kinds.ORIGIN else (inside, "", cell.text)
            if cell.kind == kinds.NOTE:
                text = "note: as above" if text in self._noted else f"note: {text}"
                self._noted.add(cell.text)
            for line in wrapped(text, page.width - len(bars + gap)):
                yield page.paint("guide", bars) + gap + page.paint("note" if cell.kind == kinds.NOTE else "dim", line)

    # ------------------------------------------------------------ one line

    def _drawn(self, line: _Line) -> str:
        """The line, no wider than the page."""
        tail = line.tail
        if tail > self._page.width // 2 and line.time:
            line = line._replace(place="")
            tail = line.tail
        key = (line.before, id(line.words), tail)
        found = self._laid_out.get(key)
        if found is None:
            if len(self._laid_out) >= MOST_KNOWN:
                self._laid_out.clear()
            found = self._laid_out[key] = self._body(line.before, line.words, tail)
        body, used = found
        return body + self._tail(line, max(self._columns.edge - used, tail) - tail) if tail else body

    def _body(self, before: str, words: _Words, tail: int) -> tuple[str, int]:
        """All but time and place, and the columns that it takes."""
        columns, page = self._columns, self._page
        space = page.width - tail - len(ARROW) - len(before)
        gives = narrowed(words.gives, max(space - SHORTEST_LABEL, min(space, 8)))
        arrow_width = len(ARROW) + width_of(gives) if gives else 0
        room = min(max(columns.arrow, _needed(before, words, columns.tab)), page.width - tail - arrow_width)
        if words.prefix:
            words = words._replace(prefix=cut(words.prefix, max(room - len(before) - 2, 0)))
        label, what, takes = _fit(before, words, room)
        used = _label_end(before, words) - width_of(words.label) + width_of(label)
        slack = room - used - _beside(what, takes)
        parts = [page.paint("guide", before), self._prefix(words), label, page.paint("fold", words.times)]
        if what:
            gap = min(max(columns.tab - used, 0), max(slack, 0)) + 2
            parts += (" " * gap, page.paint("class", what))
            used += gap + width_of(what)
        if takes or gives:
            parts += (" " * (room - used - width_of(takes)), page.paint("input", takes))
            used = room
        if gives:
            style, (first, last) = "error" if words.failed else "output", words.alarm
            said = (page.paint(style, gives[:first]), page.paint("error", gives[first:last]))
            parts += (page.paint("dim", ARROW), *said, page.paint(style, gives[last:]))
            used += arrow_width
        return "".join(parts), used

    def _prefix(self, words: _Words) -> str:
        if not words.prefix:
            return ""
        return self._page.paint("fold" if words.folded else "name", words.prefix) + ": "

    def _tail(self, line: _Line, gap: int) -> str:
        """Time and place at the right edge."""
        page = self._page
        place = page.paint("place", line.place)
        if line.at is not None and place:
            place = link(place, line.at.file, line.at.line)
        time = page.paint("time", line.time)
        return " " * gap + ("  " + time if time else "") + ("  " + place if place else "")


# ---------------------------------------------------------------- what fits


def _fit(before: str, words: _Words, room: int) -> tuple[str, str, str]:
    """Label, class and inputs for the room there is: settings go first, then inputs, then the label's end."""
    whole = _label_end(before, words)
    takes, first, plain = words.takes, words.first, words.plain
    for what, some in ((words.what, takes), (plain, takes), (plain, first)):
        if whole + _beside(what, some) <= room:
            return words.label, what, some
    label = width_of(words.label)
    fixed = whole - label
    for what, some in ((plain, takes), (plain, first), (plain, "…" if takes else "")):
        space = room - fixed - _beside(what, some)
        if space >= min(SHORTEST_LABEL, label):
            return shortened(words.label, space), what, some
    return shortened(words.label, room - fixed), "", ""


def shortened(label: str, room: int) -> str:
    """The label in that room; of a chain of calls the last one stays: ``keys = ….transpose(1, 2)``."""
    if width_of(label) <= room:
        return label
    end = label.partition("(")[0].rfind(" = ")  # of ``a = b = f(x)`` the last
    target, equals, code = (label[:end], " = ", label[end + 3 :]) if end >= 0 else ("", "", label)
    dot = _last_call(code)
    if dot > 0 and "(" in code[:dot]:
        last = f"{target}{equals}…{code[dot:]}"
        if width_of(last) <= room:
            return last
    return cut(label, room)


def _last_call(code: str) -> int:
    """Where the last dot stands that is in no bracket; -1 if there is none, or if more than a chain is written."""
    depth, found = 0, -1
    for at, char in enumerate(code):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0 and char == ".":
            found = at
        elif depth == 0 and char == " ":
            return -1
    return found


def _beside(what: str, takes: str) -> int:
    return (2 + width_of(what) if what else 0) + (2 + width_of(takes) if takes else 0)
