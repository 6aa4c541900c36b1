"""What every view begins and ends with: how the block ended, what to say of an empty trace, the recorder's notes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from torchglass.views.failure.text import failure_lines
from torchglass.views.failure.view import failure_story
from torchglass.views.recorded import Recorded
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, cut

NOTHING = "Nothing was recorded: no module or torch function ran inside the block."
UNFINISHED = "Nothing was written before the recording stopped, or it has only begun."
ADVICE = (
    "Call the model, or any torch code, inside `with record() as trace:`, on the same thread or on threads"
    " started there; TORCHGLASS=0 in the environment turns recording off."
)


def how_it_ended(trace: Recorded, page: Page) -> Iterator[str]:
    """Of a trace that an exception left: the way to the failing call, before everything else."""
    failure = failure_story(trace)
    if failure is not None:
        yield from failure_lines(failure, page)
        yield ""


def nothing_recorded(trace: Recorded, page: Page) -> Iterator[str]:
    """What to say of a trace without events."""
    for text in (NOTHING, ADVICE) if trace.complete else (UNFINISHED,):
        yield from textwrap.wrap(text, page.width)
    yield from notes_of(trace, page)


def notes_of(trace: Recorded, page: Page) -> Iterator[str]:
    """What the recorder had to say, at the end of every view."""
    for note in trace.notes:
        yield from (page.paint("note", line) for line in wrapped("note: " + note, "", page))


def wrapped(text: str, before: str, page: Page) -> list[str]:
    """Text made safe and broken to the page; further lines are indented."""
    room = max(page.width - len(before), 20)
    lines = textwrap.wrap(clean(" ".join(text.split())), room, subsequent_indent="  ")
    return [cut(line, room) for line in lines]
