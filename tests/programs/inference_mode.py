"""inference_mode and no_grad, as blocks and as decorators."""

import torch
from torch import nn


@torch.no_grad()
def predict(layer, x):
    return layer(x).argmax(-1)


def main():
    torch.manual_seed(0)
    layer = nn.Linear(4, 3)
    x = torch.randn(2, 4)
    with torch.inference_mode():
        fast = layer(x).softmax(-1)
    with torch.set_grad_enabled(False):
        plain = layer(x)
        with torch.enable_grad():
            tracked = layer(x)
    return fast, plain, tracked, predict(layer, x), torch.tensor(tracked.requires_grad)
