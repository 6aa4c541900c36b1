"""Every module that PyTorch describes gives the same result, gradient and error while it is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.recording import failures_of_each
from tests.conformance.samples import MODULES, chunks, label, module_cases, more_module_cases

PROBES: list[dict[str, Any]] = [{"values": "stats"}, {"ops": True}]


@pytest.mark.parametrize("modules", chunks(MODULES, 8), ids=label)
def test_modules_are_the_same_under_recording_with_statistics_and_of_ops(modules: list[Any]) -> None:
    found = [line for info in modules for case in module_cases(info) for line in failures_of_each(case, *PROBES)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("modules", chunks(MODULES, 8), ids=label)
def test_more_samples_are_the_same(modules: list[Any]) -> None:
    found = [line for info in modules for case in more_module_cases(info) for line in failures_of_each(case, *PROBES)]
    assert not found, "\n".join(found)


def test_the_samples_are_many() -> None:
    """A change in torch's test helpers must not leave the tests above with nothing to compare."""
    assert sum(1 for info in MODULES for _ in module_cases(info)) > 250
    assert sum(1 for info in MODULES for _ in more_module_cases(info)) > 800
