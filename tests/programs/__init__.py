"""Tiny PyTorch programs, one idea each: `main()` seeds itself and returns tensors, recorded or not."""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torchglass

# Programs that end in an exception by design, and which.
RAISES: dict[str, type[BaseException]] = {
    "ctrl_c": KeyboardInterrupt,
    "shape_error": RuntimeError,
}

# Programs that compile something: seconds instead of milliseconds.
SLOW = frozenset({"compiled", "compiled_with_break", "scripted"})


def names() -> list[str]:
    """Return the names of all programs, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> ModuleType:
    """Import the program of that name."""
    return importlib.import_module(f"{__name__}.{name}")


@cache
def recorded(name: str, **options: Any) -> torchglass.Trace:
    """Record a program once for each set of options: tests that only read a trace share it."""
    import torchglass

    with suppress(RAISES.get(name, ())), torchglass.record(**options) as trace:
        load(name).main()
    return trace
