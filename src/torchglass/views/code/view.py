"""The code view: each step under the source lines that led to it, with loops and equal layers shown once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from torchglass.events.types import Location, Value
from torchglass.views import row as kinds
from torchglass.views.backward import NOTHING, SIGN, TiedTrace
from torchglass.views.code.forest import BACK, CALL, LINE, LOOP, ROUND, STEP, CodeForest
from torchglass.views.code.lines import Lines, SourceLines, assigned_word
from torchglass.views.code.steps import says_module, step_cells, steps_of, why_none
from torchglass.views.digest import Recorded, relative_path, shape_key, split_index
from torchglass.views.fold import TOGETHER, Item, folded, range_label
from torchglass.views.levels import count_of
from torchglass.views.options import CodeOptions
from torchglass.views.row import Cell, Cells, Row, Sheet, repeat_row
from torchglass.views.text.spans import count_word, counts_word, loop_word, range_word, rounds_of, scope_word
from torchglass.views.text.tensors import blurred, is_measured, with_stats
from torchglass.views.text.words import clean, count, duration, plural

DOWN = "down"
"""A row that goes into a function or module."""
NO_MODULE = "no module"
WORDS = {LINE: "line", CALL: "module", STEP: "step", LOOP: "loop", ROUND: "round", BACK: "call"}


def sheet(trace: Recorded, options: CodeOptions) -> Sheet:
    """Rows for a trace: pure, one pass forward to build what is shown, then what repeats is laid over each other."""
    if not options.backward:
        return _Code(trace, options).sheet()
    tied = TiedTrace(trace)
    made = _Code(tied, options).sheet()
    for row in made.rows:
        row.event = tied.origin[row.event] if row.event >= 0 else row.event
    if not any(event.name.startswith(SIGN) for event in tied.made):
        made.below.append(Cell(kinds.REMARK, NOTHING))
    return made


@dataclass(frozen=True, slots=True)
class _Around:
    """Where an item stands."""

    depth: int = 0
    level: int = 0
    """How many source lines are around it."""
    item: Item | None = None
    loop: Item | None = None
    """The innermost loop whose rounds are laid over each other."""
    kind: str = ""
    """Of the row around it."""
    where: Location | None = None
    """The source line around it."""
    name: str = ""
    """The path of a module whose call has no row."""
    is_said: bool = False
    """Whether a source line says that name already."""
    often: str = ""
    """How often, where what says so has no row."""
    head: int = 0
    """The line of the loop just around it, which has a row."""


class _Code:
    """One trace while its rows are made."""

    def __init__(self, trace: Recorded, options: CodeOptions) -> None:
        self._trace, self._options = trace, options
        self._steps = steps_of(trace, options)
        self._is_measured = is_measured(trace)
        self._lines = Lines(options)
        stacks = [self._steps.events[step].stack for step in self._steps.chosen]
        self._lines.leave_out_runner(stacks)
        if options.fold:
            self._lines.count_levels(stacks)
        self._forest = CodeForest(self._steps, self._lines, options.fold)
        self._forest.fill()
        self._nodes = self._forest.nodes
        self._sources = SourceLines(trace.sources)
        self._cells: dict[Hashable, Cells] = {}
        self._rows: list[Row] = []
        self._deeper = self._built = self._shown_ns = 0
        self._hides_built = self._forest.hides_constructors(options)

    def sheet(self) -> Sheet:
        """All rows. The sum of ``each`` of the steps and of ``hidden`` is the number of steps."""
        for thread, roots in self._forest.threads.items():
            if len(self._forest.threads) > 1:
                self._rows.append(Row(0, kinds.THREAD, (Cell(kinds.NAME, thread),)))
            self._emit(folded(self._forest, roots, self._own, self._options.fold))
        below = (
            Cell(kinds.COUNT, " · ".join(self._summary()))
            if self._steps.chosen
            else Cell(kinds.HEADING, why_none(self._steps, self._options))
        )
        return Sheet(self._rows, [below])

    def _own(self, item: Item) -> Hashable:
        """All that is said of an item itself; of numbered layers without the number."""
        node = self._nodes[item.nodes[0]]
        if node.kind == STEP:
            return tuple(dict.fromkeys(map(self._step_key, item.nodes)))
        key = self._forest.key(item.nodes[0]) if node.kind != ROUND else ROUND
        if node.kind == LINE:
            assigned = [self._nodes[each].assigned or {} for each in item.nodes]
            shapes = {
                (names, tuple(map(shape_key, each)))
                for one in assigned
                for names, several in one.items()
                for each in several
            }
            return (key, frozenset(shapes))
        if node.kind == LOOP:
            return (key, frozenset(count_of(span) for span in map(self._forest.span, item.nodes) if span is not None))
        return key

    def _step_key(self, node: int) -> Hashable:
        event = self._steps.events[self._nodes[node].number]
        result = event.result if event.outputs else ""
        return (event.kind, event.name, blurred(event.args), result, event.error, event.note)

    # ------------------------------------------------------------ rows in order

    def _emit(self, items: Sequence[Item]) -> None:
        """Depth first, with a stack of our own: recursion nests deeper than Python may."""
        pending: list[tuple[Item | Row, _Around]] = [*reversed(self._siblings(items, _Around()))]
        while pending:
            item, around = pending.pop()
            if isinstance(item, Row):
                self._rows.append(item)
                continue
            row, inside = self._row(item, around)
            if row is not None:
                self._rows.append(row)
                if row.kind == LINE and self._is_cut(item, around):
                    sizes = [self._nodes[node].size for node in item.nodes]
                    row.cells = (*row.cells, Cell(kinds.COUNT, f"{counts_word(sizes, 'step')} inside"))
                    row.hidden = sum(sizes)
                    self._deeper += row.hidden
                    continue
            hides = row is not None and self._hides_built
            children = self._without_built(item, row) if row is not None and hides else item.children
            pending += reversed(self._siblings(children, inside))

    def _is_cut(self, item: Item, around: _Around) -> bool:
        return bool(item.children) and self._options.depth is not None and around.level >= self._options.depth

    def _without_built(self, item: Item, row: Row) -> Sequence[Item]:
        """What is in a line but constructors of modules, of which it says how many steps they made."""
        others, sizes = self._forest.without_built(item)
        if sizes:
            row.cells = (*row.cells, Cell(kinds.COUNT, f"{counts_word(sizes, 'step')} in its constructor"))
            row.hidden = sum(sizes)
            self._built += row.hidden
        return others

    def _siblings(self, items: Sequence[Item], around: _Around) -> list[tuple[Item | Row, _Around]]:
        """Items beside each other; from a line to the lines of a function that it calls it goes down first."""
        found: list[tuple[Item | Row, _Around]] = []
        before, is_below = "", False
        for item in items:
            kind = self._kind(item)
            if kind == LINE and around.kind == LINE and before != LINE:
                found.append((Row(around.depth, DOWN), around))
                is_below = False
            place = around
            if kind == STEP and is_below and not around.name:
                # Steps after those of a module stand below its name, though not in it: they say where they belong.
                call = self._steps.calls[self._nodes[item.nodes[0]].number]
                name = relative_path(self._steps.events[call], None) if call >= 0 else NO_MODULE
                place = replace(around, name=name, is_said=False)
            is_below = is_below or self._has_steps(item)
            found.append((item, place))
            before = kind
        return found

    def _kind(self, item: Item) -> str:
        """What an item begins with: of a loop a line, its head or, where it has no row, what is in it."""
        while item.nodes == [TOGETHER] or self._nodes[item.nodes[0]].kind in (LOOP, ROUND):
            if item.nodes != [TOGETHER] and self._has_row(item):
                return LINE
            item = item.children[0]
        return self._nodes[item.nodes[0]].kind

    def _has_steps(self, item: Item) -> bool:
        """Whether steps stand directly below the name of a module."""
        if item.nodes == [TOGETHER] or self._nodes[item.nodes[0]].kind != CALL or self._is_plain(item):
            return False
        return any(child.nodes != [TOGETHER] and self._nodes[child.nodes[0]].kind == STEP for child in item.children)

    def _is_plain(self, item: Item) -> bool:
        """Whether a call has no row: no line of its own is shown, so that what is in it says its name."""
        return (
            item.times == 1
            and len(set(map(self._forest.name, item.nodes))) == 1
            and not self._nodes[item.nodes[0]].has_lines
        )

    def _has_row(self, item: Item) -> bool:
        """Whether a loop has a row: not where it is all on one line, or over layers, which say themselves which."""
        loops = [span for span in map(self._forest.span, item.nodes) if span is not None]
        if not self._forest.rounds(item.nodes[0]) or max(count_of(span).number for span in loops) < 2:
            return False
        assert loops[0].loop is not None
        head = loops[0].loop.node.lineno
        return not all(self._line_of(child) == head for child in item.children)

    def _line_of(self, item: Item) -> int | None:
        if item.nodes == [TOGETHER] or self._nodes[item.nodes[0]].kind != LINE:
            return None
        return self._lines.lines[self._nodes[item.nodes[0]].number].where.line

    # ------------------------------------------------------------ one row

    def _row(self, item: Item, around: _Around) -> tuple[Row | None, _Around]:
        """The row of an item, if it has one, and where what is in it stands."""
        if item.nodes == [TOGETHER]:
            return self._repeat_row(item, around), replace(around, depth=around.depth + 1, item=item)
        kind = self._nodes[item.nodes[0]].kind
        inside = replace(around, item=item, often="")
        if kind == STEP:
            return self._step_row(item, around), inside
        if kind == CALL:
            return self._call_row(item, around)
        if kind == BACK:
            return self._back_row(item, around), replace(inside, kind=CALL)
        if kind == ROUND:
            often = f" × {count(item.times)}" if item.times > 1 else around.often
            return None, replace(inside, often=often, kind=self._kind_below(around))
        if kind == LINE:
            inside = replace(inside, kind=LINE, name="", is_said=False, head=0)
            if around.head and self._line_of(item) == around.head:  # what the step to the next round does
                return None, inside
            row = self._line_row(item, around)
            return row, replace(inside, depth=around.depth + 1, level=around.level + 1, where=row.cells[0].at)
        inside = replace(inside, loop=item if self._forest.rounds(item.nodes[0]) else around.loop)
        if not self._has_row(item):
            rounds = [len(self._forest.below(node)) for node in item.nodes]
            over = self._forest.rounds(item.nodes[0])
            often = f" × {range_word(rounds)}" if max(rounds) > 1 and over else ""
            return None, replace(inside, often=often, kind=self._kind_below(around))
        row = self._loop_row(item, around)
        head = row.cells[0].at.line if row.cells[0].at else 0
        return row, replace(inside, depth=around.depth + 1, level=around.level + 1, kind=LOOP, head=head)

    @staticmethod
    def _kind_below(around: _Around) -> str:
        """In what has no row: from the line around it, it was gone down already."""
        return "" if around.kind == LINE else around.kind

    def _repeat_row(self, item: Item, around: _Around) -> Row:
        nodes = sorted(node for child in item.children for node in child.nodes)
        calls = [self._forest.name(node) for node in nodes if self._nodes[node].kind == CALL]
        numbered = len(calls) == len(nodes) and all(split_index(name)[1] is not None for name in calls)
        span = range_label(calls) if numbered and len({split_index(name)[0] for name in calls}) == 1 else ""
        text = f"{around.name}.{span}" if span and around.name else span
        word = WORDS[self._nodes[item.children[0].nodes[0]].kind]
        return repeat_row(around.depth, text, item.times, plural(item.unit, word))

    def _call_row(self, item: Item, around: _Around) -> tuple[Row | None, _Around]:
        name = range_label(map(self._forest.name, item.nodes))
        whole = f"{around.name}.{name}" if around.name else name
        inside = replace(around, item=item, often="", name="", is_said=False)
        often = f" × {count(item.times)}" if item.times > 1 else around.often
        if self._is_plain(item) and not often:
            return None, replace(inside, name=whole, is_said=says_module(around.where, whole))
        cells = [Cell(kinds.NAME, clean(whole)), *self._often(often), *self._rounds(item, around)]
        event = self._nodes[item.nodes[0]].number
        return Row(around.depth, DOWN, (*cells, *self._time(item)), event, item.times), replace(inside, kind=CALL)

    def _back_row(self, item: Item, around: _Around) -> Row:
        """Into a function that torch called; named where it did so several times in a row."""
        span, cells = self._forest.span(item.nodes[0]), self._rounds(item, around)
        assert span is not None
        times = Counter(item.slots).values()
        if max(times) > 1 or item.times > 1:
            often = range_word(times) if item.times == 1 else count(item.times)
            cells = (Cell(kinds.NAME, scope_word(span.function)), Cell(kinds.FOLD, f" × {often}"), *cells)
        return Row(around.depth, DOWN, (*cells, *self._time(item)), span.first, item.times)

    def _loop_row(self, item: Item, around: _Around) -> Row:
        span = self._forest.span(item.nodes[0])
        assert span is not None
        assert span.loop is not None
        assert span.at is not None
        node, text = span.loop.node, loop_word(span)
        at = replace(span.at, line=node.lineno, end_line=node.lineno, source=text)
        loops = [each for each in map(self._forest.span, item.nodes) if each is not None]
        source = Cell(kinds.SOURCE, clean(text), at=at, mark=(0, 0))
        cells = (source, Cell(kinds.FOLD, f"  {count_word(loops)}"), *self._rounds(item, around), *self._time(item))
        return Row(around.depth, LINE, cells, span.first, each=0)

    def _line_row(self, item: Item, around: _Around) -> Row:
        nodes = [self._nodes[node] for node in item.nodes]
        line = self._lines.lines[nodes[0].number]
        often = f" × {count(line.levels_as_one)} deep" if line.levels_as_one > 1 else around.often
        often = often or (f" × {count(item.times)}" if item.times > 1 else "")
        assigned: dict[tuple[str, ...], list[tuple[Value, ...]]] = {}
        for node in nodes:
            for names, values in (node.assigned or {}).items():
                assigned.setdefault(names, []).extend(values)
        gives = (Cell(kinds.GIVES, assigned_word(assigned)),) if assigned else ()
        cells = (self._sources.cell(line.where), *self._often(often), *gives, *self._rounds(item, around))
        return Row(around.depth, LINE, (*cells, *self._time(item)), self._event(item.nodes[0]), item.times, 0)

    def _event(self, node: int) -> int:
        """The first step in a node."""
        while self._nodes[node].kind != STEP:
            node = self._nodes[node].children[0]
        return self._nodes[node].number

    @staticmethod
    def _often(often: str) -> Cells:
        return (Cell(kinds.FOLD, often),) if often else ()

    def _rounds(self, item: Item, around: _Around) -> Cells:
        text = rounds_of(item, around.item, around.loop, self._forest.span)
        return (Cell(kinds.ROUNDS, text),) if text else ()

    def _time(self, item: Item) -> Cells:
        if not self._options.times:
            return ()
        return (Cell(kinds.TIME, duration(sum(self._nodes[node].spent for node in item.nodes))),)

    # ------------------------------------------------------------ steps

    def _step_row(self, item: Item, around: _Around) -> Row:
        events = list(dict.fromkeys(self._steps.digest.alike[self._nodes[node].number] for node in item.nodes))
        inside = tuple(dict.fromkeys(self._nodes[node].inside for node in item.nodes))
        module = "" if around.is_said else around.name
        often = around.often or (f" × {count(item.times)}" if item.times > 1 else "")
        rounds = self._rounds(item, around)
        key = (tuple(events), inside, module, often, rounds)
        cells = self._cells.get(key)
        if cells is None:
            samples = [self._steps.digest.samples[alike] for alike in events]
            cells = self._cells[key] = (*step_cells(samples, module, inside), *self._often(often), *rounds)
        if self._is_measured:
            cells = with_stats(cells, (self._trace.event(self._nodes[node].number) for node in item.nodes))
        first = self._steps.events[self._nodes[item.nodes[0]].number]
        note = (Cell(kinds.NOTE, first.note),) if first.note else ()
        time = self._time(item)
        self._shown_ns += sum(self._nodes[node].spent for node in item.nodes)
        cells = (*cells, *time) if time else cells
        return Row(
            around.depth, kinds.EVENT, cells, self._nodes[item.nodes[0]].number, item.times, len(item.nodes), 0, note
        )

    # ------------------------------------------------------------ below

    def _summary(self) -> list[str]:
        """How many steps there were, and why some have no row."""
        steps, options = self._steps, self._options
        told = {steps.events[step].kind for step in steps.chosen}
        word = next(iter(told)) if len(told) == 1 and told <= {"function", "op"} else "step"
        rows = sum(row.kind == kinds.EVENT for row in self._rows)
        parts = [plural(len(steps.chosen), word)]
        if options.times:
            parts[0] += f" in {duration(self._shown_ns)} of {duration(self._trace.duration_ns)}"
        if (rest := len(steps.chosen) - self._deeper - self._built - rows) > 0:
            parts.append(f"{count(rest)} folded")
        if self._built:
            parts.append(f"{count(self._built)} in constructors (constructors=True)")
        if self._deeper:
            parts.append(f"{count(self._deeper)} deeper than depth={options.depth}")
        if steps.left_out:
            parts.append(f"{count(steps.left_out)} not selected")
        if self._lines.outer:
            parts.append(f"{plural(self._lines.outer, 'line')} of what ran the program (frames='all')")
        if word == "function" and options.steps == "auto":
            parts.append("record(ops=True) shows the aten ops in them")
        return parts
