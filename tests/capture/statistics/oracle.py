"""Statistics by numpy in double precision, from a copy: what ours are compared with."""

from __future__ import annotations

from math import isnan, nan, sqrt
from typing import Any

import numpy as np
import torch

from torchglass.events.types import Stats


def statistics_of(tensor: Any) -> Stats:
    """Of a plain dense tensor."""
    plain = tensor.detach().clone().resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain.to(torch.complex128))
    numbers = plain.to(torch.float64).numpy().reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    counts = (
        numbers.size,
        int(np.isnan(numbers).sum()),
        int((numbers == np.inf).sum()),
        int((numbers == -np.inf).sum()),
        int((numbers == 0).sum()),
    )
    if not finite.size:
        return Stats(*counts, nan, nan, nan, nan, nan)
    ends = float(finite.min()), float(finite.max())
    return Stats(*counts, *ends, float(finite.mean()), float(finite.std()), sqrt(float((finite * finite).sum())))


def differences(ours: Any, theirs: Stats) -> list[str]:
    """The fields that differ by more than rounding: of the scale of the numbers, not of the result."""
    scale = max(abs(theirs.min), abs(theirs.max)) if theirs.finite else 0.0
    apart: list[str] = []
    for name, one, two in zip(Stats._fields, ours, theirs, strict=True):
        tolerance = {"mean": 1e-12 * scale, "std": 1e-10 * scale, "norm": 1e-12 * two}.get(name, 0.0)
        if isnan(one) != isnan(two) or abs(one - two) > tolerance:
            apart.append(f"{name}: {one!r}, should be {two!r}")
    return apart
