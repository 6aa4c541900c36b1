"""The code view: each step under the source lines that led to it, with loops and equal layers shown once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torchglass.events.types import Event, Location, Value
from torchglass.views.code.forest import CALL, LINE, STEP, Forest, Node, shapes
from torchglass.views.code.steps import CodeOptions, Line, Lines, Read, read_steps
from torchglass.views.digest import Key
from torchglass.views.fold import groups, merge_alike, range_label
from torchglass.views.nesting import relative_path, split_index
from torchglass.views.recorded import Recorded

__all__ = ["CodeOptions", "CodeRow", "CodeView", "code_view"]

DOWN, REPEAT, THREAD = "down", "repeat", "thread"
NO_MODULE = "no module"
_NUMBER = re.compile(r"(\[[^\[\]]*\])|…|(?<![\w.])-?\d[\w.+-]*")
"""Shapes and flat lists, which matter, or a number that stands alone."""
Assigned = tuple[tuple[str, ...], tuple[Value, ...]]
"""The names on the left and the values that they got."""


@dataclass(slots=True)
class CodeRow:
    """One line of the view."""

    kind: str
    """``line``: of source; ``call``: of a module; ``step``; ``down``: into a function; ``repeat``; ``thread``."""
    depth: int
    level: int = 0
    """How many source lines are around it: the heading of a repeat takes rows one further in."""
    id: int = -1
    event: Event | None = None
    """Of a step or call; one that looks the same."""
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
    each: int = 1
    """How many steps or lines of the trace it stands for."""
    deeper: int = 0
    """Steps below the depth asked for."""
    args: str = ""
    """Of a step; ``…`` for numbers that differ between those it stands for."""
    result: str = ""
    inside: int = 0
    """Of an optimizer's step: the ops in it that are not shown."""
    is_plain: bool = False
    """Of a call: no line of its own is shown, so that it has no row, and what is in it says its name."""
    is_told: bool = False
    """Of such a call: the source line says its name already."""
    levels: int = 1
    """Of a line that calls itself, where that is not shown: how deep."""
    assigned: tuple[Assigned, ...] = ()
    spent_ns: int = 0


@dataclass(slots=True)
class CodeView:
    """All rows, and what has none. The sum of ``each`` of steps and of ``deeper`` is the number of steps."""

    rows: list[CodeRow] = field(default_factory=list[CodeRow])
    steps: int = 0
    kinds: frozenset[str] = frozenset()
    """Of the steps."""
    left_out: int = 0
    outer: int = 0
    """Frames of whatever ran the program."""


# ---------------------------------------------------------------- what may stand for what


@dataclass(slots=True)
class _Work:
    read: Read
    lines: Sequence[Line]
    nodes: Sequence[Node]
    children: dict[int, list[int]]
    depth: int | None
    fold: bool
    mark: list[int] = field(default_factory=list[int])
    height: list[int] = field(default_factory=list[int])
    names: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """By looks of a call and of the call around it: the path of the one as seen from the other."""

    def name(self, node: int) -> str:
        """The path of a call's module as seen from the call around it; an optimizer's ``AdamW.step``."""
        number = self.nodes[node].number
        event, around = self.read.events[number], self.read.calls[number]
        if event.kind == "step":
            return f"{event.name}.step"
        key = (self.read.look[number], self.read.look[around] if around >= 0 else -1)
        if key not in self.names:
            outer = self.read.events[around] if around >= 0 else None
            self.names[key] = relative_path(event, outer if outer and outer.kind == "module" else None)
        return self.names[key]


def _sum_up(work: _Work) -> None:
    """Times and sizes of all nodes, and, to fold, one number for each structure that occurs; innermost first."""
    nodes = work.nodes
    work.mark, work.height = [0] * len(nodes), [1] * len(nodes)
    known: dict[Key, int] = {}
    steps: dict[int, Key] = {}
    for at in range(len(nodes) - 1, -1, -1):
        node = nodes[at]
        for child in node.children:
            node.spent += nodes[child].spent
            node.size += nodes[child].size
            node.has_lines = node.has_lines or nodes[child].kind == LINE
            work.height[at] += work.height[child]
        if work.fold:
            key = _key(work, at, steps)
            work.height[at] -= node.kind == CALL and not node.has_lines
            work.mark[at] = known.setdefault((*key, *[work.mark[child] for child in node.children]), len(known))


