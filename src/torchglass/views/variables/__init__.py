"""The variables view: the life of each variable, line by line, or all changes as a tree that follows the calls."""

from __future__ import annotations

from torchglass.views.variables.view import lines, sheet

__all__ = ["lines", "sheet"]
