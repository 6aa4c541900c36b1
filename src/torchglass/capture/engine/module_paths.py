"""One module under one path, as both engines and the modules probe know it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchglass import compiled


@dataclass(slots=True)
class ModuleAtPath:
    """One module under one path."""

    number: int
    module: weakref.ref[Any]
    """Checked with ``is``, because ids are reused."""
    cls: int
    """The row of its class; the class itself must be able to go."""
    root: int
    path: str
    other: ModuleAtPath | None
    """The row of a module with the same ``id``: this one under another path, or one that is gone."""
    parameters: str = ""
    """Names and values by turns, as they stand in a row: ``,"weight",12,"bias",13``."""
    described: bool = False
    below: dict[int, list[str]] | None = None
    """Of a root: the paths of the modules below it, by id; checked when used, since models change."""


if not TYPE_CHECKING and compiled.extension is not None:
    ModuleAtPath = compiled.extension.ModuleAtPath  # the same, which C reads without asking
