"""Copies the contents of tensors and arrays, turns them into bytes for a file, and opens such bytes again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torchglass.capture.engine.host import SessionLike
from torchglass.capture.torch.names import HAS_TORCH, Parameter, Tensor, no_subclasses
from torchglass.capture.transparency.ours import unseen
from torchglass.errors import NotRecorded
from torchglass.journal.layout import NUMBER_MASK

if TYPE_CHECKING or HAS_TORCH:
    import torch

    from torchglass.capture.torch import private
    from torchglass.capture.transparency.graph_capture import (
        CAPTURING,
        holds_numbers,
        is_capturing_graph,
    )

Write = Callable[[str, int, Any], bool]
"""A function (name, value, plain tensor or array) that writes the content to a file, and returns whether it could."""


class Copies:
    """The contents that were kept of the values of one session."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        """The copies that are in memory, by the number of their value."""
        self.names: dict[int, str] = {}
        """The name under which each value was kept, in memory or in a file."""
        self.regions: dict[int, Any] = {}
        """Regions of memory that hold many values each, by number (capture/statistics/saver.py)."""
        self._regions_made = 0
        self.on_forget: list[Callable[[int], None]] = []
        """Called with the number of a value when all values before it have been dropped."""
        self.writers: list[Write] = []
        """The functions with which recordings write contents to their files."""
        self.refusals: set[str] = set()
        """The reasons why contents were not kept. Each is noted once, because a loop may mark ten thousand values."""

    def keep(self, name: str, value: int, original: Any, recordings: int) -> None:
        """Keep a copy of the content of a tensor or array as it is now.

        The copy is also held in memory if one of the recordings has no file, or cannot write the value to its file.
        """
        self.names[value & NUMBER_MASK] = name
        written = [
            read(original, lambda plain, write=write: write(name, value, plain))
            for write in self.writers
        ]
        if len(written) < recordings or not all(written):
            self.held[value & NUMBER_MASK] = read(original, _copied)

    def add_region(self, region: Any) -> int:
        """Remember a region of memory, and return its number."""
        self.regions[self._regions_made] = region
        self._regions_made += 1
        return self._regions_made - 1

    def forget(self, first: int, last: int) -> None:
        """Drop the copies of these values, whose events are gone."""
        for value in [each for each in self.held if first <= each < last]:
            del self.held[value]
        for each in self.on_forget:
            each(last)


def refuse(session: SessionLike, name: str, where: str, reason: str) -> None:
    """Note that the content of a mark was not kept."""
    if reason not in session.copies.refusals:
        session.copies.refusals.add(reason)
        session.note(f"the content of the mark {name!r} is not {where}: {reason}")


def read(original: Any, use: Callable[[Any], Any]) -> Any:
    """Call ``use`` with a plain tensor or array of the same content, hidden from the program's modes.

    Inside ``vmap`` the content is the whole batch, because a single sample has no memory.
    """
    cls = type(original)
    if not issubclass(cls, Tensor):
        return use(original)
    if is_capturing_graph() or not holds_numbers(original):
        raise CannotKeep(CAPTURING)
    # Enter inference_mode(False) only if needed: entering takes longer than copying a small tensor.
    if torch.is_inference_mode_enabled():
        leave = torch.inference_mode(False)
    else:
        leave = nullcontext()
    with leave, no_subclasses():
        if cls is not Tensor and cls is not Parameter:
            return use(original.detach().clone())
        if private.functorch is not None and private.functorch.is_functorch_wrapped_tensor(
            original
        ):
            return use(_copy_of_wrapped(original))
        with private.no_dispatch():
            return use(original.detach())


def _copied(plain: Any) -> Any:
    """Return a copy that shares neither memory nor history with the original."""
    if isinstance(plain, Tensor):
        return plain.clone()
    return sys.modules["numpy"].array(plain, copy=True, subok=False)


def _copy_of_wrapped(original: Any) -> Any:
    """Return a copy of the tensor in a wrapper of ``vmap`` or ``grad``; the wrapper is useless outside of them."""
    while private.functorch.is_functorch_wrapped_tensor(original):
        original = private.functorch.get_unwrapped(original)
    with private.without_transforms():
        return original.detach().clone()


# ---------------------------------------------------------------- as bytes

PIECE = 1 << 24
"""The most bytes to copy at once, for tensors on a device and those that are not contiguous: 16 MiB."""


class FileContent(NamedTuple):
    """The content of a tensor for a file."""

    pieces: Iterator[memoryview]
    """The bytes of the tensor, in order; use each piece before taking the next."""
    length: int
    dtype: str
    shape: tuple[int, ...]


class TensorBytes(Protocol):
    """A tensor as it is stored in a bundle; its strides count elements."""

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
    """Raised for a value without plain bytes to keep; the message gives the reason."""


def content_pieces(plain: Any) -> FileContent:
    """Return the bytes of a plain tensor or an array, read in place."""
    if not issubclass(type(plain), Tensor):
        return _pieces_of_array(plain)
    if plain.layout is not torch.strided or plain.is_nested or plain.is_quantized:
        if plain.is_nested:
            kind = "nested"
        elif plain.is_quantized:
            kind = "quantised"
        else:
            kind = str(plain.layout)
        raise CannotKeep(
            f"a {kind.removeprefix('torch.')} tensor has no plain bytes: mark its components instead"
        )
    if plain.is_meta:
        raise CannotKeep("a meta tensor has no content")
    dtype = str(plain.dtype).removeprefix("torch.")
    shape = tuple(plain.shape)
    return FileContent(_pieces(plain), plain.numel() * plain.element_size(), dtype, shape)


def _pieces(plain: Any) -> Iterator[memoryview]:
    """Yield contiguous memory as one piece; everything else goes through a buffer of bounded size."""
    if not plain.numel():
        return
    if (
        plain.device.type == "cpu"
        and plain.is_contiguous()
        and not plain.is_conj()
        and not plain.is_neg()
    ):
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
    # A tensor of one element may have any stride, with which it could not be viewed as bytes.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return memoryview(flat.view(torch.uint8).numpy())


def _pieces_of_array(plain: Any) -> FileContent:
    if plain.dtype.hasobject:
        raise CannotKeep("an array of Python objects has no plain bytes")
    numpy = importlib.import_module("numpy")
    if plain.dtype.names is not None:
        raise CannotKeep("an array of records has no plain bytes: mark its fields instead")
    flat = numpy.ascontiguousarray(plain).reshape(-1)
    if flat.size:
        pieces = [memoryview(flat.view(numpy.uint8))]
    else:
        pieces = []
    return FileContent(iter(pieces), flat.nbytes, str(plain.dtype), tuple(plain.shape))


def opened(stored: TensorBytes, kind: str) -> Any:
    """Return the bytes of a bundle as a tensor or array. Without torch, a tensor becomes a numpy array."""
    if kind == "array" or not HAS_TORCH:
        return _opened_by_numpy(stored)
    dtype = getattr(torch, stored.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise NotRecorded(
            f"this version of torch has no dtype {stored.dtype!r}, so the tensor cannot be opened here"
        )
    with unseen():  # a trace may be read while a recording runs
        if not len(stored.data):
            return torch.empty(stored.shape, dtype=dtype)
        flat = private.frombuffer(stored.data, dtype=torch.uint8).view(dtype)
        return flat.as_strided(stored.shape, stored.stride, stored.storage_offset)


def _opened_by_numpy(stored: TensorBytes) -> Any:
    numpy = importlib.import_module("numpy")
    try:
        dtype = numpy.dtype(stored.dtype)
    except TypeError:
        raise NotRecorded(
            f"numpy has no dtype {stored.dtype!r}: install torch to open this tensor"
        ) from None
    flat = numpy.frombuffer(stored.data, dtype=dtype)
    strides = tuple(step * dtype.itemsize for step in stored.stride)
    return numpy.lib.stride_tricks.as_strided(flat[stored.storage_offset :], stored.shape, strides)
