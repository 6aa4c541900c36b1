"""Chooses the files that the listing shows, with notes for their lines."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from torchglass.errors import UsageError
from torchglass.events.selection import base_name, fits_path, is_installed
from torchglass.events.types import Event
from torchglass.program.by_line.followed import note_variables
from torchglass.program.by_line.frames import Frame
from torchglass.program.by_line.made import made_by
from torchglass.program.by_line.notes import FileNotes, LineNote
from torchglass.program.by_line.ran import Ran
from torchglass.program.by_line.settled import SettledFrames
from torchglass.program.recorded import Recorded
from torchglass.source.flow import ControlFlow
from torchglass.source.statements import Function, Statement, is_text
from torchglass.views.options import ListingOptions

CHANGED = "its text changed after it ran, or is not the text that ran"
MISSING = "its text is not in the trace"
NOT_PYTHON = "its text is not Python that can be read here"


@dataclass(slots=True)
class Gap:
    """Lines that are left out, with the names of the functions in them in which no step was seen."""

    lines: int
    functions: tuple[str, ...] = ()


@dataclass(slots=True)
class FileListing:
    """One file that ran."""

    file: str
    installed: bool
    """Whether the file belongs to an installed package rather than to the user."""
    steps: int = 0
    """How many steps the file's expressions made."""
    step_lines: int = 0
    """On how many lines there are steps."""
    text: list[str] = field(default_factory=list[str])
    """The lines of the file, or ``[]`` if the text is not known."""
    lines: FileNotes = field(default_factory=FileNotes)
    shown: list[int | Gap] = field(default_factory=list["int | Gap"])
    """The numbers of the lines that are shown, in order, and the gaps between them."""
    problem: str = ""
    """Why the text is not shown."""


@dataclass(slots=True)
class Files:
    """The files that are shown, and the files that ran but are only named."""

    shown: list[FileListing]
    named: list[FileListing]


def files_of(trace: Recorded, options: ListingOptions) -> Files:
    """Return the files to show with the notes for their lines.

    The user's files come first, in the order in which they ran.
    """
    ran = Ran(trace, options.only)
    files = _files(ran.frames)
    shown, named = _choose(list(files.values()), options)
    failed = trace.failure()
    for each in shown:
        statements = ran.parsed.get(each.file)
        each.lines = ran.notes_of(each.file)
        if statements is None:
            each.problem = _problem(each.file, trace.sources, ran.changed)
        else:
            each.text = trace.sources[each.file].split("\n")
            whole: list[int | Gap] = [*range(1, len(statements.lines) + 1)]
            if options.whole:
                each.shown = whole
            else:
                each.shown = excerpt(each.file, ran.settled, statements)
            if options.only is None:
                note_variables(each.file, trace, each.lines)
        _mark_failure(each, failed)
    return Files(shown, named)


def _mark_failure(listing: FileListing, failed: Event | None) -> None:
    """Mark the line of the call that failed. Lines that the error then passed through show only its
    type.
    """
    if failed is None:
        return
    error = failed.error or "did not return"
    known = listing.lines
    for note in (*known.notes.values(), *known.without_source):
        if error in note.errors:
            errors: dict[str, int] = {}
            for text, times in note.errors.items():
                if text == error:
                    text = text.partition(":")[0]
                errors[text] = times
            note.errors = errors
    at = failed.location
    if at is None or at.file != listing.file:
        return
    line = known.first_line.get(at.line, at.line)
    where = (at.line, at.function, at.source or failed.code)
    without_source = next(
        (note for note in known.without_source if (note.line, note.function, note.source) == where),
        None,
    )
    note = without_source or known.notes.setdefault(line, LineNote(line, function=at.function))
    note.failed = error
    note.errors.pop(error.partition(":")[0], None)


# ---------------------------------------------------------------- files


def _files(frames: Iterable[Frame]) -> dict[str, FileListing]:
    """Return the files that made selected steps, themselves or in functions that they called."""
    files: dict[str, FileListing] = {}
    lines: dict[str, set[int]] = {}
    for frame in frames:
        if not frame.is_selected:
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


