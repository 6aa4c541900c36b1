"""One expression that calls something else each time: layers, activations, a sum that begins as a number."""

import torch
from torch import nn


def own(x):
    return x * 3


def summed(x):
    y = x * 2
    return y.sum(0)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.ModuleList([nn.Conv1d(4, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2), nn.Sigmoid()])

    def forward(self, x):
        for layer in self.net:
            x = layer(x)
        return x


def main():
    torch.manual_seed(0)
    out = Layers()(torch.randn(1, 4, 2))
    for act in (torch.relu, torch.tanh, own):
        a = act(out)
    for act in (summed, torch.relu, nn.ReLU()):
        b = act(out)
    for act in (lambda v: v.sum(), torch.relu):
        c = act(out)
    loss = out.sum()
    total = 0
    for _ in range(3):
        total += loss
    scale = 1.0
    for _ in range(3):
        scale *= loss
    for z in (1, loss, 2):
        d = z - loss
        e = z < loss
        f = z**loss
    g = 0 < loss < 9
    h = 0 < loss > -1
    return a, b, c, total, scale, d, e, f, g, h
