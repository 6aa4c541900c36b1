"""Lines set in columns: arrows under arrows, places at the right edge, cut where it hurts least."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from torchglass.events.types import Location
from torchglass.views.text.cells import Cells
from torchglass.views.text.style import Page
from torchglass.views.text.words import cut, link, width_of

ARROW = " → "
SHORTEST_LABEL = 24
MOST_FIT = 0.9
"""Columns are as wide as nine in ten lines need; the others step out of line rather than be cut."""
MOST_KNOWN = 10_000


class Line(NamedTuple):
    """One line before it is laid out."""

    guides: str
    cells: Cells
    place: str = ""
    time: str = ""
    link: Location | None = None
    """Where a click on the place leads."""


def _tail_width(line: Line) -> int:
    """Columns that time and place take at the right, with the gaps before them."""
    return (len(line.time) + 2 if line.time else 0) + (width_of(line.place) + 2 if line.place else 0)


@dataclass(frozen=True, slots=True)
class Columns:
    """Where things begin: classes at ``tab``, arrows at ``arrow``; lines end at ``edge``."""

    tab: int
    arrow: int
    edge: int


@lru_cache(maxsize=4096)
def guides(depth: int, width: int) -> str:
    """A bar for each level; from a sixth of the page on, the number of the level instead of more bars."""
    most = max(6, width // 12)
    return "│ " * depth if depth <= most else "│ " * (most - 2) + f"┆{depth} "


# ---------------------------------------------------------------- columns


def columns_for(lines: Iterable[Line], width: int) -> Columns:
    """Columns that suit most of the different lines and fit on the page."""
    different = list(dict.fromkeys((line.guides, line.cells, _tail_width(line)) for line in lines))
    slack = width // 6
    tab = suits_most([_label_end(bars, cells) for bars, cells, _ in different if cells.what], slack)
    tab = min(tab, width * 2 // 5)
    gives = suits_most([width_of(cells.gives) for _, cells, _ in different if cells.gives], slack=6)
    # A file's name stands on few lines; those give way, so that the others need not.
    tail = suits_most([tail for _, _, tail in different], slack=2, part=0.75)
    right = min(gives, width // 3) + len(ARROW) + tail
    needed = suits_most([_needed(bars, cells, tab) for bars, cells, _ in different if cells.gives], slack)
    arrow = max(min(needed, width - right), 0)
    return Columns(tab, arrow, min(width, arrow + right))


def fixed_columns(width: int) -> Columns:
    """Columns for lines that are printed while nobody knows the next ones."""
    return Columns(tab=width * 3 // 10, arrow=width * 6 // 10, edge=width)


def suits_most(widths: list[int], slack: int, part: float = MOST_FIT) -> int:
    """What the given part of the lines needs; what all need, when that is only a little more."""
    if not widths:
        return 0
    ordered = sorted(widths)
    most = ordered[int((len(ordered) - 1) * part + 0.5)]
    return ordered[-1] if ordered[-1] <= most + slack else most


def _label_end(bars: str, cells: Cells) -> int:
    return len(bars) + width_of(cells.label) + (width_of(cells.prefix) + 2 if cells.prefix else 0)


def _needed(bars: str, cells: Cells, tab: int) -> int:
    left = _label_end(bars, cells)
    if cells.what:
        left = max(left, tab) + 2 + width_of(cells.what)
    return left + (2 + width_of(cells.sign.join(cells.takes)) if cells.takes else 0)


# ---------------------------------------------------------------- lines


class Layout:
    """Lays lines out in columns; lines that say the same are laid out once."""

    def __init__(self, columns: Columns, page: Page) -> None:
        self.edge = columns.edge
        self._columns = columns
        self._page = page
        self._known: dict[tuple[str, int, int], tuple[str, int, Cells]] = {}

    def line(self, line: Line) -> str:
        """The line, no wider than the page."""
        tail = _tail_width(line)
        if tail > self._page.width // 2 and line.time:
            line = line._replace(place="")
            tail = _tail_width(line)
        key = (line.guides, id(line.cells), tail)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            # The cells are kept with it, so that their id stays theirs.
            found = self._known[key] = (*self._body(line.guides, line.cells, tail), line.cells)
        body, used, _ = found
        return body + self._tail(line, max(self._columns.edge - used, tail) - tail) if tail else body

    def _body(self, bars: str, cells: Cells, tail: int) -> tuple[str, int]:
        """All but time and place, and the columns that it takes."""
        columns, page = self._columns, self._page
        space = page.width - tail - len(ARROW) - len(bars)
        gives = cut(cells.gives, max(space - SHORTEST_LABEL, min(space, 8)))
        arrow_width = len(ARROW) + width_of(gives) if gives else 0
        room = min(max(columns.arrow, _needed(bars, cells, columns.tab)), page.width - tail - arrow_width)
        if cells.prefix:
            cells = cells._replace(prefix=cut(cells.prefix, max(room - len(bars) - 2, 0)))
        label, what, takes = _fit(bars, cells, room)
        used = _label_end(bars, cells) - width_of(cells.label) + width_of(label)
        slack = room - used - _beside(what, takes)
        parts = [page.paint("guide", bars), self._prefix(cells), label]
        if what:
            gap = min(max(columns.tab - used, 0), max(slack, 0)) + 2
            parts += (" " * gap, page.paint("class", what))
            used += gap + width_of(what)
        if takes or gives:
            parts += (" " * (room - used - width_of(takes)), page.paint("input", takes))
            used = room
        if gives:
            parts += (page.paint("dim", ARROW), page.paint("error" if cells.failed else "output", gives))
            used += arrow_width
        return "".join(parts), used

    def _prefix(self, cells: Cells) -> str:
        if not cells.prefix:
            return ""
        return self._page.paint("fold" if cells.folded else "name", cells.prefix) + ": "

    def _tail(self, line: Line, gap: int) -> str:
        """Time and place at the right edge."""
        page = self._page
        place = page.paint("place", line.place)
        if line.link is not None and place:
            place = link(place, line.link.file, line.link.line)
        time = page.paint("time", line.time)
        return " " * gap + ("  " + time if time else "") + ("  " + place if place else "")


def _fit(bars: str, cells: Cells, room: int) -> tuple[str, str, str]:
    """Label, class and inputs for the room there is: settings go first, then inputs, then the label's end."""
    takes = cells.sign.join(cells.takes)
    first = takes if len(cells.takes) < 2 else cells.takes[0] + cells.sign.rstrip() + " …"
    whole = _label_end(bars, cells)
    for what, some in ((cells.what, takes), (cells.kind, takes), (cells.kind, first)):
        if whole + _beside(what, some) <= room:
            return cells.label, what, some
    label = width_of(cells.label)
    fixed = whole - label
    nothing = "…" if takes else ""
    for what, some in ((cells.kind, takes), (cells.kind, first), (cells.kind, nothing)):
        space = room - fixed - _beside(what, some)
        if space >= min(SHORTEST_LABEL, label):
            return shortened(cells.label, space), what, some
    return shortened(cells.label, room - fixed), "", ""


def shortened(label: str, room: int) -> str:
    """The label in that room; of a chain of calls the last one stays: ``keys = ….transpose(1, 2)``."""
    if width_of(label) <= room:
        return label
    target, equals, code = label.partition(" = ") if " = " in label.partition("(")[0] else ("", "", label)
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
