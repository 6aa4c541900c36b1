"""What followed variables held, at the lines that changed them: of numbers, arrays and containers no step tells."""

from __future__ import annotations

from collections.abc import Iterable

from torchglass.events.spelling import dtype_word, shape_word
from torchglass.events.types import Event
from torchglass.views.digest import Digest
from torchglass.views.listing.lines import RAN, LineNote, ListedLines, Note
from torchglass.views.listing.results import Outcome, Result, ResultTensor

_OWNERS = ("self", "cls")
_PLAIN = "<"
"""What is told of a function, a module, an object: its type alone."""


def note_variables(file: str, digest: Digest, lines: ListedLines) -> None:
    """Add to the notes of a file what its variables got where no step says it already."""
    found: dict[tuple[int, str, str], Outcome] = {}
    for alike, times in _counted(digest):
        event = digest.samples[alike]
        result = _result(event)
        if event.file != file or result is None or event.line is None:
            continue
        line = lines.first_line.get(event.line, event.line)
        outcome = found.setdefault((line, event.name, _kind(event)), Outcome())
        key = (result, event.module)
        outcome.counted[key] = outcome.counted.get(key, 0) + times
    for (line, name, kind), outcome in found.items():
        note = lines.notes.setdefault(line, LineNote(line, RAN))
        if not any(name in each.label.split(", ") and each.outcome for each in note.notes):
            note.notes = [each for each in note.notes if each.outcome and each.label != name]
            note.notes.append(Note(name, kind, outcome))


def _counted(digest: Digest) -> Iterable[tuple[int, int]]:
    """The changes of variables that are alike, in the order in which they first came, and how many."""
    counts: dict[int, int] = {}
    followed = [event.kind == "variable" and event.name not in _OWNERS for event in digest.samples]
    for alike in digest.alike:
        if followed[alike]:
            counts[alike] = counts.get(alike, 0) + 1
    return counts.items()


def _kind(event: Event) -> str:
    """What a line begins with needs no name: not so an argument, what a loop goes over, a list that is added to."""
    plain = event.detail == "assigned" and (event.source or "").startswith(event.name)
    return "assigned" if plain else "changed"


def _result(event: Event) -> Result | None:
    """What the variable holds now; None when nothing is to be said of it."""
    if event.detail == "deleted" or event.result in ("", "None"):
        return None
    if len(event.outputs) == 1:
        value = event.outputs[0]
        word = dtype_word(value.dtype) + shape_word(value.shape)
        if event.result in ("", word, f"{word} numpy"):
            layout = "numpy" if value.kind == "array" else value.layout
            return Result((ResultTensor("", value.dtype, value.shape, layout),))
    return None if event.result.startswith(_PLAIN) and " of " not in event.result else Result((), event.result)
