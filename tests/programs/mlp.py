"""A three-layer perceptron: the smallest program with modules and functions."""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, d_in=8, d_hidden=16, d_out=4):
        super().__init__()
        self.up = nn.Linear(d_in, d_hidden)
        self.mid = nn.Linear(d_hidden, d_hidden)
        self.down = nn.Linear(d_hidden, d_out)

    def forward(self, x):
        h = F.relu(self.up(x))
        h = h + torch.tanh(self.mid(h))
        return self.down(h)


def main():
    torch.manual_seed(0)
    model = MLP()
    return model(torch.randn(5, 8))
