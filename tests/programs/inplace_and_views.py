"""In-place ops through views: what one name writes, another one sees."""

import torch


def main():
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    row = x[1]
    row.mul_(2)
    x += 1
    x.t().sub_(0.5)
    halves = x.view(2, 2, 6)
    halves[0].zero_()
    a, b = x.chunk(2, dim=1)
    a.copy_(b)
    x.relu_().clamp_(max=1.5)
    leaf = torch.ones(3, requires_grad=True)
    y = leaf * 2
    y.add_(leaf.square())
    y.sum().backward()
    return x, row, halves, a, leaf.grad, torch.tensor(x._version)
