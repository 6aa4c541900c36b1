"""How the numbers of a kept tensor are spread: a few bars, each as high as a digit says."""

from __future__ import annotations

import sys
from math import inf, isfinite
from typing import Any

BARS = 24
HIGHEST = 9
MOST_NUMBERS = 65_536
"""Of larger tensors every so manieth number is counted: the picture is the same."""


def spread(content: Any) -> dict[str, Any]:
    """``min`` and ``max`` of the finite numbers and the ``histogram`` between them; nothing where there is none.

    The content is a tensor or an array, and asked only for what both can: this layer imports neither library.
    """
    if "complex" in str(content.dtype):  # they have no order
        return {}
    try:
        numbers = _sample(content)
        if not (isfinite(numbers.min()) and isfinite(numbers.max())):
            numbers = numbers[abs(numbers) < inf]
        low, high = float(numbers.min()), float(numbers.max())
        if not low < high:
            return {}
        bars = _bars(numbers, low, high)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        return {}  # nothing in it, or a layout that cannot be laid flat: sparse, nested
    most = max(bars)
    digits = "".join(str(-(-HIGHEST * int(each) // int(most))) for each in bars)
    return {"min": float(f"{low:.4g}"), "max": float(f"{high:.4g}"), "histogram": digits}


def _sample(content: Any) -> Any:
    """Some of the numbers in a row, as floats."""
    flat = content.reshape(-1)
    flat = flat[:: -(-len(flat) // MOST_NUMBERS) or 1]
    return flat.astype("float64") if hasattr(flat, "astype") else flat.detach().float().cpu()


def _bars(numbers: Any, low: float, high: float) -> list[float]:
    if hasattr(numbers, "histc"):
        return numbers.histc(BARS, low, high).tolist()
    return sys.modules["numpy"].histogram(numbers, BARS, (low, high))[0].tolist()
