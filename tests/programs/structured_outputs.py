"""Modules that return a dict, a tuple, a named tuple, a dataclass, None and a nest of them."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple
    loss: torch.Tensor | None = None


class Returns(nn.Module):
    def __init__(self, shape_of_result):
        super().__init__()
        self.shape_of_result = shape_of_result

    def forward(self, x, *, scale=1.0):
        return self.shape_of_result(x * scale)


def main():
    torch.manual_seed(0)
    x = torch.randn(2, 3)
    a_dict = Returns(lambda t: OrderedDict(a=t, b=t + 1))(x)
    a_tuple = Returns(lambda t: (t, (t * 2, [t * 3])))(x)
    named = Returns(lambda t: Pair(t, -t))(x, scale=2.0)
    data = Returns(lambda t: Output(t.exp(), (t, t.abs())))(x)
    nothing = Returns(lambda t: None)(x)
    nest = Returns(lambda t: {"deep": [{"er": (t.T,)}], "n": 3})(x)
    return a_dict, a_tuple, tuple(named), (data.logits, data.hidden), nothing, nest
