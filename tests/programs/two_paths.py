"""One module under two paths: an embedding's table shared with the head, and a layer known by two names."""

import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.encoder = nn.ModuleDict({"norm": nn.LayerNorm(4)})
        self.decoder = nn.ModuleDict({"norm": self.encoder["norm"]})
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        h = self.encoder["norm"](self.embed(ids))
        h = self.decoder["norm"](h * 2)
        return self.head(h)


def main():
    torch.manual_seed(0)
    return Tied()(torch.tensor([[1, 2, 3]]))
