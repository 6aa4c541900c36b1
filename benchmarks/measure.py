"""Interleaved rounds: every tool in turn, in rotating order, in CPU time; a busy machine hurts all alike."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

from subjects import CONTROL, FLOOR, PLAIN, Subject
from workloads import Workload


@dataclass(frozen=True)
class Result:
    """What one tool took on one workload, in seconds a run; `ratio` is to the plain runs beside it."""

    subject: str
    seconds: float = 0.0
    quartiles: tuple[float, float] = (0.0, 0.0)
    ratio: float = 0.0
    ratio_quartiles: tuple[float, float] = (0.0, 0.0)
    events: int | None = None
    over_floor_us: float | None = None
    missing: str = ""


def once(subject: Subject, workload: Workload) -> tuple[float, int | None]:
    """CPU seconds of one measurement, and the events seen. What was recorded dies outside the clock."""
    gc.collect()
    start = process_time()
    count = subject.run(workload)
    seconds = process_time() - start
    return seconds, count()


def compare(subjects: Sequence[Subject], workload: Workload, rounds: int) -> list[Result]:
    """Measure `subjects`, the first of which is the plain program."""
    missing = {s.name: s.missing() or _unfit(s, workload) or _first_use(s, workload) for s in subjects}
    present = [s for s in subjects if not missing[s.name]]
    seconds: dict[str, list[float]] = {s.name: [] for s in present}
    events: dict[str, int | None] = {}
    for turn in range(rounds):
        shift = turn % len(present)
        for subject in present[shift:] + present[:shift]:
            took, events[subject.name] = once(subject, workload)
            seconds[subject.name].append(took)
    return [
        Result(s.name, missing=missing[s.name])
        if missing[s.name]
        else _result(s.name, seconds, events[s.name], workload)
        for s in subjects
    ]


def _unfit(subject: Subject, workload: Workload) -> str:
    return "forward only" if subject.forward_only and workload.training else ""


def _first_use(subject: Subject, workload: Workload) -> str:
    """The first use pays for imports and caches; a tool that fails there is a row that says so."""
    try:
        once(subject, workload)
    except Exception as error:
        return f"fails: {type(error).__name__}"
    return ""


def _result(name: str, seconds: dict[str, list[float]], events: int | None, workload: Workload) -> Result:
    took = statistics.median(seconds[name])
    low, high = quartiles(seconds[name])
    base = statistics.median(seconds[PLAIN])
    over = None
    if events and name not in (PLAIN, CONTROL, FLOOR):
        over = (took - statistics.median(seconds[FLOOR])) / events * 1e6
    runs = workload.repeat
    return Result(
        name,
        took / runs,
        (low / runs, high / runs),
        took / base,
        (low / base, high / base),
        None if events is None else events // runs,
        over,
    )


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third; of few values the extremes."""
    if len(values) < 4:
        return min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4)
    return low, high
