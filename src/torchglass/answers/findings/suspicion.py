"""Defines what a detector returns. The caller adds the name of the detector and the layout."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.answers.finding import BUG, HINT, LIKELY, Evidence
from torchglass.answers.findings.facts import Facts, OptimizerStep
from torchglass.events.types import Location

__all__ = [
    "BUG",
    "HINT",
    "LIKELY",
    "Evidence",
    "Facts",
    "OptimizerStep",
    "Suspicion",
    "names_words",
    "seen_at",
]
MOST_NAMED = 4
"""How many names are listed before the rest is only counted, so that a message stays on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """One thing that looks wrong."""

    severity: str
    event: int
    """The event at which the problem shows."""
    text: str
    """What is wrong and what the consequence is."""
    fix: str
    evidence: tuple[Evidence, ...] = ()
    times: int = 1
    place: Location | None = None
    """Where the problem is, if that is not the place of the event: code that makes no event."""
    about: frozenset[int] = frozenset()
    """The parameters that this is about. If several detectors report the same ones, only the first
    is reported.
    """


def seen_at(facts: Facts, text: str, event: int | None) -> Evidence:
    """Return a line of evidence with the place of an event."""
    return Evidence(text, event, None if event is None else facts.location(event))


def names_words(names: list[str]) -> str:
    """Return ``a, b, c, d and 3 more``."""
    shown = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        return f"{shown} and {len(names) - MOST_NAMED} more"
    return shown
