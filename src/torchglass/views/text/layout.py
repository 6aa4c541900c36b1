"""Lays rows out in columns: arrows are aligned, and places are at the right edge.

A line has these parts. ``‖`` stands where a column begins, at the same place in all lines::

    │ fc: h = self.fc(x)  × 3  ‖Linear(4, 16)   f32[8, 4]‖ → f32[8, 16]   12 ms  model.py:31
    bars
      prefix
          label
                          times
                                details
                                                inputs      outputs
                                                                          time   place

If a line is too long, its least important parts are cut first. A line that is longer than most
others is not aligned with them, rather than cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from torchglass.events.types import Location
from torchglass.program.dedup import ById
from torchglass.views import row as kinds
from torchglass.views.row import Cell, Row
from torchglass.views.text.labels import shortened
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import narrowed
from torchglass.views.text.words import Places, clean, cut, link, width_of, wrapped

ARROW = " → "
GAP = "  "
"""What is between two parts of a line."""
MIN_LABEL_WIDTH = 24
"""How many columns of a label stay visible, at the expense of the other parts."""
MIN_OUTPUTS_WIDTH = 8
"""How many columns of the outputs stay visible, if the page is that wide."""
ALIGNED_SHARE = 0.9
"""The share of lines for which columns are wide enough."""
TAIL_SHARE = 0.75
"""The same for the time and the place. Few places have the name of a file: cutting outputs in their
lines leaves more room in all others.
"""
MAX_LINES_KEPT = 10_000
"""How many laid-out lines are kept for equal rows, to limit memory."""
BELOW_STYLES = {kinds.NOTE: "note", kinds.FINDING: "error"}
"""The styles of notes and findings below a row. All else is dim."""
PROCESS_NAMES = ("rank ", "process ", "DataLoader worker ", "SpawnProcess-", "ForkProcess-")
"""How the names of threads begin that are named after their process."""
_SECTION_HEADINGS = (kinds.HEADING, kinds.VARIABLE, kinds.BLANK)
"""Rows between sections. Each section has columns of its own widths."""


# ---------------------------------------------------------------- lines without columns


@lru_cache(maxsize=4096)
def guides(depth: int, width: int) -> str:
    """Return a bar for each level of depth: ``│ │ ``. If bars would take more than a sixth of the
    page, a number replaces some.
    """
    most = max(6, width // 12)
    if depth <= most:
        return "│ " * depth
    return "│ " * (most - 2) + f"┆{depth} "


def suits_most(widths: list[int], slack: int, part: float = ALIGNED_SHARE) -> int:
    """Return the width that a part of the lines needs, or the width that all need if that is at
    most ``slack`` more.
    """
    if not widths:
        return 0
    ordered = sorted(widths)
    for_part = ordered[int((len(ordered) - 1) * part + 0.5)]
    for_all = ordered[-1]
    if for_all <= for_part + slack:
        return for_all
    return for_part


def thread_line(name: str, edge: int, page: Page) -> str:
    """Return the line that begins a thread, such as ``── thread loader ────``, up to the edge.

    The word ``thread`` is left out for a main thread, which has the name of its process.
    """
    word = "thread "
    if name.startswith(PROCESS_NAMES):
        word = ""
    title = f"── {word}{cut(clean(name), page.width - 14)} "
    return page.paint("heading", title + "─" * (edge - width_of(title)))


def repeat_line(row: Row, before: str, page: Page) -> str:
    """Return the line of a repetition, such as ``layers.0–23 × 24, 3 steps each:``."""
    room = page.width - len(before)
    rest = row.text(kinds.COUNT)
    fold = cut(row.text(kinds.FOLD), max(room - len(rest), 1))
    rest = cut(rest, room - width_of(fold))
    return page.paint("guide", before) + page.paint("fold", fold) + page.paint("dim", rest)


# ---------------------------------------------------------------- the parts of a line


class _Parts(NamedTuple):
    """The texts of a row, in the order of the picture above."""

    prefix: str
    """Which module, or which repetition."""
    label: str
    times: str
    """How many iterations, with a gap before it."""
    details: str
    """The class and its settings, counts, rounds, and a reference to equal rows."""
    short_details: str
    """The same for a narrow page."""
    inputs: str
    short_inputs: str
    """The same for a narrow page."""
    outputs: str
    """What the call returned, or its error."""
    alarm: tuple[int, int]
    """The part of ``outputs`` about numbers that are not finite."""
    is_error: bool
    """Whether ``outputs`` is an error."""
    is_folded: bool
    """Whether the prefix says which calls were folded into the row."""


def _parts_of(cells: Sequence[Cell], page_width: int) -> _Parts:
    by_kind = {cell.kind: cell for cell in cells}
    missing = Cell("")
    prefix = by_kind.get(kinds.NAME, missing).text
    fold = by_kind.get(kinds.FOLD, missing).text
    if fold:
        prefix = cut(fold, page_width // 3)
    label = by_kind.get(kinds.EXPRESSION, missing).text
    if not label:
        label = prefix
        prefix = ""
    times = ""
    if kinds.TIMES in by_kind:
        times = GAP + by_kind[kinds.TIMES].text
    details = [
        by_kind[kind]
        for kind in (kinds.CLASS, kinds.COUNT, kinds.ROUNDS, kinds.SAME)
        if kind in by_kind
    ]
    inputs = by_kind.get(kinds.TAKES, missing)
    outputs = by_kind.get(kinds.ERROR) or by_kind.get(kinds.GIVES, missing)
    return _Parts(
        prefix=prefix,
        label=label,
        times=times,
        details=GAP.join(cell.text for cell in details),
        short_details=GAP.join(filter(None, map(_short, details))),
        inputs=inputs.text,
        short_inputs=_short(inputs),
        outputs=outputs.text,
        alarm=outputs.mark or (0, 0),
        is_error=kinds.ERROR in by_kind,
        is_folded=kinds.FOLD in by_kind,
    )


def _short(cell: Cell) -> str:
    if cell.short is None:
        return cell.text
    return cell.short


class _Line(NamedTuple):
    """A row before the columns are known."""

    bars: str
    parts: _Parts
    place: str
    time: str
    at: Location | None
    """Where the place links to; None without links."""

    @property
    def tail_width(self) -> int:
        """How many columns the time and the place take at the right, with the gaps before them."""
        return _width_after_gap(self.time) + _width_after_gap(self.place)


def _width_after_gap(text: str) -> int:
    """Return how many columns a text takes with the gap before it; 0 for no text."""
    if not text:
        return 0
    return len(GAP) + width_of(text)


# Where a part ends, in columns from the left edge, if nothing is cut.


def _label_end(bars: str, parts: _Parts) -> int:
    """Return where the label and its times end."""
    prefix = 0
    if parts.prefix:
        prefix = width_of(parts.prefix) + len(": ")
    return len(bars) + prefix + width_of(parts.label) + width_of(parts.times)


def _inputs_end(bars: str, parts: _Parts, details_at: int) -> int:
    """Return where the inputs end, which is where the arrow may begin."""
    end = _label_end(bars, parts)
    if parts.details:
        end = max(end, details_at) + _width_after_gap(parts.details)
    return end + _width_after_gap(parts.inputs)


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the columns of a section begin, counted from the left edge."""

    details: int
    arrow: int
    edge: int
    """Where the lines end."""