def _choose(
    files: list[FileListing], options: ListingOptions
) -> tuple[list[FileListing], list[FileListing]]:
    """Return the files to show, and the files that are only named.

    By default, all files of the user are shown. Of the installed ones, those are shown that have at
    least half as many lines with steps as the one with the most: the file of the model, not the
    utilities around it.
    """
    if options.path:
        shown = [
            each for each in files if any(fits_path(each.file, pattern) for pattern in options.path)
        ]
        if not shown and files:
            names = ", ".join(sorted(base_name(each.file) for each in files))
            if len(options.path) == 1:
                asked = options.path[0]
            else:
                asked = options.path
            raise UsageError(f"path={asked!r}: no step was seen in such a file; there are: {names}")
        return sorted(shown, key=lambda each: each.installed), []
    most = max((each.step_lines for each in files if each.installed), default=0)
    shown = [each for each in files if not each.installed]
    shown += [
        each for each in files if each.installed and each.step_lines and each.step_lines * 2 >= most
    ]
    named = [each for each in files if each not in shown]
    if options.style == "comments" and shown:
        # A copy is a copy of one file.
        first = max(
            shown,
            key=lambda each: (not each.file.startswith("<"), not each.installed, each.step_lines),
        )
        named = [each for each in files if each is not first]
        shown = [first]
    return shown, sorted(named, key=lambda each: -each.steps)


# ---------------------------------------------------------------- texts


def _problem(file: str, texts: Mapping[str, str], changed: Container[str]) -> str:
    if file not in texts:
        return MISSING
    if file in changed:
        return CHANGED
    return NOT_PYTHON


# ---------------------------------------------------------------- which lines

# Shown are the functions that ran and the classes around them. Gaps stand for the lines between.


def excerpt(file: str, settled: SettledFrames, source: ControlFlow) -> list[int | Gap]:
    """Return the lines of the functions that ran and of the classes around them, and the module's
    code if it ran.
    """
    active = {function for where, function in settled.callers if where == file}
    idle = [each for each in source.functions() if each.number not in active]
    keep = bytearray(len(source.lines) + 2)
    if settled.callers.get((file, -1)):
        keep[1:-1] = b"\1" * len(source.lines)
    for statement in source.all:
        node = statement.node
        if isinstance(node, Function):
            _set(keep, statement, statement.number in active or _holds(source, statement, active))
        elif isinstance(node, ast.ClassDef):
            holds = _holds(source, statement, active)
            _set(keep, statement, False)
            if holds:
                first = statement.start[0]
                last = statement.last_line
                keep[first : last + 1] = b"\1" * (last + 1 - first)
        elif is_text(node) and statement.end[0] - statement.start[0] > 2:
            keep[statement.start[0] + 1 : statement.end[0] + 1] = bytes(
                statement.end[0] - statement.start[0]
            )
    for _, where, number in settled.below:
        if where == file:
            statement = source.all[number]
            for line in range(statement.start[0], statement.last_line + 1):
                keep[line] = 1
    return _with_gaps(source, keep, idle)


def _set(keep: bytearray, statement: Statement, value: bool) -> None:
    first = statement.start[0]
    last = statement.end[0]
    keep[first : last + 1] = bytes([value]) * (last + 1 - first)


def _holds(source: ControlFlow, outer: Statement, active: set[int]) -> bool:
    return any(
        number > outer.number and source.all[number].start <= outer.end
        for number in active
        if number >= 0
    )


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
                shown.append(line - 1)  # one blank line stands for all
            first = 0
        if line <= len(source.lines):
            shown.append(line)
    return shown


def _name(source: ControlFlow, statement: Statement) -> str:
    """Return the qualified name of a function, such as ``Class.method``."""
    names: list[str] = []
    number = statement.number
    while number >= 0:
        names.append(getattr(source.all[number].node, "name", ""))
        number = source.all[number].parent
    return ".".join(filter(None, reversed(names)))
