"""Which changes of variables are shown: the lives of each variable, those alike together, or all in program order."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from torchglass.views.digest import Recorded
from torchglass.views.fold import Item
from torchglass.views.levels import Levels
from torchglass.views.variables import Options
from torchglass.views.variables.changes import Call, Change, read_changes, read_targets
from torchglass.views.variables.forest import ChangeForest
from torchglass.views.variables.items import Around, ForestRows
from torchglass.views.variables.lives import Life, Lives, Variable, module_label
from torchglass.views.variables.origins import Stories, Story
from torchglass.views.variables.patterns import AnyRow, Changes, OtherThread, Patterns


@dataclass(slots=True)
class LifeGroup:
    """One life of a variable, or several laid over each other."""

    first: int
    """The number of the first one among all lives of the variable, from 1."""
    lives: list[Life]
    rows: list[AnyRow]
    are_alike: bool = False
    """Whether the same is said of all of them."""
    module: str = ""
    """The module under way, or several: ``blocks.0–11``."""


@dataclass(slots=True)
class Block:
    """One variable."""

    variable: Variable
    groups: list[LifeGroup]

    @property
    def changes(self) -> int:
        return sum(len(life.changes) for life in self.variable.lives)


@dataclass(slots=True)
class Variables:
    """Blocks, or the rows of the tree; every change that is shown stands in exactly one row."""

    blocks: list[Block] = field(default_factory=list[Block])
    rows: list[AnyRow] = field(default_factory=list[AnyRow])
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


def variables_of(trace: Recorded, options: Options) -> Variables:
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


def _wanted(known: Sequence[str], options: Options) -> set[str]:
    return {name for name in known if not options.names or any(_fits(glob, name) for glob in options.names)}


def _fits(glob: str, name: str) -> bool:
    """As written first: ``batch["x"]`` has brackets that would be read as a set of letters."""
    return glob == name or re.match(translate(glob), name) is not None


def _selected(trace: Recorded, change: Change, options: Options) -> bool:
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


def _are_alike(rows: list[AnyRow], patterns: Patterns) -> bool:
    """Whether the same is said of all lives of a group."""
    changes = [row for row in rows if isinstance(row, Changes)]
    return all(not row.rounds and len(set(map(patterns.of, row.changes))) == 1 for row in changes)


def _modules(lives: list[Life]) -> str:
    return module_label([life.module for life in lives])


# ---------------------------------------------------------------- calls

# All changes of variables in program order, each under the call that it happened in.


def time_rows(changes: Sequence[Change], forest: ChangeForest, fold: bool) -> list[AnyRow]:
    """Rows in order, by thread; calls around everything that nothing happened in are left out."""
    threads: dict[str, list[int]] = {}
    several = len({change.event.process for change in changes}) > 1
    for change in changes:
        event = change.event
        thread = f"{event.thread} of process {event.process}" if several else event.thread
        forest.add_change(change, threads.setdefault(thread, []))
    made = ForestRows(forest, fold)
    rows: list[AnyRow] = []
    for number, (thread, tops) in enumerate(threads.items()):
        if number:
            rows.append(OtherThread(thread))
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
