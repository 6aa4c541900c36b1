"""What followed variables held, at the lines that changed them: of numbers, arrays and containers no step tells."""

from __future__ import annotations

from torchglass.events.spelling import dtype_word, shape_word
from torchglass.events.types import Event
from torchglass.views.digest import Digest
from torchglass.views.listing.lines import RAN, LineNote, ListedLines, Note
from torchglass.views.listing.results import MeasuredOutput, Outcome, Result, ResultTensor
from torchglass.views.text.statistics import is_measured

_OWNERS = ("self", "cls")
_PLAIN = "<"
"""What is told of a function, a module, an object: its type alone."""


def note_variables(file: str, digest: Digest, lines: ListedLines) -> None:
    """Add to the notes of a file what its variables got where no step says it already."""
    found: dict[tuple[int, str, str], Outcome] = {}
    measured = is_measured(digest.trace)
    for alike, numbers in _numbers(digest).items():
        event = digest.samples[alike]
        result = _result(event, MeasuredOutput(digest.trace, numbers, 0) if measured else None)
        if event.file != file or result is None or event.line is None:
            continue
        line = lines.first_line.get(event.line, event.line)
        outcome = found.setdefault((line, event.name, _kind(event)), Outcome())
        key = (result, event.module or (event.root if event.module == "" else None))
        outcome.counted[key] = outcome.counted.get(key, 0) + len(numbers)
    for (line, name, kind), outcome in found.items():
        note = lines.notes.setdefault(line, LineNote(line, RAN))
        if not any(name in each.label.split(", ") and each.outcome for each in note.notes):
            note.notes = [each for each in note.notes if each.outcome and each.label != name]
            note.notes.append(Note(name, kind, outcome))


def _numbers(digest: Digest) -> dict[int, list[int]]:
    """The ids of changes of variables that are alike, in the order in which they first came."""
    found: dict[int, list[int]] = {}
    followed = [event.kind == "variable" and event.name not in _OWNERS for event in digest.samples]
    for number, alike in enumerate(digest.alike):
        if followed[alike]:
            found.setdefault(alike, []).append(number)
    return found


def _kind(event: Event) -> str:
    """What a line begins with needs no name: not so an argument, what a loop goes over, a list that is added to."""
    plain = event.detail == "assigned" and (event.source or "").startswith(event.name)
    return "assigned" if plain else "changed"


def _result(event: Event, measured: MeasuredOutput | None) -> Result | None:
    """What the variable holds now; None when nothing is to be said of it."""
    if event.detail == "deleted" or event.result in ("", "None"):
        return None
    if len(event.outputs) == 1:
        value = event.outputs[0]
        word = dtype_word(value.dtype) + shape_word(value.shape)
        if event.result in ("", word, f"{word} numpy"):
            layout = "numpy" if value.kind == "array" else value.layout
            return Result((ResultTensor("", value.dtype, value.shape, layout, measured),))
    return None if event.result.startswith(_PLAIN) and " of " not in event.result else Result((), event.result)
