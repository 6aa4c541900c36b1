"""The variables view: the life of each variable, line by line, or all changes as a tree that follows the calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from torchglass.errors import closest
from torchglass.views import row as kinds
from torchglass.views.digest import Recorded
from torchglass.views.options import VariablesOptions
from torchglass.views.row import Cell, Cells, Row, Sheet
from torchglass.views.text.layout import draw
from torchglass.views.text.spans import in_scope, scope_word
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, duration, plural, whole_place, width_of
from torchglass.views.variables.blocks import Block, LifeGroup, Variables, variables_of
from torchglass.views.variables.forest import Changes
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
    """Rows of all variables that are shown, and how many there were."""
    found = variables_of(trace, options)
    if not found.recorded:
        return Sheet(below=[Cell(kinds.HEADING, NOTHING)])
    rows = Rows(trace, options)
    return Sheet([*rows.of_blocks(found.blocks), *rows.in_order(found.rows)], _summary(found))


def _summary(found: Variables) -> list[Cell]:
    parts = [plural(found.variables, "variable"), plural(found.shown, "change")]
    if found.shown + found.owners < found.recorded:
        parts.append(f"{plural(found.recorded - found.shown - found.owners, 'other change')} not selected")
    if found.owners:
        parts.append(f"{count(found.owners)} of self and cls (names='self')")
    if found.elsewhere:
        parts.append(f"{count(found.elsewhere)} in installed packages")
    missing = [f"note: no variable fits names={name!r}; {closest(name, found.known)}" for name in found.missing]
    guessed = [Cell(kinds.REMARK, GUESSED)] if found.is_guessed else []
    return [Cell(kinds.COUNT, " · ".join(parts)), *guessed, *(Cell(kinds.NOTE, text) for text in missing)]


# ---------------------------------------------------------------- rows

# Changes of variables as rows: a block a variable with its headings, or one row after the other as a tree of calls.

MOST_ROWS = 40
MOST_GROUPS = 12
TIME_WIDTH = 8

T = TypeVar("T")


class Rows:
    """Makes rows."""

    def __init__(self, trace: Recorded, options: VariablesOptions) -> None:
        self._fold = options.fold
        self._trace = trace if options.times else None
        self._equal: dict[Cells, Cells] = {}

    def of_blocks(self, blocks: Sequence[Block]) -> Iterator[Row]:
        """One block a variable: a heading, its lives, and an empty line."""
        for block in blocks:
            yield _heading(block)
            yield from self._lives(block)
            yield Row(0, kinds.BLANK)

    def _lives(self, block: Block) -> Iterator[Row]:
        several = len(block.groups) > 1
        changes = [row for group in block.groups for row in group.rows if isinstance(row, Changes)]
        functions = len({row.first.at.function for row in changes}) > 1
        shown, hidden, gap = _both_ends(block.groups, MOST_GROUPS if self._fold else None)
        for number, group in enumerate(shown):
            if number == gap:
                yield _left_out(2, _lives_word(block, sum(len(each.lives) for each in hidden)))
            if several:
                yield Row(0, kinds.HEADING, (Cell(kinds.FOLD, _life_heading(block, group)),), indent=2)
            yield from self._life(group, 4 if several else 2, functions)

    def _life(self, group: LifeGroup, indent: int, functions: bool) -> Iterator[Row]:
        shown, hidden, gap = _both_ends(group.rows, MOST_ROWS if self._fold else None)
        for number, row in enumerate(shown):
            if number == gap:
                more = sum(each.each for each in hidden if isinstance(each, Changes))
                yield _left_out(indent, plural(more, "change"))
            yield self._complete(row, indent, functions)

    def in_order(self, rows: Sequence[Row]) -> Iterator[Row]:
        """All changes in program order, under the calls that they happened in."""
        return (self._complete(row, 0) for row in rows)

    def _complete(self, row: Row, indent: int, functions: bool = False) -> Row:
        """What changes are said in words; ``functions``: those around it happened in several, so that it says where."""
        row.indent = indent
        if isinstance(row, Changes):
            cells = change_cells(row, row.first.at.function if functions else "", named=bool(indent))
            cells = self._equal.setdefault(cells, cells)
            row.cells = (*cells, Cell(kinds.TIME, self._time(row))) if self._trace is not None else cells
            row.below = tuple(Cell(kinds.ORIGIN, f"↳ {remark}") for remark in remarks_of(row))
        return row

    def _time(self, row: Changes) -> str:
        """When the first of them happened: asked of the trace, since a change holds an event that is only alike."""
        assert self._trace is not None
        since = self._trace.event(row.first.id).start_ns - self._trace.event(0).start_ns
        return f"{duration(since):>{TIME_WIDTH}}"


# ---------------------------------------------------------------- headings


def _heading(block: Block) -> Row:
    """The name, and where it lives."""
    variable, group = block.variable, block.groups[0]
    scope = f"of {scope_word(variable.scope)}" if variable.is_attribute else in_scope(variable.scope)
    parts = [f" {scope}"]
    if len(block.groups) > 1:
        parts.append(_lives_word(block, len(variable.lives)))
    else:
        parts += [_module(group.module)] if group.module else []
        parts += [_several(block, group)] if len(group.lives) > 1 else []
        parts += _thread(group)
    return Row(0, kinds.VARIABLE, (Cell(kinds.NAME, clean(variable.name)), Cell(kinds.COUNT, " · ".join(parts))))


def _life_heading(block: Block, group: LifeGroup) -> str:
    word = "object" if block.variable.is_attribute else "call"
    text = f"{word} {count(group.first)}" if len(group.lives) == 1 else _several(block, group)
    return " · ".join([text, *([_module(group.module)] if group.module else []), *_thread(group)])


def _several(block: Block, group: LifeGroup) -> str:
    return _lives_word(block, len(group.lives)) + (" alike" if group.are_alike else "")


def _both_ends(items: Sequence[T], most: int | None) -> tuple[Sequence[T], Sequence[T], int]:
    """What is shown, what is left out, and before which of those shown: two thirds are from the beginning."""
    if most is None or len(items) <= most + 1:
        return items, (), -1
    head = most * 2 // 3
    tail = most - head
    return [*items[:head], *items[-tail:]], items[head:-tail], head


def _left_out(indent: int, what: str) -> Row:
    return Row(0, kinds.GAP, (Cell(kinds.COUNT, f"… {what} more: fold=False shows all"),), indent=indent)


def _module(label: str) -> str:
    return "module " + clean(label)


def _thread(group: LifeGroup) -> list[str]:
    thread = group.lives[0].thread
    return [] if thread in ("MainThread", "") else [f"thread {clean(thread)}"]


def _lives_word(block: Block, number: int) -> str:
    return plural(number, "object" if block.variable.is_attribute else "call")


# ---------------------------------------------------------------- text


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Blocks with headings; those of one line, where several follow each other, without an empty line between."""
    blocks = [_joined(block, page) for block in _blocks(rows)]
    found: list[Row] = []
    for is_short, several in groupby(
        blocks, lambda block: block[0].kind == kinds.EVENT and block[-1].kind == kinds.BLANK
    ):
        for block in several:
            found += block[:-1] if is_short else block
        found += [Row(0, kinds.BLANK)] if is_short else []
    return draw(found, page)


