"""The variables view: the changes of each variable, or all changes in order of time, as a tree of calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

from torchglass.errors import closest
from torchglass.program.recorded import Recorded
from torchglass.views import row as kinds
from torchglass.views.options import VariablesOptions
from torchglass.views.row import Cell, Cells, Row, Sheet
from torchglass.views.text.layout import draw
from torchglass.views.text.scopes import in_scope, scope_word
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, duration, plural, whole_place, width_of
from torchglass.views.variables.blocks import Block, LifeGroup, Variables, variables_of
from torchglass.views.variables.rows import Changes
from torchglass.views.variables.words import change_cells, remarks_of

NOTHING = (
    "No variables were recorded: record(variables=True) follows all of the program's variables,"
    ' record(variables=["video", "self.cache"]) those of that name.'
)

GUESSED = (
    "read from what each call was assigned to: arguments, loop variables, other names of a tensor and values that torch"
    " did not give are not known; record(variables=True) follows all of them"
)


def sheet(trace: Recorded, options: VariablesOptions) -> Sheet:
    """Return the rows of all variables that are shown, and the summary below them."""
    found = variables_of(trace, options)
    if not found.recorded:
        return Sheet(below=[Cell(kinds.HEADING, NOTHING)])
    rows = Rows(trace, options)
    return Sheet([*rows.of_blocks(found.blocks), *rows.by_time(found.rows)], _summary(found))


def _summary(found: Variables) -> list[Cell]:
    parts = [plural(found.variables, "variable"), plural(found.shown, "change")]
    if found.shown + found.owners < found.recorded:
        parts.append(
            f"{plural(found.recorded - found.shown - found.owners, 'other change')} not selected"
        )
    if found.owners:
        parts.append(f"{count(found.owners)} of self and cls (names='self')")
    if found.in_packages:
        parts.append(f"{count(found.in_packages)} in installed packages")
    missing = [
        f"note: no variable fits names={name!r}; {closest(name, found.known)}"
        for name in found.missing
    ]
    if found.is_guessed:
        guessed = [Cell(kinds.REMARK, GUESSED)]
    else:
        guessed = []
    return [
        Cell(kinds.COUNT, " · ".join(parts)),
        *guessed,
        *(Cell(kinds.NOTE, text) for text in missing),
    ]


# ---------------------------------------------------------------- rows

MAX_ROWS = 40
"""Changes of one life that are shown; the middle of a longer one is left out, unless ``fold=False``."""
MAX_GROUPS = 12
"""Groups of lives of one variable that are shown, likewise."""
TIME_WIDTH = 8
"""Characters of a time, so that times are aligned."""

T = TypeVar("T")


class Rows:
    """Completes the rows: adds headings, cells and remarks."""

    def __init__(self, trace: Recorded, options: VariablesOptions) -> None:
        self._fold = options.fold
        self._trace: Recorded | None = None
        """The trace, if times are shown."""
        if options.times:
            self._trace = trace
        self._equal: dict[Cells, Cells] = {}
        """Equal cells are one object: a long trace has many rows and few different ones."""

    def of_blocks(self, blocks: Sequence[Block]) -> Iterator[Row]:
        """Yield for each variable a heading, its lives, and an empty line."""
        for block in blocks:
            yield _heading(block)
            yield from self._lives(block)
            yield Row(0, kinds.BLANK)

    def _lives(self, block: Block) -> Iterator[Row]:
        several = len(block.groups) > 1
        changes = [row for group in block.groups for row in group.rows if isinstance(row, Changes)]
        functions = len({row.first.at.function for row in changes}) > 1
        ends = _both_ends(block.groups, MAX_GROUPS if self._fold else None)
        for number, group in enumerate(ends.shown):
            if number == ends.gap:
                hidden = sum(len(each.lives) for each in ends.hidden)
                yield _left_out(2, _lives_word(block, hidden))
            if several:
                yield Row(
                    0, kinds.HEADING, (Cell(kinds.FOLD, _life_heading(block, group)),), indent=2
                )
            yield from self._life(group, 4 if several else 2, functions)

    def _life(self, group: LifeGroup, indent: int, functions: bool) -> Iterator[Row]:
        ends = _both_ends(group.rows, MAX_ROWS if self._fold else None)
        for number, row in enumerate(ends.shown):
            if number == ends.gap:
                hidden = sum(each.each for each in ends.hidden if isinstance(each, Changes))
                yield _left_out(indent, plural(hidden, "change"))
            yield self._complete(row, indent, functions)

    def by_time(self, rows: Sequence[Row]) -> Iterator[Row]:
        """Yield all changes in program order, under the calls that they happened in."""
        return (self._complete(row, 0) for row in rows)

    def _complete(self, row: Row, indent: int, functions: bool = False) -> Row:
        """Fill in the cells of a row. With ``functions`` the row names its function, since others are in another."""
        row.indent = indent
        if not isinstance(row, Changes):
            return row
        function = ""
        if functions:
            function = row.first.at.function
        cells = change_cells(row, function, named=bool(indent))
        row.cells = self._equal.setdefault(cells, cells)
        if self._trace is not None:
            row.cells = (*row.cells, Cell(kinds.TIME, _time_word(self._trace, row)))
        row.below = tuple(Cell(kinds.ORIGIN, f"↳ {remark}") for remark in remarks_of(row))
        return row


def _time_word(trace: Recorded, row: Changes) -> str:
    """Return when the first change of a row happened. (The event of a change is a sample, with another time.)"""
    since = trace.event(row.first.id).start_ns - trace.event(0).start_ns
    return f"{duration(since):>{TIME_WIDTH}}"


# ---------------------------------------------------------------- headings


def _heading(block: Block) -> Row:
    """Return the heading of a variable: its name, and its function or class."""
    variable = block.variable
    group = block.groups[0]
    if variable.is_attribute:
        scope = f"of {scope_word(variable.scope)}"
    else:
        scope = in_scope(variable.scope)
    parts = [f" {scope}"]
    if len(block.groups) > 1:
        parts.append(_lives_word(block, len(variable.lives)))
    else:
        if group.module:
            parts += [_module(group.module)]
        if len(group.lives) > 1:
            parts += [_several(block, group)]
        parts += _thread(group)
    return Row(
        0,
        kinds.VARIABLE,
        (Cell(kinds.NAME, clean(variable.name)), Cell(kinds.COUNT, " · ".join(parts))),
    )


def _life_heading(block: Block, group: LifeGroup) -> str:
    word = "call"
    if block.variable.is_attribute:
        word = "object"
    if len(group.lives) == 1:
        text = f"{word} {count(group.first)}"
    else:
        text = _several(block, group)
    return " · ".join([text, *([_module(group.module)] if group.module else []), *_thread(group)])


def _several(block: Block, group: LifeGroup) -> str:
    return _lives_word(block, len(group.lives)) + (" alike" if group.are_alike else "")


class _Ends(NamedTuple, Generic[T]):
    """Both ends of a long list."""

    shown: Sequence[T]
    hidden: Sequence[T]
    gap: int | None
    """The index in ``shown`` before which others are left out; None if all are shown."""


def _both_ends(items: Sequence[T], most: int | None) -> _Ends[T]:
    """Return the two ends of a list, ``most`` items together; two thirds of these are from the beginning."""
    if most is None or len(items) <= most + 1:
        return _Ends(items, (), None)
    head = most * 2 // 3
    tail = most - head
    return _Ends([*items[:head], *items[-tail:]], items[head:-tail], head)


def _left_out(indent: int, what: str) -> Row:
    return Row(
        0, kinds.GAP, (Cell(kinds.COUNT, f"… {what} more: fold=False shows all"),), indent=indent
    )


def _module(label: str) -> str:
    return "module " + clean(label)


def _thread(group: LifeGroup) -> list[str]:
    thread = group.lives[0].thread
    if thread in ("MainThread", ""):
        return []
    return [f"thread {clean(thread)}"]


def _lives_word(block: Block, number: int) -> str:
    return plural(number, "object" if block.variable.is_attribute else "call")


# ---------------------------------------------------------------- text


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield the lines of the blocks. There is no empty line between two blocks of one line."""
    blocks = [_joined(block, page) for block in _blocks(rows)]
    spaced: list[Row] = []
    for is_one_line, group in groupby(blocks, _is_one_line):
        for block in group:
            if is_one_line:
                spaced += block[:-1]
            else:
                spaced += block
        if is_one_line:
            spaced.append(Row(0, kinds.BLANK))
    return draw(spaced, page)


