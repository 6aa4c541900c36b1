"""What an event costs while the program waits, counted in function calls: the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from tests.work import work_of

X = torch.ones(4)
IDENTITY = nn.Identity()
REPEATS = 100


def _functions() -> None:
    for _ in range(REPEATS):
        torch.relu(X)


def _modules() -> None:
    for _ in range(REPEATS):
        IDENTITY(X)


@pytest.mark.parametrize(
    ("act", "options", "most"),
    [(_functions, {}, 44), (_functions, {"ops": True}, 86), (_modules, {}, 45), (_modules, {"ops": True}, 45)],
)
def test_calls_an_event(act: Callable[[], None], options: dict[str, Any], most: int) -> None:
    """A little above what it is; each call takes 50 to 100 ns, and several times that when the caches are cold."""
    plain = work_of(act)
    with tg.record(**options) as trace:
        act()
        recorded = work_of(act)
    assert len(trace) >= 2 * REPEATS
    assert (recorded - plain) / REPEATS <= most


def test_the_same_stack_is_found_at_any_distance_from_the_open_event() -> None:
    """One and two frames are looked up directly, more in a loop: each place is one stack, whoever found it."""

    def at(depth: int) -> Any:
        return torch.relu(X) if depth == 0 else at(depth - 1)

    with tg.record() as trace:
        for _ in range(2):
            for depth in range(5):
                at(depth)
    events = list(trace.events())
    frames = [sum(location.function.endswith(".at") for location in event.stack) for event in events]
    assert frames == [1, 2, 3, 4, 5] * 2
    assert [event.stack for event in events[:5]] == [event.stack for event in events[5:]]
