"""Backward under its forward line: what the autograd engine ran, shown where the step stands whose gradient it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torchglass.events.types import Event, Location, ModuleInfo, Value
from torchglass.views.digest import Recorded
from torchglass.views.text.cells import op_name
from torchglass.views.text.tensors import contents_words, is_measured, values_words
from torchglass.views.text.words import clean, count

SIGN = "∂ "
"""Before the name of what ran in backward."""
NOTHING = "backward: no op of backward is in this trace; record(ops=True) records them"
MOST_NAMES = 6


def ran_for(trace: Recorded) -> dict[int, list[Event]]:
    """By forward event: what backward ran for it, in order; not what that called in turn."""
    found: dict[int, list[Event]] = {}
    tied: set[int] = set()
    for event in trace.events():
        if event.forward_event is not None and event.phase == "backward":
            tied.add(event.id)
            if event.parent not in tied:
                found.setdefault(event.forward_event, []).append(event)
    return found


# ---------------------------------------------------------------- a trace in another order


@dataclass(slots=True)
class TiedTrace:
    """A trace in which the ops of backward stand behind the forward step that they belong to, and at its place."""

    trace: Recorded
    made: list[Event] = field(default_factory=list[Event])
    origin: list[int] = field(default_factory=list[int])
    """For each event its id in the trace itself."""
    name: str = ""
    notes: tuple[str, ...] = ()
    duration_ns: int = 0
    complete: bool = True
    sources: dict[str, str] = field(default_factory=dict[str, str])
    measured: bool = False

    def __post_init__(self) -> None:
        for name in ("name", "notes", "duration_ns", "complete", "sources"):
            setattr(self, name, getattr(self.trace, name))
        self.measured = is_measured(self.trace)
        behind = ran_for(self.trace)
        moved = {event.id for several in behind.values() for event in several if event.kind == "op"}
        numbers: dict[int, int] = {}
        pending: list[tuple[int, Event]] = []
        parents: list[int | None] = []
        for event in self.trace.events():
            parents.append(event.parent)
            while pending and not _is_below(event.id, pending[-1][0], parents):
                self._put(pending.pop(), behind, numbers)
            if event.id in moved:
                continue
            numbers[event.id] = len(self.made)
            parent = None if event.parent is None else numbers.get(event.parent)
            self._add(event, event._replace(parent=parent))
            if event.id in behind:
                pending.append((event.id, self.made[-1]))
        while pending:
            self._put(pending.pop(), behind, numbers)

    def _put(self, forward: tuple[int, Event], behind: dict[int, list[Event]], numbers: dict[int, int]) -> None:
        number, at = forward
        for event in behind[number]:
            if event.kind == "op":
                numbers[event.id] = len(self.made)
                self._add(event, _at_place_of(event, at))

    def _add(self, event: Event, shown: Event) -> None:
        self.origin.append(event.id)
        self.made.append(shown._replace(id=len(self.made)))

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
    def left_process(self) -> int:
        return self.trace.left_process

    @property
    def raised_at(self) -> tuple[Location, ...]:
        return self.trace.raised_at

    def failure(self) -> Event | None:
        return self.trace.failure()


def _is_below(event: int, above: int, parents: Sequence[int | None]) -> bool:
    """Whether an event happened in the course of another."""
    at: int | None = event
    while at is not None and at > above:
        at = parents[at]
    return at == above


def _at_place_of(event: Event, forward: Event) -> Event:
    """An op of backward as it is shown: its numbers are its own, its place is the forward step's."""
    return event._replace(
        name=SIGN + op_name(event.name), parent=forward.id, thread=forward.thread, stack=forward.stack,
        location=forward.location, owner=forward.owner, code=forward.code, module=forward.module, root=forward.root,
        target=(), direct=False, note=None,
    )  # fmt: skip


# ---------------------------------------------------------------- line by line


def gradient_of(forward: Event, ran: list[Event]) -> Value | None:
    """The gradient of what a step gave: the first of its shape that backward brings in from elsewhere."""
    given = (*forward.inputs, *forward.outputs)
    own, saved = {value.id for value in given}, {value.storage for value in given} - {None}
    shapes = {value.shape for value in forward.outputs}
    for event in ran:
        for value in event.inputs:
            if value.id not in own and value.storage not in saved and value.shape in shapes:
                return value
        own.update(value.id for value in event.outputs)
    return None


def words_by_line(trace: Recorded) -> dict[tuple[str, int], str]:
    """By file and line: ``∂ f32[5, 8] μ 0.03 σ 0.07 [−0.14, 0.2]: threshold_backward, t ×3, mm ×2``."""
    lines: dict[tuple[str, int], list[tuple[Event, list[Event]]]] = {}
    for number, ran in sorted(ran_for(trace).items()):
        forward, ops = trace.event(number), [event for event in ran if event.kind == "op"]
        if forward.location is not None and ops:
            lines.setdefault((forward.location.file, forward.location.line), []).append((forward, ops))
    return {place: _words(several) for place, several in lines.items()}


def _words(several: list[tuple[Event, list[Event]]]) -> str:
    """Of a line with several steps the gradient is that of the last one, whose result the line gives."""
    last = several[-1][0]
    same = [(forward, ran) for forward, ran in several if (forward.name, forward.code) == (last.name, last.code)]
    gradients = [value for forward, ran in same if (value := gradient_of(forward, ran)) is not None]
    shape = ", ".join(values_words([(value,) for value in gradients])) if gradients else ""
    known, alarm = contents_words([gradients]) if gradients else ("", "")
    counts: dict[str, int] = {}
    for event in sorted((event for _, ran in several for event in ran), key=lambda event: event.id):
        name = clean(op_name(event.name))
        counts[name] = counts.get(name, 0) + 1
    names = [f"{name} ×{count(times)}" if times > 1 else name for name, times in counts.items()]
    rest = f", +{len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    gradient = " ".join(filter(None, (shape, alarm, known)))
    return f"{SIGN}{gradient}: " * bool(gradient) + SIGN * (not gradient) + ", ".join(names[:MOST_NAMES]) + rest
