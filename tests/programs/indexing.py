"""Indexing, read and written: slices, masks, index tensors, None, Ellipsis, and their gradients."""

import torch


def main():
    torch.manual_seed(0)
    x = torch.arange(24.0).view(2, 3, 4).requires_grad_()
    picked = x[0, 1:, ::2]
    masked = x[x > 10]
    gathered = x[:, [0, 2], torch.tensor([1, 3])]
    wide = x[..., None, 0]
    y = x * 1
    y[0] = 0
    y[..., -1] = torch.ones(2, 3)
    y[y > 20] *= -1
    y[:, 0] += 5
    (picked.sum() + masked.sum() + gathered.sum() + wide.sum() + y.sum()).backward()
    rows = [row for row in x.detach()[0]]
    return picked, masked, gathered, wide, y, x.grad, rows
