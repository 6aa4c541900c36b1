"""Statistics of a tensor in this machine's memory, read where it lies: torch is asked for the address, not for numbers.

No torch function runs, so no mode, hook, profiler or random number generator of the program notices, and nothing is
copied but pieces of some thousand numbers.
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
"""Numbers at a time: they stay in the cache, and numpy's products do not go to several threads."""
MOST_OVERLAP = 64
"""A view that shows each number of its memory more often than this is not gone through, if it is large."""
LARGE = 1 << 27
MOST_SIZES = 8
"""Dimensions, without those of one, that the compiled engine goes through."""


class Packing(NamedTuple):
    """How the numbers of a dtype lie in memory."""

    code: str
    """For numpy."""
    parts: int = 1
    """How many numbers are one element."""
    widens: bool = False
    """bfloat16: the upper half of a float32."""
    table: str = ""
    """One byte, looked up among the 256 that there are of this dtype."""

    @property
    def compiled(self) -> str:
        """For the compiled engine (tally.c); "" where it does not know the dtype."""
        return "bf" if self.widens else _BYTES.get(self.table, "") if self.table else self.code


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
"""Dtypes that can be read so; others (quantised, of less than a byte) cannot."""


class NoNumbers(Exception):
    """There is nothing that could be measured; the text says why."""


class _Memory:
    """Lets numpy look at memory that is not its own."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, code: str) -> None:
        kind = "|" if code[1] == "1" else "<" if np.little_endian else ">"
        self.__array_interface__ = {
            "data": (address, True), "shape": shape, "strides": strides, "typestr": kind + code, "version": 3,
        }  # fmt: skip


def tally_of(tensor: Any, kind: Packing) -> Tally:
    """The statistics of a strided tensor in memory; NoNumbers where its memory is not there."""
    if not tensor.numel():
        return Tally()
    sizes, repeats = _sizes(tensor)
    span = 1 + sum(step * (size - 1) for step, size in sizes)
    address, item = tensor.data_ptr(), tensor.element_size()
    if not address or (tensor.storage_offset() + span) * item > tensor.untyped_storage().nbytes():
        raise NoNumbers("its memory was given back")
    count = prod(size for _, size in sizes)
    if count > LARGE and count > MOST_OVERLAP * span:
        raise NoNumbers("its numbers overlap in memory, and are too many to go through")
    found = None
    if extension is not None and kind.compiled and len(sizes) <= MOST_SIZES:
        found = extension.tally(address, (kind.compiled, kind.parts, repeats, tuple(sizes)))
    return _by_numpy(address, sizes, item, kind, repeats) if found is None else Tally.of(found)


def layout_of(tensor: Any) -> tuple[str, int, int, tuple[tuple[int, int], ...]] | None:
    """How its numbers lie, as the compiled engine takes it; None where it is to be looked at in Python."""
    kind = KINDS.get(tensor.dtype)
    if kind is None or not kind.compiled or not (tensor.is_cpu or tensor.is_cuda) or tensor.layout is not torch.strided:
        return None
    sizes, repeats = _sizes(tensor)
    if not tensor.numel() or tensor.is_quantized or len(sizes) > MOST_SIZES or prod(size for _, size in sizes) > LARGE:
        return None
    return kind.compiled, kind.parts, repeats, tuple(sizes)


def _sizes(tensor: Any) -> tuple[list[tuple[int, int]], int]:
    """Strides and sizes of its dimensions, the smallest stride first; and how often all that is shown."""
    both = [(step, size) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    return sorted(each for each in both if each[0]), prod(size for step, size in both if not step)


def _by_numpy(address: int, sizes: list[tuple[int, int]], item: int, kind: Packing, repeats: int) -> Tally:
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
    """A strided tensor as numpy sees its memory, in its own shape; one more axis for the parts of an element."""
    item: int = tensor.element_size()
    shape, strides = [*tensor.shape], [step * item for step in tensor.stride()]
    if kind.parts > 1:
        shape, strides = [*shape, kind.parts], [*strides, item // kind.parts]
    if not tensor.numel():
        return np.zeros(tuple(shape), kind.code)
    return np.asarray(_Memory(tensor.data_ptr(), tuple(shape), tuple(strides), kind.code))


def bytes_at(address: int, length: int) -> Any:
    """So many bytes of memory, as numpy sees them."""
    return np.asarray(_Memory(address, (length,), None, "u1"))


def widened(piece: Any, kind: Packing) -> Any:
    """Numbers as numpy reckons with them."""
    if kind.table:
        return _table(kind.table)[piece]
    if kind.widens:
        return (piece.astype(np.uint32) << 16).view(np.float32)
    return piece.astype(np.float32) if kind.code == "f2" else piece


def _is_dense(sizes: list[tuple[int, int]]) -> bool:
    """Whether the numbers fill their memory, in whatever order; strides and sizes by stride."""
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
    """What does not lie side by side is gathered, a piece at a time."""
    shape, strides = [size for _, size in sizes], [step * item for step, _ in sizes]
    if kind.parts > 1:
        shape, strides = [kind.parts, *shape], [item // kind.parts, *strides]
    whole = np.asarray(_Memory(address, tuple(shape), tuple(strides), kind.code))
    return iter(np.nditer(whole, flags=["external_loop", "buffered"], order="K", buffersize=PIECE))  # type: ignore[arg-type]


def _add(tally: Tally, pieces: Iterator[Any], kind: Packing) -> None:
    if kind.code == "b1":
        ones = count = 0
        for piece in pieces:
            ones, count = ones + int(np.count_nonzero(piece)), count + piece.size
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
    """What each byte means in a dtype of one byte."""
    with private.no_functions(), private.no_dispatch():
        every = torch.arange(256, dtype=torch.uint8, device="cpu")
        return every.view(getattr(torch, dtype)).to(torch.float64).numpy()
