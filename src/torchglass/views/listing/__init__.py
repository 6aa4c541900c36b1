"""The listing: each file that ran, with what its lines assigned or returned, how often, and what differed."""

from __future__ import annotations

from torchglass.views.listing.text import copy, lines
from torchglass.views.listing.view import sheet

__all__ = ["copy", "lines", "sheet"]
