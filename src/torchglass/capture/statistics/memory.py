"""Measures a tensor in CPU memory by reading the memory in place; torch only provides the address.

No torch function runs, so no mode, hook, profiler or random number generator of the program notices. Only pieces of
some thousand numbers are copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch

from torchglass.capture.statistics.tally import Tally
from torchglass.capture.torch import private
from torchglass.compiled import extension

PIECE = 8192
"""How many numbers to process at a time.

Pieces of this size stay in the processor's cache, and numpy does not use several threads for their products.
"""
MOST_OVERLAP = 64
"""A large view that shows each number of its memory more often than this is not measured."""
LARGE = 1 << 27
"""Tensors with more numbers than this are large: a view is checked for `MOST_OVERLAP`, and Python measures them."""
MOST_SIZES = 8
"""The most dimensions, not counting those of size one, that the compiled engine handles."""


class Packing(NamedTuple):
    """How the numbers of a dtype are stored in memory."""

    code: str
    """The format for numpy."""
    parts: int = 1
    """How many numbers form one element: two for a complex number."""
    widens: bool = False
    """Whether each number is the upper half of a float32 (bfloat16)."""
    table: str = ""
    """The name of a dtype of one byte, whose 256 numbers are looked up in a table; "" for other dtypes."""

    @property
    def compiled(self) -> str:
        """The code of the dtype in the compiled engine (tally.c); "" if the engine does not know the dtype."""
        if self.widens:
            return "bf"
        if self.table:
            return _BYTES.get(self.table, "")
        return self.code


_BYTES = {"int8": "i1", "uint8": "u1"}


KINDS: dict[Any, Packing] = {
    torch.float32: Packing("f4"), torch.float64: Packing("f8"), torch.float16: Packing("f2"),
    torch.bfloat16: Packing("u2", widens=True), torch.bool: Packing("b1"),
    torch.int16: Packing("i2"), torch.int32: Packing("i4"), torch.int64: Packing("i8"),
    torch.uint16: Packing("u2"), torch.uint32: Packing("u4"), torch.uint64: Packing("u8"),
    torch.complex32: Packing("f2", 2), torch.complex64: Packing("f4", 2), torch.complex128: Packing("f8", 2),
}  # fmt: skip
KINDS |= {
    getattr(torch, name): Packing("u1", table=name)
    for name in ("int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
                 "float8_e8m0fnu")
    if hasattr(torch, name)
}  # fmt: skip
"""The dtypes that can be read in place; quantised dtypes and those smaller than a byte cannot."""


class NoNumbers(Exception):
    """Raised for a tensor that cannot be measured; the message gives the reason."""


class _Memory:
    """Gives numpy access to memory that numpy does not own."""

    __slots__ = ("__array_interface__",)

    def __init__(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, code: str
    ) -> None:
        if code[1] == "1":
            kind = "|"
        elif np.little_endian:
            kind = "<"
        else:
            kind = ">"
        self.__array_interface__ = {
            "data": (address, True), "shape": shape, "strides": strides, "typestr": kind + code, "version": 3,
        }  # fmt: skip


def tally_of(tensor: Any, kind: Packing) -> Tally:
    """Return the statistics of a strided tensor in CPU memory; raise NoNumbers if its memory is not there."""
    if not tensor.numel():
        return Tally()
    sizes, repeats = _sizes(tensor)
    span = 1 + sum(step * (size - 1) for step, size in sizes)
    if not is_there(tensor, span):
        raise NoNumbers("its memory was given back")
    address = tensor.data_ptr()
    item = tensor.element_size()
    count = prod(size for _, size in sizes)
    if count > LARGE and count > MOST_OVERLAP * span:
        raise NoNumbers("its numbers overlap in memory, and are too many to go through")
    found = None
    if extension is not None and kind.compiled and len(sizes) <= MOST_SIZES:
        found = extension.tally(address, (kind.compiled, kind.parts, repeats, tuple(sizes)))
    if found is None:
        return _by_numpy(address, sizes, item, kind, repeats)
    return Tally.of(found)


def is_there(tensor: Any, span: int) -> bool:
    """Return whether there is memory for so many elements, counted from the first element of a tensor.

    A wrapper tensor (of functionalize, or of a subclass) has a storage of the right size but no memory. The address of
    such a tensor is only its offset.
    """
    item = tensor.element_size()
    offset = tensor.storage_offset()
    address = tensor.data_ptr() - offset * item
    return address > 0 and (offset + span) * item <= tensor.untyped_storage().nbytes()


def layout_of(tensor: Any) -> tuple[str, int, int, tuple[tuple[int, int], ...]] | None:
    """Return the layout of a tensor's numbers for the compiled engine, or None if Python must measure the tensor."""
    kind = KINDS.get(tensor.dtype)
    if (
        kind is None
        or not kind.compiled
        or not (tensor.is_cpu or tensor.is_cuda)
        or tensor.layout is not torch.strided
    ):
        return None
    sizes, repeats = _sizes(tensor)
    if (
        not tensor.numel()
        or tensor.is_quantized
        or len(sizes) > MOST_SIZES
        or prod(size for _, size in sizes) > LARGE
    ):
        return None
    return kind.compiled, kind.parts, repeats, tuple(sizes)


