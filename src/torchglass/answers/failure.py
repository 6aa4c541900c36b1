"""Explains why the block failed: the failing call, its inputs, and where they came from."""

# Private members of a trace are hidden from users, not from the views and answers that read it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from torchglass.answers.finding import ERROR, Evidence, Finding
from torchglass.answers.mismatch import History, Mismatch, Named, mismatches
from torchglass.events.selection import Selection
from torchglass.events.types import Event, Location, Value
from torchglass.program.frames import is_constructor
from torchglass.program.inner import visible_events
from torchglass.program.recorded import Recorded
from torchglass.program.variables.targets import assigned_to
from torchglass.views.text.cells import BINARY, class_word, expression
from torchglass.views.text.labels import shortened
from torchglass.views.text.tensors import stats_word
from torchglass.views.text.words import clean, one_line, place_word, tensor_word

LAST_EVENTS = 10
"""Events of the failing thread that are shown."""
STEPS_BACK = 2
"""Calls that are shown for each input, unless the user asks for more."""
MOST_INPUTS = 12
"""Inputs that are shown; a call such as ``cat`` may have hundreds."""
MAX_NAME_LENGTH = 32
"""Characters of an input's name."""
MAX_MISMATCHES = 6
MAX_FRAMES = 8
"""Lines between the failing call and the place of the exception; a deep recursion has thousands."""
PYTEST = frozenset({"_pytest", "pluggy"})
"""Folders of pytest's own code."""
NORMAL_EXITS = ("SystemExit", "GeneratorExit")
"""Exceptions that end a program normally."""


@dataclass(frozen=True)
class Input:
    """A tensor that the failing call took, and where it came from."""

    name: str
    """The expression in the call, or in a call around it; for a parameter its path."""
    value: Value
    made_by: tuple[Event, ...]
    """The last calls that led to it, the latest first; for a parameter, the call that made its layer."""

    @property
    def words(self) -> str:
        """``f32[8, 3] @ cpu -1.2…3.4``."""
        stats = ""
        if self.value.stats is not None:
            stats = stats_word(self.value.stats, self.value.dtype)
        return f"{tensor_word(self.value, device=True)} {stats}".rstrip()


