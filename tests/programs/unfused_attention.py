"""torch's attention layers in training mode, with dropout and gradients: the path that is not fused."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, dropout=0.1)
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    whole = nn.Transformer(8, 2, 1, 1, dim_feedforward=16, batch_first=True)
    x = torch.randn(2, 5, 8)
    out, weights = attention(x, x, x, need_weights=True)
    y = whole(layer(x), x[:, :3])
    (out.sum() + y.sum()).backward()
    return out, weights, y, [p.grad for p in layer.parameters()]
