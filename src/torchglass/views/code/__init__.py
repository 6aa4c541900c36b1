"""The code view: each step under the source lines that led to it, with loops and equal layers shown once."""

from __future__ import annotations

from torchglass.views.code.text import lines
from torchglass.views.code.view import sheet

__all__ = ["lines", "sheet"]