def _columns_for(lines: Iterable[_Line], page_width: int) -> _Columns:
    """Return columns that suit most of the different lines and fit on the page."""
    different = list(dict.fromkeys((line.bars, line.parts, line.tail_width) for line in lines))
    slack = page_width // 6
    label_ends = [_label_end(bars, parts) for bars, parts, _ in different if parts.details]
    details = min(suits_most(label_ends, slack), page_width * 2 // 5)
    output_widths = [width_of(parts.outputs) for _, parts, _ in different if parts.outputs]
    outputs = suits_most(output_widths, slack=6)
    tail = suits_most([tail_width for _, _, tail_width in different], slack=2, part=TAIL_SHARE)
    # Arrows leave a third of the page to the outputs.
    right_of_arrow = min(outputs, page_width // 3) + len(ARROW) + tail
    input_ends = [
        _inputs_end(bars, parts, details) for bars, parts, _ in different if parts.outputs
    ]
    arrow = max(min(suits_most(input_ends, slack), page_width - right_of_arrow), 0)
    # Places follow the outputs if there is room left on the page.
    edge = min(page_width, arrow + len(ARROW) + outputs + tail)
    return _Columns(details, arrow, edge)


# ---------------------------------------------------------------- rows


def draw(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield the lines of all rows. Rows between two headings share their columns."""
    printed_notes: set[str] = set()
    for are_headings, section in groupby(rows, lambda row: row.kind in _SECTION_HEADINGS):
        if are_headings:
            yield from (_heading(row, page) for row in section)
        else:
            yield from _Section(list(section), page, printed_notes).lines()


def _heading(row: Row, page: Page) -> str:
    if row.kind == kinds.BLANK:
        return ""
    if row.kind == kinds.VARIABLE:
        name = cut(row.text(kinds.NAME), page.width // 2)
        return page.paint("name", name) + cut(row.text(kinds.COUNT), page.width - width_of(name))
    style = "heading"
    if row.cell(kinds.FOLD):
        style = "fold"
    text = row.text(kinds.FOLD) or row.text(kinds.HEADING)
    return " " * row.indent + page.paint(style, cut(text, page.width - row.indent))


class _Fitted(NamedTuple):
    """The parts of a line, cut so that they fit, with the spaces before them."""

    prefix: str
    label: str
    details_gap: int
    details: str
    inputs_gap: int
    inputs: str
    outputs: str
    width: int
    """How many columns the line takes without the time and the place."""


class _Section:
    """Rows that share columns. Equal rows are laid out only once."""

    def __init__(self, rows: Sequence[Row], page: Page, printed_notes: set[str]) -> None:
        self._rows = rows
        self._page = page
        self._printed_notes = printed_notes
        self._equal_parts: dict[_Parts, _Parts] = {}
        """Makes equal parts one object, so that its id identifies them."""
        self._parts = ById(self._make_parts)
        self._bodies: dict[tuple[str, int, int], tuple[str, int]] = {}
        """By the bars, the id of the parts and the width of the tail: the line up to the time."""
        self._lines = self._make_lines()
        self._columns = _columns_for(filter(None, self._lines), page.width)

    def lines(self) -> Iterator[str]:
        """Yield the line of each row, and the lines below it."""
        page = self._page
        for row, line in zip(self._rows, self._lines, strict=True):
            bars = self._bars(row)
            if row.kind == kinds.THREAD:
                yield thread_line(row.text(kinds.NAME), self._columns.edge, page)
            elif row.kind == kinds.REPEAT:
                yield repeat_line(row, bars, page)
            elif row.kind == kinds.GAP:
                yield bars + page.paint("dim", cut(row.text(kinds.COUNT), page.width - 4))
            elif line is not None:
                yield self._drawn(line).rstrip()
                if row.below:
                    yield from self._below(row, bars)

    def _bars(self, row: Row) -> str:
        return " " * row.indent + guides(row.depth, self._page.width)

    def _make_lines(self) -> list[_Line | None]:
        """Build the lines of all rows; None for rows without columns.

        A place names its file only where the file changes, so the lines must be built in order,
        before the columns are known.
        """
        page = self._page
        places = Places(page.width)
        lines: list[_Line | None] = []
        for row in self._rows:
            if row.kind == kinds.THREAD:
                # The rows of each thread stand alone, and may be of another process.
                places = Places(page.width)
            if row.kind in (kinds.THREAD, kinds.REPEAT, kinds.GAP):
                lines.append(None)
                continue
            at = row.place
            place = ""
            if at is not None and row.kind == kinds.PATH:
                place = places.whole(at)
            elif at is not None:
                place = places.place(at)
            if not page.links:
                at = None
            parts = self._parts(row.cells)
            lines.append(_Line(self._bars(row), parts, place, row.text(kinds.TIME), at))
        return lines

    def _make_parts(self, cells: tuple[Cell, ...]) -> _Parts:
        parts = _parts_of(cells, self._page.width)
        return self._equal_parts.setdefault(parts, parts)

    def _below(self, row: Row, bars: str) -> Iterator[str]:
        """Yield the notes and remarks below a row. A note that was printed before is only referred
        to.
        """
        page = self._page
        for cell in row.below:
            if cell.kind == kinds.ORIGIN:
                cell_bars = bars
                gap = GAP
            else:
                cell_bars = guides(row.depth + 1, page.width)
                gap = ""
            text = cell.text
            if cell.kind == kinds.NOTE and text in self._printed_notes:
                text = "note: as above"
            elif cell.kind == kinds.NOTE:
                self._printed_notes.add(text)
                text = f"note: {text}"
            style = BELOW_STYLES.get(cell.kind, "dim")
            for line in wrapped(text, page.width - len(cell_bars + gap)):
                yield page.paint("guide", cell_bars) + gap + page.paint(style, line)

    # ------------------------------------------------------------ one line

    def _drawn(self, line: _Line) -> str:
        """Return a line, no wider than the page."""
        if line.tail_width > self._page.width // 2 and line.time:
            line = line._replace(place="")
        tail_width = line.tail_width
        key = (line.bars, id(line.parts), tail_width)
        body = self._bodies.get(key)
        if body is None:
            if len(self._bodies) >= MAX_LINES_KEPT:
                self._bodies.clear()
            fitted = self._fitted(line.bars, line.parts, tail_width)
            body = (self._painted(line.bars, line.parts, fitted), fitted.width)
            self._bodies[key] = body
        text, width = body
        if not tail_width:
            return text
        space = max(self._columns.edge - width, tail_width) - tail_width
        return text + " " * space + self._tail(line)

    def _fitted(self, bars: str, parts: _Parts, tail_width: int) -> _Fitted:
        """Cut the parts of a line so that it fits on the page, and find the gaps between them."""
        columns = self._columns
        room = self._page.width - tail_width
        right = room - len(ARROW) - len(bars)
        outputs = narrowed(parts.outputs, self._outputs_width(parts, right))
        outputs_width = 0
        if outputs:
            outputs_width = len(ARROW) + width_of(outputs)
        # The arrow is in its column unless the line needs more room before it, or has less.
        inputs_end = _inputs_end(bars, parts, columns.details)
        arrow = min(max(columns.arrow, inputs_end), room - outputs_width)
        if parts.prefix:
            prefix_room = max(arrow - len(bars) - len(": "), 0)
            parts = parts._replace(prefix=cut(parts.prefix, prefix_room))
        label, details, inputs = _fit_before_arrow(bars, parts, arrow)
        width = _label_end(bars, parts._replace(label=label))
        details_gap = 0
        if details:
            # Details are in their column if the line has room to spare for that.
            spare = arrow - width - _width_after_gap(details) - _width_after_gap(inputs)
            to_column = max(columns.details - width, 0)
            details_gap = min(to_column, max(spare, 0)) + len(GAP)
            width += details_gap + width_of(details)
        inputs_gap = 0
        if inputs or outputs:
            inputs_gap = max(arrow - width - width_of(inputs), 0)
            width = arrow + outputs_width
        return _Fitted(
            parts.prefix, label, details_gap, details, inputs_gap, inputs, outputs, width
        )

    def _painted(self, bars: str, parts: _Parts, fitted: _Fitted) -> str:
        """Return a line without time and place, in colour if the page has colours."""
        paint = self._page.paint
        pieces = [paint("guide", bars)]
        if fitted.prefix:
            style = "name"
            if parts.is_folded:
                style = "fold"
            pieces.append(paint(style, fitted.prefix) + ": ")
        pieces.append(fitted.label)
        pieces.append(paint("fold", parts.times))
        pieces.append(" " * fitted.details_gap + paint("class", fitted.details))
        pieces.append(" " * fitted.inputs_gap + paint("input", fitted.inputs))
        if fitted.outputs:
            style = "output"
            if parts.is_error:
                style = "error"
            first, last = parts.alarm
            if fitted.outputs != parts.outputs:
                # The text was cut, and its end is "…", which is no part of the alarm.
                last = min(last, len(fitted.outputs) - len("…"))
            pieces.append(paint("dim", ARROW))
            pieces.append(paint(style, fitted.outputs[:first]))
            pieces.append(paint("error", fitted.outputs[first:last]))
            pieces.append(paint(style, fitted.outputs[last:]))
        return "".join(pieces)

    def _outputs_width(self, parts: _Parts, room: int) -> int:
        """Return how wide the outputs may be: they take all that the smallest label leaves.

        But their statistics do not cut the label, unless it takes more than half of the page.
        """
        most = max(room - MIN_LABEL_WIDTH, min(room, MIN_OUTPUTS_WIDTH))
        label = shortened(parts.label, self._page.width // 2)
        left = _label_end("", parts._replace(label=label)) + _width_after_gap(parts.short_inputs)
        without_statistics = width_of(parts.outputs.partition(" μ ")[0]) + len(" …")
        return min(most, max(room - left, without_statistics))

    def _tail(self, line: _Line) -> str:
        """Return the time and the place, with the gaps before them."""
        tail = ""
        if line.time:
            tail = GAP + self._page.paint("time", line.time)
        if line.place:
            place = self._page.paint("place", line.place)
            if line.at is not None:
                place = link(place, line.at.file, line.at.line)
            tail += GAP + place
        return tail


# ---------------------------------------------------------------- what fits


def _fit_before_arrow(bars: str, parts: _Parts, room: int) -> tuple[str, str, str]:
    """Return label, details and inputs, cut to fit into the room before the arrow.

    First the details become short, then the inputs, then the end of the label is cut. The last
    resort is the label alone.
    """
    label_end = _label_end(bars, parts)
    choices = [
        (parts.details, parts.inputs),
        (parts.short_details, parts.inputs),
        (parts.short_details, parts.short_inputs),
    ]
    for details, inputs in choices:
        if label_end + _width_after_gap(details) + _width_after_gap(inputs) <= room:
            return parts.label, details, inputs
    if parts.inputs:
        choices.append((parts.short_details, "…"))
    else:
        choices.append((parts.short_details, ""))
    label_width = width_of(parts.label)
    before_label = label_end - label_width
    for details, inputs in choices[1:]:
        label_room = room - before_label - _width_after_gap(details) - _width_after_gap(inputs)
        if label_room >= min(MIN_LABEL_WIDTH, label_width):
            return shortened(parts.label, label_room), details, inputs
    return shortened(parts.label, room - before_label), "", ""
