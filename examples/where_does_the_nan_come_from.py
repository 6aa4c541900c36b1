"""Where does the NaN come from? The step that made it, not the many that passed it on."""

import torch
from torch import nn

import torchglass as tg


class Pool(nn.Module):
    """The mean over the tokens that are not padding."""

    def forward(self, x, is_token):
        total = (x * is_token[..., None]).sum(dim=1)
        return total / is_token.sum(dim=1, keepdim=True)


model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
x = torch.ones(3, 4, 2)
is_token = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])

with tg.record(values="stats") as trace:
    pooled = Pool()(x, is_token)
    loss = model(pooled).sum()

print(tg.first_bad(trace))
