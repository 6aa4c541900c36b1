"""einsum, linalg, fft and special functions, each with a gradient through it."""

import torch


def main():
    torch.manual_seed(0)
    a = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    b = torch.randn(4, 3, dtype=torch.float64)
    product = torch.einsum("ij,jk->ik", a, b)
    square = product @ product.T + torch.eye(3, dtype=torch.float64)
    factor = torch.linalg.cholesky(square)
    solved = torch.linalg.solve(square, torch.ones(3, dtype=torch.float64))
    values, vectors = torch.linalg.eigh(square.detach())
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    spectrum = torch.fft.rfft(a, dim=1)
    back = torch.fft.irfft(spectrum, n=4, dim=1)
    gamma = torch.special.gammaln(a.abs() + 1)
    total = factor.sum() + solved.sum() + s.sum() + back.sum() + gamma.sum() + torch.linalg.norm(a)
    total.backward()
    return product, factor, solved, values, vectors.abs(), s, spectrum, back, gamma, a.grad
