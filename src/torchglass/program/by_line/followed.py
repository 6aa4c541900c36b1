"""Adds what followed variables held to the notes of the lines that changed them.

Numbers, arrays and containers appear only here, since steps have only tensors.
"""

from __future__ import annotations

from torchglass.events.spelling import tensor_text
from torchglass.events.types import Event
from torchglass.program.by_line.notes import FileNotes, LineNote, LineState, Note
from torchglass.program.by_line.results import (
    MeasuredOutput,
    Outcome,
    Result,
    ResultTensor,
    module_path,
)
from torchglass.program.dedup import DistinctEvents
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded

_OWNERS = ("self", "cls")
_OBJECT_PREFIX = "<"
"""Begins the text of functions, modules and other objects, of which only the type is known."""


def note_variables(file: str, trace: Recorded, lines: FileNotes) -> None:
    """Add to the notes of a file what its variables were assigned, unless steps have that already."""
    outcomes: dict[tuple[int, str, str], Outcome] = {}
    distinct = program_of(trace).distinct
    for alike, numbers in _changes_by_sample(distinct).items():
        event = distinct.samples[alike]
        measured = None
        if trace.measured:
            measured = MeasuredOutput(trace, numbers, 0)
        result = _result(event, measured)
        if event.file != file or result is None or event.line is None:
            continue
        line = lines.first_line.get(event.line, event.line)
        outcome = outcomes.setdefault((line, event.name, _kind(event)), Outcome())
        outcome.add(result, module_path(event), len(numbers))
    for (line, name, kind), outcome in outcomes.items():
        note = lines.notes.setdefault(line, LineNote(line, LineState.RAN))
        if not any(name in each.label.split(", ") and each.outcome for each in note.notes):
            note.notes = [each for each in note.notes if each.outcome or each.label != name]
            note.notes.append(Note(name, kind, outcome))


def _changes_by_sample(distinct: DistinctEvents) -> dict[int, list[int]]:
    """Return the ids of changes of variables, by the number of their sample, in the order of the first ones."""
    changes: dict[int, list[int]] = {}
    is_change = [
        event.kind == "variable" and event.name not in _OWNERS for event in distinct.samples
    ]
    for number, alike in enumerate(distinct.alike):
        if is_change[alike]:
            changes.setdefault(alike, []).append(number)
    return changes


def _kind(event: Event) -> str:
    """Return ``assigned`` if the line begins with the variable's name, so that it need not be repeated."""
    source = event.source or ""
    next_character = source[len(event.name) : len(event.name) + 1]
    is_whole_name = not (next_character.isalnum() or next_character == "_")
    if event.detail == "assigned" and source.startswith(event.name) and is_whole_name:
        return "assigned"
    return "changed"


def _result(event: Event, measured: MeasuredOutput | None) -> Result | None:
    """Return what the variable holds after the change; None if there is nothing to show."""
    if event.detail == "deleted" or event.result in ("", "None"):
        return None
    if len(event.outputs) == 1:
        value = event.outputs[0]
        if event.result in ("", tensor_text(value.dtype, value.shape, value.kind)):
            layout = "numpy"
            if value.kind != "array":
                layout = value.layout
            return Result((ResultTensor("", value.dtype, value.shape, layout, measured),))
    if event.result.startswith(_OBJECT_PREFIX) and " of " not in event.result:
        return None
    return Result((), event.result)
