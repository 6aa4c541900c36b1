"""A skip connection of another size."""

import torch
from torch import nn


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(3, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.down2 = nn.Conv2d(16, 32, 3, padding=1)
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.out = nn.Conv2d(32, 1, 1)

    def forward(self, x):
        skip = self.down1(x)
        x = self.down2(self.pool(skip))
        x = self.up(x)  # MISTAKE: odd sizes lose a row
        x = torch.cat([x, skip], dim=1)
        return self.out(x)


UNet()(torch.randn(1, 3, 45, 45))
