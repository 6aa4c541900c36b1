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
"""Begins the text of functions, modules and other objects. Only their type is recorded."""


def note_variables(file: str, trace: Recorded, lines: FileNotes) -> None:
    """Add to the notes of a file what its variables were assigned, unless steps have that already."""
    outcomes: dict[tuple[int, str, str], Outcome] = {}
    distinct = program_of(trace).distinct
    for sample, changes in _changes_by_sample(distinct).items():
        event = distinct.samples[sample]
        if event.file != file or event.line is None:
            continue
        measured = None
        if trace.measured:
            measured = MeasuredOutput(trace, changes, 0)
        result = _result(event, measured)
        if result is not None:
            line = lines.first_line.get(event.line, event.line)
            outcome = outcomes.setdefault((line, event.name, _kind(event)), Outcome())
            outcome.add(result, module_path(event), len(changes))
    for (line, name, kind), outcome in outcomes.items():
        line_note = lines.notes.setdefault(line, LineNote(line, LineState.RAN))
        _add_unless_known(line_note, Note(name, kind, outcome))


def _add_unless_known(line_note: LineNote, note: Note) -> None:
    """Add the note of a variable to its line, unless a step there has the variable's value already."""
    name = note.label
    if any(name in other.label.split(", ") and other.outcome for other in line_note.notes):
        return
    kept = [other for other in line_note.notes if other.outcome or other.label != name]
    line_note.notes = [*kept, note]


def _changes_by_sample(distinct: DistinctEvents) -> dict[int, list[int]]:
    """Return the ids of changes of variables, by the number of their sample, in the order of the first ones."""
    changes: dict[int, list[int]] = {}
    is_change = [
        event.kind == "variable" and event.name not in _OWNERS for event in distinct.samples
    ]
    for number, sample in enumerate(distinct.alike):
        if is_change[sample]:
            changes.setdefault(sample, []).append(number)
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
