"""torch.jit: a scripted function, a scripted module and a traced one."""

import warnings

import torch
from torch import nn


def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    for _ in range(2):
        x = x * by
    return x


def main():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compute()


def compute():
    torch.manual_seed(0)
    x = torch.randn(2, 3)
    layer = nn.Linear(3, 3)
    function = torch.jit.script(scale)
    module = torch.jit.script(layer)
    traced = torch.jit.trace(layer, x)
    return function(x, 1.5), module(x), traced(x)
