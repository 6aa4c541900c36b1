"""autocast: bfloat16 inside the block, float32 outside, gradients in float32."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(x)
        product = x @ x.T
    full = low.float().softmax(-1)
    full.square().sum().backward()
    return low, product, full, model[0].weight.grad
