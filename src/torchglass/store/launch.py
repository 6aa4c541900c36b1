"""Knows the torchrun that started this process: all its ranks write to one bundle, whoever of them comes first."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RUN_ID, ERROR_FILE = "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"


@dataclass(frozen=True)
class Launch:
    """One torchrun, as its ranks see it. Digests: a bundle should not tell the names of machines and folders."""

    job: str
    """The same on all machines of a job."""
    agent: str
    """The torchrun process of this machine; the same when it has restarted its workers."""
    group: int
    """Which of the job's agents that is."""


def launched() -> Launch | None:
    """The torchrun whose rank this process is, or works for; None without one."""
    run_id = os.environ.get(RUN_ID)
    if run_id is None:
        return None
    # The run id alone does not tell two jobs apart: it is "none" unless somebody chose one.
    shared = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "GROUP_WORLD_SIZE"))
    return Launch(_digest(run_id, *shared), _digest(run_id, os.uname().nodename, _agent()), _number("GROUP_RANK"))


def in_job() -> bool:
    """Whether this process is one of several that some launcher started: none of them may fail for our sake."""
    return launched() is not None or ("RANK" in os.environ and _number("WORLD_SIZE") > 1)


def rank() -> int:
    """The rank of this process; 0 where there are no ranks."""
    return _number("RANK")


def _agent() -> str:
    """What all workers of one torchrun have in common, and those of no other.

    Each torchrun makes a new folder for its workers' errors: ``<folder>/attempt_<restarts>/<local rank>/error.json``.
    Without one (``--log-dir /dev/null``) its process is what they share.
    """
    error_file = os.environ.get(ERROR_FILE)
    if error_file:
        return str(Path(error_file).parents[2]) if len(Path(error_file).parents) > 2 else error_file
    parent = os.getppid()
    return f"{parent} {_started(parent)}"


def ancestors() -> Iterator[int]:
    """The processes that this one comes from, the nearest first; on Linux only."""
    process = os.getppid()
    while process > 1:
        yield process
        status = _status(process)
        process = int(status[1]) if len(status) > 1 else 0


def _started(process: int) -> str:
    """When a process began: numbers of processes are used again."""
    status = _status(process)
    return status[19] if len(status) > 19 else ""


def _status(process: int) -> list[str]:
    """What the kernel tells of a process, from its state on: the name before that may hold anything."""
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 5 else 0


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:32]
