"""The tree says in which mode dropout and batch norm ran."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchglass as tg


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.norm(self.fc(x)))
        return F.dropout(h, 0.2, training=self.training)


def tree(*modes: bool) -> list[str]:
    net = Net()
    with tg.record() as trace:
        for mode in modes:
            net.train(mode)
            net(torch.randn(8, 4))
    return tg.render(trace, "tree", width=120).splitlines()


def line_with(lines: list[str], text: str) -> str:
    return next(line for line in lines if text in line)


def test_modules_and_functions_say_their_mode() -> None:
    for mode, word in ((True, " train "), (False, " eval ")):
        lines = tree(mode)
        for text in ("BatchNorm1d(4)", "Dropout(p=0.1)", "F.dropout("):
            assert word in line_with(lines, text)
        assert word not in line_with(lines, "Linear(4, 4)")


def test_modes_that_differ_between_rounds_are_both_named() -> None:
    lines = tree(True, False, True)
    for text in ("BatchNorm1d(4)", "Dropout(p=0.1)", "F.dropout("):
        assert " train|eval " in line_with(lines, text)
