"""A loop is one over layers only where what it calls differs from round to round: then its rounds stay apart."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchglass as tg
from tests.modules import module_of

PROGRAM = """
import torch
from torch import nn

def step(net, crit, x):
    loss = crit(net(x), x)
    loss.backward()

def applied(layer, x):
    y = layer(x)
    return y.relu()

def epochs():
    net, crit = nn.Linear(3, 3), nn.MSELoss()
    x = torch.ones(4, 3)
    for epoch in range(5):
        step(net, crit, x)

def layers():
    stack = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 6))
    x = torch.ones(4, 3)
    for layer in stack:
        x = applied(layer, x)
"""


@pytest.mark.parametrize("view", ["tree", "code"])
def test_a_function_that_calls_two_modules_is_folded_over_its_epochs(tmp_path: Path, view: str) -> None:
    module = module_of(tmp_path, PROGRAM)
    with tg.record() as trace:
        module.epochs()
    shown = tg.render(trace, view, width=120)
    assert "for epoch in range(5):  × 5 " in shown
    assert shown.count("crit(net(x), x)") == 1


def test_layers_that_a_function_is_given_are_rows_of_their_own(tmp_path: Path) -> None:
    module = module_of(tmp_path, PROGRAM)
    with tg.record() as trace:
        module.layers()
    shown = tg.render(trace, width=120)
    assert shown.count("y = layer(x)") == 3
    assert all(f"f32[4, {size}]" in shown for size in (4, 5, 6))
    assert "4–6" not in shown
