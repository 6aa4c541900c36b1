"""Making a bundle, joining one that a parent process or another rank made, and knowing one when it is met."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchglass._version import __version__
from torchglass.errors import BundleError
from torchglass.events.schema import FORMAT
from torchglass.store import layout

RUN = "TORCHGLASS_RUN"
"""The environment variable by which a rank that `torchglass run` has a launcher start knows whose bundle it may join.

Nobody else is given it: forked children remember, those of multiprocessing are told (children.py).
"""
LONGEST_INSIDE = 100
"""Bytes that the names inside of a bundle add to its path, at most."""
LONGEST_PATH = 4095
PATIENCE = 5.0
"""Seconds that a rank waits for another one to finish making the bundle."""
JUST_MADE = 60.0
"""Seconds in which a bundle without parts counts as one that is being made."""
_written: set[tuple[int, str]] = set()
"""The runs to which this process has written as a rank, with its number, since a forked child inherits this."""


class BundleFull(BundleError):
    """A bundle has as many parts as it may have; ``first``: nobody was refused before."""

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
    """This process made it."""

    def new_part(self) -> Path:
        """A folder of this process's own; a second recording of the same process gets another."""
        self._check_room()
        name = f"rank{rank():05}-pid{os.getpid()}"
        for again in range(1, 10_000):
            part = self.path / (name if again == 1 else f"{name}-{again}")
            try:
                part.mkdir(mode=0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise refused(self.path, error) from None
            return part
        raise BundleError(f"{layout.spelt(self.path)} has 10,000 parts of this process: record to another path")

    def _check_room(self) -> None:
        """Refuse a part that no reader would take; the first who is refused leaves word in the bundle."""
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

    def unmake(self, part: Path | None = None) -> None:
        """Take away what was made of a bundle, or of a part of it, that cannot be used."""
        for made in [*([part] if part is not None else []), *([self.path] if self.owned else [])]:
            shutil.rmtree(made, ignore_errors=True)


def make_bundle(path: Path | str, launch: Launch | None = None) -> Bundle:
    """Make a new bundle, to which all ranks of the ``launch`` may write.

    Refused before anything is written when the path cannot become one.
    """
    place = Path(path).absolute()
    if len(os.fsencode(place)) + LONGEST_INSIDE > LONGEST_PATH:
        raise BundleError(f"{layout.spelt(place)[:60]}… is too long a path for a bundle: choose a shorter one")
    try:
        place.mkdir(mode=0o700)
    except (OSError, ValueError) as error:
        raise refused(place, error) from None
    run = secrets.token_hex(16)
    content = new_manifest(run) if launch is None else new_manifest(run, job=launch.job)
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
    """What the file says that makes a folder a bundle."""
    content = {"torchglass": __version__, "format": FORMAT, "run": run, "created": time.time(), "owner": os.getpid()}
    return json.dumps(content | others, indent=1).encode()


def make_or_join(path: Path | str, run: str | None = None) -> Bundle:
    """The bundle of this run, made or joined; whoever else finds one there is refused.

    Those who join: a process of the run (``run``, or its environment says so), a rank of the torchrun that made the
    bundle, and a process that comes from one which is writing to it.
    """
    place, launch = Path(path).absolute(), launched()
    joined = find_joinable(place, run) or _of_an_ancestor(place)
    if joined is None:
        try:
            joined = make_bundle(place, launch)
        except BundleError as error:
            if launch is None or not isinstance(error.__context__, FileExistsError):
                raise
            joined = _made_meanwhile(place)  # by another rank
            if joined is None:
                raise
    if launch is not None:
        _written.add((os.getpid(), joined.run))
    return joined


def find_joinable(path: Path | str, run: str | None = None) -> Bundle | None:
    """The bundle at this path, if it is this run's or of the torchrun whose rank this process is."""
    place, run = Path(path).absolute(), run or os.environ.get(RUN)
    launch = launched()
    if not os.path.lexists(place / layout.MANIFEST) or not (run or launch):
        return None
    manifest = read_manifest(place)
    its_run = str(manifest["run"])
    ours = its_run == run and manifest["owner"] != os.getpid()
    # A second recording of one rank is refused, as it is of a process without ranks.
    as_rank = launch is not None and (os.getpid(), its_run) not in _written
    if ours or (as_rank and launch is not None and _is_entered(place, launch, manifest.get("job") == launch.job)):
        return Bundle(place, its_run, owned=False)
    return None


def _is_entered(place: Path, launch: Launch, same_job: bool) -> bool:
    """Whether a torchrun is among those whose ranks write to a bundle.

    One of the same job whose number nobody has is entered now. A later job may look the same but for its agents, and
    those find their numbers taken.
    """
    name = layout.agent_name(launch.group)
    try:
        entered = {each.name: layout.read_small(each) for each in place.iterdir() if layout.AGENT.fullmatch(each.name)}
        if same_job and name not in entered:
            layout.write_first(place / name, launch.agent.encode())
            return True
    except FileExistsError:
        return _is_entered(place, launch, same_job=False)
    except (OSError, layout.Unsound):
        return False
    return launch.agent.encode() in entered.values()


def _made_meanwhile(place: Path) -> Bundle | None:
    """What another rank is making, as soon as it can be joined."""
    until = time.monotonic() + PATIENCE
    while not os.path.lexists(place / layout.MANIFEST) and place.is_dir() and time.monotonic() < until:
        time.sleep(0.01)
    return find_joinable(place)


def _of_an_ancestor(place: Path) -> Bundle | None:
    """The bundle to which a process is writing that this one comes from, if it is there."""
    if not os.path.lexists(place / layout.MANIFEST) or not os.access(place, os.R_OK | os.X_OK):
        return None
    parts = {int(name[2]): part for part in layout.part_paths(place) if (name := layout.PART.fullmatch(part.name))}
    if any(layout.is_held(parts[process]) for process in ancestors() if process in parts):
        return Bundle(place, str(read_manifest(place)["run"]), owned=False)
    return None


def is_being_written(path: Path) -> bool:
    """Whether a living process writes to a bundle, or may do so where that cannot be known."""
    parts = layout.part_paths(path)
    if not parts:
        created = read_manifest(path).get("created")
        return isinstance(created, float) and abs(time.time() - created) < JUST_MADE
    return any(layout.is_held(part, unsure=True) for part in parts)


def refused(path: Path, error: Exception) -> BundleError:
    """Why no bundle can be made there."""
    shown = layout.spelt(path)
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
    path = bundle / layout.MANIFEST
    if not os.path.lexists(bundle):
        raise BundleError(f"{layout.spelt(bundle)} is not there: check the path")
    if not bundle.is_dir():
        raise BundleError(
            f"{layout.spelt(bundle)} is a file, and a bundle is a folder: give the folder that record(to=…) made"
        )
    if not os.path.lexists(path):
        raise BundleError(
            f"{layout.spelt(bundle)} is no bundle: it has no {layout.MANIFEST}; give the folder that record(to=…) made"
        )
    with layout.reading(path, bundle):
        manifest = layout.read_object(layout.read_small(path, layout.SMALL_FILE))
        number = manifest.get("format")
        if type(number) is not int or number < 2:
            raise layout.Unsound("it does not say which format the bundle has")
        if number > FORMAT:
            raise BundleError(
                f"{layout.spelt(bundle)} has format {number}, and torchglass {__version__} reads up to {FORMAT}: "
                "update torchglass (pip install -U torchglass)"
            )
        if type(manifest.get("run")) is not str or type(manifest.get("owner")) is not int:
            raise layout.Unsound("it does not say who made the bundle")
    return manifest


# ---------------------------------------------------------------- launch

# Knows the torchrun that started this process: all its ranks write to one bundle, whoever of them comes first.

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