def _key(work: _Work, at: int, steps: dict[int, Key]) -> Key:
    """All that is shown of a node itself; of numbered layers without the number."""
    node = work.nodes[at]
    if node.kind == LINE:
        assigned = node.assigned or {}
        return (LINE, node.number, *[(names, *map(shapes, values)) for names, values in assigned.items()])
    event = work.read.events[node.number]
    if node.kind == CALL:
        head, number = split_index(work.name(at))
        return (CALL, event.name, head, number is None, event.error)
    look = work.read.look[node.number]
    if look not in steps:
        result = event.result if event.outputs else ""
        steps[look] = (STEP, event.kind, event.name, blurred(event.args), result, event.error, event.note)
    return steps[look]


def blurred(args: str) -> str:
    """Arguments without plain numbers: an index, a rate or a seed that changes does not keep a loop apart."""
    return _NUMBER.sub(lambda found: found[1] or "…", args)


def in_common(one: str, other: str) -> str:
    """What two texts that are equal but for numbers have in common, ``…`` where they differ."""
    numbers = iter([found[0] for found in _NUMBER.finditer(other)])
    return _NUMBER.sub(lambda found: found[0] if found[0] == next(numbers, "") else "…", one)


# ---------------------------------------------------------------- rows in order


def code_view(trace: Recorded, options: CodeOptions) -> CodeView:
    """Rows for a trace: pure, one pass forward to build what is shown, one back to see what is alike."""
    read = read_steps(trace, options)
    lines = Lines(options)
    stacks = [read.events[step].stack for step in read.steps]
    lines.leave_out_runner(stacks)
    if options.fold:
        lines.count_levels(stacks)
    forest = Forest(read, lines, options.fold)
    steps = iter(read.steps)
    step = next(steps, -1)
    for number in range(len(read.events)):
        if number == step:
            forest.add(step, read.inside.get(step, 0))
            step = next(steps, -1)
        else:
            forest.note(number)
    children = {at: node.children for at, node in enumerate(forest.nodes) if node.children}
    work = _Work(read, lines.lines, forest.nodes, children, options.depth, options.fold)
    _sum_up(work)
    kinds = frozenset(read.events[step].kind for step in read.steps)
    view = CodeView([], len(read.steps), kinds, read.left_out, lines.outer)
    for thread, roots in forest.threads.items():
        if len(forest.threads) > 1:
            view.rows.append(CodeRow(THREAD, 0, text=thread))
        _emit(work, roots, view.rows)
    return view


def _emit(work: _Work, roots: list[int], rows: list[CodeRow]) -> None:
    """Depth first, with a stack of our own: recursion nests deeper than Python may."""
    pending = _told_apart(work, _siblings(work, roots, CodeRow(THREAD, 0), 0))[::-1]
    while pending:
        row = pending.pop()
        if row.kind != CALL or not row.is_plain:
            rows.append(row)
        children = work.children.get(row.id) if row.kind in (LINE, CALL) else None
        if children is None:
            continue
        if row.kind == LINE and work.depth is not None and row.level >= work.depth:
            row.deeper = work.nodes[row.id].size
            continue
        pending += _told_apart(work, _siblings(work, children, row, row.depth + (row.kind == LINE)))[::-1]


def _told_apart(work: _Work, rows: list[CodeRow]) -> list[CodeRow]:
    """Steps that come after those of a module stand below its name, though not in it: they say where they belong."""
    depth = min((row.depth for row in rows), default=0)
    is_below = False
    for row in rows:
        if row.kind == CALL and not row.is_plain:
            is_below = is_below or any(work.nodes[child].kind == STEP for child in work.children.get(row.id, ()))
        elif row.kind == DOWN:
            is_below = False
        elif row.kind == STEP and row.depth == depth and is_below and not row.text:
            call = work.read.calls[work.nodes[row.id].number]
            row.text = relative_path(work.read.events[call], None) if call >= 0 else NO_MODULE
    return rows


