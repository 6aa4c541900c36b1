"""How a trace ended that an exception left: the error, the path to the failing call, its inputs, what came before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchglass.events.types import Event
from torchglass.views.digest import Recorded
from torchglass.views.nesting import visible_events
from torchglass.views.row import COUNT, ERROR, GIVES, HEADING, NAME, PATH, Cell, Row, Sheet
from torchglass.views.text.cells import Said, event_cells
from torchglass.views.text.words import clean, one_line, plural, tensor_word

LAST = 10
MOST_INPUTS = 12
MOST_CALLS = 20
INPUT = "input"


def sheet(trace: Recorded) -> Sheet:
    """The rows of the story; none when the block ended well."""
    event = trace.failure()
    if event is None:
        return Sheet()
    path = [event]
    while path[-1].parent is not None:
        path.append(trace.event(path[-1].parent))
    path.reverse()
    # What other processes and threads did last has as a rule nothing to do with it, and may be later or earlier.
    at = (event.process, event.thread)
    last = [each for each in visible_events(list(trace.events())) if (each.process, each.thread) == at][-LAST:]
    rows = [
        Row(0, ERROR, (Cell(ERROR, f"✗ {clean(event.error or 'the call did not return')}"),), event.id),
        Row(0, HEADING, (Cell(HEADING, "path to the failing call"),)),
        *[_row(each, depth, PATH) for depth, each in enumerate(_shortened(path))],
        Row(0, HEADING, (Cell(HEADING, "its inputs"),)),
        *_inputs(event),
        Row(0, HEADING, (Cell(HEADING, f"the last {plural(len(last), 'event')}"),)),
        *[_row(each, 0) for each in last],
    ]
    return Sheet(rows)


def _shortened(path: Sequence[Event]) -> Sequence[Event]:
    """Both ends of a very long path."""
    return path if len(path) <= MOST_CALLS else (*path[: MOST_CALLS // 2], *path[-MOST_CALLS // 2 :])


def _row(event: Event, depth: int, kind: str = "event") -> Row:
    name = event.module or event.root or event.name if event.kind == "module" else event.name
    return Row(depth, kind, event_cells(event, Said(name, brief=True)), event.id, indent=2)


def _inputs(event: Event) -> Iterator[Row]:
    """Each tensor by the text that was written for it, or by the parameter it was given to."""
    names = event.operands if len(event.operands) == len(event.inputs) else [""] * len(event.inputs)
    for name, value in list(zip(names, event.inputs, strict=True))[:MOST_INPUTS]:
        cells = Cell(NAME, one_line(name) or clean(value.role) or "?"), Cell(GIVES, tensor_word(value, device=True))
        yield Row(0, INPUT, cells, event.id)
    more = len(event.inputs) - MOST_INPUTS
    if more > 0:
        yield Row(0, INPUT, (Cell(COUNT, f"and {more} more"),))
    if not event.inputs:
        yield Row(0, INPUT, (Cell(COUNT, "no tensors" + (f": {clean(event.args)}" if event.args else "")),))
