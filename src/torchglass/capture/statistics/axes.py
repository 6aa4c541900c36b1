"""The logical order of a tensor's numbers, as the kernel on a GPU takes it (``Order`` of sketch.cu)."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

MOST_AXES = 9
"""Without those of one number."""
SMALL = 1 << 31
"""Below it the kernel divides by multiplying."""
BLOCK = 1024
"""Weights that differ: rows of whole blocks are even."""
SHORT = (64, 128, 256, 512)
"""Bytes of a short row: a warp reads several of them, or a whole one, at once."""
KERNELS = ("large_sketch", "sketch", "even_sketch", "short_sketch")
LOAD = 16
"""Bytes that are read at once."""
_HEAD, _AXIS = struct.Struct("=QIIII"), struct.Struct("=QIIq")
SIZE = _HEAD.size + MOST_AXES * _AXIS.size


def packed_order(tensor: Any) -> bytes | None:
    """Of a tensor of plain numbers, which complex ones are not; None where it has no numbers or too many axes."""
    both = zip(tensor.shape, tensor.stride(), strict=True)
    axes = [each for each in both if each[0] != 1][::-1] or [(1, 1)]
    if len(axes) > MOST_AXES or not tensor.numel():
        return None
    count, item = prod(size for size, _ in axes), tensor.element_size()
    is_flat, few = _is_flat(axes), count < SMALL
    is_whole = is_flat or _is_whole(axes, item)
    kernel = KERNELS.index(_kernel(axes[0][0], item, is_flat and len(axes) == 1) if few and is_whole else "sketch")
    packed = b"".join(_packed(size, step, few) for size, step in axes)
    head = _HEAD.pack(count, len(axes), is_flat, is_whole, kernel if few else 0)
    return (head + packed).ljust(SIZE, b"\0")


def kernel_of(order: bytes) -> str:
    """The kernel for an order: whether 32 bits say where each number stands, and how long its rows are."""
    return KERNELS[_HEAD.unpack_from(order)[-1]]


def _kernel(row: int, item: int, is_one: bool) -> str:
    """The kernel for rows of so many numbers, or one alone, of which loads may be read at once."""
    if is_one or row % BLOCK == 0:
        return "even_sketch"
    return "short_sketch" if row * item in SHORT else "sketch"


def _packed(size: int, step: int, few: bool) -> bytes:
    """With the numbers by which n is divided by the size: (n * magic >> 32) + n >> shift."""
    shift = (size - 1).bit_length() if few else 0
    return _AXIS.pack(size, (((1 << shift) - size) << 32) // size + 1 if few else 0, shift, step)


def _is_flat(axes: list[tuple[int, int]]) -> bool:
    """Whether the logical order is that of the memory."""
    expected = 1
    for size, step in axes:
        if size > 1 and step != expected:
            return False
        expected *= size
    return True


def _is_whole(axes: list[tuple[int, int]], item: int) -> bool:
    """Whether sixteen bytes in the logical order lie side by side, and where they may be read at once."""
    (size, step), *above = axes
    return step == 1 and size * item % LOAD == 0 and all(each * item % LOAD == 0 for _, each in above)
