"""The variables view as text: the life of each variable, or all changes as a tree of calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from torchglass.errors import closest
from torchglass.views.recorded import Recorded
from torchglass.views.text.around import how_it_ended, notes_of, wrapped
from torchglass.views.text.cells import Cells
from torchglass.views.text.layout import Layout, Line, columns_for, guides
from torchglass.views.text.places import Places, whole_place
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, cut, duration, plural, width_of
from torchglass.views.variables.lives import module_label
from torchglass.views.variables.reading import UNBOUND
from torchglass.views.variables.rows import Repeat, Row
from torchglass.views.variables.time import CallRow, ThreadRow
from torchglass.views.variables.view import Block, LifeGroup, VariablesOptions, VariablesView, variables_view
from torchglass.views.variables.words import cells_of_only_row, cells_of_row, in_scope, remarks_of, scope_word

Options = VariablesOptions
MOST_ROWS = 40
MOST_GROUPS = 12
TIME_WIDTH = 8

AnyRow = Row | Repeat | CallRow | ThreadRow
T = TypeVar("T")
NOTHING = (
    "No variables were recorded: record(variables=True) follows all of the program's variables,"
    ' record(variables=["video", "self.cache"]) those of that name.'
)


def render(trace: Recorded, options: VariablesOptions, page: Page) -> Iterator[str]:
    """The lines of the view; a trace that an exception left begins with how it ended."""
    yield from how_it_ended(trace, page)
    view = variables_view(trace, options)
    if not view.recorded:
        yield from wrapped(NOTHING, "", page)
        yield from notes_of(trace, page)
        return
    writer = _Writer(trace, options, page)
    yield from writer.blocks(view.blocks)
    yield from writer.lines(view.rows)
    yield from _footer(trace, view, options, page)


class _Writer:
    """Writes rows in columns."""

    def __init__(self, trace: Recorded, options: VariablesOptions, page: Page) -> None:
        self._page = page
        self._fold = options.fold
        self._trace = trace if options.times else None

    # ------------------------------------------------------------ variables

    def blocks(self, blocks: Sequence[Block]) -> Iterator[str]:
        """One block a variable; those with a single row in a row share their columns."""
        for is_short, several in groupby(blocks, self._is_short):
            if is_short:
                yield from self._short_blocks(list(several))
                yield ""
                continue
            for block in several:
                yield cut_heading(self._page, *_heading(block))
                yield from self._lives(block)
                yield ""

    def _is_short(self, block: Block) -> bool:
        """Whether a variable has one row, which a line with its heading can hold: a block would only take room."""
        if len(block.groups) > 1 or len(block.groups[0].rows) > 1:
            return False
        row = changes_in(block.groups[0].rows)[0]
        if row.first.old.kind != UNBOUND.kind or remarks_of(row):
            return False
        cells, width = cells_of_only_row(row, "".join(_heading(block))), self._page.width
        place = width_of(whole_place(row.first.at, width // 4)) + (TIME_WIDTH + 2 if self._trace else 0)
        return sum(map(width_of, (cells.label, cells.kind, cells.gives))) + place + len("    →   ") <= width

    def _short_blocks(self, blocks: Sequence[Block]) -> Iterator[str]:
        places = Places(self._page.width)
        lines: list[Line] = []
        for block in blocks:
            row = changes_in(block.groups[0].rows)[0]
            lines.append(self._line("", row, cells_of_only_row(row, "".join(_heading(block))), places))
        layout = Layout(columns_for(lines, self._page.width), self._page)
        yield from (layout.line(line).rstrip() for line in lines)

    def _lives(self, block: Block) -> Iterator[str]:
        several = len(block.groups) > 1
        functions = len({row.first.at.function for group in block.groups for row in changes_in(group.rows)}) > 1
        shown, hidden, gap = _both_ends(block.groups, MOST_GROUPS if self._fold else None)
        for number, group in enumerate(shown):
            if number == gap:
                yield self._left_out("  ", _lives(block, sum(len(each.lives) for each in hidden)))
            if several:
                yield "  " + self._page.paint("fold", cut(_life_heading(block, group), self._page.width - 2))
            yield from self._life(group, "    " if several else "  ", functions)

    def _life(self, group: LifeGroup, indent: str, functions: bool) -> Iterator[str]:
        shown, hidden, gap = _both_ends(group.rows, MOST_ROWS if self._fold else None)
        for number, lines in enumerate(self._written(shown, indent, functions)):
            if number == gap:
                changes = sum(len(row.changes) for row in changes_in(hidden))
                yield self._left_out(indent, plural(changes, "change"))
            yield from lines

    def _left_out(self, indent: str, what: str) -> str:
        return indent + self._page.paint("dim", cut(f"… {what} more: fold=False shows all", self._page.width - 4))

    # ------------------------------------------------------------ rows

    def lines(self, rows: Sequence[AnyRow]) -> Iterator[str]:
        """The lines of all rows."""
        for lines in self._written(rows, "", False):
            yield from lines

    def _written(self, rows: Sequence[AnyRow], indent: str, functions: bool) -> Iterator[list[str]]:
        """The lines of each row, in columns that suit most of them."""
        page = self._page
        made = self._lines_of(rows, indent, functions)
        layout = Layout(columns_for([line for line in made if line is not None], page.width), page)
        for row, line in zip(rows, made, strict=True):
            before = indent + guides(row.depth, page.width)
            if isinstance(row, ThreadRow):
                title = f"── thread {cut(clean(row.name), page.width - 14)} "
                yield [page.paint("heading", title + "─" * max(layout.edge - width_of(title), 0))]
            elif isinstance(row, Repeat):
                often = f"× {count(row.times)}"
                rest = cut(f", {count(row.rows)} steps each:", page.width - len(before) - len(often))
                yield [page.paint("guide", before) + page.paint("fold", often) + page.paint("dim", rest)]
            elif line is not None:
                yield [layout.line(line).rstrip(), *(self._remarks(row, before) if isinstance(row, Row) else ())]

    def _remarks(self, row: Row, before: str) -> Iterator[str]:
        for remark in remarks_of(row):
            for text in wrapped("↳ " + remark, before + "  ", self._page):
                yield self._page.paint("guide", before) + "  " + self._page.paint("dim", text)

    def _lines_of(self, rows: Sequence[AnyRow], indent: str, functions: bool) -> list[Line | None]:
        """A line for each row that has columns; cells that say the same are one object, to be laid out once."""
        places = Places(self._page.width)
        equal: dict[Cells, Cells] = {}
        made: list[Line | None] = []
        for row in rows:
            if isinstance(row, Row):
                cells = cells_of_row(row, row.first.at.function if functions else "", named=bool(indent))
            elif isinstance(row, CallRow):
                cells = _call_cells(row)
            else:
                if isinstance(row, ThreadRow):
                    places = Places(self._page.width)  # a block by itself, maybe of another process
                made.append(None)
                continue
            made.append(self._line(indent, row, equal.setdefault(cells, cells), places))
        return made

    def _line(self, indent: str, row: Row | CallRow, cells: Cells, places: Places) -> Line:
        at = row.first.at if isinstance(row, Row) else row.calls[0].called_at
        at = at if at is not None and at.file else None
        place = "" if at is None else places.place(row.depth, at)
        bars = indent + guides(row.depth, self._page.width)
        return Line(bars, cells, place, self._time(row), at if self._page.links else None)

    def _time(self, row: Row | CallRow) -> str:
        """When the first of them happened: asked of the trace, since rows may hold an event that looks the same."""
        if self._trace is None or isinstance(row, CallRow):
            return ""
        since = self._trace.event(row.first.id).start_ns - self._trace.event(0).start_ns
        return f"{duration(since):>{TIME_WIDTH}}"


# ---------------------------------------------------------------- headings


def _heading(block: Block) -> tuple[str, str]:
    """The name, and where it lives."""
    variable, group = block.variable, block.groups[0]
    scope = f"of {scope_word(variable.scope)}" if variable.is_attribute else in_scope(variable.scope)
    told = [f" {scope}"]
    if len(block.groups) > 1:
        told.append(_lives(block, len(variable.lives)))
    else:
        told += [_module(group.module)] if group.module else []
        told += [f"{_lives(block, group.times)} alike"] if group.times > 1 else []
        told += _thread(group)
    return clean(variable.name), " · ".join(told)


def cut_heading(page: Page, name: str, rest: str) -> str:
    """The name painted, no wider than the page."""
    name = cut(name, page.width // 2)
    return page.paint("name", name) + cut(rest, page.width - width_of(name))


def _life_heading(block: Block, group: LifeGroup) -> str:
    word = _life_word(block)
    last = group.first + group.unit * (group.times - 1)
    if group.times == 1:
        text = f"{word} {count(group.first)}"
    elif group.unit == 1:
        text = f"{word}s {count(group.first)}–{count(last)}, {count(group.times)} alike"
    elif group.times == 2:
        text = f"{word}s {count(group.first)} and {count(last)} alike"
    else:
        text = f"{word}s {count(group.first)}, {count(group.first + group.unit)}, … {count(last)}, "
        text += f"{count(group.times)} alike"
    return " · ".join([text, *([_module(group.module)] if group.module else []), *_thread(group)])


def changes_in(rows: Sequence[Row | Repeat]) -> list[Row]:
    """The rows without what stands above repeats."""
    return [row for row in rows if isinstance(row, Row)]


def _call_cells(row: CallRow) -> Cells:
    first = row.calls[0]
    prefix = f"× {count(row.times)}" if row.times > 1 else ""
    module = module_label([call.module for call in row.calls])
    is_new = first.caller is None or first.caller.module != first.module
    told = _module(module) if module and is_new else ""
    return Cells(prefix, scope_word(first.at.function) + ":", told, told, (), ", ", "", folded=bool(prefix))


def _both_ends(items: Sequence[T], most: int | None) -> tuple[Sequence[T], Sequence[T], int]:
    """What is shown, what is left out, and before which of those shown: two thirds are from the beginning."""
    if most is None or len(items) <= most + 1:
        return items, (), -1
    head = most * 2 // 3
    tail = most - head
    return [*items[:head], *items[-tail:]], items[head:-tail], head


def _module(label: str) -> str:
    return "module " + clean(label)


def _thread(group: LifeGroup) -> list[str]:
    thread = group.lives[0].thread
    return [] if thread in ("MainThread", "") else [f"thread {clean(thread)}"]


def _life_word(block: Block) -> str:
    return "object" if block.variable.is_attribute else "call"


def _lives(block: Block, number: int) -> str:
    return plural(number, _life_word(block))


def _footer(trace: Recorded, view: VariablesView, options: VariablesOptions, page: Page) -> Iterator[str]:
    """How many variables and changes there were, what did not appear, and what the recorder had to say."""
    told = [plural(view.variables, "variable"), plural(view.shown, "change")]
    if view.shown + view.owners < view.recorded:
        told.append(f"{plural(view.recorded - view.shown - view.owners, 'other change')} not selected")
    if view.owners:
        told.append(f"{count(view.owners)} of self and cls (names='self')")
    for line in wrapped(" · ".join(told), "", page):
        yield page.paint("dim", line)
    for name in view.missing:
        text = f"note: no variable fits names={name!r}; {closest(name, view.known)}"
        yield from (page.paint("note", line) for line in wrapped(text, "", page))
    yield from notes_of(trace, page)
