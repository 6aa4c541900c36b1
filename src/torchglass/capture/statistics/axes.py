"""Packs the logical order of a tensor's numbers for the kernels on a GPU (``Order`` in sketch.cu)."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

MOST_AXES = 9
"""The most axes that the kernels handle, not counting axes of one number."""
SMALL = 1 << 31
"""For tensors with fewer numbers than this, the kernel divides by multiplying."""
BLOCK = 1024
"""The number of different weights in a sketch (sketch.py). Rows of whole blocks have a simpler kernel."""
SHORT = (64, 128, 256, 512)
"""The lengths of a short row in bytes: a warp reads one or several such rows at once."""
KERNELS = ("large_sketch", "sketch", "even_sketch", "short_sketch")
"""The kernels in sketch.cu; a packed order ends its head with an index into this tuple."""
LOAD = 16
"""The number of bytes that a thread reads at once."""
_HEAD = struct.Struct("=QIIII")
_AXIS = struct.Struct("=QIIq")
SIZE = _HEAD.size + MOST_AXES * _AXIS.size
"""The size of a packed order in bytes."""


def packed_order(tensor: Any) -> bytes | None:
    """Return the packed order of a tensor that is not complex, or None if it has no numbers or too many axes."""
    both = zip(tensor.shape, tensor.stride(), strict=True)
    axes = [each for each in both if each[0] != 1][::-1] or [(1, 1)]
    if len(axes) > MOST_AXES or not tensor.numel():
        return None
    count = prod(size for size, _ in axes)
    item = tensor.element_size()
    is_flat = _is_flat(axes)
    few = count < SMALL
    is_whole = is_flat or _is_whole(axes, item)
    kernel = KERNELS.index(
        _kernel(axes[0][0], item, is_flat and len(axes) == 1) if few and is_whole else "sketch"
    )
    packed = b"".join(_packed(size, step, few) for size, step in axes)
    head = _HEAD.pack(count, len(axes), is_flat, is_whole, kernel if few else 0)
    return (head + packed).ljust(SIZE, b"\0")


def kernel_of(order: bytes) -> str:
    """Return the name of the kernel for an order; ``packed_order`` has chosen it by the size and the rows."""
    return KERNELS[_HEAD.unpack_from(order)[-1]]


def _kernel(row: int, item: int, is_one: bool) -> str:
    """Return the kernel for rows of this length; ``is_one`` means one contiguous axis."""
    if is_one or row % BLOCK == 0:
        return "even_sketch"
    if row * item in SHORT:
        return "short_sketch"
    return "sketch"


def _packed(size: int, step: int, few: bool) -> bytes:
    """Pack an axis and the two numbers that replace a division by its size: ``(n * magic >> 32) + n >> shift``."""
    shift = 0
    if few:
        shift = (size - 1).bit_length()
    return _AXIS.pack(size, (((1 << shift) - size) << 32) // size + 1 if few else 0, shift, step)


def _is_flat(axes: list[tuple[int, int]]) -> bool:
    """Return whether the logical order is the order in memory."""
    expected = 1
    for size, step in axes:
        if size > 1 and step != expected:
            return False
        expected *= size
    return True


def _is_whole(axes: list[tuple[int, int]], item: int) -> bool:
    """Return whether every sixteen bytes in logical order are contiguous and aligned, so one load can read them."""
    (size, step), *above = axes
    return (
        step == 1 and size * item % LOAD == 0 and all(each * item % LOAD == 0 for _, each in above)
    )
