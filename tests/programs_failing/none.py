"""A layer that gives nothing."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):  # noqa: RET503 (that is the mistake)
        x = self.fc(x).relu()
        if x.mean() > 100:
            return x  # MISTAKE: else nothing is returned


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        x = self.block(x)
        return self.head(x)


Net()(torch.randn(3, 4))
