"""Two dtypes."""

import numpy as np
import torch
from torch import nn


def load():
    data = np.random.rand(16, 8)
    return torch.from_numpy(data)  # MISTAKE: float64


net = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))
x = load()
x = (x - x.mean(0)) / x.std(0)
net(x)
