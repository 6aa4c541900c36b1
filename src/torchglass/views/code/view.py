"""The code view: each step under the source lines that led to it, with loops and equal layers shown once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchglass.events.types import Event, Location, Value
from torchglass.views.code import Options
from torchglass.views.code.forest import CALL, LINE, STEP, Forest, Node, shapes
from torchglass.views.code.lines import Lines
from torchglass.views.code.source import SourceLines, assigned_word
from torchglass.views.code.steps import Steps, steps_of
from torchglass.views.digest import Key, Recorded
from torchglass.views.fold import groups, merge_alike, range_label
from torchglass.views.nesting import relative_path, split_index
from torchglass.views.row import (
    CLASS,
    COUNT,
    ERROR,
    EVENT,
    FOLD,
    GIVES,
    HEADING,
    NAME,
    NOTE,
    REPEAT,
    TAKES,
    THREAD,
    TIME,
    Cell,
    Row,
    Sheet,
)  # fmt: skip
from torchglass.views.text.cells import Cells, shape_words
from torchglass.views.text.ops import op_name, op_words
from torchglass.views.text.ranges import blurred, in_common
from torchglass.views.text.words import clean, count, duration, one_line, plural

DOWN = "down"
"""A row that goes into a function or module."""
NO_MODULE = "no module"
WORDS = {LINE: "line", CALL: "module", STEP: "step"}


@dataclass(slots=True)
class _Entry:
    """What is shown as one row."""

    kind: str
    """A line, a call, a step; down into a function; a repeat; a thread."""
    depth: int
    level: int = 0
    """How many source lines are around it: the heading of a repeat takes rows one further in."""
    id: int = -1
    """Its (first) node."""
    where: Location | None = None
    """Of a line, with the columns of all that was computed on it."""
    text: str = ""
    """The module's path as seen from the one around it, or several (``h.0–11``); a thread's name.

    Of a step: the path of its module, where neither a row nor a source line says it.
    """
    times: int = 1
    rows: int = 0
    """Of a repeat: how many lines, calls or steps repeat together."""
    of: str = ""
    """Of a repeat: the kind of the first of them."""
    deeper: int = 0
    """Steps below the depth asked for."""
    is_plain: bool = False
    """Of a call: no line of its own is shown, so that it has no row, and what is in it says its name."""
    is_said: bool = False
    """Of such a call: the source line says its name already."""


def sheet(trace: Recorded, options: Options) -> Sheet:
    """Rows for a trace: pure, one pass forward to build what is shown, one back to see what is alike."""
    steps = steps_of(trace, options)
    lines = Lines(options)
    stacks = [steps.events[step].stack for step in steps.chosen]
    lines.leave_out_runner(stacks)
    if options.fold:
        lines.count_levels(stacks)
    forest = Forest(steps, lines, options.fold)
    forest.fill()
    return _Code(trace, options, steps, lines, forest).sheet()


class _Code:
    """One trace while its rows are made."""

    def __init__(self, trace: Recorded, options: Options, steps: Steps, lines: Lines, forest: Forest) -> None:
        self._trace, self._options, self._steps, self._lines = trace, options, steps, lines
        self._nodes, self._threads = forest.nodes, forest.threads
        self._children = {at: node.children for at, node in enumerate(forest.nodes) if node.children}
        self._pattern: list[int] = [0] * len(forest.nodes)
        self._height: list[int] = [1] * len(forest.nodes)
        self._names: dict[tuple[int, int], str] = {}
        """By numbers of a call and of the call around it: the path of the one as seen from the other."""
        self._sources = SourceLines(trace.sources)
        self._cells: dict[tuple[object, ...], Cells] = {}
        self._sum_up()

    def sheet(self) -> Sheet:
        """All rows. The sum of ``each`` of the steps and of ``hidden`` is the number of steps."""
        entries: list[_Entry] = []
        for thread, roots in self._threads.items():
            if len(self._threads) > 1:
                entries.append(_Entry(THREAD, 0, text=thread))
            self._emit(roots, entries)
        rows = [self._row(entry) for entry in entries]
        below = [Cell(COUNT, " · ".join(self._summary(entries)))] if self._steps.chosen else [self._no_steps()]
        return Sheet(rows, below)

    # ------------------------------------------------------------ what may stand for what

    def _sum_up(self) -> None:
        """Times and sizes of all nodes, and, to fold, one number for each pattern that occurs; innermost first."""
        nodes = self._nodes
        known: dict[Key, int] = {}
        steps: dict[int, Key] = {}
        for at in range(len(nodes) - 1, -1, -1):
            node = nodes[at]
            for child in node.children:
                node.spent += nodes[child].spent
                node.size += nodes[child].size
                node.has_lines = node.has_lines or nodes[child].kind == LINE
                self._height[at] += self._height[child]
            if self._options.fold:
                key = self._key(at, steps)
                self._height[at] -= node.kind == CALL and not node.has_lines
                below = [self._pattern[child] for child in node.children]
                self._pattern[at] = known.setdefault((*key, *below), len(known))

    def _key(self, at: int, steps: dict[int, Key]) -> Key:
        """All that is shown of a node itself; of numbered layers without the number."""
        node = self._nodes[at]
        if node.kind == LINE:
            assigned = node.assigned or {}
            return (LINE, node.number, *[(names, *map(shapes, values)) for names, values in assigned.items()])
        event = self._steps.events[node.number]
        if node.kind == CALL:
            head, number = split_index(self._name(at))
            return (CALL, event.name, head, number is None, event.error)
        alike = self._steps.digest.alike[node.number]
        if alike not in steps:
            result = event.result if event.outputs else ""
            steps[alike] = (STEP, event.kind, event.name, blurred(event.args), result, event.error, event.note)
        return steps[alike]

    def _name(self, node: int) -> str:
        """The path of a call's module as seen from the call around it; an optimizer's ``AdamW.step``."""
        number, alike = self._nodes[node].number, self._steps.digest.alike
        event, around = self._steps.events[number], self._steps.calls[number]
        if event.kind == "step":
            return f"{event.name}.step"
        key = (alike[number], alike[around] if around >= 0 else -1)
        if key not in self._names:
            outer = self._steps.events[around] if around >= 0 else None
            self._names[key] = relative_path(event, outer if outer and outer.kind == "module" else None)
        return self._names[key]

    # ------------------------------------------------------------ rows in order

    def _emit(self, roots: list[int], entries: list[_Entry]) -> None:
        """Depth first, with a stack of our own: recursion nests deeper than Python may."""
        pending = self._say_modules(self._siblings(roots, _Entry(THREAD, 0), 0))[::-1]
        while pending:
            entry = pending.pop()
            if entry.kind != CALL or not entry.is_plain:
                entries.append(entry)
            children = self._children.get(entry.id) if entry.kind in (LINE, CALL) else None
            if children is None:
                continue
            if entry.kind == LINE and self._options.depth is not None and entry.level >= self._options.depth:
                entry.deeper = self._nodes[entry.id].size
                continue
            pending += self._say_modules(self._siblings(children, entry, entry.depth + (entry.kind == LINE)))[::-1]

    def _say_modules(self, entries: list[_Entry]) -> list[_Entry]:
        """Steps after those of a module stand below its name, though not in it: they say where they belong."""
        depth = min((entry.depth for entry in entries), default=0)
        is_below = False
        for entry in entries:
            if entry.kind == CALL and not entry.is_plain:
                children = self._children.get(entry.id, ())
                is_below = is_below or any(self._nodes[child].kind == STEP for child in children)
            elif entry.kind == DOWN:
                is_below = False
            elif entry.kind == STEP and entry.depth == depth and is_below and not entry.text:
                call = self._steps.calls[self._nodes[entry.id].number]
                entry.text = relative_path(self._steps.events[call], None) if call >= 0 else NO_MODULE
        return entries

    def _siblings(self, ids: list[int], parent: _Entry, depth: int) -> list[_Entry]:
        """The rows below one, in order."""
        if not self._options.fold:
            return self._entries([[at] for at in ids], parent, depth)
        cut = groups([self._pattern[at] for at in ids], [self._height[at] for at in ids])
        if parent.kind == LINE and parent.times == 1 and len(cut) == 1 and cut[0].unit > 1:
            unit, parent.times = cut[0].unit, cut[0].times  # all that happened on this line: it says itself how often
            return self._entries([ids[offset::unit] for offset in range(unit)], parent, depth, once=True)
        found: list[_Entry] = []
        for start, unit, times in cut:
            members = ids[start : start + unit * times]
            if unit == 1:
                found += self._entries([members], parent, depth, after=found)
                continue
            columns = [members[offset::unit] for offset in range(unit)]
            repeated = self._entries(columns, parent, depth + 1, once=True)
            if repeated[0].kind == DOWN:
                found.append(replace(repeated.pop(0), depth=depth))
            span = self._span(members)
            text = f"{parent.text}.{span}" if span and parent.is_plain else span
            found.append(_Entry(REPEAT, depth, times=times, rows=unit, text=text, of=self._nodes[members[0]].kind))
            found += repeated
        return found

    def _entries(
        self,
        columns: Sequence[list[int]],
        parent: _Entry,
        depth: int,
        *,
        once: bool = False,
        after: Sequence[_Entry] = (),
    ) -> list[_Entry]:
        """One for each of the given nodes that are alike; ``once``: how often is said elsewhere.

        From a line to the lines of a function that it calls it goes down first.
        """
        found: list[_Entry] = []
        before = after[-1].kind if after else ""
        for members in columns:
            entry = self._entry(members, parent, depth)
            if once:
                entry.times = 1
            if entry.kind == LINE and parent.kind == LINE and before != LINE:
                found.append(_Entry(DOWN, depth))
            before = entry.kind
            found.append(entry)
        return found

    def _entry(self, members: Sequence[int], parent: _Entry, depth: int) -> _Entry:
        """One for nodes that are alike."""
        first = self._nodes[members[0]]
        if len(members) > 1:
            merge_alike(members, self._children, self._add)
        entry = _Entry(first.kind, depth, parent.level + (parent.kind == LINE), members[0], times=len(members))
        if first.kind == LINE:
            entry.where = self._lines.lines[first.number].where
        elif first.kind == STEP:
            entry.text = parent.text if parent.kind == CALL and parent.is_plain and not parent.is_said else ""
        else:
            entry.text = range_label(self._name(at) for at in members)
            entry.is_plain = len(members) == 1 and not first.has_lines
            if entry.is_plain:
                entry.where = parent.where
                entry.is_said = _says(parent.where, entry.text)
            if parent.kind == CALL and parent.is_plain:
                entry.text = f"{parent.text}.{entry.text}"
        return entry

    def _add(self, first: int, others: Sequence[int]) -> None:
        """Count what is in several nodes to the one that stands for them, and note where their numbers differ."""
        node, events = self._nodes[first], self._steps.events
        for other in reversed(others):
            same = self._nodes[other]
            node.spent += same.spent
            node.size += same.size
            if node.kind != STEP:
                continue
            node.inside += same.inside
            event, twin = events[node.number], events[same.number]
            if event is not twin:
                args, result = node.words or (event.args, event.result)
                if args != twin.args or result != twin.result:
                    node.words = (in_common(args, twin.args), result if result == twin.result else "…")

    def _span(self, members: Sequence[int]) -> str:
        """``layers.0–23`` when all calls of a repeat are numbered under one name."""
        names = [self._name(at) for at in members if self._nodes[at].kind == CALL]
        heads = {split_index(name)[0] for name in names}
        numbered = len(names) == len(members) and all(split_index(name)[1] is not None for name in names)
        return range_label(names) if numbered and len(heads) == 1 else ""

    # ------------------------------------------------------------ what is said

    def _row(self, entry: _Entry) -> Row:
        node = self._nodes[entry.id] if entry.id >= 0 else None
        often = (Cell(FOLD, f" × {count(entry.times)}"),) if entry.times > 1 else ()
        time: Cells = ()
        if self._options.times and node is not None:
            time = (Cell(TIME, duration(node.spent)),)
        if entry.kind == THREAD:
            return Row(0, THREAD, (Cell(NAME, entry.text),))
        if entry.kind == REPEAT:
            text = f"{clean(entry.text)} × {count(entry.times)}".strip()
            cells = Cell(FOLD, text), Cell(COUNT, f", {plural(entry.rows, WORDS[entry.of])} each:")
            return Row(entry.depth, REPEAT, cells, times=entry.times)
        if node is None or node.kind == CALL:
            return Row(
                entry.depth, DOWN, (Cell(NAME, clean(entry.text)), *often, *time), self._event(node), entry.times
            )
        if node.kind == LINE:
            cells = (*self._line_cells(entry, node), *time)
            return Row(entry.depth, LINE, cells, self._event(node), entry.times, node.size, entry.deeper)
        event = self._steps.events[node.number]
        key = (id(event), node.words, entry.text, entry.times, node.inside)
        if key not in self._cells:
            self._cells[key] = (*self._step_cells(event, entry, node), *often)
        note = (Cell(NOTE, event.note),) if event.note else ()
        cells = (*self._cells[key], *time) if time else self._cells[key]
        return Row(entry.depth, EVENT, cells, node.number, entry.times, node.size, 0, note)

    def _event(self, node: Node | None) -> int:
        """The first event in a node."""
        while node is not None and node.kind == LINE:
            node = self._nodes[node.children[0]]
        return -1 if node is None else node.number

    def _line_cells(self, entry: _Entry, node: Node) -> Cells:
        assert entry.where is not None
        cells = [self._sources.cell(entry.where)]
        levels = self._lines.lines[node.number].levels_as_one
        if levels > 1:
            cells.append(Cell(FOLD, f" × {count(levels)} deep"))
        elif entry.times > 1:
            cells.append(Cell(FOLD, f" × {count(entry.times)}"))
        assigned = [(names, values) for names, several in (node.assigned or {}).items() for values in _ends(several)]
        if assigned:
            cells.append(Cell(GIVES, assigned_word(assigned)))
        if entry.deeper:
            cells.append(Cell(COUNT, f"{plural(entry.deeper, 'step')} inside"))
        return tuple(cells)

    def _step_cells(self, event: Event, entry: _Entry, node: Node) -> Cells:
        """``addmm``, its arguments and its result; which module it belongs to, where nothing else says it."""
        if event.kind == "mark":
            value = Cell(GIVES, ", ".join(shape_words(event.inputs or event.outputs)))
            return (Cell(HEADING, f"▸ {clean(event.name)}"), value)
        name, module = op_name(clean(event.name)), (Cell(CLASS, clean(entry.text)),) if entry.text else ()
        if event.kind == "step":
            inside = Cell(COUNT, f"{plural(node.inside, 'op')} inside (inner=True)")
            return (Cell(NAME, f"{name}.step"), inside, *module)
        args, result = node.words or (event.args, event.result)
        args, result = op_words(args, result) if event.kind == "op" else (one_line(args), one_line(result))
        cells = (Cell(NAME, name), Cell(TAKES, args))
        if event.error is not None:
            return (*cells, Cell(ERROR, clean(event.error)), *module)
        unseen = (Cell(COUNT, "not seen inside"),) if event.kind == "unseen" else ()
        return (*cells, Cell(GIVES, result), *unseen, *module)

    def _summary(self, entries: Sequence[_Entry]) -> list[str]:
        """How many steps there were, and why some have no row."""
        steps, options = self._steps, self._options
        rows = [self._nodes[entry.id] for entry in entries if entry.kind == STEP]
        kinds = {steps.events[step].kind for step in steps.chosen}
        word = next(iter(kinds)) if len(kinds) == 1 and kinds <= {"function", "op"} else "step"
        deeper = sum(entry.deeper for entry in entries)
        parts = [plural(len(steps.chosen), word)]
        if options.times:
            spent = sum(node.spent for node in rows)
            parts[0] += f" in {duration(spent)} of {duration(self._trace.duration_ns)}"
        if len(steps.chosen) - deeper > len(rows):
            parts.append(f"{count(len(steps.chosen) - deeper - len(rows))} folded")
        if deeper:
            parts.append(f"{count(deeper)} deeper than depth={options.depth}")
        if steps.left_out:
            parts.append(f"{count(steps.left_out)} not selected")
        if self._lines.outer:
            parts.append(f"{plural(self._lines.outer, 'line')} of what ran the program (frames='all')")
        if word == "function" and options.steps == "auto":
            parts.append("record(ops=True) shows the aten ops in them")
        return parts

    def _no_steps(self) -> Cell:
        if self._steps.left_out:
            text = f"No step is selected: the trace has {count(self._steps.left_out)}, and none that fits."
        elif self._options.steps == "ops":
            text = "No op was recorded: record(ops=True) records them; steps='functions' shows the functions."
        else:
            text = "Nothing that is recorded is a step of this view; the tree shows all that was recorded."
        return Cell(HEADING, text)


def _says(where: Location | None, name: str) -> bool:
    """Whether a source line says itself which module is called, as ``self.ln_1(x)`` and ``gru(x)`` of a GRU do."""
    last = name.rpartition(".")[2].lower()
    return where is not None and not last.isdecimal() and last in re.findall(r"\w+", where.source.lower())


def _ends(values: list[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """What was assigned first and last, where that changes."""
    return values if len(values) < 2 else [values[0], values[-1]]
