"""What a view shows of a trace, as rows and as lines."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from torchglass.events.types import Event
from torchglass.views.render import lines, options_for
from torchglass.views.row import EVENT, Row, Sheet
from torchglass.views.text.style import Page


def sheet_of(trace: Any, view: str, **options: Any) -> Sheet:
    """The rows of a view."""
    return importlib.import_module(f"torchglass.views.{view}").sheet(trace, options_for(view, options))


def lines_of(trace: Any, view: str, page: Page, **options: Any) -> list[str]:
    """The lines of a view."""
    return list(lines(trace, view, options_for(view, options), page))


def event_rows(sheet: Sheet) -> list[Row]:
    """The rows that stand for events, without headings."""
    return [row for row in sheet.rows if row.kind == EVENT]


def not_shown(sheet: Sheet) -> int:
    """How many events have no row, by what is said below the rows."""
    said = [re.search(r"([\d,]+) not (?:selected|shown)", cell.text) for cell in sheet.below]
    return sum(int(found[1].replace(",", "")) for found in said if found)


def edges(events: Iterable[Event]) -> Iterator[tuple[Event, str]]:
    """Both edges of stored events, as a listener has them: ``open`` (without results) and ``close``."""
    under_way: dict[str, list[Event]] = {}
    for event in events:
        stack = under_way.setdefault(event.thread, [])
        while stack and stack[-1].id != event.parent:
            yield stack.pop(), "close"
        yield event._replace(outputs=(), result="", error=None, end_ns=None), "open"
        stack.append(event)
    for stack in under_way.values():
        while stack:
            yield stack.pop(), "close"
