"""Measures tensors that are not one plain piece of memory: sparse, nested, quantised, conjugated or wrapped.

These rare tensors are read with torch functions, which are hidden from the program's modes and from autograd.
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
from torchglass.capture.transparency.graph_capture import (
    CAPTURING,
    as_plain_tensor,
    holds_numbers,
    is_capturing_graph,
    is_torch_class,
)

MOST_BYTES = 1 << 25
"""The most bytes of a copy that is made only to measure it: 32 MiB."""


def tally_of_odd(tensor: Any) -> Tally:
    """Return the statistics of any tensor in CPU memory; raise NoNumbers if it cannot be measured."""
    if not holds_numbers(tensor):
        raise NoNumbers(f"a {type(tensor).__name__} holds no numbers")
    with torch.inference_mode(False), torch.no_grad(), private.no_subclasses():
        tally = Tally()
        for part in _parts(tensor):
            tally.join(part if isinstance(part, Tally) else _tally(part))
        return tally


def _parts(tensor: Any) -> Iterator[Any]:
    """Yield the plain tensors that hold the numbers of a tensor, and tallies of numbers that are not stored."""
    cls = type(tensor)
    if cls is not Tensor and cls is not Parameter:
        yield _inside(tensor, cls)
        return
    if private.functorch is not None and private.functorch.is_functorch_wrapped_tensor(tensor):
        while private.functorch.is_functorch_wrapped_tensor(tensor):
            # Inside vmap, the unwrapped tensor is the whole batch.
            tensor = private.functorch.get_unwrapped(tensor)
        yield tensor
        return
    with private.no_dispatch():
        if tensor.layout is torch.strided and not tensor.is_nested:
            yield tensor
        elif is_capturing_graph():
            raise NoNumbers(CAPTURING)
        elif tensor.is_nested:
            yield from tensor.detach().unbind()
        elif tensor.layout is torch.sparse_coo:
            yield from _stored(tensor, tensor.detach().coalesce().values())
        elif tensor.layout in _COMPRESSED:
            yield from _stored(tensor, tensor.detach().values())
        else:
            yield tensor


_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def _stored(tensor: Any, values: Any) -> Iterator[Any]:
    """Yield the values that a sparse tensor stores, and a tally of the zeros that it does not store."""
    yield values
    zeros = Tally()
    zeros.add_zeros(prod(tensor.shape) - values.numel())
    yield zeros


def _inside(tensor: Any, cls: type) -> Any:
    """Return the plain tensor in a tensor of another class.

    It is the local part of a DTensor, the values of a jagged tensor, or else the tensor itself as a plain one.
    """
    local = _held(tensor, "_local_tensor")
    if isinstance(local, Tensor):
        return local
    if not is_torch_class(cls):
        if is_capturing_graph():
            raise NoNumbers(CAPTURING)
        return as_plain_tensor(tensor)
    if tensor.layout is torch.jagged:
        if _held(tensor, "_lengths") is not None:
            raise NoNumbers("a jagged tensor with holes")
        return _held(tensor, "_values")
    return tensor


def _held(tensor: Any, name: str) -> Any:
    """Return an attribute of an object without running code of its class, or None if there is no such attribute."""
    try:
        return object.__getattribute__(tensor, name)
    except AttributeError:
        return None


def _tally(tensor: Any) -> Tally:
    # The tensor in a DTensor or in a jagged tensor may hold no numbers either.
    if not holds_numbers(tensor):
        raise NoNumbers(f"a {type(tensor).__name__} holds no numbers")
    kind = KINDS.get(tensor.dtype)
    if tensor.layout is not torch.strided or not tensor.is_cpu:
        raise NoNumbers("its numbers are not in this machine's memory")
    if kind is not None and not tensor.is_conj() and not tensor.is_neg():
        return tally_of(tensor, kind)
    if is_capturing_graph():
        raise NoNumbers(CAPTURING)
    if tensor.numel() * max(tensor.element_size(), 4) > MOST_BYTES:
        raise NoNumbers("it is too large for a copy, and cannot be read without one")
    with private.no_dispatch():
        plain = tensor.detach()
        if plain.is_quantized:
            plain = plain.dequantize()
        else:
            plain = plain.resolve_conj().resolve_neg()
    if plain.dtype not in KINDS:
        raise NoNumbers(f"numbers of {tensor.dtype} cannot be read")
    return tally_of(plain, KINDS[plain.dtype])
