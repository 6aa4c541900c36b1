"""Rounds numbers for the page, which keeps few digits and only finite numbers."""

from __future__ import annotations

from math import isfinite


def rounded(number: float, digits: int) -> float:
    """Return a number rounded to some digits. If rounding would make it infinite, it stays as it
    is.
    """
    found = float(f"{number:.{digits}g}")
    if isfinite(found):
        return found
    return number
