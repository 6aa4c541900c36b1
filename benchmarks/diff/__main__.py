"""Compare every pair and say how many are judged and located rightly: python benchmarks/diff [--dtype bfloat16] [-v].

A difference counts as located where the first region that the diff shows names the marked line, the parameter or the
setting; ``exactly`` where its first line of A or B is the marked one. A false alarm is an equal pair called different.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import torch
from pairs import Pair, all_pairs

import torchglass as tg

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SAME_UP_TO = {torch.float32: 2e-6, torch.bfloat16: 2e-2}
"""How far apart the results of equal pairs are at most, measured without torchglass."""

SHOWN = 3
"""Lines of each side that the text shows."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--only", default="", help="a regular expression for the names of pairs")
    parser.add_argument("--no-ops", action="store_true", help="record functions and modules only")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each pair")
    parser.add_argument("--show", action="store_true", help="print each diff")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, list[int]] = {}
    spent = 0.0
    for pair in all_pairs():
        if DTYPES[options.dtype] not in pair.dtypes or not re.search(options.only, pair.name):
            continue
        began = time.process_time()
        found, apart = compared(pair, DTYPES[options.dtype], not options.no_ops)
        spent += time.process_time() - began
        is_below = not pair.is_equal and apart <= SAME_UP_TO[pair.other_dtype or DTYPES[options.dtype]]
        is_right = found.equal == pair.is_equal
        located, exactly = (False, False) if pair.is_equal else where(pair, found)
        row = rows.setdefault(pair.family.split()[0], [0] * 7)
        row[0] += pair.is_equal
        row[1] += pair.is_equal and is_right
        row[2] += not pair.is_equal
        row[3] += not pair.is_equal and is_right
        row[4] += located
        row[5] += exactly
        row[6] += is_below and not is_right
        if options.verbose or options.show or not (is_right and (pair.is_equal or located)):
            words = "" if is_right else f"called {found.verdict}"
            words += "" if located or pair.is_equal or not is_right else "not located"
            words += f", results are {apart:.1e} apart" if not pair.is_equal else ""
            print(f"{'  ' if is_right and (pair.is_equal or located) else '??'} {pair.name:50} {words}")
        if options.show:
            print(found)
    names = ["pairs", "equal", "right", "different", "right", "located", "exactly", "below noise"]
    print("".join(f"{name:>13}" for name in names))
    for name, row in [*rows.items(), ("all", [sum(each) for each in zip(*rows.values(), strict=True)])]:
        print(f"{name:>13}" + "".join(f"{number:13}" for number in row))
    total = [sum(each) for each in zip(*rows.values(), strict=True)]
    print(f"false alarms: {total[0] - total[1]} of {total[0]} equal pairs; CPU time {spent:.1f} s")
    return 0


def compared(pair: Pair, dtype: torch.dtype, ops: bool) -> tuple:
    """The diff of a pair, and how far apart its results are."""
    run_a, run_b = pair.a(dtype), pair.b(pair.other_dtype or dtype)
    with tg.record(ops=ops, values="stats+sketch") as trace_a:
        result_a = run_a()
    with tg.record(ops=ops, values="stats+sketch") as trace_b:
        result_b = run_b()
    a, b = flat(result_a), flat(result_b)
    apart = float((a - b).norm() / a.norm()) if a.shape == b.shape else float("inf")
    return trace_a.diff(trace_b), apart


def flat(result: object) -> torch.Tensor:
    tensors = result if isinstance(result, (list, tuple)) else [result]
    return torch.cat([each.detach().double().flatten() for each in tensors])


def where(pair: Pair, found: tg.Trace) -> tuple[bool, bool]:
    """Whether the first region names the right answer, and whether its first lines do."""
    region = found.first
    if region is None:
        return False, False
    lines_a = [_lines(each) for each in region.a[:SHOWN]]
    lines_b = [_lines(each) for each in region.b[:SHOWN]]
    exactly = not pair.lines.isdisjoint(set().union(*lines_a[:1], *lines_b[:1]))
    named = not pair.lines.isdisjoint(set().union(*lines_a, *lines_b))
    for each in region.suspects:
        text = f"{each.name} {each.a} {each.b}"
        if pair.parameter and each.kind in ("parameter", "moved") and pair.parameter in text:
            return True, True
        if each.name in pair.words:
            return True, True
    return named, exactly


def _lines(place: object) -> set[tuple[str, int]]:
    """The line of a place, and the one that called it."""
    return {(Path(at.file).name, at.line) for at in (place.location, place.caller) if at is not None}


if __name__ == "__main__":
    raise SystemExit(main())
