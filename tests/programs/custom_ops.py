"""Ops of one's own: torch.library.custom_op, one that writes into its argument, and a kernel given to a library."""

import torch

LIBRARY = torch.library.Library("program_ops", "FRAGMENT")
LIBRARY.define("scaled(Tensor x, int times=3) -> Tensor")
LIBRARY.impl("scaled", lambda x, times=3: x * times, "CPU")


@torch.library.custom_op("program_ops::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("program_ops::bump", mutates_args={"x"})
def bump(x: torch.Tensor) -> None:
    x.add_(1)


twice.register_autograd(lambda ctx, grad: twice(grad))


def main():
    torch.manual_seed(0)
    x = torch.randn(2, 3, requires_grad=True)
    y = twice(x)
    y.sum().backward()
    z = y.detach().clone()
    bump(z)
    return y, z, torch.ops.program_ops.scaled(z), torch.ops.program_ops.scaled.default(z, 4), x.grad
