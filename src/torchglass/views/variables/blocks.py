"""Which changes of variables are shown: the lives of each variable, those alike together, or all in program order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from torchglass.views.digest import Recorded
from torchglass.views.fold import groups
from torchglass.views.variables import Options
from torchglass.views.variables.calls import AnyRow, time_rows
from torchglass.views.variables.changes import Change, read_changes
from torchglass.views.variables.lives import Life, Lives, Variable, module_label, numberless
from torchglass.views.variables.origins import Stories, Story
from torchglass.views.variables.patterns import Changes, Patterns, Repeat, rows_of


@dataclass(slots=True)
class LifeGroup:
    """One life of a variable, or several in a row that are alike."""

    first: int
    """The number of the first one among all lives of the variable, from 1."""
    lives: list[Life]
    rows: list[Changes | Repeat]
    unit: int = 1
    """How many lives that differ repeat together; the rows are those of one of them."""
    times: int = 1
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


def variables_of(trace: Recorded, options: Options) -> Variables:
    """Pure: one pass over the trace, then over what is shown."""
    reading = read_changes(trace)
    lives, stories = Lives(), Stories(trace, reading)
    origins: dict[int, Story] = {}
    for change in reading.changes:
        origins[change.id] = stories.tell(lives.life_of(change), change)
    known = tuple(dict.fromkeys(change.event.name for change in reading.changes))
    wanted = _wanted(known, options)
    chosen = [change for change in reading.changes if change.event.name in wanted and _selected(trace, change, options)]
    shown = {change.id for change in chosen if options.names or not _is_owner(change)}
    view = Variables(recorded=len(reading.changes), shown=len(shown), known=known)
    view.owners = len(chosen) - len(shown)
    view.missing = tuple(glob for glob in options.names if not any(_fits(glob, name) for name in known))
    patterns = Patterns(origins)
    variables = [kept for each in lives.variables.values() if (kept := _restricted(each, shown)).lives]
    view.variables = len(variables)
    if options.by == "time":
        view.rows = time_rows(reading.changes, shown, patterns, options.fold)
    else:
        view.blocks = [Block(each, _groups(each.lives, patterns, options.fold)) for each in variables]
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


def _restricted(variable: Variable, shown: set[int]) -> Variable:
    """The variable with only the changes that are shown."""
    if all(change.id in shown for life in variable.lives for change in life.changes):
        return variable
    kept = Variable(variable.name, variable.scope, variable.file)
    for life in variable.lives:
        changes = [change for change in life.changes if change.id in shown]
        if changes:
            own = Life(life.name, life.scope, changes, life.now, life.module, life.thread)
            kept.lives.append(own)
    return kept


# ---------------------------------------------------------------- lives that are alike


def _groups(lives: list[Life], patterns: Patterns, fold: bool) -> list[LifeGroup]:
    """Lives in order; those in a row with equal changes share one group."""
    if not fold or len(lives) == 1:
        return [_group(lives, at, 1, patterns, fold) for at in range(len(lives))]
    keys = [patterns.number(_life_key(life, patterns)) for life in lives]
    found: list[LifeGroup] = []
    # A life has a line above it, unless it is the only one.
    for start, unit, times in groups(keys, [len(life.changes) + 1 for life in lives]):
        for offset in range(unit):
            group = _group(lives[start + offset : start + unit * times : unit], 0, times, patterns, fold)
            group.first, group.unit = start + offset + 1, unit
            found.append(group)
    return found


def _group(lives: list[Life], at: int, times: int, patterns: Patterns, fold: bool) -> LifeGroup:
    own = lives[at : at + times]
    columns = [list(changes) for changes in zip(*(life.changes for life in own), strict=True)]
    return LifeGroup(
        at + 1, own, rows_of(columns, patterns, fold), 1, times, module_label([life.module for life in own])
    )


def _life_key(life: Life, patterns: Patterns) -> tuple[object, ...]:
    module = None if life.module is None else (life.module[0], numberless(life.module[1]))
    return ("life", life.thread, module, *map(patterns.of, life.changes))
