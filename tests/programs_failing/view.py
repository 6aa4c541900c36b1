"""A view of what is not contiguous."""

import torch
from torch import nn


class Heads(nn.Module):
    def forward(self, x):
        b, n, d = x.shape
        h = x.view(b, n, 4, d // 4).transpose(1, 2)
        h = h.softmax(-1)
        h = h.transpose(1, 2)
        return h.view(b, n, d)  # MISTAKE


net = nn.Sequential(nn.Linear(8, 8), Heads())
net(torch.randn(2, 5, 8))
