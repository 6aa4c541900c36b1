"""The tree view: every call as written, the shapes that went in and came out, and the line.

Each row stands for an *item*: one node of the program tree, or several that were folded into one
(``program/fold.py``). Some items have no row, such as a loop with a single iteration. Their
children then take their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torchglass.program.fold import Item, folded
from torchglass.program.paths import range_label
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded, tables_of
from torchglass.program.series import Series, series_of_events
from torchglass.program.tree import CALL, EVENT, LOOP
from torchglass.views import row as kinds
from torchglass.views.layers import Layers
from torchglass.views.options import TreeOptions
from torchglass.views.row import (
    Cell,
    Cells,
    Row,
    Sheet,
    has_heading,
    index_of,
    inserted_after,
    repeat_row,
    without_repeated_rows,
)
from torchglass.views.shown import ShownEvents
from torchglass.views.text.cells import RowLabels, event_cells, helper_cells
from torchglass.views.text.scopes import call_word, counts_word, loop_cells, range_word, rounds_word
from torchglass.views.text.tensors import is_measured, with_curve, with_stats
from torchglass.views.text.words import clean, count, cut, duration, place_word, plural, share

MAX_VALUE_LENGTH = 40
"""Characters that are shown of a marked value that is not a tensor."""


def sheet(trace: Recorded, options: TreeOptions) -> Sheet:
    """Return the rows of a trace: choose what is shown, then fold what repeats."""
    return _Tree(trace, options).sheet()


@dataclass(frozen=True, slots=True)
class _Context:
    """What is around an item."""

    depth: int = 0
    """How far its row is indented."""
    level: int = 0
    """How many calls and loops around it have rows. (A repeat's heading indents, but is no level.)"""
    item: Item | None = None
    """The item just around it."""
    loop: Item | None = None
    """The innermost merged loop."""
    times: str = ""
    """How often the item around it happened, if that has no row to show it: ``× 12``."""
    rounds: str = ""
    """In which rounds the item around it happened, if that has no row to show it."""
    has_round_rows: bool = False
    """Whether iterations have rows of their own."""


class _CellsKey(NamedTuple):
    """All on which the cells of an event's row depend. Rows with equal keys share their cells."""

    looks: tuple[int, ...]
    """The different numbers that ``ShownNodes.looks`` has for the events."""
    times: str
    rounds: str
    hidden: tuple[int, ...]
    """The different numbers of events that are hidden in them."""
    shows_error_inside: bool
    is_helper: bool
    mode: str


class _Tree:
    """Makes the rows of one trace."""

    def __init__(self, trace: Recorded, options: TreeOptions) -> None:
        self._trace = trace
        self._options = options
        program = program_of(trace)
        self._tree = program.tree
        self._modes = program.modes
        self._shown = ShownEvents(program, options)
        self._events = self._shown.events
        self._layers = Layers(trace.modules(), self._shown)
        self._spent_ns: Sequence[int] = ()
        """By node, how long it took; empty without ``times=True``."""
        if options.times:
            self._spent_ns = program.spent_ns
        self._sizes: dict[int, int] = {}
        """By node, how many events are at and below it."""
        self._shared_cells: dict[_CellsKey, Cells] = {}
        self._rows: list[Row] = []
        self._too_deep = 0
        """How many events have no row because of ``depth=``."""
        self._nodes_by_note: dict[str, list[int]] = {}
        self._with_error_inside = self._find_errors()
        self._is_measured = is_measured(trace)

    def sheet(self) -> Sheet:
        """Return all rows. Their ``each`` and ``hidden``, and what is left out, add up to the number of events."""
        for thread, roots in self._shown.threads.items():
            if has_heading(thread, self._shown.threads):
                self._rows.append(Row(0, kinds.THREAD, (Cell(kinds.NAME, thread),)))
            items = folded(self._shown, roots, self._layers.appearance, self._options.fold)
            self._add_rows(self._shown.without_outermost(items))
        if self._options.fold:
            rows = without_repeated_rows(self._rows)
        else:
            rows = self._rows
        return Sheet(rows, [Cell(kinds.COUNT, " · ".join(self._summary())), *self._notes_below()])

    # ------------------------------------------------------------ rows in order

    def _add_rows(self, items: list[Item]) -> None:
        """Add rows depth first. The stack is explicit, because traces nest deeper than Python may recurse."""
        pending = [(item, _Context(), previous) for previous, item in _with_previous(items)][::-1]
        while pending:
            item, context, previous = pending.pop()
            row = self._row(item, context)
            if row is not None:
                self._rows.append(row)
                self._add_difference(row, item, previous, context)
                if self._is_too_deep(item, context):
                    self._count_what_is_inside(item, row)
                    continue
            inside = self._context_inside(item, context, row is not None)
            children = [(child, inside, before) for before, child in _with_previous(item.children)]
            pending += reversed(children)

    def _add_difference(
        self, row: Row, item: Item, previous: Item | None, context: _Context
    ) -> None:
        """Add below a row why its layer is not part of the repeat before it."""
        if previous is None:
            return
        if previous.times > 1 or item.times > 1 or context.times:
            remark = self._layers.difference(item, previous)
            if remark:
                row.below = (Cell(kinds.REMARK, remark), *row.below)

    def _is_too_deep(self, item: Item, context: _Context) -> bool:
        """Return whether ``depth=`` leaves out the rows below an item."""
        if self._options.depth is None or item.is_repeat or not item.children:
            return False
        return context.level >= self._options.depth

    def _context_inside(self, item: Item, context: _Context, has_row: bool) -> _Context:
        """Return the context of the children of an item."""
        if not has_row:
            # The children show what the row would show: how often, and in which rounds.
            times = context.times
            if item.times > 1:
                times = f"× {count(item.times)}"
            inside = replace(context, item=item, times=times, rounds=self._rounds(item, context))
        elif item.is_repeat:
            inside = replace(context, item=item, depth=context.depth + 1)
        else:
            inside = replace(
                context,
                item=item,
                depth=context.depth + 1,
                level=context.level + 1,
                times="",
                rounds="",
            )
        if self._tree.kind(item.nodes[0]) == LOOP:
            return self._context_inside_loop(item, inside, has_row)
        return inside

    def _context_inside_loop(self, loop: Item, inside: _Context, has_row: bool) -> _Context:
        """Change the context of a loop's children by what only loops do to it."""
        if not self._shown.may_merge_iterations(loop.nodes[0]):
            # The iterations are layers. They have rows if they are not all equal.
            are_several = len(loop.children) > 1 or loop.children[0].is_repeat
            return replace(inside, has_round_rows=has_row and are_several)
        inside = replace(inside, loop=loop, has_round_rows=has_row and not self._options.fold)
        round_counts = [len(self._shown.children_of(node)) for node in loop.nodes]
        if has_row or max(round_counts) < 2:
            return inside
        return replace(inside, times=f"× {range_word(round_counts)}")

    def _count_what_is_inside(self, item: Item, row: Row) -> None:
        """Add to the row of an item that is too deep to open how many events are in each of its nodes."""
        sizes = [self._size(node) - self._own_size(node) for node in item.nodes]
        row.cells = (*row.cells, Cell(kinds.COUNT, f"{counts_word(sizes, 'event')} inside", ""))
        row.hidden += sum(sizes)
        self._too_deep += sum(sizes)

    def _own_size(self, node: int) -> int:
        """Return how many events a node stands for itself, with those that are hidden in it."""
        return (node < len(self._events)) + self._shown.inside.get(node, 0)

    def _size(self, node: int) -> int:
        """Return how many events are at and below a node."""
        pending = [node]
        order = list[int]()
        while pending:
            each = pending.pop()
            if each not in self._sizes:
                order.append(each)
                pending += self._shown.children_of(each)
        for each in reversed(order):
            self._sizes[each] = self._own_size(each) + sum(
                self._sizes[child] for child in self._shown.children_of(each)
            )
        return self._sizes[node]

    # ------------------------------------------------------------ one row

    def _row(self, item: Item, context: _Context) -> Row | None:
        """Return the row of an item; None if it has none and its children take its place."""
        node = item.nodes[0]
        if item.is_repeat:
            return repeat_row(
                context.depth, self._layers.common_range(item), item.times, f"{item.unit} steps"
            )
        kind = self._tree.kind(node)
        if kind == EVENT:
            return self._event_row(item, context)
        if kind == CALL:
            return self._call_row(item, context)
        if kind == LOOP:
            return self._loop_row(item, context)
        if context.has_round_rows:
            return self._round_row(item, context)
        return None

    def _round_row(self, item: Item, context: _Context) -> Row:
        numbers = [self._tree.number(node) + 1 for node in item.nodes]
        first = min(numbers)
        last = max(numbers)
        if first == last:
            text = f"round {count(first)}"
        else:
            text = f"rounds {count(first)}–{count(last)}"
        return Row(context.depth, kinds.ROUND, (Cell(kinds.EXPRESSION, text),), each=0)

    def _call_row(self, item: Item, context: _Context) -> Row:
        node = item.nodes[0]
        site = self._tree.site(node)
        hidden = [self._shown.inside.get(node, 0) for node in item.nodes]
        hidden_word = ""
        if self._shown.is_closed(node):
            hidden_word = counts_word(hidden, "torch function")
        cells = (
            Cell(kinds.FOLD, self._times_word(item, context)),
            Cell(kinds.EXPRESSION, call_word(site)),
            Cell(kinds.COUNT, hidden_word),
            Cell(kinds.ROUNDS, self._rounds(item, context)),
            Cell(kinds.PLACE, at=site.at),
        )
        row = Row(context.depth, CALL, cells, self._tree.first(node), each=0, hidden=sum(hidden))
        row.subject = site.function
        return self._finished(row, item)

    def _loop_row(self, item: Item, context: _Context) -> Row | None:
        if not self._has_loop_row(item):
            return None
        times = Cell(kinds.FOLD, self._times_word(item, context))
        cells = (times, *loop_cells(self._tree, item.nodes, self._rounds(item, context)))
        first = self._tree.first(item.nodes[0])
        return self._finished(Row(context.depth, LOOP, cells, first, each=0), item)

    def _has_loop_row(self, item: Item) -> bool:
        if self._shown.may_merge_iterations(item.nodes[0]):
            return max(self._tree.count(loop).number for loop in item.nodes) >= 2
        # A loop over layers has no row if each iteration is one call: the rows of the calls name
        # the layers.
        return any(len(each.children) >= 2 for each in _iterations_of(item))

    def _finished(self, row: Row, item: Item) -> Row:
        """Remove empty cells, and add the time if ``times=True``."""
        row.cells = tuple(cell for cell in row.cells if cell.text or cell.at)
        if self._spent_ns:
            spent = sum(map(self._time, item.nodes))
            row.cells = (*row.cells, self._time_cell(spent))
        return row

    def _time_cell(self, spent: int | None) -> Cell:
        return Cell(kinds.TIME, f"{duration(spent):>8} {share(spent, self._trace.duration_ns):>6}")

    def _time(self, node: int) -> int:
        """Return how long a node took."""
        return sum(self._spent_ns[each] for each in self._shown.helpers.get(node, (node,)))

    def _rounds(self, item: Item, context: _Context) -> str:
        """Return in which rounds an item happened, if not in all."""
        return context.rounds or rounds_word(item, context.item, context.loop, self._shown)

    def _times_word(self, item: Item, context: _Context) -> str:
        """Return how often an item happened, in a row or in each iteration: ``× 3``; "" for once."""
        if context.times:
            return context.times
        if item.times > 1:
            return f"× {count(item.times)}"
        if len(item.nodes) < 2 or item.in_a_row == 1:
            return ""
        return f"× {range_word(Counter(item.slots).values())}"

    # ------------------------------------------------------------ events

    def _event_row(self, item: Item, context: _Context) -> Row:
        nodes = item.nodes
        first = nodes[0]
        event = self._events[first]
        hidden = [self._shown.inside.get(node, 0) for node in nodes]
        key = _CellsKey(
            looks=tuple(dict.fromkeys(self._shown.looks[node] for node in nodes)),
            times=self._times_word(item, context),
            rounds=self._rounds(item, context),
            hidden=tuple(dict.fromkeys(hidden)),
            shows_error_inside=first in self._with_error_inside,
            is_helper=first in self._shown.helpers,
            mode=self._mode(nodes),
        )
        cells = self._shared_cells.get(key)
        if cells is None:
            cells = _with_mode(self._cells(item, key), key.mode)
            self._shared_cells[key] = cells
        if event.kind == "mark":
            cells = self._with_value(cells, item)
        if event.phase == "backward" and event.kind in ("function", "op"):
            cells = self._with_module(cells, nodes)
        if self._is_measured:
            cells = with_stats(cells, map(self._trace.event, nodes))
            if self._options.series and len(nodes) > 1:
                cells = with_curve(cells, self._series(nodes))
        if self._spent_ns:
            spent = None
            if event.end_ns is not None:
                spent = sum(map(self._time, nodes))
            cells = (*cells, self._time_cell(spent))
        row = Row(context.depth, kinds.EVENT, cells, first)
        row.times = item.times
        row.each = len(nodes)
        row.hidden = sum(hidden)
        row.below = self._notes(nodes)
        if event.kind == "module":
            row.subject = f"{event.root}:{event.module}"
        return row

    def _series(self, nodes: Sequence[int]) -> Series | None:
        """Return the series of the number that these events gave; None if they gave anything else."""
        series = series_of_events(tables_of(self._trace), nodes)
        if series is None or any(point.stats.count != 1 for point in series.points):
            return None
        return series

    def _cells(self, item: Item, key: _CellsKey) -> Cells:
        first = item.nodes[0]
        event = self._events[first]
        name = self._layers.name(first)
        samples = {self._shown.looks[node]: node for node in reversed(item.nodes)}
        others = tuple(self._events[node] for node in sorted(samples.values()) if node != first)
        layers = self._layers.range_of(item)
        if layers == name and not key.times:
            layers = ""
        is_same_code = all(
            (each.code, each.target) == (event.code, event.target) for each in others
        )
        labels = RowLabels(
            name,
            fold=f"{clean(layers)} {key.times}".strip(),
            same_code=is_same_code,
            inside=self._hidden_word(first, key.hidden),
            rounds=key.rounds,
            brief=key.shows_error_inside,
            others=others,
        )
        if not key.is_helper:
            return event_cells(event, labels)
        functions = [number + 1 for number in key.hidden]
        several = ""
        if max(functions) > 1:
            several = f"{counts_word(functions, 'torch function')} inside"
        return helper_cells(event, labels, several)

    def _hidden_word(self, node: int, hidden: Sequence[int]) -> str:
        """Return how many events an optimizer's step or a constructor hides; "" for other events."""
        if not any(hidden):
            return ""
        if self._shown.is_made_in(node):
            return counts_word(hidden, "torch function")
        if self._events[node].kind == "step":
            return f"{counts_word(hidden, 'event')} inside"
        return ""

    def _mode(self, nodes: Sequence[int]) -> str:
        """Return ``train``, ``eval`` or ``train|eval`` for dropout and norms; "" for other events."""
        modes = {self._modes[node] for node in nodes if node in self._modes}
        return "|".join(sorted(modes, reverse=True))

    def _with_module(self, cells: Cells, nodes: Sequence[int]) -> Cells:
        """Add the module whose gradient an event of backward computes: ``of blocks.3.fc``."""
        # The samples are of no use here: an op of backward looks like that of another layer.
        steps = [self._trace.event(node).forward_event for node in nodes]
        forward = [self._trace.event(step) for step in steps if step is not None]
        paths = [each.module or each.root or "" for each in forward if each.module is not None]
        if not paths or any(cell.kind == kinds.CLASS for cell in cells):
            return cells
        return inserted_after(
            cells, kinds.EXPRESSION, Cell(kinds.CLASS, f"of {clean(range_label(paths))}")
        )

    def _with_value(self, cells: Cells, item: Item) -> Cells:
        """Add the value of a mark that is not a tensor; for several marks, that of the first one."""
        if any(cell.kind == kinds.TAKES for cell in cells):
            return cells
        # The samples are of no use here: another mark at the same place has another value.
        value = cut(clean(self._trace.event(item.nodes[0]).args), MAX_VALUE_LENGTH)
        if len(item.nodes) > 1:
            value = f"{value} …"
        return (*cells, Cell(kinds.TAKES, value))

    def _notes(self, nodes: Iterable[int]) -> Cells:
        """Return the note of a gap, which is shown at its row. Other notes are collected, and shown below the tree."""
        for node in nodes:
            note = self._events[node].note or self._shown.notes.get(node)
            if note and self._shown.is_gap(node):
                return (Cell(kinds.NOTE, note),)
            if note:
                self._nodes_by_note.setdefault(note, []).append(node)
        return ()

    def _notes_below(self) -> Iterator[Cell]:
        for note, nodes in self._nodes_by_note.items():
            at = self._events[nodes[0]].location
            where = ""
            if at is not None:
                where = f" ({place_word(at)})"
            more = ""
            if len(nodes) > 1:
                more = f" and {count(len(nodes) - 1)} more"
            yield Cell(kinds.NOTE, f"note{where}{more}: {note}")

    def _find_errors(self) -> set[int]:
        """Return the failed events that contain another failed event: only the innermost row shows the error's text."""
        outer: set[int] = set()
        for node, children in self._shown.children.items():
            if node >= len(self._events) or self._events[node].error is None:
                continue
            pending = list(children)
            while pending:
                child = pending.pop()
                if child >= len(self._events):
                    pending += self._shown.children_of(child)
                elif self._events[child].error is not None:
                    outer.add(node)
        return outer

    def _summary(self) -> list[str]:
        """Return how many events there were, and why some have no row."""
        options = self._options
        rows = [row for row in self._rows if row.kind == kinds.EVENT]
        left_out = self._shown.left_out
        shown = sum(row.each for row in rows)
        in_cut_iterations = self._shown.in_cut_iterations
        inner = len(self._events) - shown - self._too_deep - left_out - in_cut_iterations
        took = ""
        if options.times and self._trace.duration_ns:
            took = f" in {duration(self._trace.duration_ns)}"
        parts = [plural(len(self._events), "event") + took]
        if shown > len(rows):
            parts.append(f"{count(shown - len(rows))} folded")
        if inner:
            text = f"{count(inner)} inside torch calls"
            if not options.inner:
                text = f"{text} (inner=True)"
            parts.append(text)
        if self._too_deep:
            parts.append(f"{count(self._too_deep)} deeper than depth={options.depth}")
        if in_cut_iterations:
            parts.append(f"{count(in_cut_iterations)} in iterations that were kept in part")
        if left_out:
            if options.only:
                parts.append(f"{count(left_out)} not selected")
            else:
                parts.append(f"{count(left_out)} not shown")
        return parts


def _with_mode(cells: Cells, mode: str) -> Cells:
    """Add the mode after the class of a module, or after the expression of a function."""
    if not mode:
        return cells
    index = index_of(cells, kinds.CLASS)
    if index is None:
        return inserted_after(cells, kinds.EXPRESSION, Cell(kinds.CLASS, mode))
    class_cell = cells[index]
    short = class_cell.short
    if short is None:
        short = class_cell.text
    with_mode = class_cell._replace(
        text=f"{class_cell.text} {mode}", short=f"{short} {mode}".strip()
    )
    return (*cells[:index], with_mode, *cells[index + 1 :])


def _with_previous(items: Sequence[Item]) -> list[tuple[Item | None, Item]]:
    """Return each item with the one before it."""
    return list(zip([None, *items], items, strict=False))


def _iterations_of(loop: Item) -> list[Item]:
    """Return the iterations of a loop over layers, also those in repeats."""
    iterations: list[Item] = []
    for child in loop.children:
        if child.is_repeat:
            iterations += child.children
        else:
            iterations.append(child)
    return iterations
