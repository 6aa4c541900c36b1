"""What several tests of the commands need."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def answers_to_ctrl_c() -> Iterator[None]:
    """A program started in the background of a shell inherits that SIGINT is ignored; the ones started here do not."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)