def _is_one_line(block: list[Row]) -> bool:
    return block[0].kind == kinds.EVENT and block[-1].kind == kinds.BLANK


def _blocks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield rows up to and including an empty one."""
    block: list[Row] = []
    for row in rows:
        block.append(row)
        if row.kind == kinds.BLANK:
            yield block
            block = []
    if block:
        yield block


def _joined(block: list[Row], page: Page) -> list[Row]:
    """Return a block with its heading and its only change in one row, if that fits; otherwise the block itself."""
    if len(block) != 3 or block[0].kind != kinds.VARIABLE or block[1].kind != kinds.EVENT:
        return block
    heading = block[0].text(kinds.NAME) + block[0].text(kinds.COUNT)
    row = block[1]
    if row.cell(kinds.TAKES) or row.below:
        return block
    statement = row.text(kinds.EXPRESSION)
    often = row.text(kinds.FOLD)
    if often:
        statement = f"{often}: {statement}"
    width = sum(map(width_of, (heading, statement, row.text(kinds.GIVES)))) + len("    →   ")
    if row.place is not None:
        width += width_of(whole_place(row.place, page.width // 4))
    time = row.text(kinds.TIME)
    if time:
        width += len(time) + 2
    if width > page.width:
        return block
    with_maker = statement
    maker = row.text(kinds.CLASS)
    if maker:
        with_maker = f"{statement}  {maker}"
    what = Cell(kinds.CLASS, with_maker, statement)
    rest = [cell for cell in row.cells if cell.kind in (kinds.GIVES, kinds.TIME, kinds.PLACE)]
    return [
        Row(0, kinds.EVENT, (Cell(kinds.EXPRESSION, heading), what, *rest), row.event),
        block[2],
    ]
