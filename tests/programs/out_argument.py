"""Results written where out= says, into a whole tensor, a view and a tuple of tensors."""

import torch


def main():
    torch.manual_seed(0)
    a, b = torch.randn(3, 3), torch.randn(3, 3)
    whole = torch.empty(3, 3)
    torch.mm(a, b, out=whole)
    big = torch.zeros(5, 3)
    torch.add(a, b, alpha=2, out=big[1:4])
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.sort(a, dim=1, out=(values, indices))
    return whole, big, values, indices
