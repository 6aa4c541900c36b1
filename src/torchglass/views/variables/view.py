"""The variables view: the life of each variable, line by line, or all changes as a tree that follows the calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from torchglass.errors import UsageError, WrongType, closest
from torchglass.events.selection import Selection
from torchglass.views.fold import groups
from torchglass.views.options import check_only, check_switch
from torchglass.views.recorded import Recorded
from torchglass.views.variables.lives import Life, Lives, Variable, module_label, numberless
from torchglass.views.variables.origins import Stories, Story
from torchglass.views.variables.reading import Change, read_changes
from torchglass.views.variables.rows import Marks, Repeat, Row, rows_of
from torchglass.views.variables.time import CallRow, ThreadRow, time_rows

ORDERS = ("variable", "time")


@dataclass(frozen=True, slots=True)
class VariablesOptions:
    """What the variables view shows."""

    names: tuple[str, ...] | str = ()
    """Only variables whose name fits one of these globs: ``video``, ``self.*``; all when empty."""
    by: str = "variable"
    """``variable``: one block a variable; ``time``: all in program order, as a tree that follows the calls."""
    only: Selection | None = None
    """Only selected changes."""
    fold: bool = True
    """Show equal changes and equal calls once, and of very long lives both ends."""
    times: bool = False
    """When each change happened, since the recording began."""

    def __post_init__(self) -> None:
        check_only(self.only)
        check_switch("fold", self.fold)
        check_switch("times", self.times)
        names = (self.names,) if isinstance(self.names, str) else self.names
        if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType("names= takes names or globs of variables, as in names='video' or ('h*', 'self.cache')")
        object.__setattr__(self, "names", tuple(names))
        if not isinstance(self.by, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(f"by= takes 'variable' or 'time', not {type(self.by).__name__}")
        if self.by not in ORDERS:
            raise UsageError(f"by={self.by!r}: {closest(self.by, ORDERS)}")


@dataclass(slots=True)
class LifeGroup:
    """One life of a variable, or several in a row that are alike."""

    first: int
    """The number of the first one among all lives of the variable, from 1."""
    lives: list[Life]
    rows: list[Row | Repeat]
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
class VariablesView:
    """Blocks, or the rows of the tree; every change that is shown stands in exactly one row."""

    blocks: list[Block] = field(default_factory=list[Block])
    rows: list[Row | Repeat | CallRow | ThreadRow] = field(default_factory=list[Row | Repeat | CallRow | ThreadRow])
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


def variables_view(trace: Recorded, options: VariablesOptions) -> VariablesView:
    """Pure: one pass over the trace, then over what is shown."""
    reading = read_changes(trace)
    lives, stories = Lives(), Stories(trace, reading)
    told: dict[int, Story] = {}
    for change in reading.changes:
        told[change.id] = stories.tell(lives.life_of(change), change)
    known = tuple(dict.fromkeys(change.event.name for change in reading.changes))
    wanted = _wanted(known, options)
    chosen = [change for change in reading.changes if change.event.name in wanted and _selected(trace, change, options)]
    shown = {change.id for change in chosen if options.names or not _is_owner(change)}
    view = VariablesView(recorded=len(reading.changes), shown=len(shown), known=known)
    view.owners = len(chosen) - len(shown)
    view.missing = tuple(glob for glob in options.names if not any(_fits(glob, name) for name in known))
    marks = Marks(told)
    variables = [kept for each in lives.variables.values() if (kept := _restricted(each, shown)).lives]
    view.variables = len(variables)
    if options.by == "time":
        view.rows = time_rows(reading.changes, shown, marks, options.fold)
    else:
        view.blocks = [Block(each, _groups(each.lives, marks, options.fold)) for each in variables]
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


def _groups(lives: list[Life], marks: Marks, fold: bool) -> list[LifeGroup]:
    """Lives in order; those in a row with equal changes share one group."""
    if not fold or len(lives) == 1:
        return [_group(lives, at, 1, marks, fold) for at in range(len(lives))]
    keys = [marks.number(_life_key(life, marks)) for life in lives]
    found: list[LifeGroup] = []
    # A life has a line above it, unless it is the only one.
    for start, unit, times in groups(keys, [len(life.changes) + 1 for life in lives]):
        for offset in range(unit):
            group = _group(lives[start + offset : start + unit * times : unit], 0, times, marks, fold)
            group.first, group.unit = start + offset + 1, unit
            found.append(group)
    return found


def _group(lives: list[Life], at: int, times: int, marks: Marks, fold: bool) -> LifeGroup:
    own = lives[at : at + times]
    columns = [list(changes) for changes in zip(*(life.changes for life in own), strict=True)]
    return LifeGroup(at + 1, own, rows_of(columns, marks, fold), 1, times, module_label([life.module for life in own]))


def _life_key(life: Life, marks: Marks) -> tuple[object, ...]:
    module = None if life.module is None else (life.module[0], numberless(life.module[1]))
    return ("life", life.thread, module, *map(marks.of, life.changes))