def _sizes(tensor: Any) -> tuple[list[tuple[int, int]], int]:
    """Return the stride and size of each dimension, and how often expanded dimensions repeat the whole.

    The smallest stride comes first. Dimensions of size one and expanded dimensions (stride 0) are left out.
    """
    both = [
        (step, size) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1
    ]
    return sorted(each for each in both if each[0]), prod(size for step, size in both if not step)


def _by_numpy(
    address: int, sizes: list[tuple[int, int]], item: int, kind: Packing, repeats: int
) -> Tally:
    tally = Tally()
    if _is_dense(sizes):
        pieces = _flat(address, prod(size for _, size in sizes) * kind.parts, kind.code)
    else:
        pieces = _strided(address, sizes, item, kind)
    with np.errstate(all="ignore"):
        _add(tally, pieces, kind)
    if repeats > 1:
        tally.repeat(repeats)
    return tally


def viewed(tensor: Any, kind: Packing) -> Any:
    """Return a strided tensor as a numpy view in its own shape, with one more axis for the parts of an element."""
    item: int = tensor.element_size()
    shape = [*tensor.shape]
    strides = [step * item for step in tensor.stride()]
    if kind.parts > 1:
        shape = [*shape, kind.parts]
        strides = [*strides, item // kind.parts]
    if not tensor.numel():
        return np.zeros(tuple(shape), kind.code)
    return np.asarray(_Memory(tensor.data_ptr(), tuple(shape), tuple(strides), kind.code))


def bytes_at(address: int, length: int) -> Any:
    """Return a numpy view of so many bytes of memory."""
    return np.asarray(_Memory(address, (length,), None, "u1"))


def widened(piece: Any, kind: Packing) -> Any:
    """Convert numbers to a dtype that numpy computes with."""
    if kind.table:
        return _table(kind.table)[piece]
    if kind.widens:
        return (piece.astype(np.uint32) << 16).view(np.float32)
    if kind.code == "f2":
        return piece.astype(np.float32)
    return piece


def _is_dense(sizes: list[tuple[int, int]]) -> bool:
    """Return whether the numbers fill their memory without gaps, in any order of the dimensions.

    ``sizes`` holds the stride and size of each dimension, the smallest stride first.
    """
    expected = 1
    for step, size in sizes:
        if step != expected:
            return False
        expected *= size
    return True


def _flat(address: int, count: int, code: str) -> Iterator[Any]:
    whole = np.asarray(_Memory(address, (count,), None, code))
    if count <= PIECE:
        yield whole
        return
    for first in range(0, count, PIECE):
        yield whole[first : first + PIECE]


def _strided(address: int, sizes: list[tuple[int, int]], item: int, kind: Packing) -> Iterator[Any]:
    """Yield elements that are not contiguous, gathered a piece at a time."""
    shape = [size for _, size in sizes]
    strides = [step * item for step, _ in sizes]
    if kind.parts > 1:
        shape = [kind.parts, *shape]
        strides = [item // kind.parts, *strides]
    whole = np.asarray(_Memory(address, tuple(shape), tuple(strides), kind.code))
    return iter(np.nditer(whole, flags=["external_loop", "buffered"], order="K", buffersize=PIECE))  # type: ignore[arg-type]


def _add(tally: Tally, pieces: Iterator[Any], kind: Packing) -> None:
    if kind.code == "b1":
        ones = count = 0
        for piece in pieces:
            ones = ones + int(np.count_nonzero(piece))
            count = count + piece.size
        tally.add_repeated(np.array([0.0, 1.0]), np.array([count - ones, ones]))
    elif kind.table:
        times = np.zeros(256, np.int64)
        for piece in pieces:
            times += np.bincount(piece, minlength=256)
        tally.add_repeated(_table(kind.table), times)
    elif kind.widens:
        for piece in pieces:
            tally.add((piece.astype(np.uint32) << 16).view(np.float32))
    elif kind.code == "f2":
        for piece in pieces:
            tally.add(piece.astype(np.float32))
    else:
        for piece in pieces:
            tally.add(piece)


@cache
def _table(dtype: str) -> Any:
    """Return the number that each of the 256 bytes stands for in a dtype of one byte."""
    with private.no_functions(), private.no_dispatch():
        every = torch.arange(256, dtype=torch.uint8, device="cpu")
        return every.view(getattr(torch, dtype)).to(torch.float64).numpy()
