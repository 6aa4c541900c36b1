"""Parametrisations: a weight that is computed by modules each time it is read."""

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).T


def main():
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    normed = parametrizations.weight_norm(nn.Linear(3, 2))
    y = normed(layer(torch.randn(2, 3)))
    y.sum().backward()
    return y, layer.parametrizations.weight.original.grad
