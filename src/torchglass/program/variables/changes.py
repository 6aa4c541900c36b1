"""Reads the changes of variables in a trace: what each held before and after, and in which call it changed."""

# Private members of a trace are hidden from users, not from the views and answers that read it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.spelling import tensor_text
from torchglass.events.tables import form_sizes
from torchglass.events.types import Event, Location, Value
from torchglass.program.calls import UNKNOWN_PLACE, PythonCall, PythonCalls
from torchglass.program.dedup import shape_key
from torchglass.program.program import Program, program_of
from torchglass.program.recorded import HasTables, Recorded

NOTHING, ONE, TEXT = "nothing", "one", "text"
"""Kinds of sides: the variable did not exist, or held one tensor or array, or anything else, which is known as text."""


class Side(NamedTuple):
    """What a variable held before or after a change."""

    kind: str
    text: str = ""
    value: Value | None = None
    form: Hashable = ""
    """Equal for what may share a row: all numbers, for example, or all lists of any length."""


UNBOUND = Side(NOTHING)
"""The side of a variable that does not exist: before its first assignment, or after ``del``."""
NOT_KNOWN = Side("text", "<not known>")
"""The side before a change if what the variable held is not known."""
NUMBER = "number"
"""The form of all numbers."""
_LONG_CONTAINER = re.compile(r"<\w+ of [\d,]+>")
"""The text of long containers: ``<list of 10,000>``."""


@dataclass(slots=True)
class Change:
    """One change of a variable."""

    id: int
    """The id of its event."""
    event: Event
    """A sample of its event: only the id, parent, times and values may be those of another one."""
    how: str
    """``argument``, ``assigned``, ``deleted`` or ``changed`` (in place)."""
    old: Side
    new: Side
    call: PythonCall
    parent: int
    """The event around it; -1 if there is none."""

    @property
    def at(self) -> Location:
        return self.event.location or UNKNOWN_PLACE

    @property
    def key(self) -> tuple[int, str]:
        """The key of the change. It has the name too, because one event may be assigned to several names."""
        return (self.id, self.event.name)


@dataclass(slots=True)
class ChangesRead:
    """All changes in a trace, in order."""

    program: Program
    changes: list[Change] = field(default_factory=list[Change])
    is_guessed: bool = False
    """Whether no variables were followed, so that the changes are read from the targets of calls."""
    in_packages: int = 0
    """How many changes in installed packages are left out."""


def read_changes(trace: Recorded) -> ChangesRead:
    """Read the changes of followed variables."""
    program = program_of(trace)
    distinct = program.distinct
    reading = ChangesRead(program)
    calls = PythonCalls(distinct, program.tree)
    sides = {
        number: _sides(event)
        for number, event in enumerate(distinct.samples)
        if event.kind == "variable"
    }
    values_of = values_in(trace)
    for number, alike in enumerate(distinct.alike):
        if alike not in sides:
            continue
        event = distinct.samples[alike]
        parent = distinct.parents[number]
        old, new, how = sides[alike]
        if old.value is not None or new.value is not None:
            inputs, outputs = values_of(number)
            old = _with_value(old, inputs)
            new = _with_value(new, outputs)
        call = calls.call_of(number, event)
        reading.changes.append(Change(number, event, how, old, new, call, parent))
    return reading


Values = Callable[[int], tuple[tuple[Value, ...], tuple[Value, ...]]]


def values_in(trace: Recorded) -> Values:
    """Return a function that returns the inputs and the outputs of an event, by its id."""
    if not isinstance(trace, HasTables):
        return lambda number: (trace.event(number).inputs, trace.event(number).outputs)
    tables = trace._tables
    roles = form_sizes(tables)

    def values(number: int) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        args = tables.args[number]
        first = tables.first_io[number]
        return tables.values_of(args, first), tables.values_of(
            tables.result[number], first + roles[args]
        )

    return values


def _sides(event: Event) -> tuple[Side, Side, str]:
    return (
        side_of(event.args, event.inputs),
        side_of(event.result, event.outputs),
        event.detail or "assigned",
    )


def _with_value(side: Side, values: tuple[Value, ...]) -> Side:
    if side.value is not None:
        return side._replace(value=values[0])
    return side


def side_of(text: str, values: tuple[Value, ...]) -> Side:
    """Return one side of a change, from the recorded text and the tensors in it."""
    if len(values) == 1:
        value = values[0]
        # The text of a list with one tensor differs from that of the tensor.
        if text in ("", tensor_text(value.dtype, value.shape, value.kind)):
            return Side(ONE, text, value, (value.kind, *shape_key(value)))
    if text:
        return Side(TEXT, text, None, _form(text))
    return UNBOUND


def _form(text: str) -> str:
    """Return a key that is equal for texts that may share a row; see ``Side.form``."""
    first = text[0]
    if first.isdecimal() or (first == "-" and text[1:2].isdecimal()):
        return NUMBER
    if first in "'\"[({":
        return first
    if first == "<" and _LONG_CONTAINER.fullmatch(text):
        return text.partition(" of ")[0]
    return text
