"""Makes the rows of the variables view: blocks by variable, or all changes in order of time.

A *life* is one variable in one call, from its first change to its last. The lives of a variable in repeated calls are
merged into one ``LifeGroup``, if they are in modules of one kind. The changes in it are folded as in the tree::

    h in forward · 12 calls alike · module blocks.0–11
      × 3: h = block(h)  f32[8, 16] → same shape
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from itertools import chain

from torchglass.program.calls import PythonCall
from torchglass.program.fold import Item, folded
from torchglass.program.paths import paths_label
from torchglass.program.recorded import Recorded
from torchglass.program.variables.changes import Change, read_changes
from torchglass.program.variables.lives import Life, Lives, Variable
from torchglass.program.variables.origins import Stories, Story
from torchglass.program.variables.shown import LoopNode, Patterns, ShownChanges
from torchglass.program.variables.targets import read_targets
from torchglass.views import row as kinds
from torchglass.views.options import VariablesOptions
from torchglass.views.row import Cell, Cells, Row, repeat_row
from torchglass.views.text.scopes import loop_cells, range_word, rounds_word, scope_word
from torchglass.views.text.words import clean, count
from torchglass.views.variables.rows import Changes


@dataclass(slots=True)
class LifeGroup:
    """One life of a variable, or several that were merged."""

    first: int
    """The number of the first one among all lives of the variable, from 1."""
    lives: list[Life]
    rows: list[Row]
    are_alike: bool = False
    """Whether all of them look the same."""
    module: str = ""
    """The modules that were running: ``blocks.0–11``."""


@dataclass(slots=True)
class Block:
    """One variable with its lives."""

    variable: Variable
    groups: list[LifeGroup]


@dataclass(slots=True)
class Variables:
    """What the view shows: blocks by variable, or rows by time. Every change that is shown is in exactly one row."""

    blocks: list[Block] = field(default_factory=list[Block])
    rows: list[Row] = field(default_factory=list[Row])
    recorded: int = 0
    """Changes in the trace."""
    shown: int = 0
    """Changes that are shown."""
    owners: int = 0
    """Changes that are left out because every method has them: the arguments ``self`` and ``cls``."""
    variables: int = 0
    """Variables that are shown."""
    missing: tuple[str, ...] = ()
    """The globs of ``names=`` that match no variable."""
    known: tuple[str, ...] = ()
    """The names of all variables in the trace."""
    is_guessed: bool = False
    """Whether no variables were followed, so that the changes are read from the targets of calls."""
    in_packages: int = 0
    """Changes in installed packages that are left out."""


def variables_of(trace: Recorded, options: VariablesOptions) -> Variables:
    """Choose the changes to show, and make their rows."""
    reading = read_changes(trace)
    if not reading.changes:
        reading = read_targets(trace)
    lives = Lives()
    stories = Stories(trace, reading)
    story_of: dict[tuple[int, str], Story] = {}
    for change in reading.changes:
        story_of[change.key] = stories.story_of(lives.add(change), change)
    known = tuple(dict.fromkeys(change.event.name for change in reading.changes))
    selected = _selected(trace, reading.changes, options)
    shown_changes = selected
    if not options.names:
        shown_changes = [change for change in selected if not _is_owner(change)]
    keys = {change.key for change in shown_changes}
    variables: list[Variable] = []
    for variable in lives.variables.values():
        restricted = _with_changes(variable, keys)
        if restricted.lives:
            variables.append(restricted)
    view = Variables(
        recorded=len(reading.changes),
        shown=len(keys),
        owners=len(selected) - len(keys),
        variables=len(variables),
        missing=_missing_globs(options.names, known),
        known=known,
        is_guessed=reading.is_guessed,
        in_packages=reading.in_packages,
    )
    has_loops = options.fold and bool(keys)
    shown = ShownChanges(Patterns(story_of), reading.program.tree, has_loops)
    if options.order == "time":
        view.rows = _rows_by_time(shown_changes, shown, options.fold)
    else:
        for variable in variables:
            view.blocks.append(Block(variable, _groups(variable.lives, shown, options.fold)))
    return view


def _selected(
    trace: Recorded, changes: Sequence[Change], options: VariablesOptions
) -> list[Change]:
    """Return the changes that ``names=`` and ``only=`` select."""
    found: list[Change] = []
    for change in changes:
        is_named = not options.names or _matches_any(options.names, change.event.name)
        if is_named and (options.only is None or options.only.matches(trace.event(change.id))):
            found.append(change)
    return found


def _missing_globs(globs: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the globs that match none of these names."""
    return tuple([glob for glob in globs if not any(_matches(glob, name) for name in names)])


def _matches_any(globs: Sequence[str], name: str) -> bool:
    return any(_matches(glob, name) for glob in globs)


