"""Chooses the name of a bundle for `torchglass run`: the newest run has the plain one, ``train.trace``."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Collection, Generator
from dataclasses import dataclass
from pathlib import Path

from torchglass.errors import BundleError
from torchglass.store.bundle import find_joinable, is_being_written, read_manifest

PATIENCE = 30.0
"""How many seconds a run waits while another one chooses its name in the same folder."""


@dataclass(frozen=True)
class Name:
    """The name of a bundle, and what to tell the user about it."""

    path: Path
    message: str = ""
    renamed: Path | None = None
    """The new name of the bundle that had this name."""


@contextlib.contextmanager
def free_name(stem: str, tried: Collection[str]) -> Generator[Name]:
    """Yield a name for a bundle that is made inside the block. Other processes wait for its end to choose one.

    An earlier bundle is renamed, unless it is still being written. It gets its name back if no bundle is made.
    ``tried`` holds names that seemed to be free and were not.
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
            return Name(
                other, f"{plain} is still being written by another run; this one is kept in {other}"
            )
        plain.rename(other)
    except (BundleError, OSError):
        return Name(
            other, f"{plain} is not a bundle that could be renamed; this run is kept in {other}"
        )
    return Name(plain, f"the earlier {plain} is now called {other}", renamed=other)


def _numbered(stem: str, tried: Collection[str]) -> Path:
    """Return the next of ``train-1.trace``, ``train-2.trace`` …: a later run has a higher number."""
    return Path(f"{stem}-{max(_numbers(stem, tried), default=0) + 1}.trace")


def _numbers(stem: str, tried: Collection[str] = ()) -> list[int]:
    """Return the numbers of earlier runs in this folder, and of names that were tried."""
    try:
        there = [each.name for each in Path().iterdir()]
    except OSError:
        there = []
    pattern = re.compile(rf"{re.escape(stem)}-(\d{{1,9}})\.trace", re.ASCII)
    return [int(found[1]) for name in (*there, *tried) if (found := pattern.fullmatch(name))]


def remove_old(stem: str, keep: int) -> list[Path]:
    """Remove all but the newest ``keep`` of ``train-1.trace``, ``train-2.trace`` …. Return the removed paths.

    Only bundles are removed, and none that is still being written.
    """
    with _alone():
        earlier = sorted(_numbers(stem), reverse=True)
        removed: list[Path] = []
        for number in earlier[keep:]:
            path = Path(f"{stem}-{number}.trace")
            try:
                read_manifest(path)
                if path.is_symlink() or is_being_written(path):
                    continue
                shutil.rmtree(path)
            except (BundleError, OSError):
                continue
            removed.append(path)
        return removed


@contextlib.contextmanager
def _alone() -> Generator[None]:
    """Lock this folder, if its file system allows it."""
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
    """Return whether the folder is locked by us now, or cannot be locked by anybody."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
