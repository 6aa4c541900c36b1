"""The data flow as text: one line a step, behind it where its values come from."""

from __future__ import annotations

from collections.abc import Iterator

from torchglass.views.row import Sheet
from torchglass.views.text.layout import draw
from torchglass.views.text.style import Page


def lines(sheet: Sheet, page: Page) -> Iterator[str]:
    """The lines of the data flow."""
    return draw(sheet.rows, page)
