"""Complex tensors: conjugate and negative views, real and imaginary parts, gradients."""

import torch


def main():
    torch.manual_seed(0)
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    lazy = z.conj()
    parts = z.real, lazy.imag, z.abs(), z.angle()
    pairs = torch.view_as_real(z)
    polar = torch.polar(z.abs(), z.angle())
    (lazy * z).sum().real.backward()
    return lazy, parts, pairs, polar, z.grad, z.detach().mH if z.dim() > 1 else z.detach().resolve_conj()
