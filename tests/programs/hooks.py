"""Hooks that replace inputs, outputs and gradients."""

import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    seen = []
    handles = [
        model[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
        model[0].register_forward_hook(lambda module, args, out: out.clamp(min=0)),
        model[1].register_forward_hook(lambda module, args, out: {"out": out, "in": args[0]}),
        model[0].register_full_backward_hook(lambda module, gin, gout: seen.append(gout[0].clone())),
    ]
    result = model(torch.randn(2, 3, requires_grad=True))
    result["out"].register_hook(lambda grad: grad * 10)
    result["out"].sum().backward()
    for handle in handles:
        handle.remove()
    return result, seen, model[0].weight.grad
