"""A wrapper subclass with __torch_dispatch__, which notes every op that it is given."""

import torch
from torch.utils._pytree import tree_map


class Wrapper(torch.Tensor):
    seen = []

    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, requires_grad=requires_grad
        )

    def __init__(self, inner, requires_grad=False):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(str(func))
        with torch.device("meta"):
            assert torch.ones(1).is_meta
        args, kwargs = tree_map(lambda t: t.inner if isinstance(t, cls) else t, (args, kwargs or {}))
        return tree_map(lambda t: cls(t) if isinstance(t, torch.Tensor) else t, func(*args, **kwargs))


def main():
    torch.manual_seed(0)
    Wrapper.seen.clear()
    x = Wrapper(torch.randn(2, 3))
    weight = torch.nn.Parameter(Wrapper(torch.randn(3, 3), requires_grad=True))
    y = torch.nn.functional.gelu(x + 1)
    both = torch.cat([y, y])
    both.add_(1)
    (both @ weight).sum().backward()
    return y.inner, both.inner, weight.grad.inner, ",".join(Wrapper.seen)
