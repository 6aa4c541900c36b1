"""Interleaved rounds: every tool in turn, in rotating order, in CPU time; a busy machine hurts all alike."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

from subjects import Subject
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
    best_over_floor_us: float | None = None  # from the fastest runs, which a busy machine disturbs least
    missing: str = ""


def once(subject: Subject, workload: Workload) -> tuple[float, int | None]:
    """CPU seconds of one measurement, and the events seen. What was recorded dies outside the clock."""
    gc.collect(1)
    start = process_time()
    count = subject.run(workload)
    seconds = process_time() - start
    return seconds, count()


def compare(subjects: Sequence[Subject], workload: Workload, rounds: int) -> list[Result]:
    """Measure `subjects`, the first of which is the plain program."""
    missing = {s.name: s.missing() or _unfit(s, workload) for s in subjects}
    seconds: dict[str, list[float]] = {s.name: [] for s in subjects}
    events: dict[str, int | None] = {}
    # The first use pays for imports and caches; where it is the only one, it has to do.
    for turn in range(rounds + 1 if rounds > 1 else 1):
        present = [s for s in subjects if not missing[s.name]]
        shift = turn % len(present)
        gc.collect()
        for subject in present[shift:] + present[:shift]:
            try:
                took, events[subject.name] = once(subject, workload)
            except Exception as error:
                missing[subject.name] = f"fails: {type(error).__name__}"
            else:
                seconds[subject.name].append(took)
    kept = {name: took[1:] if rounds > 1 else took for name, took in seconds.items()}
    return [
        Result(s.name, missing=missing[s.name]) if missing[s.name] else _result(s, kept, events[s.name], workload)
        for s in subjects
    ]


def _unfit(subject: Subject, workload: Workload) -> str:
    return "forward only" if subject.forward_only and workload.training else ""


def _result(subject: Subject, seconds: dict[str, list[float]], events: int | None, workload: Workload) -> Result:
    name = subject.name
    took = statistics.median(seconds[name])
    low, high = quartiles(seconds[name])
    base = statistics.median(next(iter(seconds.values())))
    over = best = None
    if events:
        floor = seconds[subject.floor]
        over = (took - statistics.median(floor)) / events * 1e6
        best = (min(seconds[name]) - min(floor)) / events * 1e6
    runs = workload.repeat
    return Result(
        name,
        took / runs,
        (low / runs, high / runs),
        took / base,
        (low / base, high / base),
        None if events is None else events // runs,
        over,
        best,
    )


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third; of few values the extremes."""
    if len(values) < 4:
        return min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4)
    return low, high
