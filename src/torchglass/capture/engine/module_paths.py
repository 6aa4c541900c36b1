"""The entry for a module under one path, which both engines and the modules probe share."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class ModuleAtPath:
    """One module under one path."""

    number: int
    module: weakref.ref[Any]
    """Checked with ``is``, because ids are reused."""
    cls: int
    """The row of its class. The class itself is not referenced, so that it can be freed."""
    root: int
    path: str
    other: ModuleAtPath | None
    """Another entry with the same ``id``: the same module under another path, or a module that has been freed."""
    parameters: str = ""
    """Alternating names and values, as in a row: ``,"weight",12,"bias",13``."""
    described: bool = False
    near: dict[int, str] | None = None
    """The names of the modules that it holds, itself or in a list, keyed by ``id``. Check a name before use."""
    below: dict[int, list[str]] | None = None
    """Only for a root: the paths of the modules below it, keyed by ``id``. Check a path before use: models change."""
