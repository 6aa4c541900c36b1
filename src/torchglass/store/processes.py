"""What several processes wrote, told apart where it becomes one trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torchglass.events.tables import Tables

MAIN = "MainThread"
_FOLDER = re.compile(r"rank(\d+)-")
"""The folder of a part (torchglass.store.bundle)."""
_OF_A_LAUNCHER = "ChildFailedError:"
"""What torchrun ends with when a rank has failed: on its first line it says no more."""
_NO_END = re.compile(r"(the recording in \S+)( has no end.*)")
"""What is said of the part of a process that was stopped: the workers of a DataLoader end so when the program fails."""
_NEVER = re.compile(r"the variable (['\"])(?P<name>.+)\1 never appeared in the block")
"""What the recorder says of a name that it was asked to follow."""


def rank_of(folder: str) -> int:
    """Which of several ranks wrote a part."""
    found = _FOLDER.match(folder)
    return 0 if found is None else int(found[1])


def threads_of(parts: Sequence[Tables], folders: Sequence[str]) -> list[str]:
    """The names of all threads: each process has a main thread, and what several did is not what one did in turn.

    Workers of a DataLoader are called by their number, also those of the next epoch: these stay one.
    """
    ranks = list(map(rank_of, folders))
    names: list[str] = []
    for part, rank in zip(parts, ranks, strict=True):
        for thread in part.threads:
            label = f"rank {rank}" if len(set(ranks)) > 1 else ""
            if thread != MAIN or not label:
                label = f"{label}, {thread}" if label else thread
            if thread == MAIN and label in names:
                label = f"process {part.process}" if label == MAIN else f"{label}, process {part.process}"
            names.append(label)
    return names


def tell_failure(whole: Tables, parts: Sequence[Tables]) -> None:
    """How it ended is told by the process that is the cause; the exceptions of the others stand behind.

    A launcher only tells that a rank has failed; and of several ranks the first to end took the others with it.
    """
    failed = [part for part in parts if part.left_by]
    if len(failed) > 1 and failed[0].left_by[0].startswith(_OF_A_LAUNCHER):
        cause = min(failed[1:], key=lambda part: part.started_at + part.duration_ns / 1e9)
        failed.sort(key=lambda part: part is not cause)
    whole.left_by = tuple(text for part in failed for text in part.left_by)
    for part in failed[:1]:
        whole.left_process, whole.raised_at = part.process, part.raised_at


def notes_of(notes: Sequence[str], variables: set[str]) -> list[str]:
    """What is the same of several parts, once; without what one misses and another one has seen."""
    notes = [note for note in notes if not _is_denied(note, variables)]
    stopped = [found for note in notes if (found := _NO_END.fullmatch(note)) is not None]
    if len(stopped) < 2:
        return notes
    first, once = stopped[0][0], f"{stopped[0][1]}, and in {len(stopped) - 1} more,{stopped[0][2]}"
    return [once if note == first else note for note in notes if note == first or not _NO_END.match(note)]


def _is_denied(note: str, seen: set[str]) -> bool:
    """Whether a process misses a variable that another one has seen: what was asked for is there."""
    found = _NEVER.search(note)
    if found is None:
        return False
    name = found["name"]
    return name in seen or any(fnmatchcase(each, name) for each in seen)
