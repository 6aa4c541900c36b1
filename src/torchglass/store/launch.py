"""Identify the torchrun that started this process, since all its ranks write to one bundle, whichever is first."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RUN_ID = "TORCHELASTIC_RUN_ID"
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


@dataclass(frozen=True)
class Launch:
    """One torchrun as its ranks see it. It has digests, so that a bundle has no names of machines and folders."""

    job: str
    """Equal on all machines of a job."""
    agent: str
    """The torchrun process of this machine. It stays equal when that restarts its workers."""
    group: int
    """The number of this agent in the job."""


def launched() -> Launch | None:
    """Return the torchrun whose rank this process is, or works for, or None if there is none."""
    run_id = os.environ.get(RUN_ID)
    if run_id is None:
        return None
    # The run id alone does not distinguish two jobs: it is "none" unless the user chose one.
    shared = (
        os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "GROUP_WORLD_SIZE")
    )
    return Launch(
        _digest(run_id, *shared),
        _digest(run_id, os.uname().nodename, _agent()),
        _number("GROUP_RANK"),
    )


def in_job() -> bool:
    """Return whether a launcher started several processes. None of them may fail because of torchglass."""
    return launched() is not None or ("RANK" in os.environ and _number("WORLD_SIZE") > 1)


def rank() -> int:
    """Return the rank of this process, or 0 if there are no ranks."""
    return _number("RANK")


def _agent() -> str:
    """Return a text that is equal for all workers of one torchrun, and differs from that of any other.

    Each torchrun creates a folder for the errors of its workers: ``<folder>/attempt_<restarts>/<local
    rank>/error.json``. Without one (``--log-dir /dev/null``) the text is the process id of torchrun and its start time.
    """
    error_file = os.environ.get(ERROR_FILE)
    if error_file:
        if len(Path(error_file).parents) > 2:
            return str(Path(error_file).parents[2])
        return error_file
    parent = os.getppid()
    return f"{parent} {_started(parent)}"


def ancestors() -> Iterator[int]:
    """Yield the parent of this process, its parent and so on. On systems other than Linux only the first."""
    process = os.getppid()
    while process > 1:
        yield process
        status = _status(process)
        process = 0
        if len(status) > 1:
            process = int(status[1])


def _started(process: int) -> str:
    """Return the start time of a process, because process ids are reused."""
    status = _status(process)
    if len(status) > 19:
        return status[19]
    return ""


def _status(process: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` after the name, which may have any characters."""
    try:
        return (
            Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        )
    except OSError:
        return []


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    if text.isdecimal() and text.isascii() and len(text) <= 5:
        return int(text)
    return 0


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:32]
