"""torch.func: vmap, grad, jacrev and functional_call, nested in one another."""

import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap


def main():
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    params = {name: p.detach() for name, p in layer.named_parameters()}
    x = torch.randn(4, 3)

    def loss(params, sample):
        return functional_call(layer, params, (sample,)).square().sum()

    per_sample = vmap(grad(loss), in_dims=(None, 0))(params, x)
    jacobian = jacrev(lambda t: torch.tanh(t) * t)(x[0])
    summed = vmap(torch.dot)(x, x)
    return per_sample, jacobian, summed