def _siblings(work: _Work, ids: list[int], parent: CodeRow, depth: int) -> list[CodeRow]:
    """The rows below one, in order."""
    if not work.fold:
        return _rows(work, [[at] for at in ids], parent, depth)
    cut = groups([work.mark[at] for at in ids], [work.height[at] for at in ids])
    if parent.kind == LINE and parent.times == 1 and len(cut) == 1 and cut[0].unit > 1:
        unit, parent.times = cut[0].unit, cut[0].times  # all that happened on this line: it says itself how often
        return _rows(work, [ids[offset::unit] for offset in range(unit)], parent, depth, once=True)
    found: list[CodeRow] = []
    for start, unit, times in cut:
        members = ids[start : start + unit * times]
        if unit == 1:
            found += _rows(work, [members], parent, depth, after=found)
            continue
        columns = [members[offset::unit] for offset in range(unit)]
        repeated = _rows(work, columns, parent, depth + 1, once=True)
        if repeated[0].kind == DOWN:
            found.append(replace(repeated.pop(0), depth=depth))
        span = _span(work, members)
        text = f"{parent.text}.{span}" if span and parent.is_plain else span
        found.append(CodeRow(REPEAT, depth, times=times, rows=unit, text=text, of=work.nodes[members[0]].kind))
        found += repeated
    return found


def _rows(
    work: _Work,
    columns: Sequence[list[int]],
    parent: CodeRow,
    depth: int,
    *,
    once: bool = False,
    after: Sequence[CodeRow] = (),
) -> list[CodeRow]:
    """A row for each of the given nodes that are alike; ``once``: how often is said elsewhere.

    From a line to the lines of a function that it calls it goes down first.
    """
    found: list[CodeRow] = []
    before = after[-1].kind if after else ""
    for members in columns:
        row = _row(work, members, parent, depth)
        if once:
            row.times = 1
        if row.kind == LINE and parent.kind == LINE and before != LINE:
            found.append(CodeRow(DOWN, depth))
        before = row.kind
        found.append(row)
    return found


def _row(work: _Work, members: Sequence[int], parent: CodeRow, depth: int) -> CodeRow:
    """One row for nodes that are alike."""
    first = work.nodes[members[0]]
    if len(members) > 1:
        merge_alike(members, work.children, partial(_add, work))
    row = CodeRow(first.kind, depth, parent.level + (parent.kind == LINE), members[0])
    row.times, row.each, row.spent_ns = len(members), first.size, first.spent
    if first.kind == LINE:
        line = work.lines[first.number]
        row.where, row.levels = line.where, line.levels_as_one
        row.assigned = tuple(
            (names, values) for names, several in (first.assigned or {}).items() for values in _ends(several)
        )
        return row
    row.event = work.read.events[first.number]
    if first.kind == STEP:
        row.args, row.result = first.words or (row.event.args, row.event.result)
        row.inside = first.inside
        row.text = parent.text if parent.kind == CALL and parent.is_plain and not parent.is_told else ""
        return row
    row.text = range_label(work.name(at) for at in members)
    row.is_plain = len(members) == 1 and not first.has_lines
    if row.is_plain:
        row.where = parent.where
        row.is_told = _tells(parent.where, row.text)
    if parent.kind == CALL and parent.is_plain:
        row.text = f"{parent.text}.{row.text}"
    return row


def _tells(where: Location | None, name: str) -> bool:
    """Whether a source line says itself which module is called, as ``self.ln_1(x)`` and ``gru(x)`` of a GRU do."""
    last = name.rpartition(".")[2].lower()
    return where is not None and not last.isdecimal() and last in re.findall(r"\w+", where.source.lower())


def _ends(values: list[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """What was assigned first and last, where that changes."""
    return values if len(values) < 2 else [values[0], values[-1]]


def _add(work: _Work, first: int, others: Sequence[int]) -> None:
    """Count what is in several nodes to the one that stands for them, and note where their numbers differ."""
    node = work.nodes[first]
    for other in reversed(others):
        same = work.nodes[other]
        node.spent += same.spent
        node.size += same.size
        if node.kind != STEP:
            continue
        node.inside += same.inside
        event, twin = work.read.events[node.number], work.read.events[same.number]
        if event is not twin:
            args, result = node.words or (event.args, event.result)
            if args != twin.args or result != twin.result:
                node.words = (in_common(args, twin.args), result if result == twin.result else "…")


def _span(work: _Work, members: Sequence[int]) -> str:
    """``layers.0–23`` when all calls of a repeat are numbered under one name."""
    names = [work.name(at) for at in members if work.nodes[at].kind == CALL]
    heads = {split_index(name)[0] for name in names}
    numbered = len(names) == len(members) and all(split_index(name)[1] is not None for name in names)
    return range_label(names) if numbered and len(heads) == 1 else ""
