"""A program puts functions of its own around torch's, as libraries for mixed precision do: each runs once a call."""

import functools

import torch
from torch.nn import functional as F

PLACES = [
    (torch.Tensor, "relu"),  # written in C
    (torch.Tensor, "split"),  # written in Python
    (F, "softmax"),
    (F, "gelu"),  # of torch's C++ functions, found in F only
    (torch, "einsum"),
]


class Counting:
    """What stands in the place of one, here an object that is no function."""

    def __init__(self, original):
        self.original = original
        self.calls = 0

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.original(*args, **kwargs)


def counted(original, counts, name):
    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        counts[name] = counts.get(name, 0) + 1
        return original(*args, **kwargs)

    return wrapper


def step(x):
    heads = x.relu().split(2)
    weights = F.softmax(heads[0] + x.size(1), dim=-1)
    mixed = torch.einsum("ij,kj->ik", weights, F.gelu(x))
    return mixed.tanh().sum()


def main():
    torch.manual_seed(0)
    x = torch.randn(4, 3, requires_grad=True)
    counts = {}
    originals = [(place, name, vars(place).get(name), getattr(place, name)) for place, name in PLACES]
    tanh = Counting(torch.Tensor.tanh)
    try:
        torch.Tensor.tanh = tanh
        for place, name, _, original in originals:
            setattr(place, name, counted(original, counts, name))
        step(x).backward()
        value = step(x)
    finally:
        del torch.Tensor.tanh
        for place, name, own, _ in originals:
            if own is None:
                delattr(place, name)  # it was inherited
            else:
                setattr(place, name, own)
    return value, x.grad, sorted(counts.items()), tanh.calls
