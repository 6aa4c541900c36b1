"""The code view: each step under the source lines that led to it, with loops and equal layers shown once.

The tree of lines (``program/lines.py``) has these kinds of nodes, here with the rows that they get::

    LOOP       for x in data:  × 3           a source line, unless all of the loop is on one line
    ITERATION                                no row: the lines in it take its place
    LINE       │ y = model(x)                a source line
    CALL       │ │ ⬇️ fc                      the call of a module; no row if it has no lines of its own
    CALLBACK   │ │ ⬇️                         a function of the program that torch called
    STEP       │ │ # linear(…) -> f32[8];    an op

Each row stands for an *item*: one node, or several that were folded (``program/fold.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from torchglass.events.selection import in_package
from torchglass.events.types import Location, Value
from torchglass.program.dedup import shape_key
from torchglass.program.fold import Item, folded
from torchglass.program.lines import (
    CALL,
    CALLBACK,
    ITERATION,
    LINE,
    LOOP,
    STEP,
    LineTree,
    StackLines,
)
from torchglass.program.paths import range_label, relative_path, split_index
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.views import row as kinds
from torchglass.views.backward import NO_BACKWARD, SIGN, TiedTrace
from torchglass.views.code.constructors import Constructors, are_hidden
from torchglass.views.code.lines import SourceLines, assigned_word
from torchglass.views.code.steps import Steps, says_module, step_cells, steps_of, why_none
from torchglass.views.options import CodeOptions
from torchglass.views.row import Cell, Cells, Row, Sheet, repeat_row
from torchglass.views.text.scopes import (
    count_word,
    counts_word,
    loop_word,
    range_word,
    rounds_word,
    scope_word,
)
from torchglass.views.text.tensors import is_measured, mask_numbers, with_stats
from torchglass.views.text.words import clean, count, duration, plural

DOWN = "down"
"""The kind of a row that goes down into a function or module."""
NO_MODULE = "no module"
REPEATED_WORDS = {
    LINE: "line",
    CALL: "module",
    STEP: "step",
    LOOP: "loop",
    ITERATION: "round",
    CALLBACK: "call",
}
"""For each kind of node the word for it in ``× 3, 2 lines each:``."""


def sheet(trace: Recorded, options: CodeOptions) -> Sheet:
    """Return the rows of a trace: build the tree of lines, then fold what repeats."""
    if not options.backward:
        return _Code(trace, options).sheet()
    tied = TiedTrace(trace)
    result = _Code(tied, options).sheet()
    for row in result.rows:
        if row.event >= 0:
            row.event = tied.origin[row.event]
    if not any(event.name.startswith(SIGN) for event in tied.made):
        result.below.append(Cell(kinds.REMARK, NO_BACKWARD))
    return result


@dataclass(frozen=True, slots=True)
class _Context:
    """What is around an item."""

    depth: int = 0
    """How far its row is indented."""
    level: int = 0
    """How many source lines are around it."""
    item: Item | None = None
    """The item just around it."""
    loop: Item | None = None
    """The innermost merged loop."""
    kind: str = ""
    """The kind of the row around it."""
    line: Location | None = None
    """The source line around it."""
    module: str = ""
    """The path of a module whose call has no row of its own. The steps in it show the path."""
    is_module_named: bool = False
    """Whether a source line names that module already, so that the steps need not."""
    times: str = ""
    """How often an item without a row happened: `` × 12``."""
    loop_line: int = 0
    """The line of the head of the loop just around it, if that has a row; otherwise 0."""


def _shown_lines(steps: Steps, options: CodeOptions) -> StackLines:
    """Return the lines of the stacks of all steps, without those that are hidden."""

    def is_hidden(at: Location) -> bool:
        if options.frames == "user" and at.origin in ("torch", "stdlib"):
            return True
        return any(in_package(at.file, package) for package in options.hide)

    lines = StackLines(is_hidden)
    stacks = [steps.events[step].stack for step in steps.chosen]
    if options.frames != "all":
        lines.leave_out_runner(stacks)
    if options.fold:
        lines.count_levels(stacks)
    return lines


class _Code:
    """Makes the rows of one trace."""

    def __init__(self, trace: Recorded, options: CodeOptions) -> None:
        self._trace = trace
        self._options = options
        self._steps = steps_of(trace, options)
        self._is_measured = is_measured(trace)
        self._lines = _shown_lines(self._steps, options)
        program = program_of(trace)
        self._tree = program.tree
        self._shown = LineTree(
            program, self._steps.events, self._steps.calls, self._lines, options.fold
        )
        self._shown.add_steps(self._steps.chosen)
        self._nodes = self._shown.nodes
        self._sources = SourceLines(trace.sources)
        self._shared_cells: dict[Hashable, Cells] = {}
        """The cells of steps that look the same."""
        self._rows: list[Row] = []
        self._too_deep = 0
        """How many steps have no row because of ``depth=``."""
        self._in_constructors = 0
        """How many steps have no row because a constructor made them."""
        self._shown_ns = 0
        """How long the steps with rows took."""
        self._constructors: Constructors | None = None
        if are_hidden(self._steps, options):
            self._constructors = Constructors(self._shown, self._lines, self._steps)

    def sheet(self) -> Sheet:
        """Return all rows. ``each`` of the steps and ``hidden`` of all rows add up to the number of steps."""
        for thread, roots in self._shown.threads.items():
            if len(self._shown.threads) > 1:
                self._rows.append(Row(0, kinds.THREAD, (Cell(kinds.NAME, thread),)))
            self._add_rows(folded(self._shown, roots, self._appearance, self._options.fold))
        if self._steps.chosen:
            below = Cell(kinds.COUNT, " · ".join(self._summary()))
        else:
            below = Cell(kinds.HEADING, why_none(self._steps))
        return Sheet(self._rows, [below])

    def _appearance(self, item: Item) -> Hashable:
        """Return a key for what the row of an item shows, without the number of a layer."""
        kind = self._nodes[item.nodes[0]].kind
        if kind == ITERATION:
            return ITERATION
        if kind == STEP:
            return tuple(dict.fromkeys(map(self._step_key, item.nodes)))
        key = self._shown.key(item.nodes[0])
        if kind == LINE:
            return (key, self._assigned_shapes(item))
        if kind == LOOP:
            loops = map(self._shown.scope, item.nodes)
            return (key, frozenset(map(self._tree.count, loops)))
        return key

    def _assigned_shapes(self, item: Item) -> Hashable:
        """Return the names that a line assigned, with all shapes that each of them got."""
        shapes: set[Hashable] = set()
        for node in item.nodes:
            for names, several in (self._nodes[node].assigned or {}).items():
                for values in several:
                    shapes.add((names, tuple(map(shape_key, values))))
        return frozenset(shapes)

    def _step_key(self, node: int) -> Hashable:
        event = self._steps.events[self._nodes[node].number]
        result = ""
        if event.outputs:
            result = event.result
        return (event.kind, event.name, mask_numbers(event.args), result, event.error, event.note)

    # ------------------------------------------------------------ rows in order

    def _add_rows(self, items: Sequence[Item]) -> None:
        """Add rows depth first, without recursion, because traces nest deeper than Python may recurse."""
        pending: list[tuple[Item | Row, _Context]] = [*reversed(self._siblings(items, _Context()))]
        while pending:
            item, context = pending.pop()
            if isinstance(item, Row):
                self._rows.append(item)
                continue
            row, inside = self._row(item, context)
            if row is not None:
                self._rows.append(row)
                if row.kind == LINE and self._is_too_deep(item, context):
                    sizes = [self._nodes[node].size for node in item.nodes]
                    self._too_deep += _add_hidden(row, sizes, "inside")
                    continue
            children: Sequence[Item] = item.children
            if row is not None and self._constructors is not None:
                children, sizes = self._constructors.without(item)
                if sizes:
                    self._in_constructors += _add_hidden(row, sizes, "in its constructor")
            pending += reversed(self._siblings(children, inside))

    def _is_too_deep(self, item: Item, context: _Context) -> bool:
        """Return whether ``depth=`` leaves out the rows below a line."""
        if self._options.depth is None or not item.children:
            return False
        return context.level >= self._options.depth

    def _siblings(
        self, items: Sequence[Item], context: _Context
    ) -> list[tuple[Item | Row, _Context]]:
        """Return items with their contexts. Before the lines of a function that a line calls comes a DOWN row."""
        result: list[tuple[Item | Row, _Context]] = []
        previous_kind = ""
        is_below_module = False
        """Whether the items follow the row of a module with steps, at the same depth."""
        for item in items:
            kind = self._first_kind(item)
            if kind == LINE and context.kind == LINE and previous_kind != LINE:
                result.append((Row(context.depth, DOWN), context))
                is_below_module = False
            item_context = context
            if kind == STEP and is_below_module and not context.module:
                # Without the name of its own module, the step would seem to be in the module above.
                module = self._module_around(item.nodes[0])
                item_context = replace(context, module=module, is_module_named=False)
            if self._has_steps(item):
                is_below_module = True
            result.append((item, item_context))
            previous_kind = kind
        return result

    def _module_around(self, step: int) -> str:
        """Return the path of the module that a step was in."""
        call = self._steps.calls[self._nodes[step].number]
        if call < 0 or self._steps.events[call].kind != "module":
            return NO_MODULE
        return relative_path(self._steps.events[call], None)

    def _first_kind(self, item: Item) -> str:
        """Return the kind of the first row of an item: for a loop without a row, that of what is in it."""
        while item.is_repeat or self._nodes[item.nodes[0]].kind in (LOOP, ITERATION):
            if not item.is_repeat and self._has_loop_row(item):
                return LINE
            item = item.children[0]
        return self._nodes[item.nodes[0]].kind

    def _has_steps(self, item: Item) -> bool:
        """Return whether steps stand directly below the name of a module."""
        if item.is_repeat or self._nodes[item.nodes[0]].kind != CALL:
            return False
        if self._needs_no_row(item):
            return False
        return any(
            not child.is_repeat and self._nodes[child.nodes[0]].kind == STEP
            for child in item.children
        )

    def _needs_no_row(self, item: Item) -> bool:
        """Return whether a call of one module has no lines of its own, so that its steps can show its name."""
        if item.times > 1 or self._nodes[item.nodes[0]].has_lines:
            return False
        return len(set(map(self._shown.name, item.nodes))) == 1

    def _has_loop_row(self, item: Item) -> bool:
        """Return whether a loop or an iteration has a row: a loop with several iterations, unless it is over layers or
        all of it is on one line.
        """
        loops = list(map(self._shown.scope, item.nodes))
        if not self._shown.may_merge_iterations(item.nodes[0]):
            return False
        if max(self._tree.count(loop).number for loop in loops) < 2:
            return False
        loop = self._tree.site(loops[0]).loop
        assert loop is not None
        return not all(self._line_of(child) == loop.node.lineno for child in item.children)

    def _line_of(self, item: Item) -> int | None:
        """Return the number of a source line; None for other items."""
        if item.is_repeat or self._nodes[item.nodes[0]].kind != LINE:
            return None
        return self._lines.lines[self._nodes[item.nodes[0]].number].where.line

    # ------------------------------------------------------------ one row

    def _row(self, item: Item, context: _Context) -> tuple[Row | None, _Context]:
        """Return the row of an item, if it has one, and the context of its children."""
        if item.is_repeat:
            inside = replace(context, depth=context.depth + 1, item=item)
            return self._repeat_row(item, context), inside
        kind = self._nodes[item.nodes[0]].kind
        inside = replace(context, item=item, times="")
        if kind == STEP:
            return self._step_row(item, context), inside
        if kind == CALL:
            return self._call_row(item, context)
        if kind == CALLBACK:
            return self._callback_row(item, context), replace(inside, kind=CALL)
        if kind == ITERATION:
            times = _times_word(item) or context.times
            return None, replace(inside, times=times, kind=self._kind_below(context))
        if kind == LINE:
            return self._line_row_and_context(item, context)
        return self._loop_row_and_context(item, context)

    def _line_row_and_context(self, item: Item, context: _Context) -> tuple[Row | None, _Context]:
        inside = replace(
            context, item=item, times="", kind=LINE, module="", is_module_named=False, loop_line=0
        )
        if context.loop_line and self._line_of(item) == context.loop_line:
            # What runs at the head of a loop to get its next item is shown below the row of the loop.
            return None, inside
        row = self._line_row(item, context)
        line = row.cells[0].at
        return row, replace(inside, depth=context.depth + 1, level=context.level + 1, line=line)

    def _loop_row_and_context(self, item: Item, context: _Context) -> tuple[Row | None, _Context]:
        are_merged = self._shown.may_merge_iterations(item.nodes[0])
        inside = replace(context, item=item, times="")
        if are_merged:
            inside = replace(inside, loop=item)
        if not self._has_loop_row(item):
            rounds = [len(self._shown.children_of(node)) for node in item.nodes]
            times = ""
            if max(rounds) > 1 and are_merged:
                times = f" × {range_word(rounds)}"
            return None, replace(inside, times=times, kind=self._kind_below(context))
        row = self._loop_row(item, context)
        loop_line = 0
        if row.cells[0].at:
            loop_line = row.cells[0].at.line
        inside = replace(inside, depth=context.depth + 1, level=context.level + 1)
        return row, replace(inside, kind=LOOP, loop_line=loop_line)

    @staticmethod
    def _kind_below(context: _Context) -> str:
        """Return the kind of row that is around the children of an item without a row.

        It is "" in a line, because the DOWN row has been added already.
        """
        if context.kind == LINE:
            return ""
        return context.kind

    def _repeat_row(self, item: Item, context: _Context) -> Row:
        """Return the row above items that repeat together: ``layers.0–23 × 24, 3 lines each:``."""
        nodes = sorted(node for child in item.children for node in child.nodes)
        modules = [self._shown.name(node) for node in nodes if self._nodes[node].kind == CALL]
        text = ""
        if len(modules) == len(nodes):
            text = _numbered_range(modules)
        if text and context.module:
            text = f"{context.module}.{text}"
        word = REPEATED_WORDS[self._nodes[item.children[0].nodes[0]].kind]
        return repeat_row(context.depth, text, item.times, plural(item.unit, word))

    def _call_row(self, item: Item, context: _Context) -> tuple[Row | None, _Context]:
        """Return the row of a module's call, or the context in which its steps show its name."""
        module = range_label(map(self._shown.name, item.nodes))
        if context.module:
            module = f"{context.module}.{module}"
        times = _times_word(item) or context.times
        inside = replace(context, item=item, times="", module="", is_module_named=False)
        if self._needs_no_row(item) and not times:
            is_named = says_module(context.line, module)
            return None, replace(inside, module=module, is_module_named=is_named)
        cells = (
            Cell(kinds.NAME, clean(module)),
            *_fold_cells(times),
            *self._rounds(item, context),
            *self._time(item),
        )
        event = self._nodes[item.nodes[0]].number
        return Row(context.depth, DOWN, cells, event, item.times), replace(inside, kind=CALL)

    def _callback_row(self, item: Item, context: _Context) -> Row:
        """Return the row for a function that torch called, with a count if it did so several times in a row."""
        scope = self._shown.scope(item.nodes[0])
        name: Cells = ()
        calls_per_slot = Counter(item.slots).values()
        if max(calls_per_slot) > 1 or item.times > 1:
            times = _times_word(item) or f" × {range_word(calls_per_slot)}"
            function = scope_word(self._tree.site(scope).function)
            name = (Cell(kinds.NAME, function), Cell(kinds.FOLD, times))
        cells = (*name, *self._rounds(item, context), *self._time(item))
        return Row(context.depth, DOWN, cells, self._tree.first(scope), item.times)

    def _loop_row(self, item: Item, context: _Context) -> Row:
        loops = list(map(self._shown.scope, item.nodes))
        site = self._tree.site(loops[0])
        text = loop_word(self._tree, loops[0])
        assert site.loop is not None
        assert site.at is not None
        line = site.loop.node.lineno
        at = replace(site.at, line=line, end_line=line, source=text)
        source = Cell(kinds.SOURCE, clean(text), at=at, mark=(0, 0))
        cells = (
            source,
            Cell(kinds.FOLD, f"  {count_word(self._tree, loops)}"),
            *self._rounds(item, context),
            *self._time(item),
        )
        return Row(context.depth, LINE, cells, self._tree.first(loops[0]), each=0)

    def _line_row(self, item: Item, context: _Context) -> Row:
        nodes = [self._nodes[node] for node in item.nodes]
        line = self._lines.lines[nodes[0].number]
        times = context.times or _times_word(item)
        if line.levels_as_one > 1:
            times = f" × {count(line.levels_as_one)} deep"
        assigned: dict[tuple[str, ...], list[tuple[Value, ...]]] = {}
        for node in nodes:
            for names, values in (node.assigned or {}).items():
                assigned.setdefault(names, []).extend(values)
        gives = ()
        if assigned:
            gives = (Cell(kinds.GIVES, assigned_word(assigned)),)
        cells = (
            self._sources.cell(line.where),
            *_fold_cells(times),
            *gives,
            *self._rounds(item, context),
            *self._time(item),
        )
        first_step = self._shown.first_step(item.nodes[0])
        return Row(context.depth, LINE, cells, first_step, item.times, each=0)

    def _rounds(self, item: Item, context: _Context) -> Cells:
        text = rounds_word(item, context.item, context.loop, self._shown)
        if text:
            return (Cell(kinds.ROUNDS, text),)
        return ()

    def _time(self, item: Item) -> Cells:
        if not self._options.times:
            return ()
        return (Cell(kinds.TIME, duration(sum(self._nodes[node].spent for node in item.nodes))),)

    # ------------------------------------------------------------ steps

    def _step_row(self, item: Item, context: _Context) -> Row:
        numbers = [self._nodes[node].number for node in item.nodes]
        samples = tuple(dict.fromkeys(self._steps.distinct.alike[number] for number in numbers))
        inside = tuple(dict.fromkeys(self._steps.inside.get(number, 0) for number in numbers))
        module = ""
        if not context.is_module_named:
            module = context.module
        times = context.times or _times_word(item)
        rounds = self._rounds(item, context)
        key = (samples, inside, module, times, rounds)
        cells = self._shared_cells.get(key)
        if cells is None:
            events = [self._steps.distinct.samples[sample] for sample in samples]
            cells = (*step_cells(events, module, inside), *_fold_cells(times), *rounds)
            self._shared_cells[key] = cells
        if self._is_measured:
            cells = with_stats(cells, map(self._trace.event, numbers))
        time = self._time(item)
        if time:
            cells = (*cells, *time)
        outermost = [node for node in item.nodes if not self._shown.is_in_step(node)]
        self._shown_ns += sum(self._nodes[node].spent for node in outermost)
        row = Row(context.depth, kinds.EVENT, cells, numbers[0], item.times, len(numbers))
        note = self._steps.events[numbers[0]].note
        if note:
            row.below = (Cell(kinds.NOTE, note),)
        return row

    # ------------------------------------------------------------ below

    def _summary(self) -> list[str]:
        """Return how many steps there were, and why some have no row."""
        steps = self._steps
        options = self._options
        step_kinds = {steps.events[step].kind for step in steps.chosen}
        word = "step"
        if step_kinds in ({"function"}, {"op"}):
            (word,) = step_kinds
        total = plural(len(steps.chosen), word)
        if options.times:
            total += f" in {duration(self._shown_ns)} of {duration(self._trace.duration_ns)}"
        parts = [total]
        rows = sum(row.kind == kinds.EVENT for row in self._rows)
        folded_steps = len(steps.chosen) - self._too_deep - self._in_constructors - rows
        if folded_steps > 0:
            parts.append(f"{count(folded_steps)} folded")
        if self._in_constructors:
            parts.append(f"{count(self._in_constructors)} in constructors (constructors=True)")
        if self._too_deep:
            parts.append(f"{count(self._too_deep)} deeper than depth={options.depth}")
        if steps.left_out:
            parts.append(f"{count(steps.left_out)} not selected")
        if self._lines.outer:
            outer = plural(self._lines.outer, "line")
            parts.append(f"{outer} of what ran the program (frames='all')")
        if word == "function":
            parts.append("record(ops=True) shows the aten ops in them")
        return parts


def _times_word(item: Item) -> str:
    """Return how many equal siblings an item stands for, `` × 3``; "" for one."""
    if item.times > 1:
        return f" × {count(item.times)}"
    return ""


def _fold_cells(times: str) -> Cells:
    if times:
        return (Cell(kinds.FOLD, times),)
    return ()


def _numbered_range(modules: Sequence[str]) -> str:
    """Return ``layers.0–23`` if all modules are numbered under one name; else ""."""
    split = [split_index(module) for module in modules]
    heads = {head for head, _ in split}
    if len(heads) != 1 or any(number is None for _, number in split):
        return ""
    return range_label(modules)


def _add_hidden(row: Row, sizes: Sequence[int], where: str) -> int:
    """Add to a row how many steps are hidden in each of its nodes: ``12 steps inside``. Return how many in all."""
    row.cells = (*row.cells, Cell(kinds.COUNT, f"{counts_word(sizes, 'step')} {where}"))
    row.hidden = sum(sizes)
    return row.hidden
