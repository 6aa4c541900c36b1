"""The variables view: the life of each variable, line by line, or all changes as a tree that follows the calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from torchglass.errors import closest
from torchglass.views import row as kinds
from torchglass.views.digest import Recorded
from torchglass.views.row import Cell, Row, Sheet
from torchglass.views.text.cells import Cells
from torchglass.views.text.spans import count_word, in_scope, loop_place, loop_word, scope_word
from torchglass.views.text.words import clean, count, duration, plural
from torchglass.views.variables import Options
from torchglass.views.variables.blocks import Block, LifeGroup, Variables, variables_of
from torchglass.views.variables.forest import AnyRow, CallRow, Changes, LoopRow, OtherThread, Repeat
from torchglass.views.variables.lives import module_label
from torchglass.views.variables.words import change_cells, remarks_of

NOTHING = (
    "No variables were recorded: record(variables=True) follows all of the program's variables,"
    ' record(variables=["video", "self.cache"]) those of that name.'
)

GUESSED = (
    "read from what each call was assigned to: arguments, loop variables, other names of a tensor and values that torch"
    " did not give are not known; record(variables=True) follows all of them"
)


def sheet(trace: Recorded, options: Options) -> Sheet:
    """Rows of all variables that are shown, and how many there were."""
    found = variables_of(trace, options)
    if not found.recorded:
        return Sheet(below=[Cell(kinds.HEADING, NOTHING)])
    rows = Rows(trace, options)
    return Sheet([*rows.of_blocks(found.blocks), *rows.of_changes(found.rows)], _summary(found))


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

    def __init__(self, trace: Recorded, options: Options) -> None:
        self._fold = options.fold
        self._trace = trace if options.times else None
        self._equal: dict[Cells, Cells] = {}

    # ------------------------------------------------------------ variables

    def of_blocks(self, blocks: Sequence[Block]) -> Iterator[Row]:
        """One block a variable: a heading, its lives, and an empty line."""
        for block in blocks:
            yield _heading(block)
            yield from self._lives(block)
            yield Row(0, kinds.BLANK)

    def _lives(self, block: Block) -> Iterator[Row]:
        several = len(block.groups) > 1
        functions = len({row.first.at.function for group in block.groups for row in _changes_in(group.rows)}) > 1
        shown, hidden, gap = _both_ends(block.groups, MOST_GROUPS if self._fold else None)
        for number, group in enumerate(shown):
            if number == gap:
                yield _left_out(2, _lives_word(block, sum(len(each.lives) for each in hidden)))
            if several:
                yield Row(0, kinds.HEADING, (Cell(kinds.FOLD, _life_heading(block, group)),), indent=2)
            yield from self._life(group, 4 if several else 2, functions)

    def _life(self, group: LifeGroup, indent: int, functions: bool) -> Iterator[Row]:
        shown, hidden, gap = _both_ends(group.rows, MOST_ROWS if self._fold else None)
        for number, changes in enumerate(shown):
            if number == gap:
                yield _left_out(indent, plural(sum(len(row.changes) for row in _changes_in(hidden)), "change"))
            yield self._row(changes, indent, functions)

    # ------------------------------------------------------------ rows

    def of_changes(self, rows: Sequence[AnyRow]) -> Iterator[Row]:
        """All changes in program order."""
        return (self._row(row, 0, False) for row in rows)

    def _row(self, row: AnyRow, indent: int, functions: bool) -> Row:
        """``functions``: the rows around it happened in several, so that it says in which."""
        if isinstance(row, OtherThread):
            return Row(0, kinds.THREAD, (Cell(kinds.NAME, row.name),))
        if isinstance(row, Repeat):
            often = Cell(kinds.FOLD, f"× {count(row.times)}"), Cell(kinds.COUNT, f", {count(row.rows)} steps each:")
            return Row(row.depth, kinds.REPEAT, often, times=row.times, indent=indent)
        if isinstance(row, LoopRow):
            span = row.loops[0]
            cells = (
                Cell(kinds.EXPRESSION, loop_word(span)),
                Cell(kinds.TIMES, count_word(row.loops)),
                Cell(kinds.ROUNDS, row.rounds),
            )
            said = tuple(cell for cell in cells if cell.text)
            return Row(row.depth, kinds.LOOP, (*said, Cell(kinds.PLACE, at=loop_place(span))), indent=indent)
        if isinstance(row, CallRow):
            at = row.calls[0].called_at
            place = (Cell(kinds.PLACE, at=at),) if at is not None and at.file else ()
            return Row(row.depth, kinds.CALL, (*_call_cells(row), *place), times=len(row.calls), indent=indent)
        cells = change_cells(row, row.first.at.function if functions else "", named=bool(indent))
        cells = self._equal.setdefault(cells, cells)
        if self._trace is not None:
            cells = (*cells, Cell(kinds.TIME, self._time(row)))
        below = tuple(Cell(kinds.ORIGIN, f"↳ {remark}") for remark in remarks_of(row))
        return Row(row.depth, kinds.EVENT, cells, row.first.id, 1, len(row.changes), 0, below, indent)

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


def _call_cells(row: CallRow) -> Cells:
    first = row.calls[0]
    module = module_label([call.module for call in row.calls])
    is_new = first.caller is None or first.caller.module != first.module
    fold = (Cell(kinds.FOLD, row.often),) if row.often else ()
    what = (Cell(kinds.CLASS, _module(module)),) if module and is_new else ()
    rounds = (Cell(kinds.ROUNDS, row.rounds),) if row.rounds else ()
    return (*fold, Cell(kinds.EXPRESSION, scope_word(first.at.function) + ":"), *what, *rounds)


def _changes_in(rows: Sequence[AnyRow]) -> list[Changes]:
    """The rows without what stands above repeats."""
    return [row for row in rows if isinstance(row, Changes)]


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
