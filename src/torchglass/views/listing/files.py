"""Which files the listing shows, each with what is known of its lines."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from torchglass.errors import UsageError
from torchglass.events.selection import base_name, fits_path, is_installed
from torchglass.events.spelling import tensor_text
from torchglass.events.types import Event
from torchglass.source.flow import ControlFlow
from torchglass.source.statements import Function, Statement, is_text
from torchglass.views.digest import Digest, Recorded, digest_of
from torchglass.views.listing.frames import Frame, frames_of
from torchglass.views.listing.lines import RAN, Gap, LineNote, ListedLines, Note, lines_of
from torchglass.views.listing.made import made_by
from torchglass.views.listing.results import MeasuredOutput, Outcome, Result, ResultTensor
from torchglass.views.listing.runs import Runs
from torchglass.views.options import ListingOptions
from torchglass.views.text.tensors import is_measured

CHANGED = "its text changed after it ran, or is not the text that ran"
MISSING = "its text is not in the trace"
NOT_PYTHON = "its text is not Python that can be read here"


@dataclass(slots=True)
class FileListing:
    """One file that ran."""

    file: str
    installed: bool
    """Part of an installed package, not the user's own."""
    steps: int = 0
    """Steps that its own expressions made."""
    step_lines: int = 0
    text: list[str] = field(default_factory=list[str])
    """Its lines; ``[]`` when the text is not known."""
    lines: ListedLines = field(default_factory=ListedLines)
    problem: str = ""
    """Why the text is not shown."""


@dataclass(slots=True)
class Files:
    """The files that are shown, and those that are only named."""

    shown: list[FileListing]
    named: list[FileListing]


def files_of(trace: Recorded, options: ListingOptions) -> Files:
    """What stands beside each line: pure. Files of the user's own first, in the order in which they ran."""
    frames = frames_of(trace, options.only)
    texts = trace.sources
    files = _files(frames)
    shown, named = _choose(list(files.values()), options)
    parsed = {file: found for file, text in texts.items() if file in files and (found := ControlFlow.of(text))}
    changed = _leave_out_changed(frames, parsed)
    runs = Runs(frames, parsed)
    failed = trace.failure()
    for each in shown:
        statements = parsed.get(each.file)
        each.text = texts[each.file].split("\n") if statements is not None else []
        if statements is None:
            each.problem = _problem(each.file, texts, changed)
        each.lines = lines_of(each.file, runs)
        if statements is not None:
            whole: list[int | Gap] = [*range(1, len(statements.lines) + 1)]
            each.lines.shown = whole if options.functions == "all" else excerpt(each.file, runs, statements)
        if statements is not None and options.only is None:
            note_variables(each.file, digest_of(trace), each.lines)
        _mark_failure(each, failed)
    return Files(shown, named)


def _mark_failure(listing: FileListing, failed: Event | None) -> None:
    """The line of the call that failed; the lines its error then came through name only its type."""
    if failed is None:
        return
    error, known = failed.error or "did not return", listing.lines
    for note in (*known.notes.values(), *known.loose):
        if error in note.errors:
            note.errors = {error.partition(":")[0] if text == error else text: n for text, n in note.errors.items()}
    at = failed.location
    if at is None or at.file != listing.file:
        return
    line = known.first_line.get(at.line, at.line)
    where = (at.line, at.function, at.source or failed.code)
    loose = next((note for note in known.loose if (note.line, note.function, note.source) == where), None)
    note = loose or known.notes.setdefault(line, LineNote(line, function=at.function))
    note.failed = error
    note.errors.pop(error.partition(":")[0], None)


# ---------------------------------------------------------------- files


def _files(frames: Iterable[Frame]) -> dict[str, FileListing]:
    """The files with selected steps in them or below them."""
    files: dict[str, FileListing] = {}
    lines: dict[str, set[int]] = {}
    for frame in frames:
        if not frame.live:
            continue
        name = frame.place.file
        found = files.setdefault(name, FileListing(name, is_installed(name)))
        made = made_by(frame)
        found.steps += sum(each.count for each in made)
        if made:
            lines.setdefault(name, set()).add(frame.place.where.line)
    for name, found in files.items():
        found.step_lines = len(lines.get(name, ()))
    return files


