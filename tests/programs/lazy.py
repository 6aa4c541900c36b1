"""Lazy modules: their parameters get a shape at the first call."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    first = model(torch.randn(2, 3, 5, 5))
    second = model(torch.randn(2, 3, 5, 5))
    return first, second, model[3].weight
