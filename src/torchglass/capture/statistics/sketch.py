"""Computes sketches: fingerprints that recognise the numbers of a value in another run, dtype, shape or order.

This is the reference implementation in numpy; ``engine/fast/sketch.c`` does the same in C. A sketch is made from the
numbers x in their logical order. A number that is not finite, or is larger than 1e30, is replaced by 0, and the sketch
holds how many such numbers there are. Complex numbers add a last axis of size two. The parts of a sketch are:

- hash: a hash of the bytes, so equal bits have equal hashes. The bytes are split into blocks of 2,048, and a block into
  words of eight bytes (the last word is filled up with zeros). Each word is combined (xor) with a random key that
  depends on its position in the block. The two halves of the result are multiplied, the halves of the product are
  exchanged, and the word itself is added. These numbers are summed for each block, and the sums of the blocks are
  added, each times a random odd factor of the block. All of this is modulo 2**64. Last, the sum is mixed with the
  number of bytes. Blocks may therefore be processed in any order and in parallel.
- flat: 17 sums. Number i goes into sum ``(i mod 16 + i div 1024) mod 17`` with the weight r(i). The weight is a random
  sign times a number from 0.5 to 1.5, which both depend on i mod 1024, times a random sign that depends on i div 1024.
- axes: 17 sums. The number at (i, j …) goes into sum ``(g(i) + g(j) …) mod 17`` with the weight r(i) r(j) …, where
  g(i) is ``i mod 16 + i div 1024``. Axes of one element do not count. A transposed tensor has the same sums.
- orders: the sums of x, x², |x|, x³ and x⁴, the smallest and the largest number. They are the same in any order.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch

from torchglass.capture.statistics.memory import (
    KINDS,
    MOST_SIZES,
    PIECE,
    NoNumbers,
    Packing,
    tally_of,
    viewed,
    widened,
)
from torchglass.capture.statistics.tally import Tally
from torchglass.capture.torch import private
from torchglass.compiled import extension
from torchglass.errors import WrongType
from torchglass.events.types import SKETCH, Sketch, Value

BLOCK = 1024
LANES = 16
PRIME = 17
"""The three constants in the definition above."""
LARGEST = 1e30
"""The largest number that is not replaced by 0; its fourth power still fits a double."""
MOST = 1 << 27
"""The most numbers of an expanded tensor to read in logical order; such a tensor has more numbers than memory."""
HASHED = 2048
"""The number of bytes in a block of the hash."""
_KEYS = np.uint64(1 << 32)
_FACTORS = np.uint64(2 << 32)
"""Where the counters of the random keys and factors begin, so that no counter is used twice."""


def sketch_of(tensor: Any, kind: Packing, tally: Tally) -> bytes:
    """Return the sketch of a strided tensor in CPU memory, packed as in the journal.

    ``tally`` holds the statistics of the tensor.
    """
    sizes_and_steps = zip(tensor.shape, tensor.stride(), strict=True)
    axes = [(size, step) for size, step in sizes_and_steps if size != 1]
    count = prod(size for size, _ in axes)
    if count > MOST and count * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise NoNumbers("it is too large to be gone through in its logical order")
    if extension is not None and kind.compiled and len(axes) <= MOST_SIZES and count:
        order = order_of(tensor, kind)
        numbers = (tally.count, tally.finite, tally.low, tally.high, tally.mean, tally.squares)
        return extension.sketch(tensor.data_ptr(), order, numbers)
    return sketch_array(viewed(tensor, kind), kind)


def order_of(tensor: Any, kind: Packing) -> tuple[str, int, int, tuple[tuple[int, int], ...]]:
    """Return the logical order of a tensor's elements in the form that the compiled engine takes."""
    item: int = tensor.element_size()
    axes: list[tuple[int, int]] = []
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        if size != 1:
            axes.append((size, step * item))
    return kind.compiled, kind.parts, item, tuple(axes)


def sketch_array(array: Any, kind: Packing) -> bytes:
    """Sketch an array in the tensor's shape, with one more axis for the parts of an element, using numpy."""
    shape = tuple(size for size in array.shape if size != 1) or (1,)
    flat = np.zeros(PRIME)
    axes = np.zeros(PRIME)
    orders = np.zeros(5)
    odd = 0
    low = np.inf
    high = -np.inf
    with np.errstate(all="ignore"):
        for first in range(0, array.size, PIECE):
            raw = array.flat[first : first + PIECE]
            x = widened(raw, kind).astype(np.float64)
            bad = ~(np.abs(x) <= LARGEST)
            odd += int(np.count_nonzero(bad))
            fine = x[~bad]
            low = min(low, fine.min(initial=np.inf))
            high = max(high, fine.max(initial=-np.inf))
            x = np.where(bad, 0.0, x)
            at = np.arange(first, first + x.size)
            flat += np.bincount(_sums(at) % PRIME, weights=x * _weights(at), minlength=PRIME)
            places = np.unravel_index(at, shape)
            weight = prod(map(_weights, places))
            into = sum(map(_sums, places)) % PRIME
            axes += np.bincount(into, weights=x * weight, minlength=PRIME)
            orders += [x.sum(), (x * x).sum(), np.abs(x).sum(), (x**3).sum(), (x**4).sum()]
    if low <= high:
        ends = (low, high)
    else:
        ends = (0.0, 0.0)
    return SKETCH.pack(hash_of(array), *flat, *axes, *orders, *ends, odd)


