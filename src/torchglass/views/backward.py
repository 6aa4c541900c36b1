"""Shows backward at the forward lines: what the autograd engine ran, at the step whose gradient it computed."""

# Private members of a trace are hidden from users, not from the views and answers that read it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.types import Event, Location, ModuleInfo, Value
from torchglass.program.recorded import Recorded
from torchglass.views.text.cells import op_name
from torchglass.views.text.tensors import contents_words, is_measured, values_words
from torchglass.views.text.words import clean, count

SIGN = "∂ "
"""Stands before the name of what ran in backward."""
NO_BACKWARD = "backward: no op of backward is in this trace; record(ops=True) records them"
MAX_OPS_NAMED = 6
"""Different ops of backward that a line names; the rest is counted."""


def backward_events(trace: Recorded) -> dict[int, list[Event]]:
    """Return by forward event the events that backward ran for it, in order, without those inside other ones."""
    by_forward: dict[int, list[Event]] = {}
    tied: set[int] = set()
    for event in trace.events():
        if event.forward_event is not None and event.phase == "backward":
            tied.add(event.id)
            if event.parent not in tied:
                by_forward.setdefault(event.forward_event, []).append(event)
    return by_forward


# ---------------------------------------------------------------- a trace in another order


@dataclass(slots=True)
class TiedTrace:
    """A trace in which the ops of backward come right after the forward step that they belong to, at its place.

    The code view reads it like any other trace.
    """

    trace: Recorded
    made: list[Event] = field(default_factory=list[Event])
    """The events in their new order, with new ids."""
    origin: list[int] = field(default_factory=list[int])
    """By new id, the id in the trace itself."""
    name: str = ""
    notes: tuple[str, ...] = ()
    duration_ns: int = 0
    complete: bool = True
    sources: dict[str, str] = field(default_factory=dict[str, str])
    measured: bool = False

    def __post_init__(self) -> None:
        self.name = self.trace.name
        self.notes = self.trace.notes
        self.duration_ns = self.trace.duration_ns
        self.complete = self.trace.complete
        self.sources = self.trace.sources
        self.measured = is_measured(self.trace)
        backward: dict[int, list[Event]] = {}
        moved: set[int] = set()
        for forward, events in backward_events(self.trace).items():
            backward[forward] = [event for event in events if event.kind == "op"]
            moved.update(event.id for event in backward[forward])
        new_ids: dict[int, int] = {}
        open_steps: list[int] = []
        """Forward steps with backward ops, which come after the last event inside the step."""
        parents: list[int | None] = []
        for event in self.trace.events():
            parents.append(event.parent)
            while open_steps and not _is_inside(event.id, open_steps[-1], parents):
                self._add_backward(open_steps.pop(), backward, new_ids)
            if event.id in moved:
                continue
            new_ids[event.id] = len(self.made)
            parent = None
            if event.parent is not None:
                parent = new_ids.get(event.parent)
            self._add(event, event._replace(parent=parent))
            if event.id in backward:
                open_steps.append(event.id)
        while open_steps:
            self._add_backward(open_steps.pop(), backward, new_ids)

    def _add_backward(
        self, forward: int, backward: dict[int, list[Event]], new_ids: dict[int, int]
    ) -> None:
        """Add the backward ops of a forward step."""
        step = self.made[new_ids[forward]]
        for event in backward[forward]:
            new_ids[event.id] = len(self.made)
            self._add(event, _at_place_of(event, step))

    def _add(self, event: Event, moved: Event) -> None:
        """Add an event; ``moved`` is how it is shown."""
        self.origin.append(event.id)
        self.made.append(moved._replace(id=len(self.made)))

    def __len__(self) -> int:
        return len(self.made)

    def events(self) -> Iterator[Event]:
        return iter(self.made)

    def event(self, number: int, /) -> Event:
        return self.made[number]

    def modules(self) -> tuple[ModuleInfo, ...]:
        return self.trace.modules()

    @property
    def left_by(self) -> tuple[str, ...]:
        return self.trace.left_by

    @property
    def _left_process(self) -> int:
        return self.trace._left_process

    @property
    def raised_at(self) -> tuple[Location, ...]:
        return self.trace.raised_at

    def failure(self) -> Event | None:
        return self.trace.failure()


def _is_inside(event: int, outer: int, parents: Sequence[int | None]) -> bool:
    """Return whether an event happened inside another one."""
    ancestor: int | None = event
    while ancestor is not None and ancestor > outer:
        ancestor = parents[ancestor]
    return ancestor == outer


def _at_place_of(event: Event, forward: Event) -> Event:
    """Return an op of backward with the place of its forward step."""
    return event._replace(
        name=SIGN + op_name(event.name), parent=forward.id, thread=forward.thread, stack=forward.stack,
        location=forward.location, owner=forward.owner, code=forward.code, module=forward.module, root=forward.root,
        target=(), direct=False, note=None,
    )  # fmt: skip


# ---------------------------------------------------------------- line by line


def gradient_of(forward: Event, ran: list[Event]) -> Value | None:
    """Return the gradient of a step's output, given the events that backward ran for the step; None if not known.

    It is the first value of the output's shape that backward takes and that comes neither from the step nor from these
    events.
    """
    values = (*forward.inputs, *forward.outputs)
    known = {value.id for value in values}
    saved = {value.storage for value in values} - {None}
    shapes = {value.shape for value in forward.outputs}
    for event in ran:
        for value in event.inputs:
            if value.id not in known and value.storage not in saved and value.shape in shapes:
                return value
        known.update(value.id for value in event.outputs)
    return None


def words_by_line(trace: Recorded) -> dict[tuple[str, int], str]:
    """Return text by file and line: ``∂ f32[5, 8] μ 0.03 σ 0.07 [−0.14, 0.2]: threshold_backward, t ×3, mm ×2``."""
    lines: dict[tuple[str, int], list[_Step]] = {}
    for number, events in sorted(backward_events(trace).items()):
        forward = trace.event(number)
        ops = [event for event in events if event.kind == "op"]
        if forward.location is not None and ops:
            place = (forward.location.file, forward.location.line)
            lines.setdefault(place, []).append(_Step(forward, ops))
    return {place: _words(steps) for place, steps in lines.items()}


class _Step(NamedTuple):
    """A forward step, and the ops that backward ran for it."""

    forward: Event
    ops: list[Event]


def _words(steps: list[_Step]) -> str:
    """Return the text of a line. The gradient is that of the last step, since its result is the line's."""
    last = steps[-1].forward
    gradients: list[Value] = []
    for forward, ops in steps:
        if (forward.name, forward.code) == (last.name, last.code):
            gradient = gradient_of(forward, ops)
            if gradient is not None:
                gradients.append(gradient)
    sign = SIGN
    if gradients:
        shape = ", ".join(values_words([(value,) for value in gradients]))
        contents, alarm = contents_words([gradients])
        sign += " ".join(filter(None, (shape, alarm, contents))) + ": "
    counts: dict[str, int] = {}
    for event in sorted(
        (event for step in steps for event in step.ops), key=lambda event: event.id
    ):
        name = clean(op_name(event.name))
        counts[name] = counts.get(name, 0) + 1
    names = [f"{name} ×{count(times)}" if times > 1 else name for name, times in counts.items()]
    rest = ""
    if len(names) > MAX_OPS_NAMED:
        rest = f", +{len(names) - MAX_OPS_NAMED} more"
    return sign + ", ".join(names[:MAX_OPS_NAMED]) + rest