@dataclass(frozen=True)
class Failure:
    """How a block failed. ``print`` shows a short form, the view ``failure`` all of it; ``to_dict`` returns data."""

    error: str
    """The exception, as ``Type: text``."""
    event: Event | None
    """The innermost call that raised it; None if no recorded call failed."""
    path: tuple[Event, ...]
    """The failing call and those around it, outermost first."""
    raised: tuple[Location, ...]
    """The lines of the program from the failing call to where the exception was raised."""
    mismatches: tuple[Mismatch, ...]
    """What does not fit in the inputs."""
    inputs: tuple[Input, ...]
    """The first inputs, at most MOST_INPUTS."""
    none_from: Event | None
    """For a call that took ``None`` instead of a tensor: the call that returned it."""
    last: tuple[Event, ...]
    """The last events of the thread that failed."""
    thread_of: Event | None
    """An event of that thread."""

    @property
    def finding(self) -> Finding:
        """The failure in the shape that all answers share."""
        event_id = None
        code = ""
        if self.event is not None:
            event_id = self.event.id
            code = written(self.event)
        return Finding(
            kind="failure",
            severity=ERROR,
            text=clean(self.error),
            event=event_id,
            location=self._location(),
            code=code,
            evidence=tuple(self._evidence()),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the finding in its JSON form, with the ids of the events on the way (docs/json.md)."""
        return {
            **self.finding.to_dict(),
            "path": [event.id for event in self.path],
            "last": [event.id for event in self.last],
        }

    def __str__(self) -> str:
        return str(self.finding)

    def _location(self) -> Location | None:
        if self.event is not None:
            return self.event.location
        if self.raised:
            return self.raised[-1]
        return None

    def _evidence(self) -> Iterator[Evidence]:
        for event in self.path[:-1]:
            yield Evidence(f"in {written(event)}", event.id, event.location, "path")
        for at in self.raised:
            yield Evidence(f"raised in {clean(at.source or at.function)}", None, at, "raised")
        for mismatch in self.mismatches:
            yield mismatch_evidence(mismatch)
        for each in self.inputs:
            yield Evidence(f"took {each.name}: {each.words}", kind="input")
            for event in each.made_by:
                yield _came_from(each.name, event)
        if self.none_from is not None:
            yield _came_from("None", self.none_from)


def _came_from(name: str, event: Event) -> Evidence:
    return Evidence(f"{name} came from {written(event)}", event.id, event.location, "made")


def failure_of(
    trace: Recorded, back: int | None = None, only: Selection | None = None
) -> Failure | None:
    """Return how the block failed; None if it ended well.

    ``back`` is how many calls back each input is followed; ``only`` selects among the last events.
    """
    error = error_of(trace)
    if error is None:
        return None
    event = trace.failure()
    if event is not None:
        if back is None:
            back = STEPS_BACK
        return _Search(trace, event, error).failure(back, only)
    first = None
    if trace._left_process:
        first = _first_event(trace, visible_events(list(trace.events())))
    return Failure(
        error,
        event=None,
        path=(),
        raised=raised_frames(trace),
        mismatches=(),
        inputs=(),
        none_from=None,
        last=tuple(_last(trace)),
        thread_of=first,
    )


def error_of(trace: Recorded) -> str | None:
    """Return the text of the exception that ended the block; None if it ended normally."""
    event = trace.failure()
    if event is not None:
        return event.error or "the call did not return"
    text = ""
    if trace.left_by:
        text = trace.left_by[0].partition("\n")[0]
    if not text or text.partition(":")[0] in NORMAL_EXITS:
        return None
    return text


def raised_frames(trace: Recorded, event: Event | None = None) -> tuple[Location, ...]:
    """Return the lines of the program from the failing call to where the exception was raised."""
    lines_of_call = set[tuple[str, int]]()
    if event is not None:
        lines_of_call = {(at.file, at.line) for at in event.stack}
    frames: list[Location] = []
    for at in trace.raised_at:
        is_of_call = (at.file, at.line) in lines_of_call
        if at.origin == "user" and not is_of_call and not _is_of_pytest(at):
            frames.append(at)
    return tuple(frames[-MAX_FRAMES:])


def _is_of_pytest(at: Location) -> bool:
    """Return whether a line is pytest's own: it raises again what a test raised."""
    return not PYTEST.isdisjoint(PurePath(at.file).parts[:-1])


class _Search:
    """Finds out why one call failed."""

    def __init__(self, trace: Recorded, event: Event, error: str) -> None:
        self._trace = trace
        self._event = event
        self._error = error
        self._path = _path(trace, event)
        self._history = History(trace, {each.id for each in self._path})

    def failure(self, steps_back: int, only: Selection | None) -> Failure:
        """Return all that is known of the failure."""
        named: list[Named] = []
        for index, value in enumerate(self._event.inputs):
            named.append(Named(self._name(index, value), value))
        none_from = None
        if not named:
            none_from = self._none_from()
        return Failure(
            error=self._error,
            event=self._event,
            path=tuple(self._path),
            raised=raised_frames(self._trace, self._event),
            mismatches=tuple(mismatches(self._event, named, self._history)[:MAX_MISMATCHES]),
            inputs=tuple(self._inputs(named[:MOST_INPUTS], steps_back)),
            none_from=none_from,
            last=tuple(_last(self._trace, self._event, only)),
            thread_of=self._event,
        )

    def _name(self, index: int, value: Value) -> str:
        """Return the name of an input: its expression in the call, or in a call around it; a parameter's path."""
        for event in reversed(self._path):
            if len(event.operands) == len(event.inputs):
                for name, given in zip(event.operands, event.inputs, strict=True):
                    if given.id == value.id and name:
                        return shortened(one_line(name), MAX_NAME_LENGTH)
        return clean(self._history.parameter(value) or value.role) or f"input {index + 1}"

    def _inputs(self, named: Sequence[Named], steps_back: int) -> Iterator[Input]:
        """Yield each input with the last calls that led to it. A call that led to several is listed once."""
        shown_calls: set[int] = set()
        shown_lines: set[tuple[str, int]] = set()
        for each in named:
            if each.value.type == "Parameter":
                made_by = self._maker_of_parameter(each.value, shown_lines)
            else:
                made_by: list[Event] = []
                for event in self._history.steps(each.value, steps_back):
                    if event.id in shown_calls:
                        break
                    shown_calls.add(event.id)
                    made_by.append(event)
            yield Input(each.name, each.value, tuple(made_by))

    def _maker_of_parameter(self, value: Value, shown_lines: set[tuple[str, int]]) -> list[Event]:
        """Return the call that made the layer of a parameter, once for all of its parameters."""
        event = self._history.maker(value)
        if event is None or event.kind == "step" or event.location is None:
            return []
        line = (event.location.file, event.location.line)
        if line in shown_lines:
            return []
        shown_lines.add(line)
        return [event]

    def _none_from(self) -> Event | None:
        """Return the call that returned the ``None`` that the failing call got; None if there is none."""
        event = self._event
        if "None" not in event.args:
            return None
        names = {name.strip() for name in _argument_texts(event.code)}
        for earlier in reversed(list(self._trace.events())[: event.id]):
            if earlier.parent == event.parent and names.intersection(earlier.target):
                if earlier.result == "None" and not earlier.outputs:
                    return earlier
                return None
        return None


def _last(
    trace: Recorded, event: Event | None = None, only: Selection | None = None
) -> list[Event]:
    """Return the last events of the failing thread, without those in constructors unless one of these failed."""
    visible = visible_events(list(trace.events()))
    of_thread = event or _first_event(trace, visible)
    if of_thread is None:
        return []
    thread = (of_thread.process, of_thread.thread)
    # The workers of a DataLoader are forked while a constructor runs, so it is open in all of their events.
    with_constructors = event is not None and _is_in_constructor(event)
    last: list[Event] = []
    for other in visible:
        if (other.process, other.thread) != thread:
            continue
        if _is_in_constructor(other) and not with_constructors:
            continue
        if only is None or only.matches(other):
            last.append(other)
    return last[-LAST_EVENTS:]


def _first_event(trace: Recorded, events: Sequence[Event]) -> Event | None:
    """Return the first event of the process in which the exception was raised."""
    for event in events:
        if trace._left_process in (0, event.process):
            return event
    return None


def _path(trace: Recorded, event: Event) -> list[Event]:
    """Return the failing call and those around it, outermost first."""
    path = [event]
    while path[-1].parent is not None:
        path.append(trace.event(path[-1].parent))
    return path[::-1]


def _is_in_constructor(event: Event) -> bool:
    """Return whether an event was part of making an object, such as a layer with its weights."""
    return any(is_constructor(at.function) for at in event.stack)


def _argument_texts(code: str) -> list[str]:
    """Return the texts between the outermost brackets of a call."""
    return code.partition("(")[2].rpartition(")")[0].split(",")


# ---------------------------------------------------------------- words


def written(event: Event) -> str:
    """Return the expression of a call; for a layer that torch called, its path and class."""
    if event.kind == "module" and not event.direct:
        path = clean(event.module or event.root or "")
        return f"{path} {class_word(event.name, event.detail)}".strip()
    if event.code:
        return expression(assigned_to(event), event.code, event.operator)
    return clean(event.name)


def mismatch_text(mismatch: Mismatch) -> str:
    """Return what does not fit, and the expression and line that it came from."""
    origin = mismatch.origin
    if origin is None or origin.location is None:
        return mismatch.text
    source = f"{mismatch.preposition} {written(origin)} at {place_word(origin.location)}"
    return f"{mismatch.text}, {source}"


def mismatch_evidence(mismatch: Mismatch) -> Evidence:
    """Return what does not fit as evidence of a finding."""
    origin = mismatch.origin
    if origin is None:
        return Evidence(mismatch.text, kind="mismatch")
    if origin.location is None:
        return Evidence(mismatch.text, origin.id, None, "mismatch")
    text = f"{mismatch.text}, {mismatch.preposition} {written(origin)}"
    return Evidence(text, origin.id, origin.location, "mismatch")


def both_broadcast(event: Event) -> bool:
    """Return whether the result of an operator has the shape of neither operand, which is seldom intended."""
    if event.operator not in BINARY or event.operator in ("@", "@=") or not event.outputs:
        return False
    shape = event.outputs[0].shape
    return len(event.inputs) == 2 and all(each.shape != shape for each in event.inputs)
