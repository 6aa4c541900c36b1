"""Nobody is told that the recorder reads tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg


class _Names(torch.overrides.TorchFunctionMode):
    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self._told = told

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._told.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("modes", [1, 2])
@pytest.mark.parametrize("options", [{}, {"ops": True}, {"values": "stats"}], ids=["modules", "ops", "statistics"])
def test_a_mode_of_the_program_sees_the_same_as_without_us(modes: int, options: dict[str, Any]) -> None:
    """With functions=False ours is none of the modes: whatever we read would be told to theirs."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def told(recorded: bool) -> list[str]:
        names: list[str] = []
        with _Names(names), _Names(names if modes == 2 else []):
            if recorded:
                with tg.record(functions=False, **options):
                    net(torch.ones(1, 2).add_(1))
            else:
                net(torch.ones(1, 2).add_(1))
        return names

    assert told(True) == told(False) != []
