"""Adds findings below their source lines in the views that show lines of the program."""

from __future__ import annotations

from collections.abc import Sequence

from torchglass.answers.finding import HINT, Finding
from torchglass.answers.findings.check import MOST_EVENTS, Checked, check
from torchglass.answers.findings.text import SIGNS
from torchglass.program.recorded import Recorded
from torchglass.views.row import EVENT, FINDING, LINE, REMARK, SOURCE, Cell, Row, Sheet
from torchglass.views.text.words import clean, count

NOT_LOOKED_FOR = "findings are not marked in a trace of {} events: torchglass check prints them"


def add_marks(trace: Recorded, sheet: Sheet) -> None:
    """Put each finding, except hints, below the first row of its line."""
    if not isinstance(trace, Checked) or not len(trace):
        return
    if len(trace) > MOST_EVENTS:
        sheet.below.append(Cell(REMARK, NOT_LOOKED_FOR.format(count(len(trace)))))
        return
    for finding in check(trace).findings:
        row = None
        if finding.severity != HINT:
            row = _row_of(finding, sheet.rows)
        if row is not None:
            row.below = (*row.below, Cell(FINDING, _text(finding), at=finding.location))


def _row_of(finding: Finding, rows: Sequence[Row]) -> Row | None:
    """Return the row of a finding's event, or the last one of its line before that event.

    The event of a finding may lie inside a row, such as the function that a loss module calls.
    """
    at = finding.location
    if at is None:
        return None
    found: Row | None = None
    for row in rows:
        if row.kind not in (EVENT, LINE):
            continue
        source = row.cell(SOURCE)
        here = row.place or (None if source is None else source.at)
        if here is None or (here.file, here.line) != (at.file, at.line):
            continue
        if row.event == finding.event:
            return row
        is_before = finding.event is not None and 0 <= row.event < finding.event
        if found is None or is_before:
            found = row
    return found


def _text(finding: Finding) -> str:
    times = ""
    if finding.times > 1:
        times = f" (× {count(finding.times)})"
    return f"{SIGNS[finding.severity]} {finding.kind}: {clean(finding.text)}{times}"
