"""Makes the card at the top of the page: how the run failed, its first bad value or its findings,
and a short summary.

The rows are those that the terminal prints. This module decides nothing itself.
"""

# Views may use the tables of a trace, which are private to users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from torchglass.answers.bad_story import FirstBad, first_bad_story
from torchglass.answers.failure import Failure, failure_of
from torchglass.answers.finding import HINT, LIKELY, Finding
from torchglass.answers.findings.check import Report, check
from torchglass.events.gradients import Gradients
from torchglass.events.types import Location
from torchglass.program.recorded import HasTables, Recorded
from torchglass.views import failure as failure_view
from torchglass.views.finding_rows import rows_of
from torchglass.views.gradients import recorded_gradients
from torchglass.views.page.about import about_lines
from torchglass.views.page.trail import last_good
from torchglass.views.page.training import tables_data
from torchglass.views.row import PLACE, Row
from torchglass.views.text.words import clean, file_name, one_line, path_word, plural

FAILURE, BAD, FINDINGS, FINE = "failure", "bad", "findings", "fine"
"""The kinds of verdicts. The page opens with the first one that applies."""
LONGEST = 600
"""How many characters of a cell are kept. The beginning of a very long error is enough."""

Files = dict[str, int]
"""Keyed by path: the number of a file in the page."""


class Answers:
    """The answers about a trace, each computed once."""

    def __init__(self, trace: Recorded) -> None:
        self.trace = trace

    @cached_property
    def failure(self) -> Failure | None:
        """How the run failed, or None if it ended without an error."""
        return failure_of(self.trace)

    @cached_property
    def first_bad(self) -> FirstBad | None:
        """Where the first NaN or infinity came from, or None if there is none or nothing was
        measured.
        """
        if not self.trace.measured or not _may_be_bad(self.trace):
            return None
        return first_bad_story(self.trace)

    @cached_property
    def gradients(self) -> Gradients:
        """Return the gradients and updates of each parameter."""
        return recorded_gradients(self.trace)

    @cached_property
    def report(self) -> Report:
        """Return what looks wrong in the program."""
        if not isinstance(self.trace, HasTables) or not len(self.trace):
            return Report([])
        return check(self.trace)


def _may_be_bad(trace: Recorded) -> bool:
    """Return whether any number is not finite. Reading three columns is much faster than the search
    for the first one.
    """
    if not isinstance(trace, HasTables):
        return False
    tables = trace._tables
    columns = (tables.value_nan, tables.value_posinf, tables.value_neginf)
    return any(max(column, default=0) > 0 for column in columns)


def verdict_data(answers: Answers, files: Files) -> dict[str, Any]:
    """Return the card: a sentence, the rows below it, the findings, and a summary of the run."""
    kind, text, event, rows = _verdict(answers)
    return {
        "kind": kind,
        "text": text,
        "event": event,
        "rows": [row_data(row, files) for row in rows],
        "also": _also(answers, kind),
        "findings": [finding_data(finding, files) for finding in answers.report.findings],
        "missing": [clean(each) for each in answers.report.missing],
        "about": list(about_lines(answers.trace, answers.gradients)),
        "tables": list(tables_data(answers.trace, answers.gradients)),
    }


def _verdict(answers: Answers) -> tuple[str, str, int, list[Row]]:
    failed = answers.failure
    if failed is not None:
        rows = [row for row in failure_view.sheet(answers.trace).rows if row.kind != "error"]
        return FAILURE, f"✗ {clean(failed.error)}", _number(failed.event and failed.event.id), rows
    bad = answers.first_bad
    if bad is not None:
        finding = bad.finding
        return BAD, clean(finding.text), _number(finding.event), _below(finding)
    found = answers.report.findings
    if found:
        return FINDINGS, _findings_words(found), _number(found[0].event), []
    return FINE, _fine_words(answers.trace), -1, []


def _number(event: int | None) -> int:
    if event is None:
        return -1
    return event


