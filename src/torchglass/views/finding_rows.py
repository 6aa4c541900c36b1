"""Makes rows of findings. They have the same text as the printed findings, and each leads to its
event and place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torchglass.answers.finding import Finding, finding_lines
from torchglass.views.row import BLANK, ERROR, EXPRESSION, PLACE, REMARK, Cell, Cells, Row
from torchglass.views.text.style import Page

FINDING, EVIDENCE, FIX = "finding", "evidence", "fix"
"""Kinds of rows."""


class FindingRow(Row):
    """The first row of a finding, which holds the whole finding."""

    __slots__ = ("finding",)

    finding: Finding


def rows_of(findings: Iterable[Finding]) -> Iterator[Row]:
    """Yield a row for each finding, and below it rows for its place, each piece of evidence and the
    fix.
    """
    for number, finding in enumerate(findings):
        if number:
            yield Row(0, BLANK)
        event = -1
        if finding.event is not None:
            event = finding.event
        row = FindingRow(0, FINDING, (Cell(ERROR, finding.text),), event, times=finding.times)
        row.finding = finding
        yield row
        if finding.location is not None:
            code = finding.code or finding.location.source
            yield Row(
                1, EVIDENCE, (Cell(EXPRESSION, code), Cell(PLACE, at=finding.location)), event
            )
        for each in finding.evidence:
            cells: Cells = (Cell(each.kind or REMARK, each.text),)
            if each.location is not None:
                cells = (*cells, Cell(PLACE, at=each.location))
            yield Row(1, EVIDENCE, cells, -1 if each.event is None else each.event)
        if finding.fix:
            yield Row(1, FIX, (Cell(REMARK, finding.fix),), event)


def lines(rows: Sequence[Row], page: Page) -> Iterator[str]:
    """Yield the lines of each finding, as they are printed."""
    for row in rows:
        if row.kind == BLANK:
            yield ""
        elif isinstance(row, FindingRow):
            yield from finding_lines(row.finding, page)
