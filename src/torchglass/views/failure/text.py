"""How a trace opens that an exception left: the error, the path to the call, its inputs, what came before."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from torchglass.events.types import Event
from torchglass.views.failure.view import Failure
from torchglass.views.text.cells import cells_of
from torchglass.views.text.layout import Layout, Line, columns_for, guides
from torchglass.views.text.places import Places, whole_place
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, cut, one_line, plural, tensor_word

MOST_INPUTS = 12
MOST_CALLS = 20


def failure_lines(failure: Failure, page: Page) -> Iterator[str]:
    """All lines of the story."""
    error = clean(failure.event.error or "the call did not return")
    for line in textwrap.wrap("✗ " + error, page.width, subsequent_indent="  ") or ["✗"]:
        yield page.paint("error", line)
    yield from _calls("path to the failing call", _shortened(failure.path), page, nested=True)
    yield from _inputs(failure.event, page)
    yield from _calls(f"the last {plural(len(failure.last), 'event')}", failure.last, page, nested=False)


def _shortened(path: Sequence[Event]) -> Sequence[Event]:
    """Both ends of a very long path."""
    return path if len(path) <= MOST_CALLS else (*path[: MOST_CALLS // 2], *path[-MOST_CALLS // 2 :])


def _calls(title: str, events: Sequence[Event], page: Page, nested: bool) -> Iterator[str]:
    yield page.paint("heading", title)
    lines: list[Line] = []
    places = Places(page.width)
    for level, event in enumerate(events):
        cells = cells_of(event, _name(event))
        if cells.failed:
            cells = cells._replace(gives=cells.gives.partition(":")[0])
        at, place = event.location, ""
        if at is not None:
            place = whole_place(at, max(page.width // 4, 12)) if nested else places.place(0, at)
        before = "  " + (guides(level, page.width) if nested else "")
        lines.append(Line(before, cells, place, link=at if page.links else None))
    layout = Layout(columns_for(lines, page.width), page)
    for line in lines:
        yield layout.line(line)


def _name(event: Event) -> str:
    if event.kind != "module":
        return event.name
    return event.module or event.root or event.name


def _inputs(event: Event, page: Page) -> Iterator[str]:
    """Each tensor by the text that was written for it, or by the parameter it was given to."""
    yield page.paint("heading", "its inputs")
    names = event.operands if len(event.operands) == len(event.inputs) else [""] * len(event.inputs)
    told = [
        (cut(one_line(name) or clean(value.role) or "?", page.width // 3), tensor_word(value, device=True))
        for name, value in zip(names, event.inputs, strict=True)
    ]
    column = max((len(name) for name, _ in told), default=0)
    for name, word in told[:MOST_INPUTS]:
        yield f"  {name:<{column}}  " + page.paint("output", cut(word, page.width - column - 4))
    if len(told) > MOST_INPUTS:
        yield f"  and {len(told) - MOST_INPUTS} more"
    if not told:
        yield "  no tensors" + (f": {cut(clean(event.args), page.width - 14)}" if event.args else "")
