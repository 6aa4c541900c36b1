"""Detects writes into numpy arrays, without keeping copies of large ones.

Up to ``COPIED_BYTES``, an array is compared with a copy. Up to ``EXACT_BYTES``, it is compared by CRC-32, which misses
one change in four thousand million. A larger array is read in ``PLACES`` places. It is read completely only at the
beginning and the end of a call, and only while that takes less than a tenth of the time. So a change of a large array
can be missed: 64 places detect a write to one percent of an array in six of ten cases, and a write to a single element
hardly ever. A store into the array (``a[i] = v``, ``a += v``) counts as a change without reading the array. Arrays of
objects and subclasses of ``ndarray`` are compared only by identity, shape and type.
"""

from __future__ import annotations

import random
import sys
import time
import zlib
from typing import Any

COPIED_BYTES = 4096
"""An array of at most so many bytes is compared with a copy."""
EXACT_BYTES = 65_536
"""An array of at most so many bytes is read completely each time."""
PLACES = 64
"""How many elements of a larger array to read."""
_SHARE_OF_TIME = 0.1
"""The share of the running time that reading large arrays completely may take."""
_BYTES_PER_SECOND = 8e9
"""An estimate of how fast an array can be read, to predict the time."""
_BLOCK_BYTES = 4096
"""The size of the blocks that are summed with weights."""
_MOST_SHAPES = 64
"""The most shapes whose places are cached."""


def array_type() -> Any:
    """Return ``numpy.ndarray``, or None if the program has not imported numpy."""
    return getattr(sys.modules.get("numpy"), "ndarray", None)


class Fingerprints:
    """Makes fingerprints of arrays, within a budget of time."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._spent = 0.0
        self._places: dict[Any, Any] = {}
        self._weights: Any = None

    def of(self, array: Any, whole: bool = False) -> tuple[Any, ...]:
        """Return the fingerprint of an array: if ``differ`` is true of two fingerprints, the array has changed.

        With ``whole``, all bytes of a large array are read if there is time.
        """
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
        return zlib.crc32(
            (array.take(places[0]) if array.flags.c_contiguous else array[places[1]]).tobytes()
        )

    def _choose(self, array: Any) -> tuple[Any, Any]:
        """Choose one place in each of 64 equal parts, without the random number generators of the program."""
        numpy = sys.modules["numpy"]
        draw = random.Random(array.size)
        part = array.size // PLACES
        if part:
            flat = [number * part + draw.randrange(max(part, 1)) for number in range(PLACES)]
        else:
            flat = [0]
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
        """Sum each block of 512 words with odd weights, which detects any changed or exchanged word."""
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
    """Return whether a small array differs from its kept copy."""
    return array.tobytes() != old[3] or (array.shape, array.strides, id(array.dtype)) != old[:3]


def differ(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    """Return whether two fingerprints prove a change. If one was not made of all bytes, only the samples count."""
    if len(old) == 5 == len(new) and (old[4] is None or new[4] is None):
        return old[:4] != new[:4]
    return old != new
