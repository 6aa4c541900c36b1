"""Runs all detectors on a trace and separates the findings that the program or its settings
silence.
"""

# Answers may use the tables of a trace, which are private to users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import gc
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from torchglass.answers.finding import Finding, in_order
from torchglass.answers.findings.facts import Facts
from torchglass.answers.findings.registry import DETECTORS, name_of
from torchglass.answers.findings.silence import is_silenced
from torchglass.answers.findings.suspicion import Suspicion
from torchglass.events.tables import Tables
from torchglass.program.program import Program, program_of
from torchglass.program.recorded import Recorded

DROPPED = "events are missing"
"""The reason why a trace is not the whole run if the run was longer than what is kept."""
ENOUGH_STEPS = 20
"""A trace with dropped events is treated as complete if it kept at least this many optimizer steps."""
_REPORTS: WeakKeyDictionary[Program, dict[frozenset[str], Report]] = WeakKeyDictionary()
"""Reports that were already made, keyed by the program and by the names of ignored detectors."""
MOST_EVENTS = 200_000
"""Findings are not computed for a view if the trace has more events than this, because it would
take too long.
"""


@runtime_checkable
class Checked(Recorded, Protocol):
    """A trace that has its events as tables."""

    @property
    def _tables(self) -> Tables: ...


@dataclass(frozen=True, slots=True)
class Report:
    """What looks wrong in a trace, and what could not be checked."""

    findings: list[Finding]
    missing: tuple[str, ...] = ()
    """What could not be checked in this trace, and why."""
    silenced: list[Finding] = field(default_factory=list[Finding])
    """Findings that a comment in the source silences."""


def check(trace: Checked, ignore: Collection[str] = ()) -> Report:
    """Run all detectors, except the ignored ones.

    A detector that fails loses only its own findings and is named in ``missing``. The report is
    kept with the program, so that several views of one trace run the detectors once.
    """
    try:
        program = program_of(trace)
    except Exception as error:  # the trace is damaged
        return Report([], (f"this trace cannot be judged ({type(error).__name__}: {error})",))
    key = frozenset(each.replace("_", "-") for each in ignore)
    reports = _REPORTS.setdefault(program, {})
    if key not in reports:
        with _no_collection():
            reports[key] = _checked(trace, program, key)
    return reports[key]


@contextmanager
def _no_collection() -> Generator[None]:
    """Pause the garbage collector.

    Detectors make up to a million small tuples and keep them all. Collecting would take as long as
    making them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _checked(trace: Checked, program: Program, ignored: frozenset[str]) -> Report:
    partial = _partial(trace)
    try:
        facts = Facts(trace._tables, program, bool(partial))
    except Exception as error:  # the trace is damaged
        return Report([], (f"this trace cannot be judged ({type(error).__name__}: {error})",))
    if partial == DROPPED and len(facts.steps) >= ENOUGH_STEPS:
        # What happens in none of the first and last steps is assumed not to happen in the dropped ones.
        facts.is_partial = False
        partial = ""
    if partial:
        missing = [f"{partial}: nothing is said of what never happened"]
    else:
        missing = []
    heard: set[int] = set()
    found: dict[tuple[str, str, int], Finding] = {}
    for detector in DETECTORS:
        name = name_of(detector)
        if name in ignored:
            continue
        try:
            suspicions = list(_ask(detector, facts))
        except Exception as error:  # a damaged trace can break any detector: the others still run
            missing.append(f"{name} could not judge this trace ({type(error).__name__}: {error})")
            continue
        for each in suspicions:
            # The first detector to report these parameters wins.
            if each.about and each.about <= heard:
                continue
            heard |= each.about
            _add(found, _finding(facts, name, each))
    shown: list[Finding] = []
    silenced: list[Finding] = []
    for each in in_order(found.values()):
        (silenced if is_silenced(each, trace.sources) else shown).append(each)
    return Report(shown, tuple(missing), silenced)


def _ask(detector: ModuleType, facts: Facts) -> Iterator[Suspicion]:
    yield from detector.find(facts)


def _finding(facts: Facts, name: str, said: Suspicion) -> Finding:
    times = said.times
    if times > 1:
        times = facts.program.totals.times(said.event, times)
    return Finding(
        kind=name,
        severity=said.severity,
        text=said.text,
        event=said.event,
        location=said.place or facts.location(said.event),
        evidence=said.evidence,
        fix=said.fix,
        times=times,
    )


def _add(found: dict[tuple[str, str, int], Finding], new: Finding) -> None:
    """Add a finding, or add its count to an earlier one of the same kind at the same line."""
    at = new.location
    key = (new.kind, "" if at is None else at.file, 0 if at is None else at.line)
    known = found.get(key)
    if known is None:
        found[key] = new
        return
    values = {name: getattr(known, name) for name in Finding.__slots__}
    values["times"] = known.times + new.times
    found[key] = Finding(**values)


def _partial(trace: Checked) -> str:
    """Return why a trace does not cover the whole program, or "" if it does."""
    if trace.left_by:
        return "the program failed"
    if not trace.complete:
        return "the recording has no end"
    if any("damaged" in note for note in trace.notes):
        return "the trace is damaged, and events are missing"
    dropped = [
        note for note in trace.notes if "dropped" in note or "limit" in note or "lost" in note
    ]
    if dropped:
        return DROPPED
    return ""
