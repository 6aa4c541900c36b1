"""forward called directly, past __call__: torch sees no module call."""

import torch
from torch import nn


class Shortcut(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return self.inner.forward(x).relu()


def main():
    torch.manual_seed(0)
    layer = Shortcut()
    x = torch.randn(2, 3)
    return layer(x), layer.forward(x)
