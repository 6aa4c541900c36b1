"""Making a bundle, joining one that a parent process made, and knowing one when it is met."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from torchglass._version import __version__
from torchglass.errors import BundleError
from torchglass.events.database import FORMAT
from torchglass.store.layout import (
    FULL,
    MANIFEST,
    PARTS,
    SMALL_FILE,
    SOURCES,
    Unsound,
    part_paths,
    read_object,
    read_small,
    reading,
    spelt,
    write_first,
)

RUN = "TORCHGLASS_RUN"
"""The environment variable by which child processes know whose bundle they may join."""
LONGEST_INSIDE = 100
"""Bytes that the names inside of a bundle add to its path, at most."""
LONGEST_PATH = 4095


class BundleFull(BundleError):
    """A bundle has as many parts as it may have; ``first``: nobody was refused before."""

    def __init__(self, path: Path, first: bool) -> None:
        super().__init__(f"{spelt(path)} has {PARTS:,} parts, one for each process; later ones are not recorded")
        self.first = first


@dataclass(frozen=True)
class Bundle:
    """A bundle that this process may write to."""

    path: Path
    run: str
    owned: bool
    """This process made it."""

    def environment(self) -> dict[str, str]:
        """What a child process needs in its environment to join."""
        return {RUN: self.run}

    def new_part(self) -> Path:
        """A folder of this process's own; a second recording of the same process gets another."""
        self._check_room()
        rank = os.environ.get("RANK", "0")
        name = f"rank{int(rank) if rank.isdecimal() and len(rank) <= 5 else 0:05}-pid{os.getpid()}"
        for again in range(1, 10_000):
            part = self.path / (name if again == 1 else f"{name}-{again}")
            try:
                part.mkdir(mode=0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise refused(self.path, error) from None
            return part
        raise BundleError(f"{spelt(self.path)} has 10,000 parts of this process: record to another path")

    def _check_room(self) -> None:
        """Refuse a part that no reader would take; the first who is refused leaves word in the bundle."""
        if self.owned:
            return
        full = self.path / FULL
        try:
            if not os.path.lexists(full) and len(part_paths(self.path)) < PARTS:
                return
            os.close(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            raise BundleFull(self.path, first=False) from None
        except OSError as error:
            raise refused(self.path, error) from None
        raise BundleFull(self.path, first=True)

    def unmake(self, part: Path | None = None) -> None:
        """Take away what was made of a bundle, or of a part of it, that cannot be used."""
        for made in [*([part] if part is not None else []), *([self.path] if self.owned else [])]:
            shutil.rmtree(made, ignore_errors=True)


def make_bundle(path: Path | str) -> Bundle:
    """Make a new bundle; refused before anything is written when the path cannot become one."""
    place = Path(path).absolute()
    if len(os.fsencode(place)) + LONGEST_INSIDE > LONGEST_PATH:
        raise BundleError(f"{spelt(place)[:60]}… is too long a path for a bundle: choose a shorter one")
    try:
        place.mkdir(mode=0o700)
    except (OSError, ValueError) as error:
        raise refused(place, error) from None
    run = secrets.token_hex(16)
    content = {"torchglass": __version__, "format": FORMAT, "run": run, "created": time.time(), "owner": os.getpid()}
    try:
        (place / SOURCES).mkdir(mode=0o700)
        write_first(place / MANIFEST, json.dumps(content, indent=1).encode())
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError):
            raise refused(place, error) from None
        raise
    return Bundle(place, run, owned=True)


def make_or_join(path: Path | str, run: str | None = None) -> Bundle:
    """The bundle of this run: a child of the process that made it joins, whoever else finds it there is refused."""
    place = Path(path).absolute()
    run = run or os.environ.get(RUN)
    if run and os.path.lexists(place / MANIFEST):
        manifest = read_manifest(place)
        if manifest["run"] == run and manifest["owner"] != os.getpid():
            return Bundle(place, run, owned=False)
    return make_bundle(place)


def refused(path: Path, error: Exception) -> BundleError:
    """Why no bundle can be made there."""
    shown = spelt(path)
    if len(shown) > 200:
        shown = shown[:200] + "…"
    if isinstance(error, FileExistsError):
        cure = "exists already: choose another path, or remove it first (a bundle is never written over)"
    elif isinstance(error, FileNotFoundError):
        cure = "cannot be made: its parent folder is not there; make that first"
    elif isinstance(error, NotADirectoryError):
        cure = "cannot be made: its parent is no folder"
    elif isinstance(error, PermissionError):
        cure = "cannot be made: its parent folder may not be written to; choose another path"
    else:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        cure = f"cannot be made: {reason}; choose another path"
    return BundleError(f"{shown} {cure}")


def read_manifest(bundle: Path) -> dict[str, object]:
    """The checked manifest of what should be a bundle."""
    path = bundle / MANIFEST
    if not os.path.lexists(bundle):
        raise BundleError(f"{spelt(bundle)} is not there: check the path")
    if not bundle.is_dir():
        raise BundleError(
            f"{spelt(bundle)} is a file, and a bundle is a folder: give the folder that record(to=…) made"
        )
    if not os.path.lexists(path):
        raise BundleError(f"{spelt(bundle)} is no bundle: it has no {MANIFEST}; give the folder that record(to=…) made")
    with reading(path, bundle):
        manifest = read_object(read_small(path, SMALL_FILE))
        number = manifest.get("format")
        if type(number) is not int or number < 2:
            raise Unsound("it does not say which format the bundle has")
        if number > FORMAT:
            raise BundleError(
                f"{spelt(bundle)} has format {number}, and torchglass {__version__} reads up to {FORMAT}: "
                "update torchglass (pip install -U torchglass)"
            )
        if type(manifest.get("run")) is not str or type(manifest.get("owner")) is not int:
            raise Unsound("it does not say who made the bundle")
    return manifest
