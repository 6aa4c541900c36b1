"""Measures what recording costs, beside other tools and in figures of its own."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import workloads
from measure import Result, compare
from report import comparison, conditions, figures
from subjects import FLOOR, FLOORS, PLAIN, SUBJECTS, Subject


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int
    slow_rounds: int
    sizes: tuple[int, ...]
    depths: tuple[int, ...]
    events: int
    loops: int
    slow_workloads: int  # on how many of the workloads the slow tools are measured


WHOLE = Effort(21, 3, (10_000, 100_000, 1_000_000), (10, 100, 900), 100_000, 20_000, 4)
QUICK = Effort(3, 1, (10_000, 100_000), (10, 100, 900), 20_000, 5_000, 1)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and keep as JSON where asked."""
    options = _parser().parse_args(arguments)
    effort = QUICK if options.quick else WHOLE
    # Other tools warn about themselves; a table is asked for here.
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    sys.setrecursionlimit(5_000)
    kept: dict[str, Any] = {"conditions": conditions(effort.rounds, effort.slow_rounds)}
    print(kept["conditions"], flush=True)
    if options.only != "figures":
        kept["comparison"] = _compare_all(effort, options.workload, options.subject)
    if options.only != "comparison":
        kept["figures"] = _figures(effort)
    if options.json:
        Path(options.json).write_text(json.dumps(kept, indent=1, ensure_ascii=False), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller sizes: under a minute")
    parser.add_argument("--only", choices=["comparison", "figures"], help="one half of the report")
    parser.add_argument("--workload", metavar="TEXT", default="", help="workloads whose name contains this")
    parser.add_argument("--subject", metavar="TEXT", default="", help="tools whose name contains this")
    parser.add_argument("--json", metavar="FILE", help="keep the results there too")
    return parser


def _compare_all(effort: Effort, workload: str, subject: str) -> dict[str, list[dict[str, Any]]]:
    chosen = [s for s in SUBJECTS if subject.lower() in s.name.lower() or s.name in (PLAIN, FLOOR, FLOORS)]
    kept: dict[str, list[dict[str, Any]]] = {}
    asked = [each for each in workloads.build() if workload.lower() in each.name.lower()]
    for number, each in enumerate(asked):
        results = _fast(chosen, each, effort.rounds)
        if number < effort.slow_workloads:
            results += _slow(chosen, each, effort.slow_rounds)
        print("\n" + "\n".join(comparison(each.name, results)), flush=True)
        kept[each.name] = [asdict(result) for result in results]
    return kept


def _fast(subjects: list[Subject], workload: workloads.Workload, rounds: int) -> list[Result]:
    return compare([s for s in subjects if not s.slow], workload, rounds)


def _slow(subjects: list[Subject], workload: workloads.Workload, rounds: int) -> list[Result]:
    """The slow tools leave much behind in memory, so they run last, beside plain runs of their own."""
    bases = [s for s in SUBJECTS if s.name in (PLAIN, FLOOR)]
    single = replace(workload, repeat=1)
    return compare([*bases, *(s for s in subjects if s.slow)], single, rounds)[len(bases) :]


def _figures(effort: Effort) -> list[tuple[str, float, str]]:
    found = list(_all_figures(effort))
    print("\n" + "\n".join(figures(found)), flush=True)
    return found


def _all_figures(effort: Effort) -> Iterator[tuple[str, float, str]]:
    import figures as single

    yield from single.importing(5)
    yield from single.fixed_cost(50)
    yield from single.forwards(max(3, effort.rounds // 3))
    yield from single.settling(effort.events // 1_000)
    yield from single.memory(effort.events)
    yield from single.flatness_in_events(list(effort.sizes))
    yield from single.ops_in_a_loop(effort.loops)
    yield from single.cold_caches([0, 4, 16])
    yield from single.flatness_in_frames(list(effort.depths), effort.loops)
    yield from single.rendering(effort.events)


if __name__ == "__main__":
    sys.exit(main())
