"""What a trace means and how it looks: a file or a folder a view, found by its name."""

from __future__ import annotations

VIEWS = ("calls", "code", "failure", "gradients", "graph", "listing", "table", "tree", "variables")
