"""A shape error in the third layer."""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 16)
        self.third = nn.Linear(12, 4)

    def forward(self, x):
        h = self.first(x).relu()
        h = self.second(h).relu()
        return self.third(h)


def main():
    torch.manual_seed(0)
    return Broken()(torch.randn(5, 8))
