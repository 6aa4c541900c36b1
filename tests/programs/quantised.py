"""Quantised tensors, one scale a tensor and one scale a channel."""

import warnings

import torch


def main():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compute()


def compute():
    torch.manual_seed(0)
    x = torch.randn(2, 4)
    whole = torch.quantize_per_tensor(x, scale=0.1, zero_point=3, dtype=torch.quint8)
    channel = torch.quantize_per_channel(x, torch.tensor([0.1, 0.2]), torch.tensor([0, 0]), 0, torch.qint8)
    return whole.dequantize(), whole.int_repr(), channel.dequantize(), (whole.view(4, 2)).dequantize()
