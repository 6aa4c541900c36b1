"""The bytes of tensors and arrays: how they leave for a file without a copy, and how they become tensors again."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torchglass.capture.torch.names import HAS_TORCH, Tensor
from torchglass.capture.transparency.unseen import unseen
from torchglass.errors import NotRecorded

if TYPE_CHECKING or HAS_TORCH:
    import torch

PIECE = 1 << 24
"""The most bytes of what does not lie side by side on this machine that are brought here at once."""


class FileContent(NamedTuple):
    """What a file keeps of a tensor."""

    pieces: Iterator[memoryview]
    """Its bytes, in order; each piece is to be used before the next is asked for."""
    length: int
    dtype: str
    shape: tuple[int, ...]


class TensorBytes(Protocol):
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


def content_pieces(plain: Any) -> FileContent:
    """The bytes of a tensor without history and subclass, or of an array; read from where they lie."""
    if not issubclass(type(plain), Tensor):
        return _pieces_of_array(plain)
    if plain.layout is not torch.strided or plain.is_nested or plain.is_quantized:
        kind = "nested" if plain.is_nested else "quantised" if plain.is_quantized else str(plain.layout)
        raise CannotKeep(f"a {kind.removeprefix('torch.')} tensor has no plain bytes: mark its components instead")
    if plain.is_meta:
        raise CannotKeep("a meta tensor has no content")
    dtype, shape = str(plain.dtype).removeprefix("torch."), tuple(plain.shape)
    return FileContent(_pieces(plain), plain.numel() * plain.element_size(), dtype, shape)


def _pieces(plain: Any) -> Iterator[memoryview]:
    """What lies side by side on this machine is one piece; all else goes through memory of a bounded size."""
    if not plain.numel():
        return
    if plain.device.type == "cpu" and plain.is_contiguous() and not plain.is_conj() and not plain.is_neg():
        yield _bytes_of(plain)
    elif plain.numel() * plain.element_size() <= PIECE or not plain.dim():
        yield _bytes_of(plain.cpu().resolve_conj().resolve_neg().contiguous())
    else:
        row = max(plain[0].numel() * plain.element_size(), 1)
        step = max(PIECE // row, 1)
        for first in range(0, plain.shape[0], step):
            part = plain[first : first + step]
            yield from _pieces(part if len(part) > 1 else part[0])


def _bytes_of(tensor: Any) -> memoryview:
    flat = tensor.as_strided((tensor.numel(),), (1,))  # one element may have any stride, and then cannot be viewed
    return memoryview(flat.view(torch.uint8).numpy())


def _pieces_of_array(plain: Any) -> FileContent:
    if plain.dtype.hasobject:
        raise CannotKeep("an array of Python objects has no plain bytes")
    numpy = importlib.import_module("numpy")
    if plain.dtype.names is not None:
        raise CannotKeep("an array of records has no plain bytes: mark its fields instead")
    flat = numpy.ascontiguousarray(plain).reshape(-1)
    pieces = [memoryview(flat.view(numpy.uint8))] if flat.size else []
    return FileContent(iter(pieces), flat.nbytes, str(plain.dtype), tuple(plain.shape))


def opened(stored: TensorBytes, kind: str) -> Any:
    """The tensor, or the array, over the bytes of a bundle; as numpy where torch is not installed."""
    if kind == "array" or not HAS_TORCH:
        return _opened_by_numpy(stored)
    from torchglass.capture.torch import private  # which needs torch

    dtype = getattr(torch, stored.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise NotRecorded(f"this torch knows no dtype {stored.dtype!r}: the tensor cannot be opened here")
    with unseen():  # a trace may be read while it grows
        if not len(stored.data):
            return torch.empty(stored.shape, dtype=dtype)
        flat = private.frombuffer(stored.data, dtype=torch.uint8).view(dtype)
        return flat.as_strided(stored.shape, stored.stride, stored.storage_offset)


def _opened_by_numpy(stored: TensorBytes) -> Any:
    numpy = importlib.import_module("numpy")
    try:
        dtype = numpy.dtype(stored.dtype)
    except TypeError:
        raise NotRecorded(f"numpy knows no dtype {stored.dtype!r}: install torch to open this tensor") from None
    flat = numpy.frombuffer(stored.data, dtype=dtype)
    strides = tuple(step * dtype.itemsize for step in stored.stride)
    return numpy.lib.stride_tricks.as_strided(flat[stored.storage_offset :], stored.shape, strides)
