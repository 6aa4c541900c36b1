"""Detects graph capture: make_fx, torch.export and functionalize add every torch function that is called to a graph.

While one of them is active we call no torch function ourselves. So we do not copy tensors, and do not unwrap them with
torch functions, and a note in the trace says so. We may still read a tensor's metadata, and the bytes at its address.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchglass.capture.torch import private

WITHOUT_NUMBERS = frozenset(
    ["FakeTensor", "FunctionalTensor", "AsyncCollectiveTensor", "ProxyTensor"]
)
"""The names of torch classes whose tensors have no numbers, or do not have them yet."""
CAPTURING = "something else was tracing (torch.export, make_fx, functionalize), and a copy would be in its graph"


def is_capturing_graph() -> bool:
    """Return whether torch functions called in this thread now would be added to a graph.

    torch.export sets modes before dispatch; make_fx, functionalize and FakeTensor set "infra" modes.
    """
    if private.count_early_modes():
        return True
    return any(private.infra_mode(key) is not None for key in private.infra_keys)


def holds_numbers(tensor: Any) -> bool:
    """Return whether a tensor has numbers in memory, judging by its class and the tensor that it wraps (vmap)."""
    functorch = private.functorch
    while functorch is not None and functorch.is_functorch_wrapped_tensor(tensor):
        if private.is_functional(tensor):
            return False
        tensor = functorch.get_unwrapped(tensor)
    cls = type(tensor)
    if cls is not Tensor and any(each.__name__ in WITHOUT_NUMBERS for each in cls.__mro__):
        return False
    return not private.is_functional(tensor)


def is_torch_class(cls: type) -> bool:
    """Return whether torch defines all base classes, so that using the tensor runs none of the program's code."""
    return all(
        base is object or base.__module__.partition(".")[0] == "torch" for base in cls.__mro__
    )


def as_plain_tensor(tensor: Any) -> Any:
    """Return a plain Tensor over the same memory (if the tensor has memory)."""
    with private.no_subclasses(), private.no_dispatch():
        return Tensor.detach(tensor)