def _choose(files: list[FileListing], options: ListingOptions) -> tuple[list[FileListing], list[FileListing]]:
    """Those shown and those only named.

    By default all of the user's own, and of the installed ones those with at least half as many lines with
    steps as the one that has most: the file of the model, not the utilities around it.
    """
    if options.path:
        shown = [each for each in files if any(fits_path(each.file, pattern) for pattern in options.path)]
        if not shown and files:
            names = ", ".join(sorted(base_name(each.file) for each in files))
            asked = options.path[0] if len(options.path) == 1 else options.path
            raise UsageError(f"path={asked!r}: no step was seen in such a file; there are: {names}")
        return sorted(shown, key=lambda each: each.installed), []
    most = max((each.step_lines for each in files if each.installed), default=0)
    shown = [each for each in files if not each.installed]
    shown += [each for each in files if each.installed and each.step_lines and each.step_lines * 2 >= most]
    named = [each for each in files if each not in shown]
    if options.style == "comments" and shown:
        # A copy is a copy of one file.
        first = max(shown, key=lambda each: (not each.file.startswith("<"), not each.installed, each.step_lines))
        named = [each for each in files if each is not first]
        shown = [first]
    return shown, sorted(named, key=lambda each: -each.steps)


# ---------------------------------------------------------------- texts


def _leave_out_changed(frames: Iterable[Frame], parsed: dict[str, ControlFlow]) -> set[str]:
    """Mark the frames whose line is not, or no longer, in the file; take out the files of which none is.

    The files with such lines are returned.
    """
    changed: set[str] = set()
    proven: set[str] = set()
    for frame in frames:
        source = parsed.get(frame.place.file)
        if source is None:
            continue
        line = frame.place.where.line
        text = source.lines[line - 1].strip() if 0 < line <= len(source.lines) else ""
        frame.unproven = not text or text != frame.place.source
        (changed if frame.unproven else proven).add(frame.place.file)
    for file in changed - proven:
        del parsed[file]
    return changed


def _problem(file: str, texts: Mapping[str, str], changed: Container[str]) -> str:
    if file not in texts:
        return MISSING
    return CHANGED if file in changed else NOT_PYTHON


# ---------------------------------------------------------------- followed

# What followed variables held, at the lines that changed them: of numbers, arrays and containers no step tells.

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
        if event.result in ("", tensor_text(value.dtype, value.shape, value.kind)):
            layout = "numpy" if value.kind == "array" else value.layout
            return Result((ResultTensor("", value.dtype, value.shape, layout, measured),))
    return None if event.result.startswith(_PLAIN) and " of " not in event.result else Result((), event.result)


# ---------------------------------------------------------------- which lines

# The functions that ran, the classes around them, and what is left out between.


def excerpt(file: str, runs: Runs, source: ControlFlow) -> list[int | Gap]:
    """The functions that ran, the classes around them, and, where it ran, the module's own code."""
    active = {function for where, function in runs.callers if where == file}
    idle = [each for each in source.functions() if each.number not in active]
    keep = bytearray(len(source.lines) + 2)
    if runs.callers.get((file, -1)):
        keep[1:-1] = b"\1" * len(source.lines)
    for statement in source.all:
        node = statement.node
        if isinstance(node, Function):
            _set(keep, statement, statement.number in active or _holds(source, statement, active))
        elif isinstance(node, ast.ClassDef):
            holds = _holds(source, statement, active)
            _set(keep, statement, False)
            if holds:
                first, last = statement.start[0], statement.last_line
                keep[first : last + 1] = b"\1" * (last + 1 - first)
        elif is_text(node) and statement.end[0] - statement.start[0] > 2:
            keep[statement.start[0] + 1 : statement.end[0] + 1] = bytes(statement.end[0] - statement.start[0])
    for _, where, number in runs.below:
        if where == file:
            statement = source.all[number]
            for line in range(statement.start[0], statement.last_line + 1):
                keep[line] = 1
    return _with_gaps(source, keep, idle)


def _set(keep: bytearray, statement: Statement, value: bool) -> None:
    first, last = statement.start[0], statement.end[0]
    keep[first : last + 1] = bytes([value]) * (last + 1 - first)


def _holds(source: ControlFlow, outer: Statement, active: set[int]) -> bool:
    return any(number > outer.number and source.all[number].start <= outer.end for number in active if number >= 0)


def _with_gaps(source: ControlFlow, keep: bytearray, idle: list[Statement]) -> list[int | Gap]:
    shown: list[int | Gap] = []
    first = 0
    for line in range(1, len(source.lines) + 2):
        if line <= len(source.lines) and not keep[line]:
            first = first or line
            continue
        if first:
            names = tuple(_name(source, each) for each in idle if first <= each.start[0] < line)
            hidden = source.lines[first - 1 : line - 1]
            if names or any(text.strip() for text in hidden):
                shown.append(Gap(line - first, names))
            elif line <= len(source.lines):
                shown.append(line - 1)  # of blank lines one
            first = 0
        if line <= len(source.lines):
            shown.append(line)
    return shown


def _name(source: ControlFlow, statement: Statement) -> str:
    """``Class.method``."""
    names: list[str] = []
    number = statement.number
    while number >= 0:
        names.append(getattr(source.all[number].node, "name", ""))
        number = source.all[number].parent
    return ".".join(filter(None, reversed(names)))
