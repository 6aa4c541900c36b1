"""torch.compile with a graph break in the middle, surrounded by eager code."""

import torch


def broken(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos() + 1


def main():
    torch.manual_seed(0)
    fast = torch.compile(broken, backend="eager")
    x = torch.randn(3)
    return fast(x), fast(x * 2).exp()
