"""The form that all answers share: what was found, where, how sure we are, the evidence and the fix."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchglass.errors import UsageError
from torchglass.events.types import Location, location_dict
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, count, cut, path_word

ERROR = "error"
"""It happened: the program failed, or a value is not finite."""
BUG = "bug"
"""The program cannot be intended this way."""
LIKELY = "likely"
"""Seldom intended; the evidence says why we think so."""
HINT = "hint"
"""Worth a look."""
SEVERITIES = (ERROR, BUG, LIKELY, HINT)
"""From the most certain to the least; findings are listed in this order."""
_STYLES = {ERROR: "error", BUG: "error", LIKELY: "note", HINT: "heading"}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line that supports a finding, with its event and place."""

    text: str
    event: int | None = None
    location: Location | None = None
    kind: str = ""
    """The sort of line, if a finding has several: ``path``, ``input`` …"""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form (docs/json.md)."""
        return {
            "kind": self.kind,
            "text": self.text,
            "event": self.event,
            "location": location_dict(self.location),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of an answer."""

    kind: str
    """What was found, as one word that programs can compare: ``failure``, ``first_bad``, ``no_zero_grad`` …"""
    severity: str
    """One of SEVERITIES."""
    text: str
    """What is wrong, in one sentence."""
    event: int | None = None
    """The id of the event where it shows."""
    location: Location | None = None
    """The line where it shows."""
    code: str = ""
    """The source code there, if it is more than the line."""
    evidence: tuple[Evidence, ...] = ()
    """What makes us think so, in the order in which it is read."""
    fix: str = ""
    """What to do about it."""
    times: int = 1
    """How often it happened."""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise UsageError(f"severity={self.severity!r}: one of {', '.join(SEVERITIES)}")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form (docs/json.md)."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "text": self.text,
            "event": self.event,
            "location": location_dict(self.location),
            "code": self.code,
            "evidence": [each.to_dict() for each in self.evidence],
            "fix": self.fix,
            "times": self.times,
        }

    def __str__(self) -> str:
        return "\n".join(finding_lines(self))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings sorted by severity, the most certain first; those of one severity by their events."""

    def rank(finding: Finding) -> tuple[int, int]:
        event = -1
        if finding.event is not None:
            event = finding.event
        return SEVERITIES.index(finding.severity), event

    return sorted(findings, key=rank)


# ---------------------------------------------------------------- text


def finding_lines(finding: Finding, page: Page | None = None) -> Iterator[str]:
    """Yield a finding as text: what it is, where, the evidence, the fix.

    ::

        likely: the gradients of two steps add up: zero_grad() was never called (× 400)
          loss.backward()  at train.py:31
          optimizer.step() ran 400 times
          fix: call optimizer.zero_grad() before backward()

    Without a page, as for exceptions and logs, lines are not wrapped.
    """
    yield from _heading(finding, page)
    place = _place(finding)
    if place:
        yield from _indented(place, page)
    for each in finding.evidence:
        yield from _indented(each.text + place_words(each.location), page)
    if finding.fix:
        yield from _indented(f"fix: {finding.fix}", page)


def findings_lines(findings: Sequence[Finding], page: Page | None = None) -> Iterator[str]:
    """Yield several findings, with an empty line between two."""
    for number, finding in enumerate(findings):
        if number:
            yield ""
        yield from finding_lines(finding, page)


def place_words(at: Location | None) -> str:
    """Return what follows an expression: ``  at model.py:31``; "" if no place is known."""
    if at is None:
        return ""
    return f"  at {path_word(at.file)}:{at.line}"


def _heading(finding: Finding, page: Page | None) -> Iterator[str]:
    text = finding.text
    if finding.times > 1:
        text += f" (× {count(finding.times)})"
    # An error has happened, so it needs no word for how sure we are.
    if finding.severity != ERROR:
        text = f"{finding.severity}: {text}"
    for line in _wrapped(text, "", page):
        if page is None:
            yield line
        else:
            yield page.paint(_STYLES[finding.severity], line)


def _place(finding: Finding) -> str:
    code = finding.code
    if not code and finding.location is not None:
        code = finding.location.source
    return f"{code}{place_words(finding.location)}".strip()


def _indented(text: str, page: Page | None) -> Iterator[str]:
    return _wrapped(text, "  ", page)


def _wrapped(text: str, indent: str, page: Page | None) -> Iterator[str]:
    """Yield text on as many lines as the page needs, without control characters."""
    if page is None:
        yield indent + clean(text)
        return
    for line in textwrap.wrap(
        clean(text), page.width, initial_indent=indent, subsequent_indent=indent + "  "
    ):
        yield cut(line, page.width)
