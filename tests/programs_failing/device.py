"""Two devices."""

import torch
from torch import nn

net = nn.Linear(8, 8).to("meta")


def batch():
    return torch.randn(2, 8)  # MISTAKE


x = batch()
net(x)
