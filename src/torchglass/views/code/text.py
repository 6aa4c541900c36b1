"""The code view as text: source lines, one level deeper what they call, and under the innermost the steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torchglass.events.types import Location
from torchglass.views import row as kinds
from torchglass.views.code.view import DOWN
from torchglass.views.row import Cell, Row
from torchglass.views.text.layout import guides, repeat_line, thread_line
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import narrowed, painted
from torchglass.views.text.words import clean, cut, file_name, known_as, path_word, width_of, wrapped

ARROW_DOWN = "⬇️"
TIME_WIDTH = 10
SHORTEST_ARGS = 12
SHORTEST_SOURCE = 32
FEWEST_COLUMNS = 6


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """The lines of the view."""
    has_times = any(row.cell(kinds.TIME) for row in rows)
    writer = _Writer(page, TIME_WIDTH if has_times else 0)
    for row in rows:
        yield from writer.lines(row)


class _Writer:
    """Writes rows, and remembers which places and notes were said."""

    def __init__(self, page: Page, time_width: int) -> None:
        self._page, self._time_width = page, time_width
        self._width = page.width - time_width
        self._functions: list[tuple[str, str]] = []
        """File and function of the line last shown at each depth."""
        self._noted: set[str] = set()
        self._steps: dict[tuple[int, int], tuple[str, tuple[Cell, ...]]] = {}

    def lines(self, row: Row) -> Iterator[str]:
        """The line of a row, and a note that its step may have."""
        if row.kind == kinds.THREAD:
            self._functions.clear()
            yield thread_line(row.text(kinds.NAME), self._page.width, self._page)
            return
        before = guides(row.depth, self._width)
        bars = self._time(row) + self._page.paint("guide", before)
        room = self._width - width_of(before)
        if row.kind == kinds.LINE:
            yield bars + self._line(row, room)
        elif row.kind in (DOWN, kinds.REPEAT):
            del self._functions[row.depth :]
            inside = replace(self._page, width=self._width)
            yield (
                self._time(row) + repeat_line(row, before, inside)
                if row.kind == kinds.REPEAT
                else bars + self._down(row, room)
            )
        else:
            yield bars + self._step(row, room)
            yield from self._note(row)

    def _time(self, row: Row) -> str:
        if not self._time_width:
            return ""
        return self._page.paint("time", f"{row.text(kinds.TIME):>{TIME_WIDTH - 1}}") + " "

    def _down(self, row: Row, room: int) -> str:
        page, often = self._page, row.text(kinds.FOLD)
        name = cut(row.text(kinds.NAME), room - 4 - width_of(often))
        return (
            page.paint("dim", ARROW_DOWN) + (f" {page.paint('name', name)}" if name else "") + page.paint("fold", often)
        )

    # ------------------------------------------------------------ lines of source

    def _line(self, row: Row, room: int) -> str:
        source = row.cell(kinds.SOURCE)
        assert source is not None
        assert source.at is not None
        page, at = self._page, source.at
        del self._functions[row.depth + 1 :]
        while len(self._functions) <= row.depth:
            self._functions.append(("", ""))
        known = self._functions[row.depth] == (at.file, at.function)
        self._functions[row.depth] = (at.file, at.function)
        often, inside = row.text(kinds.FOLD), "  ".join(filter(None, (row.text(kinds.ROUNDS), row.text(kinds.COUNT))))
        inside = f"  {inside}" if inside and width_of(often) + len(inside) + 2 <= room // 2 else ""
        gives = row.text(kinds.GIVES)
        room -= width_of(often) + len(inside)
        width, place, gives = _fit(width_of(source.text), _places(at, known), f" → {gives}" if gives else "", room)
        text = _painted(source, width, page) + page.paint("fold", often) + "  " + page.paint("place", place)
        return text + page.paint("output", gives) + page.paint("dim", inside)

    # ------------------------------------------------------------ steps

    def _step(self, row: Row, room: int) -> str:
        key = (id(row.cells), room)
        found = self._steps.get(key)
        if found is None:
            # The cells are kept with their line, so that their id stays their own.
            found = self._steps[key] = (self._make_step(row, room), row.cells)
        return found[0]

    def _make_step(self, row: Row, room: int) -> str:
        page, often = self._page, row.text(kinds.FOLD)
        module = cut(f"  {row.text(kinds.CLASS)}", room // 3) if row.cell(kinds.CLASS) else ""
        if row.cell(kinds.HEADING):  # a mark
            value = cut(row.text(kinds.GIVES), room // 2)
            name = cut(row.text(kinds.HEADING), room - width_of(often) - width_of(value) - 2)
            return page.paint("name", name) + page.paint("output", f"  {value}".rstrip()) + page.paint("fold", often)
        often += f"  {row.text(kinds.ROUNDS)}" if row.cell(kinds.ROUNDS) else ""
        space = room - width_of(module) - width_of(often)
        if row.cell(kinds.ERROR):
            text = _step_text(row, space * 2 // 3)
            return page.paint("dim", text) + page.paint(
                "error", cut(f" ✗ {row.text(kinds.ERROR)}", space - width_of(text))
            )
        gives, text = row.cell(kinds.GIVES), _step_text(row, space)
        said = painted(text, "dim", page) if gives is not None and gives.mark else page.paint("dim", text)
        return said + page.paint("class", module) + page.paint("fold", often)

    def _note(self, row: Row) -> Iterator[str]:
        before, blank = guides(row.depth + 1, self._width), " " * self._time_width
        for cell in row.below:
            text = "note: as above" if cell.text in self._noted else f"note: {cell.text}"
            self._noted.add(cell.text)
            for line in wrapped(text, self._page.width - len(blank + before)):
                yield blank + self._page.paint("guide", before) + self._page.paint("note", line)


def _step_text(row: Row, room: int) -> str:
    """``# addmm(f32[96], f32[14, 32], f32[32, 96]) -> f32[14, 96];``: where it is too long, first arguments go."""
    name, args, result = row.text(kinds.NAME), row.text(kinds.TAKES), row.text(kinds.GIVES)
    if row.cell(kinds.TAKES) is None:  # an optimizer's step
        return cut(f"# {name};  {row.text(kinds.COUNT)}", room)
    end = ""
    if not row.cell(kinds.ERROR):
        unseen = f"  {row.text(kinds.COUNT)}" if row.cell(kinds.COUNT) else ""
        end = f" -> {result};{unseen}" if result else f";{unseen}"
    fixed = width_of(name) + 4
    if fixed + width_of(args) + width_of(end) > room:
        end = narrowed(end, max(room - fixed - min(width_of(args), SHORTEST_ARGS), 6))
        args = cut(args, max(room - fixed - width_of(end), 1))
    return cut(f"# {name}({args}){end}", room)


