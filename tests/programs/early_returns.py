"""Functions that return a name early, in a loop, in a ``try``: the caller gets what was returned, and no more."""

import torch
from torch import nn


def skipping(x, skip=False):
    y = x * 2
    if skip:
        return y
    z = y.sum(0)
    return z


def pair_or_sum(x, both=False):
    y = x * 2
    if both:
        return y, x
    return y.sum(0)


def first_long(x):
    for i in range(1, 4):
        y = x[:i]
        if i == 2:
            return y
    return x


def grown(x):
    while True:
        x = torch.cat([x, x])
        if len(x) >= 8:
            return x


def refused(x):
    if len(x) > 3:
        raise ValueError(len(x))


def kept(x):
    try:
        y = x * 2
        refused(x)
        return y
    except ValueError:
        z = x.sum()
        return z


def shortened(x):
    y = x * 2
    if len(y) > 3:
        raise ValueError(len(y))
    return y


class Cut(nn.Module):
    def forward(self, x, size):
        y = x[:size]
        if size == 2:
            return y
        z = y.sum()
        return z


def main():
    x, cut, caught = torch.ones(2, 3), Cut(), 0
    a = skipping(x)
    for skip in (False, True, True):
        b = skipping(x, skip)
    c = pair_or_sum(x)
    d = first_long(torch.ones(5))
    e = grown(torch.ones(1))
    for size in (1, 2, 3):
        f = cut(torch.ones(5), size)
    for size in (2, 3, 4, 5):
        g = kept(torch.ones(size))
    for size in (2, 3, 4, 5):
        try:
            h = shortened(torch.ones(size))
        except ValueError:
            caught += 1
    return a, b, c, d, e, f, g, h, caught
