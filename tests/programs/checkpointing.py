"""Activation checkpointing, both kinds: forward runs again inside backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def main():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    x = torch.randn(3, 4, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False)
    z = checkpoint(block, y, use_reentrant=True)
    z.sum().backward()
    return y, z, x.grad, block[0].weight.grad
