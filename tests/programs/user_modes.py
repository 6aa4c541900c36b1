"""The user's own TorchFunctionMode and TorchDispatchMode, which change and count what they see."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class NoReLU(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        if func is torch.relu:
            return args[0]
        return func(*args, **(kwargs or {}))


class CountOps(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


def main():
    torch.manual_seed(0)
    x = torch.randn(2, 3)
    with NoReLU() as functions:
        y = torch.relu(x) + torch.nn.functional.gumbel_softmax(x)
    with CountOps() as ops:
        z = torch.relu(x) @ x.T
    return y, z, torch.tensor([len(functions.seen), len(ops.ops)])
