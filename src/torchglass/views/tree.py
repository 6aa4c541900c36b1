"""The tree: every call with what was written, the shapes that went in and came out, and the line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from torchglass.views import row as kinds
from torchglass.views.digest import Recorded, digest_of
from torchglass.views.fold import TOGETHER, Item, folded, range_label
from torchglass.views.forest import Forest, Layers
from torchglass.views.levels import CALL, LOOP, Level, count_of
from torchglass.views.options import TreeOptions
from torchglass.views.row import Cell, Cells, Row, Sheet, has_heading, repeat_row, said_once
from torchglass.views.text.cells import Said, event_cells, helper_cells
from torchglass.views.text.spans import call_word, counts_word, loop_cells, range_word, rounds_of
from torchglass.views.text.tensors import is_measured, with_stats
from torchglass.views.text.words import clean, count, cut, duration, place_word, plural, share

LONGEST_VALUE = 40
"""Characters of a marked value that is no tensor."""


def sheet(trace: Recorded, options: TreeOptions) -> Sheet:
    """Rows for a trace: pure; one pass forward to see what is shown, then what repeats is laid over each other."""
    return _Tree(trace, options).sheet()


@dataclass(frozen=True, slots=True)
class _Around:
    """Where an item stands."""

    depth: int = 0
    level: int = 0
    """How many calls and loops around it have rows: the heading of a repeat takes it one further in."""
    item: Item | None = None
    loop: Item | None = None
    """The innermost loop whose rounds are laid over each other."""
    often: str = ""
    """How often, where what says so has no row of its own: a loop over layers."""
    rounds: str = ""
    """The same for in which rounds."""
    has_rounds: bool = False
    """Whether rounds have rows of their own."""


class _Tree:
    """One trace while its tree is made."""

    def __init__(self, trace: Recorded, options: TreeOptions) -> None:
        self._trace, self._options = trace, options
        digest = digest_of(trace)
        self._forest = Forest(digest, options)
        self._events = self._forest.events
        self._layers = Layers(trace.modules(), self._forest)
        self._spent = digest.spent_ns if options.times else []
        self._sizes: dict[int, int] = {}
        self._known: dict[Hashable, Cells] = {}
        self._rows: list[Row] = []
        self._deeper = 0
        self._noted: dict[str, list[int]] = {}
        self._failed_inside = self._find_errors()
        self._is_measured = is_measured(trace)

    def sheet(self) -> Sheet:
        """All rows; the sum of ``each + hidden`` over them, and what is left out, is the number of events."""
        for thread, roots in self._forest.threads.items():
            if has_heading(thread, self._forest.threads):
                self._rows.append(Row(0, kinds.THREAD, (Cell(kinds.NAME, thread),)))
            items = folded(self._forest, roots, self._layers.own, self._options.fold)
            self._emit(self._forest.without_all(items))
        rows = said_once(self._rows) if self._options.fold else self._rows
        return Sheet(rows, [Cell(kinds.COUNT, " · ".join(self._summary())), *self._notes_below()])

    # ------------------------------------------------------------ rows in order

    def _emit(self, items: list[Item]) -> None:
        """Depth first, with a stack of our own: traces nest deeper than Python may."""
        pending = [(item, _Around(), before) for before, item in _with_before(items)][::-1]
        while pending:
            item, around, before = pending.pop()
            inside = replace(around, item=item, often="", rounds="", depth=around.depth + 1, level=around.level + 1)
            row = self._row(item, around)
            if row is None:
                inside = self._inside_of_no_row(item, around)
            else:
                self._rows.append(row)
                if before is not None and (before.times > 1 or item.times > 1 or around.often):
                    remark = self._layers.difference(item, before)
                    row.below = (Cell(kinds.REMARK, remark), *row.below) if remark else row.below
                if item.nodes[0] == TOGETHER:
                    inside = replace(around, depth=around.depth + 1, item=item)
                elif item.children and self._options.depth is not None and around.level >= self._options.depth:
                    self._say_what_is_inside(item, row)
                    continue
            span = self._forest.span(item.nodes[0]) if item.nodes[0] != TOGETHER else None
            if span is not None and span.kind == LOOP:
                inside = self._inside_of_loop(item, inside, row is not None)
            pending += [(child, inside, previous) for previous, child in _with_before(item.children)][::-1]

    def _inside_of_no_row(self, item: Item, around: _Around) -> _Around:
        """What is in it stands in its place, and says what it would."""
        often = f"× {count(item.times)}" if item.times > 1 else around.often
        return replace(around, item=item, often=often, rounds=self._rounds(item, around))

    def _inside_of_loop(self, item: Item, inside: _Around, has_row: bool) -> _Around:
        if self._forest.rounds(item.nodes[0]):
            inside = replace(inside, loop=item, has_rounds=has_row and not self._options.fold)
            rounds = [len(self._forest.below(node)) for node in item.nodes]
            return inside if has_row or max(rounds) < 2 else replace(inside, often=f"× {range_word(rounds)}")
        several = len(item.children) > 1 or item.children[0].nodes == [TOGETHER]
        return replace(inside, has_rounds=has_row and several)

    def _say_what_is_inside(self, item: Item, row: Row) -> None:
        """At a row that is not opened: how many events are in it, in each that it stands for."""
        sizes = [self._size(node) - self._own_size(node) for node in item.nodes]
        row.cells = (*row.cells, Cell(kinds.COUNT, f"{counts_word(sizes, 'event')} inside", ""))
        row.hidden += sum(sizes)
        self._deeper += sum(sizes)

    def _own_size(self, node: int) -> int:
        return (node < len(self._events)) + self._forest.inside.get(node, 0)

    def _size(self, node: int) -> int:
        """How many events are at and below a node."""
        pending, order = [node], list[int]()
        while pending:
            each = pending.pop()
            if each not in self._sizes:
                order.append(each)
                pending += self._forest.below(each)
        for each in reversed(order):
            self._sizes[each] = self._own_size(each) + sum(self._sizes[child] for child in self._forest.below(each))
        return self._sizes[node]

    # ------------------------------------------------------------ one row

    def _row(self, item: Item, around: _Around) -> Row | None:
        """None: what is in it stands in its place."""
        node = item.nodes[0]
        if node == TOGETHER:
            return repeat_row(around.depth, self._layers.common_range(item), item.times, f"{item.unit} steps")
        span = self._forest.span(node)
        if span is None:
            return self._event_row(item, around)
        if span.kind == CALL:
            return self._call_row(item, span, around)
        if span.kind == LOOP:
            return self._loop_row(item, span, around)
        return self._round_row(item, around) if around.has_rounds else None

    def _round_row(self, item: Item, around: _Around) -> Row:
        numbers = [span.number + 1 for span in map(self._forest.span, item.nodes) if span is not None]
        first, last = min(numbers), max(numbers)
        text = f"round {count(first)}" if first == last else f"rounds {count(first)}–{count(last)}"
        return Row(around.depth, kinds.ROUND, (Cell(kinds.EXPRESSION, text),), each=0)

    def _call_row(self, item: Item, span: Level, around: _Around) -> Row:
        inside = [self._forest.inside.get(node, 0) for node in item.nodes]
        cells = [
            Cell(kinds.FOLD, self._often(item, around)),
            Cell(kinds.EXPRESSION, call_word(span)),
            Cell(kinds.COUNT, counts_word(inside, "torch function") if self._forest.is_closed(span) else ""),
            Cell(kinds.ROUNDS, self._rounds(item, around)),
            Cell(kinds.PLACE, at=span.at),
        ]
        row = Row(around.depth, CALL, tuple(cells), span.first, each=0, hidden=sum(inside))
        row.subject = span.function
        return self._finished(row, item)

    def _loop_row(self, item: Item, span: Level, around: _Around) -> Row | None:
        loops = [each for each in map(self._forest.span, item.nodes) if each is not None]
        if self._forest.rounds(item.nodes[0]):
            if max(count_of(each).number for each in loops) < 2:
                return None
        elif all(len(each.children) < 2 for each in _rounds_in(item)):
            return None  # a layer at a time: each has a row that says which it is
        often = Cell(kinds.FOLD, self._often(item, around))
        cells = (often, *loop_cells(loops, self._rounds(item, around)))
        return self._finished(Row(around.depth, LOOP, cells, span.first, each=0), item)

    def _finished(self, row: Row, item: Item) -> Row:
        """Without cells that say nothing, with the time where that is asked for."""
        row.cells = tuple(cell for cell in row.cells if cell.text or cell.at)
        if self._spent:
            spent = sum(map(self._time, item.nodes))
            row.cells = (*row.cells, self._time_cell(spent))
        return row

    def _time_cell(self, spent: int | None) -> Cell:
        return Cell(kinds.TIME, f"{duration(spent):>8} {share(spent, self._trace.duration_ns):>6}")

    def _time(self, node: int) -> int:
        """Of a span: that of the events in it."""
        total, pending = 0, [node]
        while pending:
            each = pending.pop()
            if each < len(self._events):
                total += sum(self._spent[event] for event in self._forest.helpers.get(each, (each,)))
            else:
                pending += self._forest.below(each)
        return total

    def _rounds(self, item: Item, around: _Around) -> str:
        """In which rounds it happened, where what it is in happened in more."""
        return around.rounds or rounds_of(item, around.item, around.loop, self._forest.span)

    def _often(self, item: Item, around: _Around) -> str:
        """How often in a row: equal ones, or at one place in each round."""
        if around.often:
            return around.often
        if item.times > 1:
            return f"× {count(item.times)}"
        if len(item.nodes) < 2 or item.in_a_row == 1:
            return ""
        return f"× {range_word(Counter(item.slots).values())}"

    # ------------------------------------------------------------ events

    def _event_row(self, item: Item, around: _Around) -> Row:
        nodes = item.nodes
        event, inside = self._events[nodes[0]], [self._forest.inside.get(node, 0) for node in nodes]
        often, rounds = self._often(item, around), self._rounds(item, around)
        key = (
            tuple(dict.fromkeys(self._forest.texts[node] for node in nodes)), often, rounds,
            tuple(dict.fromkeys(inside)), nodes[0] in self._failed_inside, nodes[0] in self._forest.helpers,
        )  # fmt: skip
        cells = self._known.get(key)
        if cells is None:
            cells = self._known[key] = self._cells(item, often, rounds, inside)
        if event.kind == "mark":
            cells = self._with_value(cells, item)
        if event.phase == "backward" and event.kind in ("function", "op"):
            cells = self._with_module(cells, nodes)
        if self._is_measured:
            cells = with_stats(cells, map(self._trace.event, nodes))
        row = Row(around.depth, kinds.EVENT, cells, nodes[0], item.times, len(nodes), sum(inside), self._notes(nodes))
        row.subject = f"{event.root}:{event.module}" if event.kind == "module" else ""
        if self._spent:
            spent = None if event.end_ns is None else sum(map(self._time, nodes))
            row.cells = (*row.cells, self._time_cell(spent))
        return row

    def _cells(self, item: Item, often: str, rounds: str, inside: Sequence[int]) -> Cells:
        first = item.nodes[0]
        event, name = self._events[first], self._layers.name(first)
        samples = {self._forest.texts[node]: node for node in reversed(item.nodes)}
        others = tuple(self._events[node] for node in sorted(samples.values()) if node != first)
        which = self._layers.range_of(item)
        within = f"{counts_word(inside, 'event')} inside" if event.kind == "step" and any(inside) else ""
        if any(inside) and self._forest.is_made_in(first):
            within = counts_word(inside, "torch function")
        said = Said(
            name,
            fold=f"{clean(which) if often or which != name else ''} {often}".strip(),
            same_code=all((each.code, each.target) == (event.code, event.target) for each in others),
            inside=within,
            rounds=rounds,
            brief=first in self._failed_inside,
            others=others,
        )
        if first in self._forest.helpers:
            functions = [number + 1 for number in inside]
            several = f"{counts_word(functions, 'torch function')} inside" if max(functions) > 1 else ""
            return helper_cells(event, said, several)
        return event_cells(event, said)

    def _with_module(self, cells: Cells, nodes: Sequence[int]) -> Cells:
        """What ran in backward says which module's forward step it belongs to: ``of blocks.3.fc``."""
        # Asked of the trace: the events are samples, and one op of backward looks like that of another layer.
        steps = [self._trace.event(node).forward_event for node in nodes]
        forward = [self._trace.event(step) for step in steps if step is not None]
        paths = [each.module or each.root or "" for each in forward if each.module is not None]
        if not paths or any(cell.kind == kinds.CLASS for cell in cells):
            return cells
        at = next((number for number, cell in enumerate(cells, 1) if cell.kind == kinds.EXPRESSION), 0)
        return (*cells[:at], Cell(kinds.CLASS, f"of {clean(range_label(paths))}"), *cells[at:])

    def _with_value(self, cells: Cells, item: Item) -> Cells:
        """A mark of something that holds no tensor says what it was, and of several what the first was."""
        if any(cell.kind == kinds.TAKES for cell in cells):
            return cells
        # Asked of the trace: the events are samples, from the same place, with another value.
        value = cut(clean(self._trace.event(item.nodes[0]).args), LONGEST_VALUE)
        return (*cells, Cell(kinds.TAKES, f"{value} …" if len(item.nodes) > 1 else value))

    def _notes(self, nodes: Iterable[int]) -> Cells:
        """What is missing is said at its row; what is to be known of torch's inside below the tree, once."""
        for node in nodes:
            note = self._events[node].note or self._forest.notes.get(node)
            if note and self._forest.is_gap(node):
                return (Cell(kinds.NOTE, note),)
            if note:
                self._noted.setdefault(note, []).append(node)
        return ()

    def _notes_below(self) -> Iterator[Cell]:
        for note, nodes in self._noted.items():
            at = self._events[nodes[0]].location
            where = "" if at is None else f" ({place_word(at)})"
            more = f" and {count(len(nodes) - 1)} more" if len(nodes) > 1 else ""
            yield Cell(kinds.NOTE, f"note{where}{more}: {note}")

    def _find_errors(self) -> set[int]:
        """Events whose error came out of a call that has a row of its own: its text is said there."""
        found: set[int] = set()
        for node, children in self._forest.children.items():
            if node >= len(self._events) or self._events[node].error is None:
                continue
            pending = list(children)
            while pending:
                child = pending.pop()
                if child >= len(self._events):
                    pending += self._forest.below(child)
                elif self._events[child].error is not None:
                    found.add(node)
        return found

    def _summary(self) -> list[str]:
        """How many events there were, and why some have no row."""
        options, rows = self._options, [row for row in self._rows if row.kind == kinds.EVENT]
        left_out, shown = self._forest.left_out, sum(row.each for row in rows)
        inner = len(self._events) - shown - self._deeper - left_out
        took = f" in {duration(self._trace.duration_ns)}" if options.times and self._trace.duration_ns else ""
        parts = [plural(len(self._events), "event") + took]
        if shown > len(rows):
            parts.append(f"{count(shown - len(rows))} folded")
        if inner:
            parts.append(f"{count(inner)} inside torch calls" + ("" if options.inner else " (inner=True)"))
        if self._deeper:
            parts.append(f"{count(self._deeper)} deeper than depth={options.depth}")
        if left_out:
            parts.append(f"{count(left_out)} not {'selected' if options.only else 'shown'}")
        return parts


def _with_before(items: Sequence[Item]) -> list[tuple[Item | None, Item]]:
    return list(zip([None, *items], items, strict=False))


def _rounds_in(loop: Item) -> list[Item]:
    """The rounds of a loop over layers; some may be in repeats."""
    return [each for child in loop.children for each in (child.children if child.nodes == [TOGETHER] else [child])]
