"""Work counted in function calls: the same on every machine, however busy, unlike time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def work_of(act: Callable[[], Any]) -> int:
    """How many functions, Python's and C's, are called while `act` runs."""
    count = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count
