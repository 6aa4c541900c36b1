"""The entry point of this package: reads a trace, and returns the notes of each file."""

from __future__ import annotations

from collections.abc import Iterable

from torchglass.events.selection import Selection
from torchglass.program.by_line.frames import Frame, frames_of
from torchglass.program.by_line.notes import FileNotes, notes_of
from torchglass.program.by_line.settled import SettledFrames
from torchglass.program.counts import StatementCounts
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.source.flow import ControlFlow


class Ran:
    """The lines that ran in a trace."""

    def __init__(self, trace: Recorded, only: Selection | None) -> None:
        self.frames = frames_of(trace, only)
        files = {frame.place.file for frame in self.frames if frame.is_selected}
        self.parsed: dict[str, ControlFlow] = {}
        """By file, its text as syntax; only selected files whose text is Python, and is the text that ran."""
        for file, text in trace.sources.items():
            if file not in files:
                continue
            source = ControlFlow.of(text)
            if source is not None:
                self.parsed[file] = source
        self.changed = _leave_out_changed(self.frames, self.parsed)
        """The files in which at least one line has changed since it ran."""
        self.settled = SettledFrames(self.frames, self.parsed)
        self.program_counts: StatementCounts | None = None
        """The counts of the program tree; None if ``only`` selects some steps, because the tree counts all."""
        if only is None:
            program = program_of(trace)
            self.program_counts = StatementCounts(program.tree, program.distinct, self.parsed)

    def notes_of(self, file: str) -> FileNotes:
        """Return the notes of the lines of a file."""
        return notes_of(file, self.settled, self.program_counts)


def runs_by_line(trace: Recorded) -> dict[str, dict[int, int]]:
    """Return how often each line of each file ran, as far as that is known. All lines of a statement have its count."""
    ran = Ran(trace, None)
    by_file: dict[str, dict[int, int]] = {}
    for file in ran.parsed:
        lines = ran.notes_of(file)
        runs_of_line: dict[int, int] = {}
        for line, first_line in lines.first_line.items():
            note = lines.notes.get(first_line)
            if note is not None and note.runs is not None:
                runs_of_line[line] = note.runs
        by_file[file] = runs_of_line
    return by_file


def _leave_out_changed(frames: Iterable[Frame], parsed: dict[str, ControlFlow]) -> set[str]:
    """Mark the frames whose line in the file is not the line that ran, and return the files of these frames.

    Remove a file from ``parsed`` if none of its lines is as it ran.
    """
    changed: set[str] = set()
    unchanged: set[str] = set()
    for frame in frames:
        source = parsed.get(frame.place.file)
        if source is None:
            continue
        line = frame.place.where.line
        text = ""
        if 0 < line <= len(source.lines):
            text = source.lines[line - 1].strip()
        frame.has_other_text = not text or text != frame.place.source
        if frame.has_other_text:
            changed.add(frame.place.file)
        else:
            unchanged.add(frame.place.file)
    for file in changed - unchanged:
        del parsed[file]
    return changed
