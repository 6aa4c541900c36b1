"""Modules made from a text, in a file of their own, as a user has them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def module_of(folder: Path, text: str, name: str = "sample") -> ModuleType:
    """The module of that text, imported from ``folder/name.py``."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    # Python takes compiled code for up to date if the text has the same length and was written in the same second.
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
