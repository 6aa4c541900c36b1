"""Which shapes does each line have? The file itself, with run-time shapes in the margin."""

import torch
from torch import nn

import torchglass as tg


class Attention(nn.Module):
    """Scores of each token with all others."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)

    def split(self, x):
        """One matrix a head."""
        batch, time, width = x.shape
        return x.view(batch, time, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x, causal=False):
        """The mixed values."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = self.split(q) @ self.split(k).mT
        if causal:
            scores = scores.tril()
        mixed = scores.softmax(-1) @ self.split(v)
        return mixed.transpose(1, 2).flatten(2)


attention = Attention(64, heads=4)
with tg.record() as trace:
    for time in range(1, 13):
        out = attention(torch.zeros(2, time, 64))

tg.show(trace, "listing")
