"""By what the numbers of a value are known again, in another run, another dtype, shape or order.

The definition, for numpy; ``engine/fast/sketch.c`` does the same. Of the numbers x in their logical order (what is not
finite, or larger than 1e30, counts as 0 and is counted; a complex number is a last axis of two):

- hash: of the bytes; equal bits have equal hashes. Of each word of eight bytes, the last one filled with zeros, the
  halves are multiplied, after a random key of its place in a block of 2,048 bytes; the product, its halves exchanged,
  and the word itself are summed in a block, the sums of blocks with a random odd factor of each; all modulo 2**64. The
  sum and the number of bytes are stirred. So blocks may be gone through in any order, and at once.
- flat: 17 sums. Number i goes into sum ``(i mod 16 + i div 1024) mod 17`` with the weight r(i): a random sign times a
  number from 0.5 to 1.5, both of i mod 1024, times a random sign of i div 1024.
- axes: 17 sums. The number at (i, j …) goes into the sum ``(g(i) + g(j) …) mod 17``, g being as above, with the weight
  r(i) r(j) …; axes of one element do not count. It is the same for transposed tensors.
- orders: the sums of x, x², |x|, x³, x⁴, the smallest and the largest: the same in any order.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch

from torchglass.capture.statistics.memory import KINDS, MOST_SIZES, PIECE, NoNumbers, Packing, tally_of, viewed, widened
from torchglass.capture.statistics.tally import Tally
from torchglass.capture.torch import private
from torchglass.compiled import extension
from torchglass.errors import WrongType
from torchglass.events.types import SKETCH, Sketch, Value

BLOCK, LANES, PRIME = 1024, 16, 17
LARGEST = 1e30
MOST = 1 << 27
"""Numbers that are gone through in their logical order where memory has fewer of them: in an expanded tensor."""
HASHED = 2048
"""Bytes that are hashed together."""
_KEYS, _FACTORS = np.uint64(1 << 32), np.uint64(2 << 32)


def sketch_of(tensor: Any, kind: Packing, tally: Tally) -> bytes:
    """The sketch of a strided tensor in memory, as the journal has it; it was measured before."""
    axes = [(size, step) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]
    count = prod(size for size, _ in axes)
    if count > MOST and count * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise NoNumbers("it is too large to be gone through in its logical order")
    if extension is not None and kind.compiled and len(axes) <= MOST_SIZES and count:
        order = order_of(tensor, kind)
        numbers = (tally.count, tally.finite, tally.low, tally.high, tally.mean, tally.squares)
        return extension.sketch(tensor.data_ptr(), order, numbers)
    return sketch_array(viewed(tensor, kind), kind)


def order_of(tensor: Any, kind: Packing) -> tuple[str, int, int, tuple[tuple[int, int], ...]]:
    """Its elements in their logical order, as the compiled engine takes them."""
    item: int = tensor.element_size()
    both = zip(tensor.shape, tensor.stride(), strict=True)
    return kind.compiled, kind.parts, item, tuple((size, step * item) for size, step in both if size != 1)


def sketch_array(array: Any, kind: Packing) -> bytes:
    """The same by numpy; the array has the shape of the tensor, and one axis more for the parts of an element."""
    shape = tuple(size for size in array.shape if size != 1) or (1,)
    flat, axes, orders, odd = np.zeros(PRIME), np.zeros(PRIME), np.zeros(5), 0
    low, high = np.inf, -np.inf
    with np.errstate(all="ignore"):
        for first in range(0, array.size, PIECE):
            raw = array.flat[first : first + PIECE]
            x = widened(raw, kind).astype(np.float64)
            bad = ~(np.abs(x) <= LARGEST)
            odd += int(np.count_nonzero(bad))
            fine, x = x[~bad], np.where(bad, 0.0, x)
            low, high = min(low, fine.min(initial=np.inf)), max(high, fine.max(initial=-np.inf))
            at = np.arange(first, first + x.size)
            flat += np.bincount(_sums(at) % PRIME, weights=x * _weights(at), minlength=PRIME)
            along = np.unravel_index(at, shape)
            by, to = prod(map(_weights, along)), sum(map(_sums, along))
            axes += np.bincount(to % PRIME, weights=x * by, minlength=PRIME)
            orders += [x.sum(), (x * x).sum(), np.abs(x).sum(), (x**3).sum(), (x**4).sum()]
    ends = (low, high) if low <= high else (0.0, 0.0)
    return SKETCH.pack(hash_of(array), *flat, *axes, *orders, *ends, odd)


def hash_of(array: Any) -> int:
    """The hash of the bytes of an array, in its logical order; never 0, which stands for one that is not known."""
    places, total = np.arange(HASHED // 8, dtype=np.uint64), np.uint64(0)
    keys = _stirred(_KEYS + places % np.uint64(64)) ^ _stirred(_KEYS + np.uint64(64) + places // np.uint64(64))
    step = HASHED * 64 // array.itemsize
    for first in range(0, array.size, step):
        raw = np.ascontiguousarray(array.flat[first : first + step]).view(np.uint8)
        words = np.zeros(-(-raw.size // HASHED) * HASHED, np.uint8)
        words[: raw.size] = raw
        words = words.view("<u8").reshape(-1, HASHED // 8)
        mixed = words ^ keys
        product = (mixed & np.uint64(0xFFFFFFFF)) * (mixed >> np.uint64(32))
        found = (product << np.uint64(32) | product >> np.uint64(32)) + words
        found.reshape(-1)[-(-raw.size // 8) :] = 0  # behind the end
        blocks = np.arange(len(words), dtype=np.uint64) + np.uint64(first // step * 64)
        factors = _stirred(_FACTORS + blocks) | np.uint64(1)
        total = (found.sum(axis=1, dtype=np.uint64) * factors).sum(dtype=np.uint64, initial=total)
    return int(_stirred(total ^ _stirred(np.array([array.nbytes], np.uint64)))[0]) or 1


def _stirred(counter: Any) -> Any:
    """A number of 64 bits for each counter."""
    z = (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def _random(counter: Any) -> Any:
    """A random sign times a number from 0.5 to 1.5, for each counter."""
    z = _stirred(counter.astype(np.uint64))
    return np.where(z & np.uint64(1), -1.0, 1.0) * (0.5 + (z >> np.uint64(41)).astype(np.float64) * 2.0**-23)


@cache
def _table() -> Any:
    return _random(np.arange(BLOCK))


def _weights(at: Any) -> Any:
    block = at // BLOCK
    is_turned = (block > 0) & (_stirred((block + BLOCK).astype(np.uint64)) & np.uint64(1)).astype(bool)
    return np.where(is_turned, -1.0, 1.0) * _table()[at % BLOCK]


def _sums(at: Any) -> Any:
    return at % LANES + at // BLOCK


# ---------------------------------------------------------------- given

# A tensor or an array that somebody asks for, as a value with a sketch: what ``trace.find`` compares with.


def described(given: Any) -> Value:
    """Of a plain tensor on any device, or of an array."""
    if isinstance(given, (np.ndarray, np.generic)):
        given = _from_numpy(given)
    if not isinstance(given, torch.Tensor):
        raise WrongType(f"find() takes a tensor, an array or a value of a trace, not {type(given).__name__}")
    with torch.inference_mode(False), torch.no_grad(), private.no_subclasses(), private.no_dispatch():
        plain = given.detach()
        if plain.layout is torch.strided and not plain.is_quantized and not plain.is_nested:
            plain = plain.cpu().resolve_conj().resolve_neg()
        if plain.layout is not torch.strided or plain.dtype not in KINDS or plain.is_nested:
            kind = plain.dtype if plain.layout is torch.strided else plain.layout
            raise WrongType(f"find() takes a plain tensor, not one of {kind}: give it as a dense one")
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
        raise WrongType(f"find() takes an array of numbers that torch knows, not of {given.dtype}") from None
