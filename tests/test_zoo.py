"""The zoo must stay wide and deterministic, or the tests that record it prove little."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tests import zoo
from tests.conformance.compare import Case, observe


def test_the_zoo_has_many_families() -> None:
    assert len(zoo.FAMILIES) >= 42


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_a_family_computes_the_same_twice(name: str) -> None:
    case = Case(name, zoo.FAMILIES[name], forward)
    first, second = observe(case, nullcontext), observe(case, nullcontext)
    for noise in ("warnings", "stdout", "stderr"):  # some families give advice at their first call
        del first[noise], second[noise]
    assert first == second
    assert "error.type" not in first


def forward(built: zoo.Built) -> Any:
    """The forward of a network that was just built."""
    network, inputs = built
    return network(**inputs)
