"""Arguments that are no tensors: one whose repr raises, one that compares badly, a callable, a huge list."""

import torch
from torch import nn


class Unprintable:
    def __repr__(self):
        raise RuntimeError("do not look at me")

    __str__ = __repr__

    def __eq__(self, other):
        raise RuntimeError("do not compare me")

    __hash__ = None

    def __len__(self):
        raise RuntimeError("do not measure me")


class Tolerant(nn.Module):
    def forward(self, x, config, *extra, callback=None, **options):
        y = callback(x) if callback else x
        return y + len(extra) + len(options)


def main():
    torch.manual_seed(0)
    x = torch.randn(2, 3)
    layer = Tolerant()
    first = layer(x, Unprintable(), Unprintable(), callback=torch.exp, note="\x1b[31mred\x1b[0m\n")
    second = layer(x, config=list(range(10_000)), sizes={"a": x, "b": Unprintable()})
    return first, second
