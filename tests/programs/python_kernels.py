"""A kernel written in Python that itself uses modes and a tensor subclass, called from Python, backward and script."""

import warnings

import torch
from torch.overrides import TorchFunctionMode


class Counting(TorchFunctionMode):
    seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Tagged(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def kernel(x):
    tagged = x.as_subclass(Tagged) + 1
    with torch.device("meta"):
        elsewhere = torch.ones(2)
    with Counting():
        y = x * 3
    return y if type(tagged) is Tagged and elsewhere.is_meta else -y


LIBRARY = torch.library.Library("program_kernels", "FRAGMENT")
LIBRARY.define("triple(Tensor x) -> Tensor")
LIBRARY.impl("triple", kernel, "CPU")


class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return torch.ops.program_kernels.triple(grad)


def scripted(x):
    return torch.ops.program_kernels.triple(x)


def main():
    Counting.seen.clear()
    Tagged.seen.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.script(scripted)
    x, p = torch.arange(3.0), torch.ones(3, requires_grad=True)
    results = [torch.ops.program_kernels.triple(x), script(x)]
    Triple.apply(p).sum().backward()
    with Counting():
        results.append(script(x))
        Triple.apply(p).sum().backward()
    results.append(script(x.as_subclass(Tagged)).as_subclass(torch.Tensor))
    return results, p.grad, ",".join(Counting.seen), ",".join(Tagged.seen)
