"""Computes how far apart two results of the same formula may be if they differ only by rounding.

The rule comes from measurements on 182 pairs of programs. An operation may add six roundings to
twice the difference of its inputs, times the amplification that follows from the stored sums. Where
nothing amplifies, at most fourteen roundings are allowed, growing with the square root of the
number of optimizer steps. Halving or doubling a number here changed the answer for at most one
pair.
"""

from __future__ import annotations

from math import isfinite, prod, sqrt
from typing import Any

import numpy as np

from torchglass.answers.diff.names import (
    ADDS,
    CLIPS,
    DIFFERENCES,
    LOGS,
    NORMS,
    NORMS_BACKWARD,
    PERIODIC,
    PRODUCTS,
    QUOTIENTS,
    SUMS,
)
from torchglass.answers.diff.side import EXACT, RunSide, Thing
from torchglass.answers.diff.sketches import apart

ROUNDINGS = 6
"""How many roundings one operation may add."""
MOST = 14
"""How many roundings a whole chain of operations may add, unless an operation amplifies them."""
HALF = 0.16
"""Factor on the epsilon of half precisions, whose sums are kept in float32."""
HOPELESS = 0.3
"""Relative error above which numbers prove nothing, so that only the place in the data flow
decides.
"""
LARGEST = 1e8
"""The largest amplification, also used where a norm is zero and the amplification would be infinite."""
COPIED = 2e-7
"""Precision of the stored sums: the distance that equal numbers may have because of it."""
AMPLIFIES = 1.5
"""Amplification above which the limit on a whole chain no longer applies."""
GROWS = 2.0
"""Factor by which the error of an input may grow in one operation without amplification. Errors are
estimated from 17 sums, to about 17 %, so the quotient of two estimates often reaches 1.5.
"""
GROWS_COARSE = 1.3
"""The same for an error of a half precision that already exceeds the limit of a chain: it is so large
that a wider limit would hide mistakes.
"""
CROWDED = 3.0
"""How many times as many numbers as in a uniform distribution may lie where they are densest. A normal
distribution of some thousand numbers has 2.8.
"""
CARRIED = 10
"""How many times the limit of a chain may be inherited through operations that only one run has."""


def epsilon(bits: int) -> float:
    """Return the relative error of one rounding."""
    if bits >= EXACT:
        return 0.0
    found = 2.0**-bits
    if bits <= 10:
        return found * HALF
    return found


def leaf_tolerance(bits: int) -> float:
    """Return how far apart the same parameter may be in two checkpoints: one rounding of the coarser dtype."""
    return max(COPIED, 0.6 * 2.0**-bits if bits < EXACT else 0.0)


def expected_error(
    bits: int, step: int, amplification: float, known: float, unknown: float = 0.0
) -> float:
    """Return how far apart two results may be.

    ``known`` is the largest error of inputs that agree. ``unknown`` is the largest tolerance of
    inputs that only one run has. The latter is limited: otherwise it would grow until anything
    agreed.
    """
    one = epsilon(bits)
    most = MOST * one * sqrt(1 + step)
    is_coarse = bits <= 10
    carried = 1 if is_coarse else CARRIED
    inherited = GROWS * known
    if is_coarse and known > most:
        inherited = GROWS_COARSE * known
    before = max(inherited, min(unknown, carried * most))
    found = ROUNDINGS * one + before
    if amplification <= AMPLIFIES and before <= most:
        found = min(found * amplification, most)
    else:
        found *= amplification
    return max(found, COPIED)


def is_exact(error: float, bits: int) -> bool:
    """Return whether an error is explained by roundings that nothing amplified."""
    return error <= max(2 * MOST * epsilon(bits), COPIED)


def amplification(side: RunSide, thing: Thing) -> float:
    """Return how much an operation amplifies relative errors, from the sums of its inputs and its
    output.
    """
    found = _amplification(side, thing)
    if not isfinite(found):
        return LARGEST
    return min(max(found, 1.0), LARGEST)


