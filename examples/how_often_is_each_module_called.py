"""How often is each module called, and in which order? Repeating blocks of calls are written once."""

import torch
from torch import nn

import torchglass as tg

encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
decoder = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
x = torch.zeros(3, 4)

with tg.record() as trace:
    code = encoder(x)
    for _ in range(5):
        code = code + encoder(decoder(code))

tg.show(trace, "calls", shapes=True)
