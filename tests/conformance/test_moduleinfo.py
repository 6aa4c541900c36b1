"""Every module that PyTorch describes gives the same result, gradient and error while it is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.recording import failures, is_price_of_ops
from tests.conformance.samples import MODULES, chunks, label, module_cases


@pytest.mark.parametrize("modules", chunks(MODULES, 8), ids=label)
def test_modules_are_the_same_under_recording_with_statistics(modules: list[Any]) -> None:
    found = [line for info in modules for case in module_cases(info) for line in failures(case, values="stats")]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("modules", chunks(MODULES, 8), ids=label)
def test_modules_are_the_same_under_recording_of_ops(modules: list[Any]) -> None:
    found = [line for info in modules for case in module_cases(info) for line in failures(case, ops=True)]
    found = [line for line in found if not is_price_of_ops(line)]
    assert not found, "\n".join(found)