def _blocks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows up to and with an empty one."""
    block: list[Row] = []
    for row in rows:
        block.append(row)
        if row.kind == kinds.BLANK:
            yield block
            block = []
    if block:
        yield block


def _joined(block: list[Row], page: Page) -> list[Row]:
    """Heading and only change as one row, where it fits; else the block as it is."""
    if len(block) != 3 or block[0].kind != kinds.VARIABLE or block[1].kind != kinds.EVENT:
        return block
    heading, row = block[0].text(kinds.NAME) + block[0].text(kinds.COUNT), block[1]
    if row.cell(kinds.TAKES) or row.below:
        return block
    often, by = row.text(kinds.FOLD), row.text(kinds.CLASS)
    statement = (f"{often}: " if often else "") + row.text(kinds.EXPRESSION)
    at, time = row.place, row.text(kinds.TIME)
    place = (width_of(whole_place(at, page.width // 4)) if at else 0) + (len(time) + 2 if time else 0)
    if sum(map(width_of, (heading, statement, row.text(kinds.GIVES)))) + place + len("    →   ") > page.width:
        return block
    what = Cell(kinds.CLASS, f"{statement}  {by}" if by else statement, statement)
    rest = [cell for cell in row.cells if cell.kind in (kinds.GIVES, kinds.TIME, kinds.PLACE)]
    return [Row(0, kinds.EVENT, (Cell(kinds.EXPRESSION, heading), what, *rest), row.event), block[2]]
