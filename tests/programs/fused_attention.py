"""nn.MultiheadAttention and TransformerEncoderLayer in eval: torch takes its fused path."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True).eval()
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        out, weights = attention(x, x, x)
        return out, weights, layer(x), encoder(x)
