"""Functions that make tensors from nothing, from others' shapes, from Python and from generators."""

import torch


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    like = torch.ones(2, 3, dtype=torch.float64)
    return [
        torch.zeros(2),
        torch.arange(0, 1, 0.25),
        torch.linspace(0, 1, 3),
        torch.eye(2, dtype=torch.int32),
        torch.full_like(like, 7),
        torch.rand_like(like),
        torch.randn(3, generator=generator),
        torch.randperm(5, generator=generator),
        like.new_tensor([1, 2]),
        like.new_zeros(2, 2),
        torch.tensor([[1, 2], [3, 4]]),
        torch.as_tensor([True, False]),
        torch.tril_indices(3, 3),
        torch.complex(torch.ones(2), torch.zeros(2)),
    ]
