"""Which ops does each line run? Attention, line by line; live with TracingMode, or from a trace at any later time."""

import torch
from torch import nn

import torchglass as tg


class Attention(nn.Module):
    """One head, without a mask."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, dim=-1)
        weights = (q @ k.transpose(1, 2)).softmax(dim=-1)
        return x + weights @ v


torch.manual_seed(0)
model = nn.Sequential(*(Attention(8) for _ in range(6)))
x = torch.randn(2, 5, 8)

with torch.no_grad(), tg.TracingMode(color=False):
    model[0](x)

print()
with torch.no_grad(), tg.record(ops=True) as trace:
    y = model(x)
tg.show(trace, "code")
