"""Gradients without a module: a loss from plain tensors, backward, and autograd.grad twice."""

import torch


def main():
    torch.manual_seed(0)
    w = torch.randn(4, 3, requires_grad=True)
    b = torch.zeros(3, requires_grad=True)
    x = torch.randn(5, 4)
    loss = ((x @ w + b).sigmoid() - 0.5).pow(2).mean()
    loss.backward(retain_graph=True)
    (first,) = torch.autograd.grad(loss, w, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), w)
    return loss.detach(), w.grad, b.grad, second
