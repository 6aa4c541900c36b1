"""The bytes of tensors and arrays: how they leave a copy for a file, and how they become tensors again."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torchglass.capture.torch_names import HAS_TORCH, Tensor
from torchglass.errors import NotRecorded

if TYPE_CHECKING or HAS_TORCH:
    import torch


class Bytes(NamedTuple):
    """What a file keeps of a tensor."""

    data: Any
    """Something that ``memoryview`` takes; lives as long as the copy must."""
    dtype: str
    shape: tuple[int, ...]


class Stored(Protocol):
    """A tensor as a bundle gives it back; strides count elements."""

    @property
    def data(self) -> memoryview: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def stride(self) -> tuple[int, ...]: ...
    @property
    def storage_offset(self) -> int: ...


class CannotKeep(Exception):
    """There are no plain bytes to keep; the text says why."""


def bytes_of(copy: Any) -> Bytes:
    """The bytes of a copy, which is ours and does not change any more."""
    if not issubclass(type(copy), Tensor):
        return _bytes_of_array(copy)
    if copy.layout is not torch.strided or copy.is_nested or copy.is_quantized:
        kind = "nested" if copy.is_nested else "quantised" if copy.is_quantized else str(copy.layout)
        raise CannotKeep(f"a {kind.removeprefix('torch.')} tensor has no plain bytes: mark its components instead")
    if copy.is_meta:
        raise CannotKeep("a meta tensor has no content")
    plain = copy.cpu().resolve_conj().resolve_neg().contiguous()
    flat = plain.as_strided((plain.numel(),), (1,))  # one element may have any stride, and then cannot be viewed
    raw = flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)
    return Bytes(raw.numpy(), str(copy.dtype).removeprefix("torch."), tuple(copy.shape))


def _bytes_of_array(copy: Any) -> Bytes:
    if copy.dtype.hasobject:
        raise CannotKeep("an array of Python objects has no plain bytes")
    numpy = importlib.import_module("numpy")
    if copy.dtype.names is not None:
        raise CannotKeep("an array of records has no plain bytes: mark its fields instead")
    flat = numpy.ascontiguousarray(copy).reshape(-1)
    return Bytes(flat.view(numpy.uint8) if flat.size else flat, str(copy.dtype), tuple(copy.shape))


def opened(stored: Stored, kind: str) -> Any:
    """The tensor, or the array, over the bytes of a bundle; as numpy where torch is not installed."""
    if kind == "array" or not HAS_TORCH:
        return _opened_by_numpy(stored)
    dtype = getattr(torch, stored.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise NotRecorded(f"this torch knows no dtype {stored.dtype!r}: the tensor cannot be opened here")
    if not len(stored.data):
        return torch.empty(stored.shape, dtype=dtype)
    flat = torch.frombuffer(stored.data, dtype=torch.uint8).view(dtype)
    return flat.as_strided(stored.shape, stored.stride, stored.storage_offset)


def _opened_by_numpy(stored: Stored) -> Any:
    numpy = importlib.import_module("numpy")
    try:
        dtype = numpy.dtype(stored.dtype)
    except TypeError:
        raise NotRecorded(f"numpy knows no dtype {stored.dtype!r}: install torch to open this tensor") from None
    flat = numpy.frombuffer(stored.data, dtype=dtype)
    strides = tuple(step * dtype.itemsize for step in stored.stride)
    return numpy.lib.stride_tricks.as_strided(flat[stored.storage_offset :], stored.shape, strides)
