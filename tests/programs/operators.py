"""Operators: plain, reflected, augmented, comparisons and unary ones."""

import torch


def main():
    torch.manual_seed(0)
    a, b = torch.rand(3, 3) + 1, torch.rand(3, 3) + 1
    flags = torch.tensor([True, False, True])
    plain = [a + b, a - b, a * b, a / b, a // b, a % b, a**b, a @ b]
    reflected = [1 + a, 1 - a, 2 * a, 2 / a, 7 // a, 2**a, 5 % a]
    compared = [a < b, a >= 1, a == b, a != b]
    unary = [-a, +a, abs(a), ~flags]
    bits = [flags & ~flags, flags | True, flags ^ flags, torch.tensor([4]) << 1, torch.tensor([4]) >> 1]
    c = a.clone()
    c += b
    c *= 2
    c /= b
    c **= 2
    c @= b
    return plain, reflected, compared, unary, bits, c
