"""Prints the code view: source lines, the lines of functions that they call one level deeper, and
steps below them::

    loss = model(x).sum()  # train.py:12 in main: → f32[]     a line, its place, its results
    │ ⬇️ Net                                                    down into a module
    │ h = self.fc(x)  # model.py:7 in Net.forward: → f32[8, 16]
    │ │ # linear(f32[8, 4], f32[16, 4]) -> f32[8, 16];         a step
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from torchglass.events.types import Location
from torchglass.views import row as kinds
from torchglass.views.code.view import DOWN
from torchglass.views.row import Cells, Row
from torchglass.views.text.layout import guides, repeat_line, thread_line
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import narrowed, painted
from torchglass.views.text.words import (
    clean,
    cut,
    file_name,
    known_as,
    path_word,
    width_of,
    wrapped,
)

ARROW_DOWN = "⬇️"
MAX_ARROW_WIDTH = 4
"""How many columns the arrow and the space after it take at most: terminals differ in that."""
GAP = "  "
TIME_WIDTH = 10
"""The width of the column of times, with the space after it."""
MIN_ARGS_WIDTH = 12
"""How much of a step's arguments stays visible, at the expense of its result."""
MIN_RESULT_WIDTH = 6
"""How much of a step's result stays visible."""
MIN_SOURCE_WIDTH = 32
"""How much of a source line stays visible, at the expense of the file and function beside it."""
MIN_SOURCE_BESIDE_LINE = 6
"""The same on a very narrow page, where only the file and the number of the line are beside it."""


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield the lines of the view."""
    time_width = 0
    if any(row.cell(kinds.TIME) for row in rows):
        time_width = TIME_WIDTH
    writer = _Writer(page, time_width)
    for row in rows:
        yield from writer.lines(row)


class _SourceLine(NamedTuple):
    """What fits on the line of a source line, except how often it ran."""

    source_width: int
    place: str
    results: str


class _Writer:
    """Writes rows. It remembers which places and notes were already printed, to shorten
    repetitions.
    """

    def __init__(self, page: Page, time_width: int) -> None:
        self._page = page
        self._time_width = time_width
        self._width = page.width - time_width
        self._functions: list[tuple[str, str]] = []
        """The file and the function of the last line shown at each depth."""
        self._file = ""
        """The file of the last line shown."""
        self._printed_notes: set[str] = set()
        self._steps: dict[tuple[int, int], tuple[str, Cells]] = {}
        """By the id of a step's cells and the room for it: its text, and the cells.

        The rows of equal steps share their cells, and cells take long to hash. They are kept here
        so that no other cells get their id.
        """

    def lines(self, row: Row) -> Iterator[str]:
        """Yield the line of a row, and the note of its step."""
        if row.kind == kinds.THREAD:
            self._functions.clear()
            yield thread_line(row.text(kinds.NAME), self._page.width, self._page)
            return
        bars = guides(row.depth, self._width)
        time = self._time(row)
        before = time + self._page.paint("guide", bars)
        room = self._width - width_of(bars)
        if row.kind == kinds.LINE:
            yield before + self._line(row, room)
            yield from self._notes(row)
        elif row.kind == kinds.REPEAT:
            del self._functions[row.depth :]
            yield time + repeat_line(row, bars, replace(self._page, width=self._width))
        elif row.kind == DOWN:
            del self._functions[row.depth :]
            yield before + self._down(row, room)
        else:
            yield before + self._step(row, room)
            yield from self._notes(row)

    def _time(self, row: Row) -> str:
        if not self._time_width:
            return ""
        return self._page.paint("time", f"{row.text(kinds.TIME):>{TIME_WIDTH - 1}}") + " "

    def _down(self, row: Row, room: int) -> str:
        """Return the line that leads down into a function or module: ``⬇️ blocks.0 × 3``."""
        page = self._page
        times = row.text(kinds.FOLD)
        name = cut(row.text(kinds.NAME), room - MAX_ARROW_WIDTH - width_of(times))
        text = page.paint("dim", ARROW_DOWN)
        if name:
            text += f" {page.paint('name', name)}"
        return text + page.paint("fold", times)

    # ------------------------------------------------------------ lines of source

    def _line(self, row: Row, room: int) -> str:
        """Return a source line, with how often it ran, its place and what it assigned."""
        source = row.cell(kinds.SOURCE)
        assert source is not None
        assert source.at is not None
        page = self._page
        times = row.text(kinds.FOLD)
        # In which rounds it ran, and how many steps are inside: left out if they take much room.
        remarks = GAP.join(filter(None, (row.text(kinds.ROUNDS), row.text(kinds.COUNT))))
        if remarks:
            remarks = GAP + remarks
        if width_of(times) + len(remarks) > room // 2:
            remarks = ""
        results = row.text(kinds.GIVES)
        if results:
            results = f" → {results}"
        fitted = _fitted(
            width_of(source.text),
            self._places(source.at, row.depth),
            results,
            room - width_of(times) - len(remarks),
        )
        text = cut(source.text, fitted.source_width)
        first, last = source.mark or (0, 0)
        pieces = [
            text[:first],
            page.paint("class", text[first:last]),
            text[last:],
            page.paint("fold", times),
            GAP,
            page.paint("place", fitted.place),
            page.paint("output", fitted.results),
            page.paint("dim", remarks),
        ]
        return "".join(pieces)

    def _places(self, at: Location, depth: int) -> list[str]:
        """Return the ways to write a place, longest first, and remember that it was printed.

        After a line of the same function at this depth, the number of the line is enough. The file
        is added if another one was shown since.
        """
        del self._functions[depth + 1 :]
        while len(self._functions) <= depth:
            self._functions.append(("", ""))
        is_same_function = self._functions[depth] == (at.file, at.function)
        self._functions[depth] = (at.file, at.function)
        is_same_file = at.file == self._file
        self._file = at.file
        file = known_as(at.file)
        if is_same_function and is_same_file:
            return [f"# :{at.line}"]
        if is_same_function:
            return [f"# {file_name(file)}:{at.line}"]
        function = f" in {clean(at.function.rpartition('<locals>.')[2])}:"
        short = f"# {file_name(file)}:{at.line}"
        return [f"# {path_word(file)}:{at.line}{function}", f"{short}{function}", short]

    # ------------------------------------------------------------ steps

    def _step(self, row: Row, room: int) -> str:
        key = (id(row.cells), room)
        kept = self._steps.get(key)
        if kept is None:
            kept = self._steps[key] = (self._make_step(row, room), row.cells)
        text, _ = kept
        return text

    def _make_step(self, row: Row, room: int) -> str:
        if _is_mark(row):
            return self._mark(row, room)
        page = self._page
        module = ""
        if row.cell(kinds.CLASS):
            module = cut(GAP + row.text(kinds.CLASS), room // 3)
        times = row.text(kinds.FOLD)
        if row.cell(kinds.ROUNDS):
            times += GAP + row.text(kinds.ROUNDS)
        room -= width_of(module) + width_of(times)
        if row.cell(kinds.ERROR):
            text = _step_text(row, room * 2 // 3)
            error = cut(f" ✗ {row.text(kinds.ERROR)}", room - width_of(text))
            return page.paint("dim", text) + page.paint("error", error)
        text = _step_text(row, room)
        result = row.cell(kinds.GIVES)
        if result is not None and result.mark:
            text = painted(text, "dim", page)
        else:
            text = page.paint("dim", text)
        return text + page.paint("class", module) + page.paint("fold", times)

    def _mark(self, row: Row, room: int) -> str:
        page = self._page
        times = row.text(kinds.FOLD)
        value = cut(row.text(kinds.GIVES), room // 2)
        name_room = room - width_of(times) - width_of(value) - len(GAP)
        name = page.paint("name", cut(row.text(kinds.HEADING), name_room))
        return name + page.paint("output", (GAP + value).rstrip()) + page.paint("fold", times)

    def _notes(self, row: Row) -> Iterator[str]:
        """Yield the notes and findings below a row. A note that was printed before is only
        referred to.
        """
        bars = guides(row.depth + 1, self._width)
        space = " " * self._time_width
        for cell in row.below:
            if cell.kind == kinds.FINDING:
                style = "error"
                text = cell.text
            elif cell.text in self._printed_notes:
                style = "note"
                text = "note: as above"
            else:
                style = "note"
                text = f"note: {cell.text}"
                self._printed_notes.add(cell.text)
            for line in wrapped(text, self._page.width - len(space + bars)):
                yield space + self._page.paint("guide", bars) + self._page.paint(style, line)


def _is_mark(row: Row) -> bool:
    """Return whether a row is the user's mark, the only step whose name is a heading."""
    return row.cell(kinds.HEADING) is not None


