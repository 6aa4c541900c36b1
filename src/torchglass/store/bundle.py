"""Create a bundle, or join one that a parent process or another rank has created. Check whether a folder is one."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from torchglass._version import __version__
from torchglass.errors import BundleError
from torchglass.store import layout
from torchglass.store.launch import Launch, ancestors, launched, rank
from torchglass.system import getpid, monotonic, seconds_now, sleep

RUN = "TORCHGLASS_RUN"
"""The environment variable with the run whose bundle a rank may join.

`torchglass run` sets it only for ranks that it starts through a launcher. Forked children inherit the bundle, and those
of multiprocessing get a message (children.py).
"""
MAX_INNER_BYTES = 100
"""Bytes that the names in a bundle add to its path, at most."""
MAX_PATH_BYTES = 4095
"""The limit of Linux for the bytes of a path."""
PATIENCE = 5.0
"""Seconds that a rank waits for another one to finish creating the bundle."""
JUST_MADE = 60.0
"""Seconds for which a new bundle without parts counts as one that is being written."""
_joined_runs: set[tuple[int, str]] = set()
"""The runs to which a process has written as a rank, each with the process id, since a forked child inherits this."""


class BundleFull(BundleError):
    """A bundle has as many parts as it may have. ``first`` says that this is the first process that it refuses."""

    def __init__(self, path: Path, first: bool) -> None:
        super().__init__(
            f"{layout.spelt(path)} has {layout.PARTS:,} parts, one for each process; later ones are not recorded"
        )
        self.first = first


@dataclass(frozen=True)
class Bundle:
    """A bundle that this process may write to."""

    path: Path
    run: str
    owned: bool
    """Whether this process created it."""

    def new_part(self) -> Path:
        """Create a folder for this process. Each further recording of the same process gets another one."""
        self._check_room()
        first_name = f"rank{rank():05}-pid{getpid()}"
        for number in range(1, 10_000):
            name = first_name
            if number > 1:
                name = f"{first_name}-{number}"
            part = self.path / name
            try:
                part.mkdir(mode=0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise refused(self.path, error) from None
            return part
        raise BundleError(
            f"{layout.spelt(self.path)} has 10,000 parts of this process: record to another path"
        )

    def _check_room(self) -> None:
        """Refuse a part if the bundle has as many as readers accept. The first one that is refused creates ``full``."""
        if self.owned:
            return
        full = self.path / layout.FULL
        try:
            if not os.path.lexists(full) and len(layout.part_paths(self.path)) < layout.PARTS:
                return
            os.close(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            raise BundleFull(self.path, first=False) from None
        except OSError as error:
            raise refused(self.path, error) from None
        raise BundleFull(self.path, first=True)

    def remove(self, part: Path | None = None) -> None:
        """Remove a part that cannot be used, and the bundle if this process created it."""
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
        if self.owned:
            shutil.rmtree(self.path, ignore_errors=True)


def make_bundle(path: Path | str, launch: Launch | None = None) -> Bundle:
    """Create a new bundle, to which all ranks of the ``launch`` may write. Raise BundleError if that is impossible."""
    place = Path(path).absolute()
    if len(os.fsencode(place)) + MAX_INNER_BYTES > MAX_PATH_BYTES:
        raise BundleError(
            f"{layout.spelt(place)[:60]}… is too long a path for a bundle: choose a shorter one"
        )
    try:
        place.mkdir(mode=0o700)
    except (OSError, ValueError) as error:
        raise refused(place, error) from None
    run = secrets.token_hex(16)
    if launch is None:
        content = new_manifest(run)
    else:
        content = new_manifest(run, job=launch.job)
    try:
        (place / layout.SOURCES).mkdir(mode=0o700)
        if launch is not None:
            layout.write_first(place / layout.agent_name(launch.group), launch.agent.encode())
        layout.write_first(place / layout.MANIFEST, content)
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError):
            raise refused(place, error) from None
        raise
    return Bundle(place, run, owned=True)


def new_manifest(run: str, **others: str) -> bytes:
    """Return the content of a new manifest, the file that makes a folder a bundle."""
    content = {
        "torchglass": __version__,
        "format": layout.FORMAT,
        "run": run,
        "created": seconds_now(),
        "owner": getpid(),
    }
    return json.dumps(content | others, indent=1).encode()


def make_or_join(path: Path | str, run: str | None = None) -> Bundle:
    """Create the bundle of this run at a path, or join it.

    A bundle can be joined by a process of its run (``run``, or the run in its environment), by a rank of the torchrun
    that created it, and by a descendant of a process that is writing to it. Refuse it to any other process.
    """
    place = Path(path).absolute()
    launch = launched()
    joined = find_joinable(place, run) or _find_ancestors(place)
    if joined is None:
        try:
            joined = make_bundle(place, launch)
        except BundleError as error:
            if launch is None or not isinstance(error.__context__, FileExistsError):
                raise
            # Another rank has created it.
            joined = _wait_for_bundle(place)
            if joined is None:
                raise
    if launch is not None:
        _joined_runs.add((getpid(), joined.run))
    return joined


def find_joinable(path: Path | str, run: str | None = None) -> Bundle | None:
    """Return the bundle at a path if it belongs to this run, or to the torchrun whose rank this process is."""
    place = Path(path).absolute()
    run = run or os.environ.get(RUN)
    launch = launched()
    if not os.path.lexists(place / layout.MANIFEST) or not (run or launch):
        return None
    manifest = read_manifest(place)
    its_run = str(manifest["run"])
    ours = its_run == run and manifest["owner"] != getpid()
    # A second recording of one rank is refused, like that of a process without ranks.
    as_rank = launch is not None and (getpid(), its_run) not in _joined_runs
    if ours or (
        as_rank
        and launch is not None
        and _is_entered(place, launch, manifest.get("job") == launch.job)
    ):
        return Bundle(place, its_run, owned=False)
    return None


def _is_entered(place: Path, launch: Launch, same_job: bool) -> bool:
    """Return whether a torchrun is one of those whose ranks may write to a bundle, by the files ``agent…`` in it.

    The torchrun of another machine of the same job adds its file now. A later job may look the same, but it finds the
    numbers of its agents taken.
    """
    name = layout.agent_name(launch.group)
    try:
        entered = {
            path.name: layout.read_small(path)
            for path in place.iterdir()
            if layout.AGENT.fullmatch(path.name)
        }
        if same_job and name not in entered:
            layout.write_first(place / name, launch.agent.encode())
            return True
    except FileExistsError:
        return _is_entered(place, launch, same_job=False)
    except (OSError, layout.Unsound):
        return False
    return launch.agent.encode() in entered.values()


def _wait_for_bundle(place: Path) -> Bundle | None:
    """Wait until the bundle that another rank is creating can be joined."""
    until = monotonic() + PATIENCE
    while not os.path.lexists(place / layout.MANIFEST) and place.is_dir() and monotonic() < until:
        sleep(0.01)
    return find_joinable(place)


def _find_ancestors(place: Path) -> Bundle | None:
    """Return the bundle at a path if an ancestor of this process is writing to it."""
    if not os.path.lexists(place / layout.MANIFEST) or not os.access(place, os.R_OK | os.X_OK):
        return None
    parts = {
        int(name[2]): part
        for part in layout.part_paths(place)
        if (name := layout.PART.fullmatch(part.name))
    }
    if any(layout.is_held(parts[process]) for process in ancestors() if process in parts):
        return Bundle(place, str(read_manifest(place)["run"]), owned=False)
    return None


def is_being_written(path: Path) -> bool:
    """Return whether a living process writes to a bundle. Return True also if that cannot be known."""
    parts = layout.part_paths(path)
    if not parts:
        created = read_manifest(path).get("created")
        return isinstance(created, float) and abs(seconds_now() - created) < JUST_MADE
    return any(layout.is_held(part, if_unknown=True) for part in parts)


def refused(path: Path, error: Exception) -> BundleError:
    """Return the error for a path at which no bundle can be created."""
    shown = layout.spelt(path)
    if len(shown) > 200:
        shown = shown[:200] + "…"
    if isinstance(error, FileExistsError):
        problem = "exists already: choose another path, or remove it first (a bundle is never written over)"
    elif isinstance(error, FileNotFoundError):
        problem = "cannot be made: its parent folder is not there; make that first"
    elif isinstance(error, NotADirectoryError):
        problem = "cannot be made: its parent is no folder"
    elif isinstance(error, PermissionError):
        problem = "cannot be made: its parent folder may not be written to; choose another path"
    else:
        reason = str(error)
        if isinstance(error, OSError):
            reason = error.strerror
        problem = f"cannot be made: {reason}; choose another path"
    return BundleError(f"{shown} {problem}")


def read_manifest(bundle: Path) -> dict[str, object]:
    """Return the checked manifest of a bundle. Raise BundleError if the folder is not a bundle."""
    path = bundle / layout.MANIFEST
    if not os.path.lexists(bundle):
        raise BundleError(f"{layout.spelt(bundle)} does not exist: check the path")
    if not bundle.is_dir():
        raise BundleError(
            f"{layout.spelt(bundle)} is a file, but a bundle is a folder: give the folder that record(to=…) made"
        )
    if not os.path.lexists(path):
        raise BundleError(
            f"{layout.spelt(bundle)} is not a bundle: it has no {layout.MANIFEST}; "
            "give the folder that record(to=…) made"
        )
    with layout.reading(path, bundle):
        manifest = layout.read_object(layout.read_small(path, layout.SMALL_FILE))
        number = manifest.get("format")
        if type(number) is not int or number < 2:
            raise layout.Unsound("it does not say which format the bundle has")
        if number > layout.FORMAT:
            raise BundleError(
                f"{layout.spelt(bundle)} has format {number}, but torchglass {__version__} reads only up to "
                f"{layout.FORMAT}: update torchglass (pip install -U torchglass)"
            )
        if type(manifest.get("run")) is not str or type(manifest.get("owner")) is not int:
            raise layout.Unsound("it does not say who made the bundle")
    return manifest
