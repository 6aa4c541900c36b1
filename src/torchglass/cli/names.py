"""Which name the bundle of `torchglass run` gets: the newest run has the plain one, ``train.trace``."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Collection, Generator
from dataclasses import dataclass
from pathlib import Path

from torchglass.errors import BundleError
from torchglass.store.bundle import find_joinable, is_being_written, read_manifest

PATIENCE = 30.0
"""Seconds that a run waits for another one that is choosing its name in the same folder."""


@dataclass(frozen=True)
class Name:
    """The name of a bundle, and what the user has to know of it."""

    path: Path
    said: str = ""
    renamed: Path | None = None
    """The new name of the bundle that had this one."""


@contextlib.contextmanager
def free_name(stem: str, tried: Collection[str]) -> Generator[Name]:
    """A name for a bundle that is to be made at once: nobody else chooses one here meanwhile.

    An earlier bundle gives the plain name up, unless it is still being written; it gets it back if none is made.
    ``tried``: names that seemed to be free and were not.
    """
    with _alone():
        name = _choose(stem, tried)
        try:
            yield name
        except BaseException:
            if name.renamed is not None and not os.path.lexists(name.path):
                name.renamed.rename(name.path)
            raise


def _choose(stem: str, tried: Collection[str]) -> Name:
    plain = Path(f"{stem}.trace")
    if plain.name in tried:
        return Name(_numbered(stem, tried))
    if not os.path.lexists(plain):
        return Name(plain)
    other = _numbered(stem, tried)
    try:
        if find_joinable(plain) is not None:
            return Name(plain)
        read_manifest(plain)
        if is_being_written(plain):
            return Name(other, f"{plain} is still being written by another run; this one is kept in {other}")
        plain.rename(other)
    except (BundleError, OSError):
        return Name(other, f"{plain} is no bundle that could be renamed; this run is kept in {other}")
    return Name(plain, f"the earlier {plain} is now called {other}", renamed=other)


def _numbered(stem: str, tried: Collection[str]) -> Path:
    """The next of ``train-1.trace``, ``train-2.trace`` …: a higher number is of a later run."""
    try:
        there = [each.name for each in Path().iterdir()]
    except OSError:
        there = []
    pattern = re.compile(rf"{re.escape(stem)}-(\d{{1,9}})\.trace", re.ASCII)
    numbers = [int(found[1]) for name in (*there, *tried) if (found := pattern.fullmatch(name))]
    return Path(f"{stem}-{max(numbers, default=0) + 1}.trace")


@contextlib.contextmanager
def _alone() -> Generator[None]:
    """Hold this folder, as far as its file system lets anybody."""
    try:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        until = time.monotonic() + PATIENCE
        while not _is_locked(folder) and time.monotonic() < until:
            time.sleep(0.01)
        yield
    finally:
        os.close(folder)


def _is_locked(folder: int) -> bool:
    """Whether the folder is ours now, or cannot be anybody's."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
