"""The two engines write the same journal: what C writes is what Python, the definition, writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import chain
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from tests.capture.engine.journals import GROUPS
from torchglass import compiled

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(compiled.extension is None, reason=f"no compiled engine: {compiled.why_not}")


@pytest.mark.parametrize("group", GROUPS)
def test_both_engines_write_the_same(group: str, tmp_path: Path) -> None:
    runs = {}
    for engine in ("python", "fast"):
        command = [sys.executable, "-m", "tests.capture.engine.journals", group, str(tmp_path / engine)]
        environment = {**os.environ, compiled.VARIABLE: engine, "OMP_NUM_THREADS": "1"}
        runs[engine] = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    for engine, run in runs.items():
        _, errors = run.communicate()
        assert run.returncode == 0, f"{engine}: {errors[-3000:]}"
    expected, found = (json.loads((tmp_path / engine).read_text(encoding="utf-8")) for engine in runs)
    assert expected.keys() == found.keys()
    assert sum(len(thread) for each in expected.values() for thread in each["threads"]) > 10
    apart = {name: _unlike(expected[name].pop("measured"), found[name].pop("measured")) for name in expected}
    assert {name: each for name, each in apart.items() if each} == {}
    apart = {name: _unlike_sketches(expected[name].pop("sketched"), found[name].pop("sketched")) for name in expected}
    assert {name: each for name, each in apart.items() if each} == {}
    different = {name: _difference(expected[name], found[name]) for name in expected if expected[name] != found[name]}
    assert different == {}


def _unlike(expected: dict[str, list[float]], found: dict[str, list[float]]) -> Any:
    """What was measured, by value: the same values, and numbers that differ by rounding at most."""
    if expected.keys() != found.keys():
        return sorted(expected.keys() ^ found.keys(), key=int)[:5]
    for value, numbers in expected.items():
        low, high = numbers[5:7]
        scale = max(abs(low), abs(high))
        for one, two in zip(numbers, found[value], strict=True):
            if isnan(one) != isnan(two) or abs(one - two) > 1e-9 * max(scale, abs(one)):
                return value, numbers, found[value]
    return None


def _unlike_sketches(expected: dict[str, list[float]], found: dict[str, list[float]]) -> Any:
    """Sketches by value: equal hashes, and sums that differ by rounding at most."""
    if expected.keys() != found.keys():
        return sorted(expected.keys() ^ found.keys(), key=int)[:5]
    for value, numbers in expected.items():
        norm = numbers[36] ** 0.5
        sums = zip(numbers[1:36], found[value][1:36], strict=True)
        if numbers[0] != found[value][0] or any(abs(one - two) > 1e-6 * norm for one, two in sums):
            return value, numbers, found[value]
    return None


def _difference(expected: dict[str, Any], found: dict[str, Any]) -> Any:
    """The first thing that differs, small enough to be read."""
    for key in expected:
        if expected[key] == found[key]:
            continue
        if not isinstance(expected[key], list):
            return key, expected[key], found[key]
        one, other = (list(chain(*each[key])) if key == "threads" else each[key] for each in (expected, found))
        for at, (before, after) in enumerate(zip(one, other, strict=False)):
            if before != after:
                return key, at, before, after
        return key, len(one), len(other)
    return None
