"""The variables view: the life of each variable, line by line, or all changes as a tree that follows the calls."""

from __future__ import annotations

from torchglass.errors import closest
from torchglass.views.digest import Recorded
from torchglass.views.row import COUNT, HEADING, NOTE, REMARK, Cell, Sheet
from torchglass.views.text.words import count, plural
from torchglass.views.variables import Options
from torchglass.views.variables.blocks import Variables, variables_of
from torchglass.views.variables.rows import Rows

NOTHING = (
    "No variables were recorded: record(variables=True) follows all of the program's variables,"
    ' record(variables=["video", "self.cache"]) those of that name.'
)

GUESSED = (
    "read from what each call was assigned to: arguments, loop variables, other names of a tensor and values that torch"
    " did not give are not known; record(variables=True) follows all of them"
)


def sheet(trace: Recorded, options: Options) -> Sheet:
    """Rows of all variables that are shown, and how many there were."""
    found = variables_of(trace, options)
    if not found.recorded:
        return Sheet(below=[Cell(HEADING, NOTHING)])
    rows = Rows(trace, options)
    return Sheet([*rows.of_blocks(found.blocks), *rows.of_changes(found.rows)], _summary(found))


def _summary(found: Variables) -> list[Cell]:
    parts = [plural(found.variables, "variable"), plural(found.shown, "change")]
    if found.shown + found.owners < found.recorded:
        parts.append(f"{plural(found.recorded - found.shown - found.owners, 'other change')} not selected")
    if found.owners:
        parts.append(f"{count(found.owners)} of self and cls (names='self')")
    if found.elsewhere:
        parts.append(f"{count(found.elsewhere)} in installed packages")
    missing = [f"note: no variable fits names={name!r}; {closest(name, found.known)}" for name in found.missing]
    guessed = [Cell(REMARK, GUESSED)] if found.is_guessed else []
    return [Cell(COUNT, " · ".join(parts)), *guessed, *(Cell(NOTE, text) for text in missing)]
