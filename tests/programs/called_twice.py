"""One module called twice, the second time on its own output."""

import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x):
        once = self.cell(x)
        return self.cell(once)


def main():
    torch.manual_seed(0)
    return Recurrent()(torch.randn(2, 4))
