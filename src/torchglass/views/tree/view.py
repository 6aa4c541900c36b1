"""The tree: which events have a row of their own, at which depth, and which repeats share one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from torchglass.events.selection import Selection
from torchglass.events.types import Event
from torchglass.views.digest import Looks, looks_of
from torchglass.views.fold import groups, merge_alike, range_label
from torchglass.views.nesting import Nesting, is_inner, is_torch_helper, nesting, relative_path, split_index
from torchglass.views.options import check_depth, check_only, check_switch
from torchglass.views.recorded import Recorded
from torchglass.views.tree.patterns import Marks, difference, marks_of


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """What the tree shows."""

    depth: int | None = None
    """Levels below the outermost one; None: all."""
    only: Selection | None = None
    """Only what is selected, and what it is in."""
    functions: bool = True
    times: bool = False
    fold: bool = True
    """Show repeated layers and calls once."""
    inner: bool = False
    """Show also what torch does inside its own layers, functions and optimizer steps."""

    def __post_init__(self) -> None:
        check_depth(self.depth)
        check_only(self.only)
        for name in ("functions", "times", "fold", "inner"):
            check_switch(name, getattr(self, name))


@dataclass(slots=True)
class Row:
    """One line of the tree: an event, or several that are alike."""

    depth: int
    """How far in it stands."""
    level: int
    """How many calls around it have rows: the heading of a repeat takes it one further in."""
    id: int
    event: Event
    """An event that looks the same: the one with this id, or an earlier one."""
    look: int
    """Equal for rows whose events look the same."""
    name: str
    """Module events: the path as seen from the module above."""
    span: str = ""
    """Where it stands for several calls of modules: ``blocks.0–11``."""
    times: int = 1
    """How many calls in a row this row stands for."""
    each: int = 1
    """The same, times that of the repeats it is in: how many events of the trace it stands for."""
    inside: int = 0
    """Events in all of them that torch made and that have no row."""
    deeper: int = 0
    """Events in all of them that lie below the depth asked for."""
    unlike: str = ""
    """What keeps it out of the repeat above it."""
    same_code: bool = True
    """False when the calls it stands for were written differently."""
    helper: bool = False
    """The event and those inside are all that is seen of an expression such as ``opt.zero_grad()``."""
    spent_ns: int | None = None
    note: str | None = None
    """Its own note, or one of an event inside that has no row."""


@dataclass(slots=True)
class Heading:
    """A line that belongs to no event: a thread begins, or rows that repeat together."""

    depth: int
    text: str
    times: int = 0
    """How often the rows below it repeat; 0 for a thread."""
    rows: int = 0
    id: int = -1
    """No event."""


@dataclass(slots=True)
class TreeView:
    """All lines of the tree, and how many events have none.

    The sum of ``each + inside + deeper`` over the rows, and ``left_out``, is the number of events.
    """

    rows: list[Row | Heading]
    left_out: int = 0
    """Events outside the selection, and those torch made that are in no row."""


@dataclass(slots=True)
class _Forest:
    children: dict[int, list[int]]
    threads: dict[str, list[int]]
    inside: dict[int, int]
    """Events without a row, by the row that they are in."""
    helpers: dict[int, list[int]]
    """Rows for expressions that are no events: the events that torch made there."""
    notes: dict[int, str] = field(default_factory=dict[int, str])
    """The first note of an event without a row, by the row that it is in."""
    left_out: int = 0

    def hide(self, event: Event, under: int) -> None:
        if under < 0:
            self.left_out += 1
            return
        self.inside[under] = self.inside.get(under, 0) + 1
        if event.note:
            self.notes.setdefault(under, event.note)


@dataclass(slots=True)
class _Work:
    looks: Looks
    forest: _Forest
    nest: Nesting
    depth: int | None
    marks: Marks | None
    sizes: list[int] = field(default_factory=list[int])
    spent: list[int] | None = None


def tree_view(trace: Recorded, options: TreeOptions) -> TreeView:
    """Rows for a trace: pure, one pass forward to see what is shown, one back to see what is alike."""
    looks = looks_of(trace, options.only)
    nest = nesting(looks.events, looks.parents)
    forest = _forest(looks, nest, options)
    marks = marks_of(trace.modules(), looks, nest, forest.children) if options.fold else None
    work = _Work(looks, forest, nest, options.depth, marks)
    if options.depth is not None:
        work.sizes = _sizes(len(looks.events), forest)
    if options.times:
        work.spent = looks.spent_ns
        for row, helpers in forest.helpers.items():
            work.spent[row] = sum(work.spent[at] for at in helpers)
    rows: list[Row | Heading] = []
    for number, (thread, roots) in enumerate(forest.threads.items()):
        if number:
            rows.append(Heading(0, thread))
        _emit(work, roots, rows)
    return TreeView(rows, forest.left_out)


def visible_events(events: Sequence[Event]) -> list[Event]:
    """The events that have a row by default."""
    nest = nesting(events, [-1 if event.parent is None else event.parent for event in events])
    return [event for event in events if not is_inner(event, *_around(events, nest, event.parent))]


def _around(events: Sequence[Event], nest: Nesting, parent: int | None) -> tuple[Event | None, bool]:
    """The event around one, and whether it is a module that calls no other."""
    if parent is None or parent < 0:
        return None, False
    return events[parent], parent not in nest.containers


# ---------------------------------------------------------------- what is shown


def _forest(looks: Looks, nest: Nesting, options: TreeOptions) -> _Forest:
    """The events that have rows, each under the nearest one around it that has one, by thread."""
    kept = None if looks.matched is None else _with_ancestors(looks.parents, looks.matched)
    by_name = looks.matched if options.only is not None and options.only.names_calls else None
    anchors: list[int] = []
    forest = _Forest({}, {}, {}, {})
    # What becomes of an event depends only on how it and the one around it look: asked once for each such pair.
    fates: dict[tuple[int, int, bool], tuple[bool, bool]] = {}
    look, containers = looks.look, nest.containers
    for at, parent in enumerate(looks.parents):
        anchor = anchors[parent] if parent >= 0 else -1
        pair = (look[at], look[parent] if parent >= 0 else -1, parent in containers)
        fate = fates.get(pair)
        if fate is None:
            fate = fates[pair] = _fate(looks, nest, options, at, parent)
        hidden, helper = fate
        if kept is not None and not kept[at]:
            forest.left_out += 1
        elif hidden and not (by_name is not None and by_name[at]):
            forest.hide(looks.events[at], anchor)
        else:
            anchor = _place(forest, looks, at, anchor, helper)
        anchors.append(anchor)
    return forest


def _fate(looks: Looks, nest: Nesting, options: TreeOptions, at: int, parent: int) -> tuple[bool, bool]:
    """Whether an event is hidden, and whether it is part of an expression that is no event itself."""
    event = looks.events[at]
    hidden = not options.functions and event.kind in ("function", "op")
    if not hidden and not options.inner:
        hidden = is_inner(event, *_around(looks.events, nest, parent))
    return hidden, not options.inner and is_torch_helper(event, looks.events[parent] if parent >= 0 else None)


def _place(forest: _Forest, looks: Looks, at: int, anchor: int, helper: bool) -> int:
    """Put an event under its anchor, or into the row of the helper before it; the row that it is in."""
    event = looks.events[at]
    if anchor >= 0:  # also what the autograd engine runs in a thread of its own: it belongs to the backward call
        siblings = forest.children.setdefault(anchor, [])
    else:
        siblings = forest.threads.setdefault(event.thread, [])
    if helper:
        before = siblings[-1] if siblings else -1
        if before in forest.helpers and _one_expression(looks, before, at):
            forest.helpers[before].append(at)
            forest.hide(event, before)
            return before
        forest.helpers[at] = [at]
    siblings.append(at)
    return at


def _one_expression(looks: Looks, first: int, other: int) -> bool:
    one, two = looks.events[first], looks.events[other]
    return one.location == two.location and looks.parents[first] == looks.parents[other] and not two.error


def _with_ancestors(parents: Sequence[int], matched: bytearray) -> bytearray:
    kept = bytearray(matched)
    for at in range(len(parents) - 1, -1, -1):
        if kept[at] and parents[at] >= 0:
            kept[parents[at]] = True
    return kept


def _sizes(total: int, forest: _Forest) -> list[int]:
    """For each row the number of events at and below it."""
    sizes = [1] * total
    for at in range(total - 1, -1, -1):
        sizes[at] += forest.inside.get(at, 0) + sum(sizes[child] for child in forest.children.get(at, ()))
    return sizes


# ---------------------------------------------------------------- rows in order


def _emit(work: _Work, roots: list[int], rows: list[Row | Heading]) -> None:
    """Depth first, with a stack of our own: traces nest deeper than Python may."""
    pending = _siblings(work, roots, 0, 0, 1)[::-1]
    while pending:
        row = pending.pop()
        rows.append(row)
        children = work.forest.children.get(row.id)
        if not children or isinstance(row, Heading):
            continue
        if work.depth is not None and row.level >= work.depth:
            row.deeper = sum(work.sizes[child] for child in children)
        else:
            pending += _siblings(work, children, row.depth + 1, row.level + 1, row.each)[::-1]


def _siblings(work: _Work, ids: list[int], depth: int, level: int, each: int) -> list[Row | Heading]:
    if work.marks is None or len(ids) == 1:
        return [_row(work, at, depth, level, each) for at in ids]
    mark, height = work.marks.mark, work.marks.height
    found: list[Row | Heading] = []
    before = -1
    for start, unit, times in groups([mark[at] for at in ids], [height[at] for at in ids]):
        members = ids[start : start + unit * times]
        if unit == 1:
            row = _folded(work, members, depth, level, each)
            if before >= 0:
                _say_difference(work, row, ids[before], found)
            found.append(row)
        else:
            found += _repeat(work, members, unit, depth, level, each)
        before = start + unit * times - 1
    return found


def _row(work: _Work, at: int, depth: int, level: int, each: int) -> Row:
    event = work.looks.events[at]
    row = Row(depth, level, at, event, work.looks.look[at], "", "", 1, each, work.forest.inside.get(at, 0))
    if event.kind == "module":
        around = work.nest.module_above[at]
        row.name = relative_path(event, work.looks.events[around] if around >= 0 else None)
    elif at in work.forest.helpers:
        row.helper = True
    if work.spent is not None:
        row.spent_ns = work.spent[at]
    row.note = event.note or work.forest.notes.get(at)
    return row


def _folded(work: _Work, members: Sequence[int], depth: int, level: int, each: int) -> Row:
    """One row for calls in a row that are alike."""
    if len(members) == 1:
        return _row(work, members[0], depth, level, each)
    first = work.looks.events[members[0]]
    merge_alike(members, work.forest.children, partial(_add, work))
    row = _row(work, members[0], depth, level, each * len(members))
    row.times = len(members)
    written = {(event.code, event.target) for event in map(work.looks.events.__getitem__, members)}
    row.same_code = len(written) == 1
    if first.kind == "module":
        row.span = range_label(_names(work, members))
    return row


def _repeat(work: _Work, members: Sequence[int], unit: int, depth: int, level: int, each: int) -> list[Row | Heading]:
    """A heading and one row for each of the siblings that repeat together."""
    times = len(members) // unit
    rows: list[Row | Heading] = [Heading(depth, _common_range(work, members), times, unit)]
    for offset in range(unit):
        row = _folded(work, members[offset::unit], depth + 1, level, each)
        row.times = 1
        rows.append(row)
    return rows


def _common_range(work: _Work, members: Sequence[int]) -> str:
    """``layers.0–23`` when all modules of a repeat are numbered under one name."""
    modules = [at for at in members if work.looks.events[at].kind == "module"]
    names = _names(work, modules)
    if not names or split_index(names[0])[1] is None or len(set(map(_head, names))) > 1:
        return ""
    return range_label(names)


def _head(path: str) -> str:
    return split_index(path)[0]


def _names(work: _Work, members: Sequence[int]) -> list[str]:
    around = [work.nest.module_above[at] for at in members]
    return [
        relative_path(work.looks.events[at], work.looks.events[outer] if outer >= 0 else None)
        for at, outer in zip(members, around, strict=True)
    ]


def _say_difference(work: _Work, row: Row, before: int, found: list[Row | Heading]) -> None:
    """Say why a numbered layer is not in the repeat beside it."""
    last = found[-1] if found else None
    if work.marks is None or not isinstance(last, Row) or (last.times == 1 and row.times == 1):
        return
    earlier, event = work.looks.events[before], row.event
    if event.kind != "module" or earlier.kind != "module" or earlier.name != event.name or event.error:
        return
    here, there = _names(work, (row.id, before))
    if split_index(here)[1] is not None and _head(here) == _head(there) and here != there:
        row.unlike = f"{there}: {difference(work.marks, before, row.id)}"


def _add(work: _Work, first: int, others: Sequence[int]) -> None:
    """Count what is in several events to the one that stands for them."""
    inside = work.forest.inside
    more = sum([inside[at] for at in others if at in inside])
    if more:
        inside[first] = inside.get(first, 0) + more
    if work.sizes:
        work.sizes[first] += sum([work.sizes[at] for at in others])
    if work.spent is not None:
        work.spent[first] += sum([work.spent[at] for at in others])
