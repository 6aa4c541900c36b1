"""The calls view: the calls of modules and functions in the order in which they begin or end.

``sheet`` makes the rows, ``lines`` writes them as text. Loops around calls have rows of their own, as in the tree.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from torchglass.events.types import Event
from torchglass.program.dedup import DistinctEvents
from torchglass.program.fold import Item, depth_first, folded
from torchglass.program.paths import numberless
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.program.shown import ShownNodes
from torchglass.program.tree import EVENT, ITERATION, LOOP
from torchglass.views import row as kinds
from torchglass.views.options import CallsOptions
from torchglass.views.row import Cell, Cells, Row, Sheet, has_heading, repeat_row
from torchglass.views.text.cells import gives_cell, shape_words, takes_cell
from torchglass.views.text.layout import ARROW, repeat_line, suits_most, thread_line
from torchglass.views.text.scopes import count_word, loop_word
from torchglass.views.text.style import Page
from torchglass.views.text.tensors import (
    is_measured,
    narrowed,
    painted,
    paths_word,
    values_words,
    with_stats,
)
from torchglass.views.text.words import clean, count, cut, plural, width_of


def sheet(trace: Recorded, options: CallsOptions) -> Sheet:
    """Return the rows of a trace. Without folding each call has exactly one row."""
    program = program_of(trace)
    chosen = _chosen(program.distinct, options)
    shown = _ListedCalls(program)
    shown.add_events(chosen, (LOOP, ITERATION), stops_at=_is_listed)
    builder = _Rows(trace, options, shown, chosen)
    rows: list[Row] = []
    for name, tops in shown.threads.items():
        if has_heading(name, shown.threads):
            rows.append(Row(0, kinds.THREAD, (Cell(kinds.NAME, name),)))
        rows += builder.rows(folded(shown, tops, builder.appearance, options.fold))
    return Sheet(rows, [Cell(kinds.COUNT, builder.summary())])


def _chosen(distinct: DistinctEvents, options: CallsOptions) -> list[int]:
    """Return the calls that are listed: all, or those that are selected."""
    is_listed = [_is_listed(sample) for sample in distinct.samples]
    listed = [event for event, alike in enumerate(distinct.alike) if is_listed[alike]]
    if options.only is None:
        return listed
    matches = distinct.matching(options.only)
    return [event for event in listed if matches[event]]


def _is_listed(event: Event) -> bool:
    return event.kind in ("module", "call")


class _ListedCalls(ShownNodes):
    """Calls and the loops around them. Calls of one module may share a row in different iterations."""

    def key(self, node: int, /) -> Hashable:
        if not self.tree.is_event(node):
            return self.tree.site(node).loop
        event = self.events[node]
        return (event.kind, event.root, event.module, event.name, event.error)

    def merges_neighbours(self, node: int, /) -> bool:
        return self.tree.is_event(node) and not self.children_of(node)


class _Rows:
    """Makes the rows of folded calls."""

    def __init__(
        self, trace: Recorded, options: CallsOptions, shown: ShownNodes, chosen: Sequence[int]
    ) -> None:
        self._trace = trace
        self._options = options
        self._shown = shown
        self._tree = shown.tree
        self._events = shown.events
        self._chosen = [shown.events[at] for at in chosen]
        self._is_measured = is_measured(trace)
        self._several_roots = len({event.root for event in self._chosen} - {None}) > 1

    def summary(self) -> str:
        """Return the sentence below the rows: how many calls there were."""
        if not self._chosen:
            if self._options.only is None:
                return "No module was called. The tree shows what was recorded."
            return "No module call is selected: something was recorded, but no call of a module that fits."
        modules: set[Hashable] = set()
        functions: set[str] = set()
        for event in self._chosen:
            if event.kind == "module":
                modules.add((event.root, event.module, event.name))
            else:
                functions.add(event.name)
        called: list[str] = []
        if modules:
            called.append(plural(len(modules), "module"))
        if functions:
            called.append(plural(len(functions), "function"))
        return f"{plural(len(self._chosen), 'call')} of {' and '.join(called)}"

    def appearance(self, item: Item) -> Hashable:
        """Return a key for what the row of an item shows, without the items in it."""
        kind = self._tree.kind(item.nodes[0])
        if kind != EVENT:
            return (kind, self._tree.site(item.nodes[0]).loop)
        # Each different look once, since an item may stand for many calls.
        looks: dict[Hashable, None] = {}
        for node in item.nodes:
            look = _numberless(self._events[node])
            if self._options.shapes:
                look = (look, self._shapes(node))
            looks[look] = None
        return tuple(looks)

    def _shapes(self, node: int) -> Hashable:
        event = self._events[node]
        return (shape_words(event.inputs), shape_words(event.outputs), event.result)

    def rows(self, items: Sequence[Item]) -> list[Row]:
        """Return the rows in order, without recursion, because calls nest deeper than Python may recurse."""
        rows: list[Row] = []
        pending: list[tuple[Item | Row, int]] = [(item, 0) for item in reversed(items)]
        while pending:
            item, depth = pending.pop()
            if isinstance(item, Row):
                rows.append(item)
                continue
            heading = self._heading(item, depth)
            if heading is not None:
                rows.append(heading)
                depth += 1
            parts: list[tuple[Item | Row, int]] = [(child, depth) for child in item.children]
            if self._is_call(item):
                row = self._row(item, depth, heading is None)
                if self._options.order == "begin":
                    parts.insert(0, (row, depth))
                else:
                    parts.append((row, depth))
            pending += reversed(parts)
        return rows

    def _heading(self, item: Item, depth: int) -> Row | None:
        """Return the row above a loop or a repeat; None if the item has no such row."""
        node = item.nodes[0]
        if self._tree.kind(node) == LOOP:
            return self._loop_heading(item, depth)
        if item.times == 1:
            return None
        calls = 0
        for each in depth_first([item], lambda each: each.children):
            if self._is_call(each):
                calls += len(each.nodes)
        repeats = len(item.nodes)
        if item.is_repeat:
            repeats = len(item.children[0].nodes)
        calls_each = calls // repeats
        if calls_each < 2 and not item.is_repeat:
            return None
        return repeat_row(depth, "", item.times, plural(calls_each, "call"))

    def _loop_heading(self, item: Item, depth: int) -> Row | None:
        """Return the row of a loop; None if it ran once, or if its iterations are layers."""
        node = item.nodes[0]
        iterations = max(self._tree.count(loop).number for loop in item.nodes)
        if iterations < 2 or not self._shown.may_merge_iterations(node):
            return None
        code = Cell(kinds.EXPRESSION, loop_word(self._tree, node))
        times = Cell(kinds.TIMES, count_word(self._tree, item.nodes))
        return Row(depth, kinds.LOOP, (code, times), each=0)

    def _is_call(self, item: Item) -> bool:
        return not item.is_repeat and self._tree.is_event(item.nodes[0])

    def _row(self, item: Item, depth: int, says_times: bool) -> Row:
        """Return the row of a call. With ``says_times`` it shows how often; otherwise the heading above it does."""
        cells = self._cells(item)
        if self._is_measured and self._options.shapes:
            cells = with_stats(cells, map(self._trace.event, item.nodes))
        times = 1
        if says_times:
            times = item.in_a_row
            if item.times > 1:
                times = item.times
        if times > 1:
            cells = (*cells, Cell(kinds.FOLD, f" ×{count(times)}"))
        return Row(depth, kinds.EVENT, cells, item.nodes[0], times, len(item.nodes))

    def _cells(self, item: Item) -> Cells:
        """Return the cells of a call: the name of what is called and, with ``shapes=True``, the shapes."""
        events = [self._events[node] for node in dict.fromkeys(item.nodes)]
        names = dict.fromkeys(map(self._name, events))
        cells = (Cell(kinds.NAME, paths_word(list(names))),)
        first = events[0]
        if not self._options.shapes:
            if first.error is None:
                return cells
            return (*cells, gives_cell(first))
        different = self._different(item.nodes)
        if len(different) == 1:
            return (*cells, takes_cell(shape_words(first.inputs)), gives_cell(first))
        takes = takes_cell(values_words([event.inputs for event in different]))
        others = [event for event in different if event is not first]
        return (*cells, takes, gives_cell(first, others=others))

    def _different(self, nodes: Sequence[int]) -> list[Event]:
        """Return one event for each different look, the first of those that look the same."""
        found: dict[Hashable, Event] = {}
        for node in reversed(nodes):
            found[self._shown.looks[node]] = self._events[node]
        return list(reversed(found.values()))

    def _name(self, event: Event) -> str:
        """Return the name of what is called: a module's path, after the label of its root if there are several."""
        if event.kind == "call":
            return clean(event.name)
        label = event.root or event.name
        if not event.module:
            return clean(label)
        if self._several_roots:
            return clean(f"{label}.{event.module}")
        return clean(event.module)


