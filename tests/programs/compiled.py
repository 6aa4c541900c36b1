"""torch.compile of a module and of a function, with the backend that only captures."""

import torch
from torch import nn


def gelu_ish(x):
    return x * torch.sigmoid(1.702 * x)


def main():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    fast_layer = torch.compile(layer, backend="eager")
    fast_function = torch.compile(gelu_ish, backend="eager", fullgraph=True)
    x = torch.randn(2, 4)
    y = fast_function(fast_layer(x))
    z = fast_function(fast_layer(y))
    z.sum().backward()
    return y, z, layer.weight.grad