def _below(finding: Finding) -> list[Row]:
    """Return the rows of a finding without its heading."""
    return list(rows_of([finding]))[1:]


def _also(answers: Answers, kind: str) -> list[dict[str, Any]]:
    """Return the last good value before the first bad one. For a failed run, return the first bad
    value before it.
    """
    bad = answers.first_bad
    if bad is None:
        return []
    found: list[dict[str, Any]] = []
    if kind == FAILURE:
        found.append(
            {"text": f"Before that: {clean(bad.finding.text)}", "event": _number(bad.finding.event)}
        )
    good = last_good(answers.trace, bad)
    if good:
        return [*found, good]
    return found


def _findings_words(found: list[Finding]) -> str:
    """Return the numbers of findings as a sentence. Hints alone do not mean that something looks
    wrong.
    """
    severities = Counter(finding.severity for finding in found)
    sure = {severity: times for severity, times in severities.items() if severity != HINT}
    hints = ""
    if severities[HINT]:
        hints = plural(severities[HINT], "hint")
    if not sure:
        return f"Nothing looks wrong for sure; {hints}"
    words = [
        f"{times} {severity}" if severity == LIKELY else plural(times, severity)
        for severity, times in sure.items()
    ]
    return f"This looks wrong: {', '.join([*words, *([hints] if hints else [])])}"


def _fine_words(trace: Recorded) -> str:
    if not len(trace):
        return "Nothing was recorded."
    if not trace.complete:
        return "The recording did not come to its end. In what there is, nothing looks wrong."
    if trace.measured:
        return "It ended well: no NaN, no unintended infinity, no findings."
    return "It ended well: no findings. What is in the tensors was not measured."


# ---------------------------------------------------------------- rows


def row_data(row: Row, files: Files) -> dict[str, Any]:
    """Return a row of a view as data that the page draws."""
    cells = [
        [cell.kind, _text(cell.text)] for cell in row.cells if cell.kind != PLACE and cell.text
    ]
    return {
        "kind": row.kind,
        "depth": row.depth,
        "event": row.event,
        "cells": cells,
        "at": place_data(row.place, files),
    }


def finding_data(finding: Finding, files: Files) -> dict[str, Any]:
    """Return a finding as data: its sentence, the rows below it, and the line and the event that
    are marked.
    """
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "text": _text(finding.text),
        "times": finding.times,
        "event": _number(finding.event),
        "at": place_data(finding.location, files),
        "rows": [row_data(row, files) for row in _below(finding)],
    }


def place_data(at: Location | None, files: Files) -> dict[str, Any] | None:
    """Return a place: the file's number (-1: its text is not in the page), the line, and both as words."""
    if at is None:
        return None
    path = clean(path_word(at.file))
    name = clean(file_name(at.file))
    return {
        "file": files.get(at.file, -1),
        "line": at.line,
        "word": f"{name}:{at.line}",
        "path": path,
    }


def _text(text: str) -> str:
    text = one_line(clean(text))
    if len(text) <= LONGEST:
        return text
    return text[:LONGEST] + "…"


# ---------------------------------------------------------------- words

MOST_ROWS = 40


def verdict_words(data: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the card as text, each line with its depth: for readers without scripts."""
    yield 0, data["text"]
    for each in (*data["rows"][:MOST_ROWS], *data["also"]):
        yield 1, row_words(each)
    for finding in data["findings"]:
        often = ""
        if finding["times"] > 1:
            often = f" (× {finding['times']:,})"
        yield 0, f"{finding['severity']}: {finding['text']}{often}"
        yield from ((1, row_words(row)) for row in finding["rows"])


def row_words(row: dict[str, Any]) -> str:
    """Return a row as one line of text."""
    words: Iterable[str] = (text for _, text in row["cells"]) if "cells" in row else (row["text"],)
    at = row.get("at")
    return "  ".join([*words, *([f"at {at['word']}"] if at else [])])
