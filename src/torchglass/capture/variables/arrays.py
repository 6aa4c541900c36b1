"""Telling whether a numpy array was written into, without keeping a copy of it.

Up to ``EXACT_BYTES`` every byte counts (up to ``COPIED_BYTES`` as a copy, above by CRC-32: one chance in four
thousand million to miss a change). Larger arrays are looked at in ``PLACES`` places, and over their whole length
only at the beginning and the end of a call, and only while that takes less than a tenth of the time. So a change of
a large array can be missed: one of 64 places sees a write to one percent of an array in six of ten cases, and a
write to a single element hardly ever. What is written as a store into the array (``a[i] = v``, ``a += v``) counts
without looking. Arrays of objects and subclasses of ``ndarray`` are known by identity, shape and type only.
"""

from __future__ import annotations

import random
import sys
import time
import zlib
from typing import Any

COPIED_BYTES = 4096
EXACT_BYTES = 65_536
PLACES = 64
_SHARE_OF_TIME = 0.1
_BYTES_PER_SECOND = 8e9
_BLOCK_BYTES = 4096
_MOST_SHAPES = 64


def array_type() -> Any:
    """``numpy.ndarray`` if the program has imported numpy."""
    return getattr(sys.modules.get("numpy"), "ndarray", None)


class Fingerprints:
    """Fingerprints of arrays, within a budget of time."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._spent = 0.0
        self._places: dict[Any, Any] = {}
        self._weights: Any = None

    def of(self, array: Any, whole: bool = False) -> tuple[Any, ...]:
        """Two that differ prove a change; ``whole`` asks for all bytes of a large array if there is time."""
        about = (array.shape, array.strides, id(array.dtype))
        if array.dtype.hasobject:
            return about
        size = array.nbytes
        if size <= COPIED_BYTES:
            return (*about, array.tobytes())
        if size <= EXACT_BYTES:
            return (*about, zlib.crc32(array.tobytes()))
        return (*about, self._sample(array), self._whole(array) if whole else None)

    def _sample(self, array: Any) -> int:
        shape = array.shape
        places = self._places.get(shape)
        if places is None:
            if len(self._places) >= _MOST_SHAPES:
                self._places.clear()
            places = self._places[shape] = self._choose(array)
        return zlib.crc32((array.take(places[0]) if array.flags.c_contiguous else array[places[1]]).tobytes())

    def _choose(self, array: Any) -> tuple[Any, Any]:
        """One place in each of 64 equal parts; of our own random numbers, the program's are not touched."""
        numpy, draw = sys.modules["numpy"], random.Random(array.size)
        part = array.size // PLACES
        flat = [number * part + draw.randrange(max(part, 1)) for number in range(PLACES)] if part else [0]
        places = numpy.array(flat)
        return places, numpy.unravel_index(places, array.shape)

    def _whole(self, array: Any) -> int | None:
        if not array.flags.c_contiguous:
            array = array.T
        now = time.perf_counter()
        allowed = (now - self._started) * _SHARE_OF_TIME - self._spent
        if not array.flags.c_contiguous or array.nbytes / _BYTES_PER_SECOND > allowed:
            return None
        result = self._weighted(array)
        self._spent += time.perf_counter() - now
        return result

    def _weighted(self, array: Any) -> int:
        """Each block of 512 words as a sum with odd weights, which sees any one word change and words change places."""
        numpy = sys.modules["numpy"]
        if self._weights is None:
            draw = random.Random(0)
            words = [draw.getrandbits(64) | 1 for _ in range(_BLOCK_BYTES // 8)]
            self._weights = numpy.array(words, dtype=numpy.uint64)
        flat = array.reshape(-1).view(numpy.uint8)
        whole = flat.size // _BLOCK_BYTES * _BLOCK_BYTES
        blocks = flat[:whole].view(numpy.uint64).reshape(-1, _BLOCK_BYTES // 8)
        sums = numpy.einsum("ij,j->i", blocks, self._weights)
        return zlib.crc32(flat[whole:], zlib.crc32(sums))


def differs_small(array: Any, old: tuple[Any, ...]) -> bool:
    """The same question for an array that was kept as a copy, asked at each call that may write into it."""
    return array.tobytes() != old[3] or (array.shape, array.strides, id(array.dtype)) != old[:3]


def differ(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    """Whether two fingerprints prove a change: where one has not all bytes, the sample decides."""
    if len(old) == 5 == len(new) and (old[4] is None or new[4] is None):
        return old[:4] != new[:4]
    return old != new
