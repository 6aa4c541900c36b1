"""Where the first NaN or Inf came from: the event that made it, what that took, and what it reached."""

from __future__ import annotations

from torchglass.answers.bad_story import UNMEASURED, first_bad_story
from torchglass.program.recorded import Recorded
from torchglass.views.finding_rows import lines as lines
from torchglass.views.finding_rows import rows_of
from torchglass.views.options import FirstBadOptions
from torchglass.views.row import HEADING, Cell, Sheet

NONE_BAD = "No value that was measured is NaN or infinite, unless it was meant."
NONE_FITS = "No value that was measured fits when=, unless it was meant."


def sheet(trace: Recorded, options: FirstBadOptions | None = None) -> Sheet:
    """Return the rows of the story; a sentence where nothing is bad, or nothing was measured."""
    chosen = options or FirstBadOptions()
    if not trace.measured:
        return Sheet(below=[Cell(HEADING, f"{UNMEASURED[0].upper()}{UNMEASURED[1:]}")])
    found = first_bad_story(trace, chosen.when, chosen.allow, chosen.only)
    if found is None:
        return Sheet(below=[Cell(HEADING, NONE_BAD if chosen.when == "nonfinite" else NONE_FITS)])
    return Sheet(list(rows_of([found.finding])))
