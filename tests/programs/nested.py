"""Nested tensors: strided and jagged, rows of different lengths."""

import warnings

import torch


def main():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compute()


def compute():
    torch.manual_seed(0)
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    strided = torch.nested.nested_tensor(rows, layout=torch.strided)
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
    padded = torch.nested.to_padded_tensor(strided, 0.0)
    scaled = jagged * 2
    return padded, list(strided.unbind()), list(scaled.unbind()), jagged.values()