def _numberless(event: Event) -> Hashable:
    """Return a key for what is called without layer numbers: ``blocks.0`` and ``blocks.1`` have the same."""
    return (event.kind, event.root, numberless(event.module or ""), event.name, event.error)


# ---------------------------------------------------------------- text

MAX_INDENTS = 12
"""Deeper rows are indented no further, or nothing would be left of the page."""
MIN_PATH_WIDTH = 8
"""How many columns of a path stay visible."""
GAP = "  "


class _Columns(NamedTuple):
    """The columns of rows with shapes."""

    shapes: int
    """Where the shapes begin, without the gap before them."""
    inputs: int
    """How wide the inputs are, so that arrows are aligned."""


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield the lines of the list."""
    with_shapes = [row for row in rows if row.kind == kinds.EVENT and row.cell(kinds.TAKES)]
    columns = _columns(with_shapes, page)
    for row in rows:
        if row.kind == kinds.THREAD:
            yield thread_line(row.text(kinds.NAME), page.width, page)
        elif row.kind == kinds.REPEAT:
            yield repeat_line(row, _indent(row.depth), page)
        elif row.kind == kinds.LOOP:
            times = GAP + row.text(kinds.TIMES)
            indent = _indent(row.depth)
            loop = cut(row.text(kinds.EXPRESSION), page.width - len(indent) - len(times))
            yield indent + loop + page.paint("fold", times)
        else:
            yield _line(row, columns, page)


def _line(row: Row, columns: _Columns, page: Page) -> str:
    """Return the path of a module, how often it was called, and its shapes or its error."""
    indent = _indent(row.depth)
    times = row.text(kinds.FOLD)
    has_shapes = bool(row.cell(kinds.TAKES) or row.cell(kinds.ERROR))
    room = page.width - len(indent) - len(times)
    if has_shapes:
        room -= page.width // 3
    path = cut(row.text(kinds.NAME), max(room, MIN_PATH_WIDTH))
    line = indent + path + page.paint("fold", times)
    if not has_shapes:
        return line
    width = len(indent) + width_of(path) + len(times)
    gap = max(columns.shapes - width, 0) + len(GAP)
    return (line + " " * gap + _shapes(row, page.width - width - gap, columns, page)).rstrip()


def _shapes(row: Row, room: int, columns: _Columns, page: Page) -> str:
    """Return the shapes that went in and came out, with aligned arrows; without shapes only the error."""
    result = row.cell(kinds.ERROR) or row.cell(kinds.GIVES)
    text = ""
    if result:
        text = result.text
    if row.cell(kinds.TAKES) is None:
        return page.paint("error", cut(text, room))
    text = narrowed(text, max(room - len(ARROW) - 1, 1))
    inputs_room = room - width_of(text) - len(ARROW)
    inputs = cut(row.text(kinds.TAKES), inputs_room)
    free = inputs_room - width_of(inputs)
    space = " " * min(max(columns.inputs - width_of(inputs), 0), free)
    style = "output"
    if row.cell(kinds.ERROR):
        style = "error"
    if result is not None and result.mark:
        outputs = painted(text, style, page)
    else:
        outputs = page.paint(style, text)
    return space + page.paint("input", inputs) + page.paint("dim", ARROW) + outputs


def _columns(rows: Sequence[Row], page: Page) -> _Columns:
    """Return the columns that suit most of the rows with shapes."""
    paths = [
        len(_indent(row.depth)) + width_of(row.text(kinds.NAME)) + len(row.text(kinds.FOLD))
        for row in rows
    ]
    inputs = [width_of(row.text(kinds.TAKES)) for row in rows]
    return _Columns(
        shapes=min(suits_most(paths, slack=8), page.width // 2),
        inputs=min(suits_most(inputs, slack=8), page.width // 4),
    )


def _indent(depth: int) -> str:
    return "  " * min(depth, MAX_INDENTS)
