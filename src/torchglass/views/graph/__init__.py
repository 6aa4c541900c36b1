"""Data flow: which step made what another one takes, at every level."""

from __future__ import annotations

from torchglass.views.graph.view import sheet

__all__ = ["sheet"]
