"""How a trace ended that an exception left: the path to the failing call and what came before it."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.events.types import Event
from torchglass.views.recorded import Recorded
from torchglass.views.tree.view import visible_events

LAST = 10


@dataclass(frozen=True, slots=True)
class Failure:
    """The failing call, the calls around it from the outermost on, and the last events of the trace."""

    event: Event
    path: tuple[Event, ...]
    last: tuple[Event, ...]


def failure_story(trace: Recorded) -> Failure | None:
    """None when the block ended well."""
    event = trace.failure()
    if event is None:
        return None
    path = [event]
    while path[-1].parent is not None:
        path.append(trace.event(path[-1].parent))
    last = visible_events(list(trace.events()))[-LAST:]
    return Failure(event, tuple(reversed(path)), tuple(last))
