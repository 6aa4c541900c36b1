"""What did one training step do? Forward, loss, backward and optimizer in one trace."""

import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, labels = torch.randn(7, 6), torch.randint(0, 3, (7,))

with tg.record() as trace:
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()

tg.show(trace)
print("steps:", [event.name for event in trace.events(kind="step")])