# ---------------------------------------------------------------- where a line stands


def _painted(source: Cell, width: int, page: Page) -> str:
    """The line in that width, with the expression that ran highlighted."""
    text = cut(source.text, width)
    first, last = source.mark or (0, 0)
    return text[:first] + page.paint("class", text[first:last]) + text[last:]


def _places(at: Location, known: bool) -> list[str]:
    """Ways to say the place, the longest first; in the function of the line before, the number is enough."""
    line = f":{at.line}"
    if known:
        return [f"# {line}"]
    function = f" in {clean(at.function.rpartition('<locals>.')[2])}:"
    file = known_as(at.file)
    short = f"# {file_name(file)}{line}"
    return [f"# {path_word(file)}{line}{function}", f"{short}{function}", short]


def _fit(text: int, places: list[str], gives: str, room: int) -> tuple[int, str, str]:
    """The width of the source, the place and the shapes that fit: rather a short place and no shapes than no source."""
    for place, shapes in (*((place, gives) for place in places), (places[-1], "")):
        left = room - 2 - width_of(place) - width_of(shapes)
        if left >= min(text, max(SHORTEST_SOURCE, room // 2)):
            return left, place, shapes
    place = cut(places[-1], max(room - 2 - FEWEST_COLUMNS, 1))
    return max(room - 2 - width_of(place), 1), place, ""
