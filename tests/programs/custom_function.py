"""A custom autograd.Function, with a backward of its own and double backward."""

import torch


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x.square()


def main():
    torch.manual_seed(0)
    x = torch.randn(4, requires_grad=True)
    y = Cube.apply(x).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    first.sum().backward()
    return y, first, x.grad