def _amplification(side: RunSide, thing: Thing) -> float:
    sketches = side.sketches
    row = sketches.row.get(thing.value)
    rows = [found for each in thing.taken if (found := sketches.row.get(each)) is not None]
    if row is None or not rows:
        return 1.0
    op, orders = thing.op, sketches.orders
    norms = [float(sketches.norm[each]) for each in rows]
    norm = float(sketches.norm[row])
    if op in ADDS or op in DIFFERENCES or op == "write":
        scaled = max(norms)
        if norm:
            return scaled / norm
        return LARGEST
    if op in CLIPS:
        return _of_clip(norms[0], norm, orders[rows[0]], orders[row])
    if op in SUMS:
        return _of_sum(side, thing, op, rows[0], row)
    if op in PERIODIC:
        return _largest_argument(orders[rows[0]])
    if op in LOGS:
        size = sqrt(max(thing.count, 1)) * max(
            1.0, _largest_argument(orders[rows[0]]) if "softmax" in op else 1.0
        )
        if norm:
            return size / norm
        return LARGEST
    if op in NORMS:
        count = max(side.things[thing.inputs[0]].count, 1)
        mean = orders[rows[0]][0] / count
        square = orders[rows[0]][1] / count
        variance = square - mean * mean
        if variance > 0:
            return sqrt(square / variance)
        return LARGEST
    if op in QUOTIENTS and len(rows) == 2:
        return _of_quotient(norms[0], norm, _smallest(orders[rows[1]]))
    if op in PRODUCTS and len(rows) > 1:
        return _of_product(side, thing, norms, norm)
    if op in NORMS_BACKWARD and len(rows) > 3:
        scale = 1.0
        for each, value in zip(rows[2:], thing.taken[2:], strict=False):
            scale *= max(sqrt(orders[each][1] / max(side.sketches.count(value), 1)), 1e-30)
        if norm:
            return norms[0] * max(scale, 1.0) / norm
        return LARGEST
    if op == "_softmax_backward_data":
        if norm:
            return norms[0] / norm
        return LARGEST
    return 1.0


def divided_update(side: RunSide, thing: Thing) -> tuple[float, float]:
    """Return how much an update by a quotient changes a weight, relative to its norm, and how
    unequal the divisors are.
    """
    sketches = side.sketches
    row = sketches.row.get(thing.value)
    before = sketches.row.get(thing.taken[0])
    divisor = sketches.row.get(thing.taken[-1])
    if row is None or before is None or divisor is None:
        return 0.0, 1.0
    share = float(apart(sketches, row, sketches, np.array([before]))[0])
    smallest = _smallest(sketches.orders[divisor])
    if smallest:
        return share, float(np.abs(sketches.orders[divisor][5:7]).max()) / smallest
    return share, LARGEST


def _smallest(orders: Any) -> float:
    """Return the smallest magnitude of numbers that all have the same sign, or 0 if it is not
    known.
    """
    low, high = float(orders[5]), float(orders[6])
    if low * high <= 0:
        return 0.0
    return min(abs(low), abs(high))


def _of_quotient(dividend: float, quotient: float, divisor: float) -> float:
    """Return the amplification of a quotient: errors of about the same size grow where the divisor
    is small.
    """
    if not divisor or not quotient:
        return 1.0
    return dividend / (divisor * quotient)


def _of_clip(before: float, after: float, taken: Any, given: Any) -> float:
    """Return how much cutting off the largest numbers amplifies.

    The errors follow the largest numbers. Only the numbers that were not cut off keep theirs: their share follows from
    the ranges before and after.
    """
    if not after:
        return 1.0
    whole = float(taken[6] - taken[5])
    kept = float(given[6] - given[5])
    share = min(1.0, CROWDED * kept / whole) if whole > 0 else 1.0
    return before / after * sqrt(share)


def _of_sum(side: RunSide, thing: Thing, op: str, taken: int, given: int) -> float:
    """Return how much a sum or a mean cancels: the sum of the magnitudes before, divided by that after."""
    orders = side.sketches.orders
    total = float(orders[taken][2])
    left = float(orders[given][2])
    if op.endswith("mean"):
        total *= max(thing.count, 1) / max(side.things[thing.inputs[0]].count, 1)
    if left:
        return total / left
    return LARGEST


def _largest_argument(orders: object) -> float:
    """Return the largest magnitude among arguments. Below -1000 they are taken for a mask and
    ignored.
    """
    low, high = float(orders[5]), float(orders[6])  # type: ignore[index]
    return max(1.0, abs(high), abs(low) if low > -1e3 else 1.0)


def _of_product(side: RunSide, thing: Thing, norms: list[float], norm: float) -> float:
    """Return how much a matrix product cancels compared with factors of random signs, since
    cancelling amplifies errors.
    """
    if not norm:
        return LARGEST
    matrices = sorted(
        zip(norms, thing.taken, strict=True), key=lambda each: -len(side.meta(each[1])[0])
    )[:2]
    counts = [max(side.sketches.count(value), 1) for _, value in matrices]
    shape = side.meta(thing.value)[0]
    batches = 1
    if thing.op == "bmm":
        batches = prod(shape[:-2])
    inner = sqrt(counts[0] * counts[1] / max(thing.count, 1) / max(batches, 1))
    return matrices[0][0] * matrices[1][0] / (norm * sqrt(max(inner * batches, 1.0)))