def hash_of(array: Any) -> int:
    """Return the hash of an array's bytes in logical order. The hash is never 0, which means an unknown hash."""
    keys = _keys()
    total = np.uint64(0)
    bytes_at_once = HASHED * 64
    step = bytes_at_once // array.itemsize
    for first in range(0, array.size, step):
        raw = np.ascontiguousarray(array.flat[first : first + step]).view(np.uint8)
        padded = np.zeros(_rounded_up(raw.size, HASHED) * HASHED, np.uint8)
        padded[: raw.size] = raw
        words = padded.view("<u8").reshape(-1, HASHED // 8)
        mixed = words ^ keys
        product = (mixed & np.uint64(0xFFFFFFFF)) * (mixed >> np.uint64(32))
        found = (product << np.uint64(32) | product >> np.uint64(32)) + words
        found.reshape(-1)[_rounded_up(raw.size, 8) :] = 0  # after the last word of the array
        blocks = np.arange(len(words), dtype=np.uint64) + np.uint64(first // step * 64)
        factors = _stirred(_FACTORS + blocks) | np.uint64(1)
        sums = found.sum(axis=1, dtype=np.uint64)
        total = (sums * factors).sum(dtype=np.uint64, initial=total)
    size = _stirred(np.array([array.nbytes], np.uint64))
    return int(_stirred(total ^ size)[0]) or 1


def _keys() -> Any:
    """Return the random key of each word in a block."""
    places = np.arange(HASHED // 8, dtype=np.uint64)
    column = places % np.uint64(64)
    row = places // np.uint64(64)
    return _stirred(_KEYS + column) ^ _stirred(_KEYS + np.uint64(64) + row)


def _rounded_up(count: int, size: int) -> int:
    """Return how many pieces of ``size`` hold ``count``."""
    return -(-count // size)


def _stirred(counter: Any) -> Any:
    """Return a random number of 64 bits for each counter."""
    z = (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def _random(counter: Any) -> Any:
    """Return a random sign times a number from 0.5 to 1.5, for each counter."""
    z = _stirred(counter.astype(np.uint64))
    size = 0.5 + (z >> np.uint64(41)).astype(np.float64) * 2.0**-23
    return np.where(z & np.uint64(1), -size, size)


@cache
def _table() -> Any:
    return _random(np.arange(BLOCK))


def _weights(at: Any) -> Any:
    """Return the weight r(i) of each number."""
    block = at // BLOCK
    is_odd = _stirred((block + BLOCK).astype(np.uint64)) & np.uint64(1)
    is_turned = (block > 0) & is_odd.astype(bool)
    weights = _table()[at % BLOCK]
    return np.where(is_turned, -weights, weights)


def _sums(at: Any) -> Any:
    return at % LANES + at // BLOCK


# ---------------------------------------------------------------- described

# Turns a tensor or an array that the user passes to ``trace.find`` into a value with a sketch.


def described(given: Any) -> Value:
    """Return a value with a sketch for a plain tensor on any device, or for an array."""
    if isinstance(given, (np.ndarray, np.generic)):
        given = _from_numpy(given)
    if not isinstance(given, torch.Tensor):
        raise WrongType(
            f"find() takes a tensor, an array or a value of a trace, not {type(given).__name__}"
        )
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        private.no_subclasses(),
        private.no_dispatch(),
    ):
        plain = given.detach()
        if plain.layout is torch.strided and not plain.is_quantized and not plain.is_nested:
            plain = plain.cpu().resolve_conj().resolve_neg()
        if plain.layout is not torch.strided or plain.dtype not in KINDS or plain.is_nested:
            if plain.layout is torch.strided:
                kind = plain.dtype
            else:
                kind = plain.layout
            raise WrongType(
                f"find() takes a plain tensor, not one of {kind}: give it as a dense one"
            )
        kind = KINDS[plain.dtype]
        sketch = Sketch.of(sketch_of(plain, kind, tally_of(plain, kind)))
    name = str(given.dtype).removeprefix("torch.")
    return Value(
        -1, "tensor", "", tuple(given.shape), name, str(given.device), None, "strided", False, type(given).__name__,
        None, None, None, None, sketch,
    )  # fmt: skip


def _from_numpy(given: Any) -> Any:
    try:
        with private.no_functions(), private.no_dispatch():
            return torch.from_numpy(np.ascontiguousarray(given))
    except TypeError:
        raise WrongType(
            f"find() takes an array of numbers that torch knows, not of {given.dtype}"
        ) from None
