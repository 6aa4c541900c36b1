"""Join what concerns whole processes when parts become one trace: names of threads, failures and notes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torchglass.events.notes import NEVER_APPEARED_PATTERN, NO_END, NO_END_PATTERN
from torchglass.events.tables import Tables

MAIN = "MainThread"
"""The name that Python gives to the main thread of a process."""
_FOLDER = re.compile(r"rank(\d+)-")
"""Matches the name of the folder of a part: ``rank00001-pid299`` (store/bundle.py)."""
_LAUNCHER_ERROR = "ChildFailedError:"
"""The error with which torchrun ends when a rank has failed. It does not name the cause."""


def rank_of(folder: str) -> int:
    """Return the rank that wrote a part, from the name of its folder; 0 if it does not name one."""
    match = _FOLDER.match(folder)
    if match is None:
        return 0
    return int(match[1])


def threads_of(parts: Sequence[Tables], folders: Sequence[str]) -> list[str]:
    """Return the names of all threads, with the rank or process where names would be equal.

    The threads of DataLoader workers keep equal names, so that the workers of all epochs with one number are one
    thread.
    """
    ranks = list(map(rank_of, folders))
    are_several_ranks = len(set(ranks)) > 1
    names: list[str] = []
    for part, rank in zip(parts, ranks, strict=True):
        for thread in part.threads:
            name = thread
            if are_several_ranks and thread == MAIN:
                name = f"rank {rank}"
            elif are_several_ranks:
                name = f"rank {rank}, {thread}"
            if thread == MAIN and name in names:
                # It is the main thread of another process.
                name = f"process {part.process}"
                if are_several_ranks:
                    name = f"rank {rank}, process {part.process}"
            names.append(name)
    return names


def merge_failures(whole: Tables, parts: Sequence[Tables]) -> None:
    """Fill ``left_by`` and ``raised_at`` with the failure of the process that caused the others.

    The exceptions of the others follow. If a launcher failed, the cause is the rank that ended first, since the
    launcher only reports that a rank has failed, and ends the other ranks.
    """
    failed = [part for part in parts if part.left_by]
    if not failed:
        whole.left_by = ()
        return
    cause = failed[0]
    if len(failed) > 1 and cause.left_by[0].startswith(_LAUNCHER_ERROR):
        cause = min(failed[1:], key=_ended_at)
    others = [part for part in failed if part is not cause]
    exceptions: list[str] = []
    for part in (cause, *others):
        exceptions += part.left_by
    whole.left_by = tuple(exceptions)
    whole.left_process = cause.process
    whole.raised_at = cause.raised_at


def _ended_at(part: Tables) -> float:
    """Return when a process ended, in seconds."""
    return part.started_at + part.duration_ns / 1e9


def notes_of(notes: Sequence[str], variables: set[str]) -> list[str]:
    """Return the notes of all parts, with one note for all processes that were stopped.

    Drop notes about variables that did not appear in one process, if they appeared in another.
    """
    notes = [note for note in notes if not _is_contradicted(note, variables)]
    without_end = [note for note in notes if NO_END_PATTERN.match(note)]
    if len(without_end) < 2:
        return notes
    merged: list[str] = []
    for note in notes:
        if note == without_end[0]:
            merged.append(_for_several(note, len(without_end)))
        elif note not in without_end:
            merged.append(note)
    return merged


def _for_several(note: str, count: int) -> str:
    """Return the note about a process that was stopped as one about ``count`` processes."""
    match = NO_END_PATTERN.match(note)
    assert match is not None
    parts = f"{match['part']}, and in {count - 1} more,"
    return NO_END.format(part=parts) + note[match.end() :]


def _is_contradicted(note: str, variables: set[str]) -> bool:
    """Return whether a note says that a variable did not appear, although it is one of these."""
    match = NEVER_APPEARED_PATTERN.search(note)
    if match is None:
        return False
    pattern = match["name"]
    return pattern in variables or any(fnmatchcase(name, pattern) for name in variables)
