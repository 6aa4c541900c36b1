"""A matrix that should be transposed."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def split(self, t):
        b, n, d = t.shape
        return t.view(b, n, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = self.split(q), self.split(k), self.split(v)
        scores = q @ k / 8**0.5  # MISTAKE
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


net = nn.Sequential(nn.Linear(10, 32), Attention(32, 4))
for _ in range(3):
    net(torch.randn(2, 7, 10)).mean().backward()
