"""Tensors without data: on the meta device, and with a size of zero."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    with torch.device("meta"):
        layer = nn.Linear(1000, 2000)
    ghost = layer(torch.empty(5, 1000, device="meta"))
    none = torch.empty(0, 3)
    padded = nn.Linear(3, 2)(none)
    return (
        torch.tensor(ghost.shape),
        none.sum(),
        padded,
        torch.cat([none, torch.ones(1, 3)]),
        torch.tensor(4.0),
    )
