"""Which changes of variables are shown: the lives of each variable, those alike together, or all in program order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate

from torchglass.views import row as kinds
from torchglass.views.digest import Recorded
from torchglass.views.fold import Item, folded
from torchglass.views.levels import Level, Levels
from torchglass.views.options import VariablesOptions
from torchglass.views.row import Cell, Cells, Row, repeat_row
from torchglass.views.text.spans import loop_cells, range_word, rounds_of, scope_word
from torchglass.views.text.words import clean, count
from torchglass.views.variables.changes import Call, Change, read_changes, read_targets
from torchglass.views.variables.forest import ChangeForest, Changes, Patterns
from torchglass.views.variables.lives import Life, Lives, Stories, Story, Variable, module_label


@dataclass(slots=True)
class LifeGroup:
    """One life of a variable, or several laid over each other."""

    first: int
    """The number of the first one among all lives of the variable, from 1."""
    lives: list[Life]
    rows: list[Row]
    are_alike: bool = False
    """Whether the same is said of all of them."""
    module: str = ""
    """The module under way, or several: ``blocks.0–11``."""


@dataclass(slots=True)
class Block:
    """One variable."""

    variable: Variable
    groups: list[LifeGroup]


@dataclass(slots=True)
class Variables:
    """Blocks, or the rows of the tree; every change that is shown stands in exactly one row."""

    blocks: list[Block] = field(default_factory=list[Block])
    rows: list[Row] = field(default_factory=list[Row])
    recorded: int = 0
    """Changes in the trace."""
    shown: int = 0
    owners: int = 0
    """Changes that are not shown because every method has them: the arguments ``self`` and ``cls``."""
    variables: int = 0
    missing: tuple[str, ...] = ()
    """Globs of ``names=`` that no variable fits."""
    known: tuple[str, ...] = ()
    """The names of all variables in the trace."""
    is_guessed: bool = False
    """Whether they are read from what calls were assigned to."""
    elsewhere: int = 0
    """Changes in installed packages, where they are."""


def variables_of(trace: Recorded, options: VariablesOptions) -> Variables:
    """Pure: one pass over the trace, then over what is shown."""
    reading = read_changes(trace)
    if not reading.changes:
        reading = read_targets(trace)
    lives, stories = Lives(), Stories(trace, reading)
    origins: dict[tuple[int, str], Story] = {}
    for change in reading.changes:
        origins[change.key] = stories.tell(lives.life_of(change), change)
    known = tuple(dict.fromkeys(change.event.name for change in reading.changes))
    wanted = _wanted(known, options)
    chosen = [change for change in reading.changes if change.event.name in wanted and _selected(trace, change, options)]
    shown = {change.key for change in chosen if options.names or not _is_owner(change)}
    view = Variables(recorded=len(reading.changes), shown=len(shown), known=known)
    view.owners = len(chosen) - len(shown)
    view.is_guessed, view.elsewhere = reading.is_guessed, reading.elsewhere
    view.missing = tuple(glob for glob in options.names if not any(_fits(glob, name) for name in known))
    patterns = Patterns(origins)
    levels = (reading.levels or Levels(reading.digest)) if options.fold and shown else None
    variables = [kept for each in lives.variables.values() if (kept := _restricted(each, shown)).lives]
    view.variables = len(variables)
    if options.by == "time":
        chosen = [change for change in reading.changes if change.key in shown]
        view.rows = time_rows(chosen, ChangeForest(patterns, levels), options.fold)
    else:
        forest = ChangeForest(patterns, levels)
        view.blocks = [Block(each, _groups(each.lives, forest, options.fold)) for each in variables]
    return view


def _wanted(known: Sequence[str], options: VariablesOptions) -> set[str]:
    return {name for name in known if not options.names or any(_fits(glob, name) for glob in options.names)}


def _fits(glob: str, name: str) -> bool:
    """As written first: ``batch["x"]`` has brackets that would be read as a set of letters."""
    return glob == name or re.match(translate(glob), name) is not None


def _selected(trace: Recorded, change: Change, options: VariablesOptions) -> bool:
    return options.only is None or options.only.matches(trace.event(change.id))


def _is_owner(change: Change) -> bool:
    return change.how == "argument" and change.event.name in ("self", "cls") and not change.event.outputs


def _restricted(variable: Variable, shown: set[tuple[int, str]]) -> Variable:
    """The variable with only the changes that are shown."""
    if all(change.key in shown for life in variable.lives for change in life.changes):
        return variable
    kept = Variable(variable.name, variable.scope, variable.file)
    for life in variable.lives:
        changes = [change for change in life.changes if change.key in shown]
        if changes:
            own = Life(life.name, life.scope, changes, life.now, life.module, life.thread)
            kept.lives.append(own)
    return kept


# ---------------------------------------------------------------- lives laid over each other


def _groups(lives: list[Life], forest: ChangeForest, fold: bool) -> list[LifeGroup]:
    """Lives in order; those of one thread, in modules of one kind, are laid over each other."""
    tops: list[int] = []
    for life in lives:
        forest.add_life(life, tops)
    rows = ForestRows(forest, fold)
    if not fold:
        return [
            LifeGroup(number, [life], rows.of(item.children, Around()), False, _modules([life]))
            for number, (life, item) in enumerate(zip(lives, rows.items(tops), strict=True), 1)
        ]
    by_key: dict[Hashable, list[int]] = {}
    for top in tops:
        by_key.setdefault(forest.key(top), []).append(top)
    found: list[LifeGroup] = []
    for item in rows.items([top for several in by_key.values() for top in several]):
        own = [life for life in map(forest.nodes.__getitem__, item.nodes) if isinstance(life, Life)]
        made = rows.of(item.children, Around(item=item))
        found.append(LifeGroup(lives.index(own[0]) + 1, own, made, _are_alike(made, forest.patterns), _modules(own)))
    return found


def _are_alike(rows: list[Row], patterns: Patterns) -> bool:
    """Whether the same is said of all lives of a group."""
    changes = [row for row in rows if isinstance(row, Changes)]
    return all(not row.cell(kinds.ROUNDS) and len(set(map(patterns.of, row.changes))) == 1 for row in changes)


def _modules(lives: list[Life]) -> str:
    return module_label([life.module for life in lives])


# ---------------------------------------------------------------- calls

# All changes of variables in program order, each under the call that it happened in.


def time_rows(changes: Sequence[Change], forest: ChangeForest, fold: bool) -> list[Row]:
    """Rows in order, by thread; calls around everything that nothing happened in are left out."""
    threads: dict[str, list[int]] = {}
    several = len({change.event.process for change in changes}) > 1
    for change in changes:
        event = change.event
        thread = f"{event.thread} of process {event.process}" if several else event.thread
        forest.add_change(change, threads.setdefault(thread, []))
    made = ForestRows(forest, fold)
    rows: list[Row] = []
    for number, (thread, tops) in enumerate(threads.items()):
        if number:
            rows.append(Row(0, kinds.THREAD, (Cell(kinds.NAME, thread),)))
        rows += made.of(_without_bare_callers(made.items(tops), forest), Around())
    return rows


def _without_bare_callers(items: list[Item], forest: ChangeForest) -> list[Item]:
    """The test runner, and whatever else called the program."""
    while len(items) == 1 and len(items[0].nodes) == 1 and forest.kind(items[0]) is Call:
        inside = items[0].children
        if len(inside) != 1 or forest.kind(inside[0]) is not Call:
            break
        items = inside
    return items


# ---------------------------------------------------------------- items

# From folded changes to rows: a loop has one where several rows are in it, else what is in it says how often.


@dataclass(frozen=True, slots=True)
class Around:
    """Where an item stands."""

    depth: int = 0
    item: Item | None = None
    loop: Item | None = None
    """The innermost loop that has a row."""
    repeats: int = 1
    """How often all of it repeats, as a line above says."""


class ForestRows:
    """Makes the rows of a forest."""

    def __init__(self, forest: ChangeForest, fold: bool) -> None:
        self._forest, self._fold = forest, fold
        self._hidden: set[int] = set()
        """Loops without a row, and their rounds."""

    def items(self, roots: Sequence[int]) -> list[Item]:
        """What is shown once, for all nodes below those."""
        forest = self._forest
        return folded(forest, roots, forest.own, self._fold)

    def of(self, items: Sequence[Item], around: Around) -> list[Row]:
        """Depth first, with a stack of our own: calls nest deeper than Python may."""
        rows: list[Row] = []
        pending = [(item, around) for item in reversed(items)]
        while pending:
            item, here = pending.pop()
            row, inside = self._row(item, here)
            if row is not None:
                rows.append(row)
            pending += [(child, inside) for child in reversed(item.children)]
        return rows

    def _row(self, item: Item, around: Around) -> tuple[Row | None, Around]:
        """The row of an item, if it has one, and where what is in it stands."""
        forest, kind = self._forest, self._forest.kind(item)
        inside = Around(around.depth + 1, item, around.loop)
        if kind is Item:
            row = repeat_row(around.depth, "", item.times, f"{count(item.unit)} steps")
            return row, replace(inside, item=None, repeats=item.times)
        rounds = rounds_of(item, around.item, around.loop, forest.span)
        if kind is Change:
            changes, cells = forest.changes(item), said((kinds.FOLD, self._often(item, around)), (kinds.ROUNDS, rounds))
            row = Changes(around.depth, kinds.EVENT, cells, changes[0].id, each=len(changes), changes=changes)
            row.stories = [forest.patterns.story_of(change) for change in changes]
            return row, inside
        if kind is Call:
            calls = [each for each in map(forest.nodes.__getitem__, item.nodes) if isinstance(each, Call)]
            cells = _call_cells(calls, self._often(item, around), rounds)
            return Row(around.depth, kinds.CALL, cells, times=len(calls)), replace(inside, loop=None)
        if kind is Level and forest.rounds(item.nodes[0]):
            if self._is_short(item):
                self._hide(item)
                return None, replace(around, item=None)
            return Row(around.depth, kinds.LOOP, loop_cells(forest.spans(item), rounds)), replace(inside, loop=item)
        return None, replace(around, item=item)

    def _is_short(self, item: Item) -> bool:
        """Whether no more than one row is in a loop, or it went round but once."""
        if all(len(self._forest.below(node)) < 2 for node in item.nodes):
            return True
        while len(item.children) == 1 and self._forest.kind(item.children[0]) is Level:
            item = item.children[0]
        return len(item.children) == 1 and not item.children[0].children

    def _hide(self, item: Item) -> None:
        for node in item.nodes:
            self._hidden.add(node)
            self._hidden.update(self._forest.below(node))

    def _often(self, item: Item, place: Around) -> str:
        """How often in each of what is around it that has a row."""
        if item.times > 1 and len(item.nodes) == item.times:
            return f"× {count(item.times)}"
        around: Counter[int] = Counter()
        for node in item.nodes:
            parent = self._forest.parents[node]
            while parent in self._hidden:
                parent = self._forest.parents[parent]
            around[parent] += 1
        often = [times // place.repeats for times in around.values()]
        return f"× {range_word(often)}" if max(often) > 1 else ""


def said(*words: tuple[str, str]) -> Cells:
    """Cells for what there is to say."""
    return tuple(Cell(kind, text) for kind, text in words if text)


def _call_cells(calls: Sequence[Call], often: str, rounds: str) -> Cells:
    first = calls[0]
    label, at = module_label([call.module for call in calls]), first.called_at
    is_new = first.caller is None or first.caller.module != first.module
    words = (
        (kinds.FOLD, often),
        (kinds.EXPRESSION, scope_word(first.at.function) + ":"),
        (kinds.CLASS, f"module {clean(label)}" if label and is_new else ""),
        (kinds.ROUNDS, rounds),
    )
    return (*said(*words), *([Cell(kinds.PLACE, at=at)] if at is not None and at.file else []))
