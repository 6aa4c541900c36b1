"""Statistics of tensors that are more than one piece of memory: sparse, nested, quantised, conjugated, wrapped.

These few are read with torch's own functions, out of sight of the program's modes and of autograd.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torchglass.capture.statistics.memory import KINDS, NoNumbers, tally_of
from torchglass.capture.statistics.tally import Tally
from torchglass.capture.torch import private

MOST_BYTES = 1 << 25
"""Of a copy that is made to measure something."""
WITHOUT_NUMBERS = frozenset(["FakeTensor", "FunctionalTensor", "AsyncCollectiveTensor", "ProxyTensor"])
"""Classes of torch's own that stand for numbers which are not there, or not yet."""


def tally_of_odd(tensor: Any) -> Tally:
    """The statistics of any tensor in this machine's memory; NoNumbers where there is nothing to measure."""
    with torch.inference_mode(False), torch.no_grad(), private.no_subclasses():
        tally = Tally()
        for part in _parts(tensor):
            tally.join(part if isinstance(part, Tally) else _tally(part))
        return tally


def _parts(tensor: Any) -> Iterator[Any]:
    """The plain tensors that hold its numbers, or what is known of them without looking."""
    cls = type(tensor)
    if cls is not Tensor and cls is not Parameter:
        yield _inside(tensor, cls)
        return
    if private.functorch is not None and private.functorch.is_functorch_wrapped_tensor(tensor):
        while private.functorch.is_functorch_wrapped_tensor(tensor):
            tensor = private.functorch.get_unwrapped(tensor)  # inside of vmap this is the whole batch
        yield tensor
        return
    with private.no_dispatch():
        if tensor.is_nested:
            yield from tensor.detach().unbind()
        elif tensor.layout is torch.sparse_coo:
            yield from _stored(tensor, tensor.detach().coalesce().values())
        elif tensor.layout in _COMPRESSED:
            yield from _stored(tensor, tensor.detach().values())
        else:
            yield tensor


_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def _stored(tensor: Any, values: Any) -> Iterator[Any]:
    """What a sparse tensor stores, and the zeros that it does not."""
    yield values
    zeros = Tally()
    zeros.add_zeros(prod(tensor.shape) - values.numel())
    yield zeros


def _inside(tensor: Any, cls: type) -> Any:
    """The plain tensor in one of another class: a DTensor's local part, the values of a jagged one, or itself."""
    if cls.__name__ in WITHOUT_NUMBERS:
        raise NoNumbers(f"a {cls.__name__} holds no numbers")
    local = _held(tensor, "_local_tensor")
    if isinstance(local, Tensor):
        return local
    if tensor.layout is torch.jagged:
        if _held(tensor, "_lengths") is not None:
            raise NoNumbers("a jagged tensor with holes")
        return _held(tensor, "_values")
    return tensor


def _held(tensor: Any, name: str) -> Any:
    """An attribute of the object itself: no code of its class is run."""
    try:
        return object.__getattribute__(tensor, name)
    except AttributeError:
        return None


def _tally(tensor: Any) -> Tally:
    kind = KINDS.get(tensor.dtype)
    if tensor.layout is not torch.strided or not tensor.is_cpu:
        raise NoNumbers("its numbers are not in this machine's memory")
    if kind is not None and not tensor.is_conj() and not tensor.is_neg():
        return tally_of(tensor, kind)
    if tensor.numel() * max(tensor.element_size(), 4) > MOST_BYTES:
        raise NoNumbers("it is too large for a copy, and cannot be read without one")
    with private.no_dispatch():
        plain = tensor.detach()
        plain = plain.dequantize() if plain.is_quantized else plain.resolve_conj().resolve_neg()
    if plain.dtype not in KINDS:
        raise NoNumbers(f"numbers of {tensor.dtype} cannot be read")
    return tally_of(plain, KINDS[plain.dtype])
