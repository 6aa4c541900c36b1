"""What does attention do? torch's own layer opened up, step by step."""

import torch
from torch import nn

import torchglass as tg

torch.manual_seed(0)
attention = nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
x = torch.randn(1, 5, 8)

trace = tg.trace(attention, x, x, x)
tg.show(trace, inner=True)  # inner: also what torch itself calls inside its layer

(context, weights) = trace.outputs("", call=0)
print(context.role, context.shape, "and", weights.role, weights.shape)