def _matches(glob: str, name: str) -> bool:
    """Return whether a name matches a glob, or equals it.

    ``batch["x"]`` is compared as it is, because a glob reads its brackets as a set of letters.
    """
    return glob == name or re.match(translate(glob), name) is not None


def _is_owner(change: Change) -> bool:
    """Return whether a change is the argument ``self`` or ``cls`` of a method."""
    return (
        change.how == "argument"
        and change.event.name in ("self", "cls")
        and not change.event.outputs
    )


def _with_changes(variable: Variable, keys: set[tuple[int, str]]) -> Variable:
    """Return a variable with only those of its changes that are shown."""
    if all(change.key in keys for life in variable.lives for change in life.changes):
        return variable
    restricted = Variable(variable.name, variable.scope, variable.file)
    for life in variable.lives:
        changes = [change for change in life.changes if change.key in keys]
        if changes:
            restricted.lives.append(
                Life(life.name, life.scope, changes, life.now, life.module, life.thread)
            )
    return restricted


# ---------------------------------------------------------------- by variable


def _groups(lives: list[Life], shown: ShownChanges, fold: bool) -> list[LifeGroup]:
    """Return the lives of a variable in order; those in one thread and in modules of one kind are merged."""
    tops: list[int] = []
    for life in lives:
        shown.add_life(life, tops)
    builder = ChangeRows(shown, fold)
    groups: list[LifeGroup] = []
    if not fold:
        for number, item in enumerate(builder.fold(tops)):
            life = lives[number]
            rows = builder.rows(item.children, Context())
            groups.append(LifeGroup(number + 1, [life], rows, module=_modules([life])))
        return groups
    by_key: dict[Hashable, list[int]] = {}
    for top in tops:
        by_key.setdefault(shown.key(top), []).append(top)
    for item in builder.fold(list(chain(*by_key.values()))):
        merged: list[Life] = []
        for number in item.nodes:
            node = shown.nodes[number]
            if isinstance(node, Life):
                merged.append(node)
        rows = builder.rows(item.children, Context(item=item))
        first = lives.index(merged[0]) + 1
        are_alike = _are_alike(rows, shown.patterns)
        groups.append(LifeGroup(first, merged, rows, are_alike, _modules(merged)))
    return groups


def _are_alike(rows: list[Row], patterns: Patterns) -> bool:
    """Return whether each row holds for all lives of a group, with equal changes."""
    changes = [row for row in rows if isinstance(row, Changes)]
    return all(
        not row.cell(kinds.ROUNDS) and len(set(map(patterns.of, row.changes))) == 1
        for row in changes
    )


def _module_label(modules: Sequence[tuple[str, str] | None]) -> str:
    """Return the paths of several modules as one text (the label for a root); "" if there is none."""
    named = [path or root for root, path in filter(None, modules)]
    if named:
        return paths_label(named)
    return ""


def _modules(lives: list[Life]) -> str:
    return _module_label([life.module for life in lives])


# ---------------------------------------------------------------- by time


def _rows_by_time(changes: Sequence[Change], shown: ShownChanges, fold: bool) -> list[Row]:
    """Return the rows of all changes in order, each thread for itself, under the calls that they happened in.

    The outermost calls are left out if they only contain one other call.
    """
    threads: dict[str, list[int]] = {}
    has_several_processes = len({change.event.process for change in changes}) > 1
    for change in changes:
        event = change.event
        if has_several_processes:
            thread = f"{event.thread} of process {event.process}"
        else:
            thread = event.thread
        shown.add_change(change, threads.setdefault(thread, []))
    builder = ChangeRows(shown, fold)
    rows: list[Row] = []
    for number, (thread, tops) in enumerate(threads.items()):
        if number:
            rows.append(Row(0, kinds.THREAD, (Cell(kinds.NAME, thread),)))
        items = _without_outer_calls(builder.fold(tops), shown)
        rows += builder.rows(items, Context())
    return rows


def _without_outer_calls(items: list[Item], shown: ShownChanges) -> list[Item]:
    """Leave out the outermost calls that only contain one other call: the test runner's, for example."""
    while len(items) == 1 and len(items[0].nodes) == 1 and shown.kind(items[0]) is PythonCall:
        inside = items[0].children
        if len(inside) != 1 or shown.kind(inside[0]) is not PythonCall:
            break
        items = inside
    return items


# ---------------------------------------------------------------- from folded items to rows


@dataclass(frozen=True, slots=True)
class Context:
    """What is around an item."""

    depth: int = 0
    item: Item | None = None
    loop: Item | None = None
    """The innermost loop that has a row."""
    repeats: int = 1
    """How often the row of a repeat around it says that everything in it happens."""


