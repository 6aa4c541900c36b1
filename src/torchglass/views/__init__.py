"""How a trace looks: one file or folder for each view, found by its name."""

from __future__ import annotations

from torchglass.views.options import OPTIONS

VIEWS = tuple(OPTIONS)
"""The names of all views: a view is registered by its line there."""