def _is_optimizer_step(row: Row) -> bool:
    """Return whether a row is an optimizer's step, the only step without arguments besides marks."""
    return row.cell(kinds.TAKES) is None and not _is_mark(row)


def _step_text(row: Row, room: int) -> str:
    """Return an op as text. If it is too long, its arguments are cut first.

    An example is ``# addmm(f32[96], f32[14, 32], f32[32, 96]) -> f32[14, 96];``.
    """
    name = row.text(kinds.NAME)
    if _is_optimizer_step(row):
        return cut(f"# {name};{GAP}{row.text(kinds.COUNT)}", room)
    args = row.text(kinds.TAKES)
    end = ""
    if not row.cell(kinds.ERROR):
        end = ";"
        if row.text(kinds.GIVES):
            end = f" -> {row.text(kinds.GIVES)};"
        if row.cell(kinds.COUNT):  # not seen inside
            end += GAP + row.text(kinds.COUNT)
    frame = width_of(f"# {name}()")
    if frame + width_of(args) + width_of(end) > room:
        end_room = room - frame - min(width_of(args), MIN_ARGS_WIDTH)
        end = narrowed(end, max(end_room, MIN_RESULT_WIDTH))
        args = cut(args, max(room - frame - width_of(end), 1))
    return cut(f"# {name}({args}){end}", room)


def _fitted(source_width: int, places: list[str], results: str, room: int) -> _SourceLine:
    """Choose the place and the results that leave enough room for the source: the longest place
    with all results, else the shortest place without them.
    """
    enough = min(source_width, max(MIN_SOURCE_WIDTH, room // 2))
    choices = [(place, results) for place in places]
    choices.append((places[-1], ""))
    for place, shown_results in choices:
        left = room - len(GAP) - width_of(place) - width_of(shown_results)
        if left >= enough:
            return _SourceLine(left, place, shown_results)
    place = cut(places[-1], max(room - len(GAP) - MIN_SOURCE_BESIDE_LINE, 1))
    return _SourceLine(max(room - len(GAP) - width_of(place), 1), place, "")
