"""Sequential, ModuleList and ModuleDict inside one another."""

import torch
from torch import nn


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.ReLU(), nn.Dropout(0.5)))
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.heads = nn.ModuleDict({"left": nn.Linear(6, 2), "right": nn.Linear(6, 3)})

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return {name: head(x) for name, head in self.heads.items()}


def main():
    torch.manual_seed(0)
    return Router()(torch.randn(2, 4))
