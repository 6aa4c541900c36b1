"""Which call failed, and with what? The trace of a block that raised is still there."""

import torch
from torch import nn

import torchglass as tg

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(12, 4))

try:
    with tg.record():
        model(torch.zeros(5, 8))
except RuntimeError as error:
    print("the program saw:", error)

tg.show(tg.last_trace())
