"""Sketches of tensors by C and by numpy, their plain definition, and how near they must be to one another."""

from __future__ import annotations

from itertools import product
from math import sqrt
from typing import Any

import pytest
import torch

from torchglass.capture.statistics.memory import KINDS, tally_of, viewed
from torchglass.capture.statistics.sketch import sketch_array, sketch_of
from torchglass.events.types import Sketch

ALL_BITS = (1 << 64) - 1
ROUNDING = 2**-24
"""The most that float32 is off by when it rounds, of what is rounded."""
WORST = (31 + 1 + 3) * ROUNDING
"""How far a sum of float32 may be off, of the sum of its absolute terms, whatever the numbers are.

A block of 1,024 has sixteen lanes with two sums each, so 32 terms are added one after another: the first to nothing,
and each of the other 31 additions rounds a part of the sum, no larger than that of all absolute terms. One more
joins the two sums; from there on it is doubles. A term itself is rounded three times at the most: x⁴ is the square,
which was rounded and counts twice, and its own square; weighted ones once. Random numbers round up as often as down,
and come nowhere near; a thousand equal ones may all round the same way: of 10005.5986 cubes are off by 8.9 roundings.
"""


def sketched(tensor: Any) -> Sketch:
    kind = KINDS[tensor.dtype]
    return Sketch.of(sketch_of(tensor, kind, tally_of(tensor, kind)))


def by_numpy(tensor: Any) -> Sketch:
    return Sketch.of(sketch_array(viewed(tensor, KINDS[tensor.dtype]), KINDS[tensor.dtype]))


def stirred(counter: int) -> int:
    z = (counter + 1) * 0x9E3779B97F4A7C15 & ALL_BITS
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & ALL_BITS
    z = (z ^ z >> 27) * 0x94D049BB133111EB & ALL_BITS
    return z ^ z >> 31


def weight(at: int) -> float:
    z = stirred(at % 1024)
    is_turned = at >= 1024 and stirred(1024 + at // 1024) & 1
    return (0.5 + (z >> 41) / (1 << 23)) * (-1 if z & 1 else 1) * (-1 if is_turned else 1)


def place(at: int) -> int:
    return at % 16 + at // 1024


def plain(tensor: Any, absolute: bool = False) -> Sketch:
    """The definition, in words of plain Python; without the hash. ``absolute``: sums of absolute weighted terms."""
    dense = tensor.detach().clone()
    wide = torch.view_as_real(dense.to(torch.complex128)) if dense.is_complex() else dense.to(torch.float64)
    array = wide.numpy()
    shape = [size for size in array.shape if size != 1] or [1]
    flat, axes, orders, odd = [0.0] * 17, [0.0] * 17, [0.0] * 5, 0
    ends: list[float] = []
    for at, (x, index) in enumerate(zip(array.reshape(-1).tolist(), product(*map(range, shape)), strict=True)):
        if not abs(x) <= 1e30:
            odd += 1
            continue
        ends.append(x)
        term = x * weight(at)
        flat[place(at) % 17] += abs(term) if absolute else term
        by = 1.0
        for each in index:
            by *= weight(each)
        axes[sum(map(place, index)) % 17] += abs(x * by) if absolute else x * by
        for power, term in enumerate((x, x * x, abs(x), x**3, x**4)):
            orders[power] += term
    return Sketch(0, tuple(flat), tuple(axes), (*orders, min(ends, default=0.0), max(ends, default=0.0)), odd)


def check(found: Sketch, expected: Sketch) -> None:
    """Within what sums of float32 are exact to: of the norm, and of the sums of absolute terms."""
    norm = sqrt(expected.orders[1])
    assert found.odd == expected.odd
    assert found.orders[5:] == pytest.approx(expected.orders[5:], rel=1e-12)
    for one, two in zip((*found.flat, *found.axes), (*expected.flat, *expected.axes), strict=True):
        # With several axes weights multiply, so a sum may be larger than the norm: it is kept as a float32.
        assert abs(one - two) <= 4e-7 * norm + 2**-24 * abs(two)
    scales = (expected.orders[2], norm**2, expected.orders[2], norm * sqrt(expected.orders[4]), expected.orders[4])
    for one, two, scale in zip(found.orders, expected.orders, scales, strict=False):
        assert abs(one - two) <= 4e-7 * scale


def check_any(found: Sketch, expected: Sketch, absolute: Sketch) -> None:
    """The same where the numbers may be as unlucky as can be: within what was worked out for that."""
    assert found.odd == expected.odd
    assert found.orders[5:] == pytest.approx(expected.orders[5:], rel=1e-12)
    sums = ((*each.flat, *each.axes) for each in (found, expected, absolute))
    for one, two, size in zip(*sums, strict=True):
        assert abs(one - two) <= WORST * size + ROUNDING * abs(two)  # it is kept as a float32
    norm, (_, _, sizes, _, fourths) = sqrt(expected.orders[1]), expected.orders[:5]
    scales = (sizes, norm**2, sizes, norm * sqrt(fourths), fourths)  # the fourth is no less than the sum of |x|³
    for one, two, scale in zip(found.orders, expected.orders, scales, strict=False):
        assert abs(one - two) <= WORST * scale
