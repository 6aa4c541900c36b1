"""swap_tensors exchanges two tensors in place, which a weak reference would forbid."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    a, b = torch.randn(2), torch.randn(3)
    total = a.sum() + b.sum()
    torch.utils.swap_tensors(a, b)
    layer = nn.Linear(2, 2)
    x = torch.randn(1, 2)
    y = layer(x)
    del y
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    return a, b, total, layer(x.double())
