"""Calls that leave no step, or more than one: an error before the first, an answer from a cache, a ``while``."""

from functools import lru_cache

import torch
from torch import nn


def checked(x):
    if len(x) > 3:
        raise ValueError(len(x))
    return x + 1


def refused(x):
    if len(x) > 3:
        raise ValueError(len(x))


def guarded(x):
    refused(x)
    return x + 1


def halved(x):
    while x.norm() > 1:
        x = x / 2
    k = 3
    return x, k


@lru_cache
def mask(size):
    return torch.ones(size, size).tril()


class Halved(nn.Module):
    def forward(self, x):
        while x.norm() > 1:
            x = x / 2
        return x


def main():
    mask.cache_clear()
    tensors, caught = [torch.ones(size) for size in range(2, 6)], 0
    for x in tensors:
        try:
            a = checked(x)
        except ValueError:
            caught += 1
        try:
            b = guarded(x)
        except ValueError:
            caught += 1
    c, k = halved(torch.ones(100))
    d = Halved()(torch.ones(100))
    e = c + 1
    for size in (3, 3, 4):
        f = mask(size)
    return a, b, c, d, e, f, k, caught
