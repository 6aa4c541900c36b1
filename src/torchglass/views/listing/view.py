"""The listing: each file that ran, with what its lines assigned or returned, how often, and what differed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol, cast, runtime_checkable

from torchglass.errors import UsageError, WrongType, closest
from torchglass.events.selection import Selection
from torchglass.events.types import Event
from torchglass.views.listing.frames import Frame, frames_of
from torchglass.views.listing.lines import LineNote, Lines, lines_of
from torchglass.views.listing.made import made_by
from torchglass.views.listing.statements import Statements
from torchglass.views.listing.steps import Steps
from torchglass.views.options import check_only, check_switch
from torchglass.views.recorded import Recorded

FUNCTIONS = ("all", "ran")
STYLES = ("comments", "margin")
CHANGED = "its text changed after it ran, or is not the text that ran"
MISSING = "its text is not in the trace"
NOT_PYTHON = "its text is not Python that can be read here"


@dataclass(frozen=True, slots=True)
class ListingOptions:
    """What the listing shows."""

    path: str | tuple[str, ...] | None = None
    """A part of a file's path, or a glob; by default your own files, and of installed ones those with most steps."""
    only: Selection | None = None
    """Count and show only the selected steps."""
    functions: str = "ran"
    """``ran``: functions with a step, and how many lines are left out between; ``all``: whole files."""
    by: str | None = None
    """``module``: tell the calls of a line apart by the path of the module they ran in."""
    times: bool = False
    style: str = "margin"
    """``comments``: a copy of one file with the shapes as comments, valid Python that does the same."""

    def __post_init__(self) -> None:
        check_only(self.only)
        check_switch("times", self.times)
        for name, words in (("functions", FUNCTIONS), ("style", STYLES), ("by", ("module",))):
            _check_word(name, getattr(self, name), words, name == "by")
        _check_path(self.path)


def _check_path(given: object) -> None:
    several = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
    if given is not None and not (several and all(isinstance(each, str) and each for each in several)):
        kind = "an empty one" if given in ("", ()) else type(cast("object", given)).__name__
        raise WrongType(f"path= takes a part of a path such as 'model.py', or a tuple of them, not {kind}")


def _check_word(name: str, value: object, words: tuple[str, ...], optional: bool) -> None:
    if optional and value is None:
        return
    if not isinstance(value, str):
        raise WrongType(f"{name}= takes one of {', '.join(map(repr, words))}, not {type(value).__name__}")
    if value not in words:
        raise UsageError(f"{name}={value!r}: {closest(value, words)}")


# ---------------------------------------------------------------- the view


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
    lines: Lines = field(default_factory=Lines)
    problem: str = ""
    """Why the text is not shown."""


@dataclass(slots=True)
class ListingView:
    """The files that are shown, and those that are only named."""

    shown: list[FileListing]
    named: list[FileListing]
    exact: bool = False
    """Whether the trace knows which lines ran; else that is inferred from steps."""


@runtime_checkable
class KeepsSources(Protocol):
    """A trace that has the texts of the files."""

    @property
    def sources(self) -> dict[str, str]: ...


@runtime_checkable
class TellsLines(Protocol):
    """A trace that knows which lines ran, steps or not."""

    def lines_run(self) -> Mapping[str, frozenset[int]] | None:
        """By file; None when this was not recorded."""
        ...


def listing_view(trace: Recorded, options: ListingOptions) -> ListingView:
    """What stands beside each line: pure. Files of the user's own first, in the order in which they ran."""
    frames = frames_of(trace, options.only)
    texts = trace.sources if isinstance(trace, KeepsSources) else {}
    files = _files(frames)
    shown, named = _choose(list(files.values()), options)
    parsed = {file: found for file, text in texts.items() if file in files and (found := Statements.of(text))}
    changed = _leave_out_changed(frames, parsed)
    steps = Steps(frames, parsed)
    ran = trace.lines_run() if isinstance(trace, TellsLines) else None
    failed = trace.failure()
    for each in shown:
        statements = parsed.get(each.file)
        each.text = texts[each.file].split("\n") if statements is not None else []
        if statements is None:
            each.problem = _problem(each.file, texts, changed)
        lines_run = None if ran is None else ran.get(each.file)
        each.lines = lines_of(each.file, steps, lines_run, options.functions == "all")
        _mark_failure(each, failed)
    return ListingView(shown, named, ran is not None)


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


def is_installed(file: str) -> bool:
    """Whether a file is part of an installed package."""
    return "/site-packages/" in file or "/dist-packages/" in file


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
        found.steps += sum(look.count for look in made)
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
    if options.path is not None:
        patterns = (options.path,) if isinstance(options.path, str) else options.path
        shown = [each for each in files if any(_fits(each.file, pattern) for pattern in patterns)]
        if not shown and files:
            names = ", ".join(sorted(base_name(each.file) for each in files))
            raise UsageError(f"path={options.path!r}: no step was seen in such a file; there are: {names}")
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


def _fits(file: str, pattern: str) -> bool:
    return pattern in file or fnmatchcase(file, pattern) or fnmatchcase(base_name(file), pattern)


def base_name(file: str) -> str:
    """Without the folder; generated code may be named after where it comes from: ``<eval_with_key>.0 from …``."""
    return file.partition(" from ")[0] if file.startswith("<") else file.rpartition("/")[2]


# ---------------------------------------------------------------- texts


def _leave_out_changed(frames: Iterable[Frame], parsed: dict[str, Statements]) -> set[str]:
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