class ChangeRows:
    """Makes the rows of lives, calls, loops and changes.

    A loop gets a row of its own only if it contains several rows. Otherwise its single row shows the count: ``× 12``.
    """

    def __init__(self, shown: ShownChanges, fold: bool) -> None:
        self._shown = shown
        self._fold = fold
        self._without_row: set[int] = set()
        """Loops without a row, and their iterations."""

    def fold(self, roots: Sequence[int]) -> list[Item]:
        """Fold all nodes below the roots."""
        shown = self._shown
        return folded(shown, roots, shown.appearance, self._fold)

    def rows(self, items: Sequence[Item], context: Context) -> list[Row]:
        """Return the rows of items depth first, without recursion: calls nest deeper than Python may recurse."""
        rows: list[Row] = []
        pending = [(item, context) for item in reversed(items)]
        while pending:
            item, here = pending.pop()
            row, inside = self._row(item, here)
            if row is not None:
                rows.append(row)
            pending += [(child, inside) for child in reversed(item.children)]
        return rows

    def _row(self, item: Item, context: Context) -> tuple[Row | None, Context]:
        """Return the row of an item, if it has one, and the context of its children."""
        shown = self._shown
        kind = shown.kind(item)
        inside = Context(context.depth + 1, item, context.loop)
        if kind is Item:
            row = repeat_row(context.depth, "", item.times, f"{count(item.unit)} steps")
            return row, replace(inside, item=None, repeats=item.times)
        rounds = rounds_word(item, context.item, context.loop, shown)
        if kind is Change:
            return self._change_row(item, context, rounds), inside
        if kind is PythonCall:
            nodes = map(shown.nodes.__getitem__, item.nodes)
            calls = [node for node in nodes if isinstance(node, PythonCall)]
            cells = _call_cells(calls, self._times_word(item, context), rounds)
            row = Row(context.depth, kinds.CALL, cells, times=len(calls))
            return row, replace(inside, loop=None)
        if kind is LoopNode and shown.may_merge_iterations(item.nodes[0]):
            if not self._needs_row(item):
                self._leave_out(item)
                return None, replace(context, item=None)
            cells = loop_cells(shown.tree, list(map(shown.scope, item.nodes)), rounds)
            return Row(context.depth, kinds.LOOP, cells), replace(inside, loop=item)
        return None, replace(context, item=item)

    def _change_row(self, item: Item, context: Context, rounds: str) -> Changes:
        changes = self._shown.changes(item)
        times = self._times_word(item, context)
        cells = cells_with_text((kinds.FOLD, times), (kinds.ROUNDS, rounds))
        row = Changes(
            context.depth, kinds.EVENT, cells, changes[0].id, each=len(changes), changes=changes
        )
        row.stories = [self._shown.patterns.story_of(change) for change in changes]
        return row

    def _needs_row(self, loop: Item) -> bool:
        """Return whether a loop ran more than one iteration and contains more than one row."""
        if all(len(self._shown.children_of(node)) < 2 for node in loop.nodes):
            return False
        inner = loop
        while len(inner.children) == 1 and self._shown.kind(inner.children[0]) is LoopNode:
            inner = inner.children[0]
        return len(inner.children) != 1 or bool(inner.children[0].children)

    def _leave_out(self, loop: Item) -> None:
        """Note that a loop and its iterations have no row."""
        for node in loop.nodes:
            self._without_row.add(node)
            self._without_row.update(self._shown.children_of(node))

    def _times_word(self, item: Item, context: Context) -> str:
        """Return ``× 3``, or ``× 2–4`` if an item happened more often in some of the rows around it; "" for once."""
        if item.times > 1 and len(item.nodes) == item.times:
            return f"× {count(item.times)}"
        by_parent: Counter[int] = Counter()
        for node in item.nodes:
            parent = self._shown.parents[node]
            while parent in self._without_row:
                parent = self._shown.parents[parent]
            by_parent[parent] += 1
        times = [number // context.repeats for number in by_parent.values()]
        if max(times) > 1:
            return f"× {range_word(times)}"
        return ""


def cells_with_text(*cells: tuple[str, str]) -> Cells:
    """Return a cell for each pair of kind and text whose text is not empty."""
    return tuple(Cell(kind, text) for kind, text in cells if text)


def _call_cells(calls: Sequence[PythonCall], times: str, rounds: str) -> Cells:
    """Return the cells of a call: its function, and the module if that is another than the caller's."""
    first = calls[0]
    module = ""
    if first.caller is None or first.caller.module != first.module:
        label = _module_label([call.module for call in calls])
        if label:
            module = f"module {clean(label)}"
    cells = cells_with_text(
        (kinds.FOLD, times),
        (kinds.EXPRESSION, scope_word(first.at.function) + ":"),
        (kinds.CLASS, module),
        (kinds.ROUNDS, rounds),
    )
    at = first.called_at
    if at is None or not at.file:
        return cells
    return (*cells, Cell(kinds.PLACE, at=at))
