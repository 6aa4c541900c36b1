"""Every operator that PyTorch describes gives the same result, gradient and error while it is recorded."""

from __future__ import annotations

from typing import Any

import pytest

import torchglass as tg
from tests.conformance.compare import differences
from tests.conformance.samples import OPS, chunks, label, op_cases


@pytest.mark.parametrize("ops", chunks(OPS, 16), ids=label)
def test_operators_are_the_same_under_recording(ops: list[Any]) -> None:
    found = [line for op in ops for case in op_cases(op) for line in differences(case, tg.record)]
    assert not found, "\n".join(found)
