"""What holds for every test."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def only_the_tests_own_callbacks() -> Iterator[None]:
    """Hypothesis leaves a callback with the garbage collector: Python code that would run, and be recorded, anywhere.

    What such code may do to a recording is tested in tests/capture/engine/test_within_ours.py.
    """
    known, gc.callbacks[:] = gc.callbacks[:], []
    yield
    gc.callbacks[:] = known
