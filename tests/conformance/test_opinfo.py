"""Every operator that PyTorch describes gives the same result, gradient and error while it is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.recording import failures, failures_of_each
from tests.conformance.samples import OPS, chunks, label, more_op_cases, op_cases


@pytest.mark.parametrize("ops", chunks(OPS, 16), ids=label)
def test_operators_are_the_same_under_recording_of_functions_and_of_ops(ops: list[Any]) -> None:
    found = [line for op in ops for case in op_cases(op) for line in failures_of_each(case, {}, {"ops": True})]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("ops", chunks(OPS, 16), ids=label)
def test_more_samples_are_the_same_under_recording_of_ops_and_statistics(ops: list[Any]) -> None:
    found = [line for op in ops for case in more_op_cases(op) for line in failures(case, ops=True, values="stats")]
    assert not found, "\n".join(found)


def test_the_samples_are_many() -> None:
    """A change in torch's test helpers must not leave the tests above with nothing to compare."""
    cases = [case.name for op in OPS for case in op_cases(op)]
    assert len(cases) > 1500
    assert sum(" error " in name for name in cases) > 400
    assert sum(1 for op in OPS for _ in more_op_cases(op)) > 1500
