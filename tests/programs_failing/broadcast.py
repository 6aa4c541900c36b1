"""A broadcast that succeeds, and is wrong until the loss."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
x = torch.randn(16, 4)
y = torch.randn(16)
pred = net(x)
error = pred - y  # MISTAKE: [16, 1] - [16]
weight = torch.rand(16, 1)
loss = (error**2).mean(dim=1)
loss = F.cross_entropy(error, torch.zeros(8, dtype=torch.long))
