"""Tiny PyTorch programs, one idea each: `main()` seeds itself and returns tensors, recorded or not."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

# Programs that end in an exception by design, and which.
RAISES: dict[str, type[BaseException]] = {
    "ctrl_c": KeyboardInterrupt,
    "shape_error": RuntimeError,
}

# Programs that compile something: seconds instead of milliseconds.
SLOW = frozenset({"compiled", "compiled_with_break", "scripted"})


def names() -> list[str]:
    """Every program, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> ModuleType:
    """The program of that name, imported."""
    return importlib.import_module(f"{__name__}.{name}")
