"""Ops over lists of tensors: torch._foreach functions, and an optimizer that uses them."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    tensors = [torch.ones(2), torch.arange(3.0)]
    torch._foreach_add_(tensors, 1)
    products = torch._foreach_mul(tensors, 2.0)
    norms = torch._foreach_norm(products)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, foreach=True)
    model(torch.randn(4, 3)).pow(2).sum().backward()
    optimizer.step()
    return tensors, products, norms, list(model.parameters())
