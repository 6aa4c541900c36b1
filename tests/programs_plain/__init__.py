"""Tiny programs without torch, one idea each: `main()` does the same every time, watched or not."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

# Programs that need numpy.
NUMPY = frozenset({"arrays"})

# Programs that end in an exception by design, and which.
RAISES: dict[str, type[BaseException]] = {"uncaught": KeyError}


def names() -> list[str]:
    """Every program, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> ModuleType:
    """The program of that name, imported."""
    return importlib.import_module(f"{__name__}.{name}")
