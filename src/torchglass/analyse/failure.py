"""How a trace ended that an exception left: the path to the failing call and what came before it."""

from __future__ import annotations

from dataclasses import dataclass

from torchglass.analyse.source import Recorded
from torchglass.analyse.tree import visible_events
from torchglass.events.types import Event

LAST = 10


@dataclass(frozen=True, slots=True)
class Failure:
    """The failing call, the calls around it from the outermost on, and the last events of its thread."""

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
    # What other processes and threads did last has as a rule nothing to do with it, and may be later or earlier.
    at = (event.process, event.thread)
    last = [each for each in visible_events(list(trace.events())) if (each.process, each.thread) == at][-LAST:]
    return Failure(event, tuple(reversed(path)), tuple(last))
