"""Where everything is in a bundle, and how its small files are written and read: whole or not at all.

::

    run.trace/                      0700
      manifest.json                 made first; who makes it owns the bundle
      full                          made when there were as many parts as there may be; empty
      agent00000                    of ranks: the torchrun whose ranks write to it, one for each machine of the job
      rank00000-pid1234/            one part a process
        journal-0                   what is recorded, while it is; gone when the part is finished
        tensors-0000.safetensors
        events.sqlite               what became of the journal
        done                        made last: the seal of a finished part
      sources/<sha256>.py
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import stat
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

from torchglass.errors import BundleError
from torchglass.events.spelling import clean
from torchglass.journal.homes import Owned

MANIFEST, EVENTS, DONE, SOURCES, FULL = "manifest.json", "events.sqlite", "done", "sources", "full"
AGENT = re.compile(r"agent\d{5}", re.ASCII)
PART = re.compile(r"rank(\d{5})-pid(\d{1,10})(?:-(\d{1,4}))?", re.ASCII)
JOURNAL = re.compile(r"journal-(\d{1,6})", re.ASCII)
SHARD = re.compile(r"tensors-(\d{4})\.safetensors", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)

PIECE = 1 << 16
SMALL_FILE = 1 << 20
"""The most bytes of a manifest, a seal or the header of a shard that are read."""
SOURCE_FILE = 1 << 26
EVENTS_FILE = 1 << 36
JOURNAL_FILE = 1 << 34
"""The most bytes of a journal that are read: what settling makes of them must fit into memory."""
SPARSE, HOLES = 1 << 26, 64
"""From so many bytes on, one part in so many of a journal must be on the disk."""
PARTS = 4096
"""The most parts of one bundle that are made, and that are read."""


class Unsound(ValueError):
    """Something in a bundle is not as it must be; becomes a ``BundleError`` that names the file."""


def journal_name(recording: int) -> str:
    """The file of a journal, of whose recordings this part keeps the one of that number."""
    return f"journal-{recording}"


def _named(folder: Path, pattern: re.Pattern[str], is_folder: bool = False) -> Iterator[tuple[Path, list[int]]]:
    """What has such a name in a folder, with the numbers in the name; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = pattern.fullmatch(entry.name)
            kind = entry.is_dir if is_folder else entry.is_file
            if name is not None and kind(follow_symlinks=False):
                yield folder / entry.name, [int(each or 0) for each in name.groups()]


def find_journal(part: Path) -> tuple[Path, int] | None:
    """The journal of a part that has no end, and the number of its recording."""
    return next(((path, number) for path, (number,) in _named(part, JOURNAL)), None)


def shard_name(number: int) -> str:
    """The file of a shard."""
    return f"tensors-{number:04}.safetensors"


def agent_name(number: int) -> str:
    """The file that says which torchrun of a job has this number."""
    return f"agent{number:05}"


def spelt(path: Path | str) -> str:
    """A path as it may be printed."""
    return clean(str(path))


def damaged(path: Path, bundle: Path, reason: object) -> BundleError:
    """The one error for whatever is wrong with what is there."""
    return BundleError(
        f"{spelt(path)} cannot be read: {clean(str(reason))}; `torchglass repair {spelt(bundle)}` keeps what is sound"
    )


_drafts = itertools.count()
_TOKEN = os.urandom(4).hex()  # two machines may share the folder, and their processes a number


@contextlib.contextmanager
def drafted(path: Path) -> Generator[Path]:
    """A passing name beside a file; whatever is left under it goes."""
    draft = path.with_name(f".torchglass-{os.getpid()}-{_TOKEN}-{next(_drafts)}")
    try:
        yield draft
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


@contextlib.contextmanager
def whole_file(path: Path) -> Generator[Path]:
    """Where to write a file, which gets its own name when all is written.

    Whoever looks, or comes after a kill, finds the whole file, the one before it, or none.
    """
    with drafted(path) as draft:
        yield draft
        draft.replace(path)


def system_error(error: BaseException | None) -> OSError | None:
    """What the disk itself said, which torch hides behind its own words; None where it was something else."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error
        error = error.__cause__ or error.__context__
    return None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is never seen half written."""
    with whole_file(path) as draft:
        _write_new(draft, content)


def write_first(path: Path, content: bytes) -> None:
    """The same, but ``FileExistsError`` when somebody else was first."""
    with drafted(path) as draft:
        _write_new(draft, content)
        try:
            os.link(draft, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            _write_new(path, content)


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


@contextlib.contextmanager
def opened_plain(path: Path, limit: int) -> Generator[int]:
    """A plain file of bounded size, open for reading; links, pipes and devices are refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unsound("it is no plain file")
        if status.st_size > limit:
            raise Unsound(f"it has {status.st_size:,} bytes, and at most {limit:,} make sense")
        yield descriptor
    finally:
        os.close(descriptor)


def read_small(path: Path, limit: int = SMALL_FILE) -> bytes:
    """The content of a plain file of bounded size."""
    with opened_plain(path, limit) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
        content = file.read(min(limit, os.fstat(descriptor).st_size + PIECE) + 1)  # so much memory is taken at once
        if len(content) > limit:
            raise Unsound("it grows while it is read")
        return content


def check_holes(descriptor: int) -> None:
    """Refuse a file that takes little room on the disk and would take very much in memory."""
    status = os.fstat(descriptor)
    if status.st_size > SPARSE and status.st_size > HOLES * status.st_blocks * 512:
        raise Unsound(f"of its {status.st_size:,} bytes nearly all are holes")


def plain_size(path: Path) -> int | None:
    """The bytes of a plain file, None when there is none; anything else of that name is refused.

    Nothing is opened: closing a file would take from this process the locks that SQLite holds on it.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Unsound("it is no plain file")
    return status.st_size


def read_object(content: bytes) -> dict[str, Any]:
    """A JSON object in which no key comes twice."""
    try:
        found = json.loads(content.decode(), object_pairs_hook=_once, parse_constant=_refuse)
    except RecursionError:
        raise Unsound("it is nested too deeply") from None
    except ValueError as error:
        raise Unsound(f"it is not what was written: {error}") from None
    if not isinstance(found, dict):
        raise Unsound("it is no JSON object")
    return cast("dict[str, Any]", found)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Unsound("a key comes twice")
    return found


def _refuse(word: str) -> Any:
    raise Unsound(f"{word} is no number")


def part_paths(bundle: Path) -> list[Path]:
    """The parts, in order of rank and process; names that are no part's are not looked at."""
    found = [(numbers, path) for path, numbers in _named(bundle, PART, is_folder=True)]
    return [path for _, path in sorted(found)]


def shard_paths(part: Path) -> dict[int, Path]:
    """The shards of a part by number."""
    return dict(sorted((number, path) for path, (number,) in _named(part, SHARD)))


class Hold:
    """Marks a part as being written for as long as this process lives, where folders can be locked."""

    def __init__(self, part: Path) -> None:
        self._descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._owned = Owned(self._descriptor)
        self._process = os.getpid()
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def let_go(self) -> None:
        """No longer being written; unlocked and not only closed, since a forked child may have it open too."""
        if self._owned.are_ours and self._process == os.getpid():
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.forget()

    def forget(self) -> None:
        """In a forked child: it is the parent's, and must end with that."""
        self._owned.close(self._descriptor)


def is_held(part: Path, unsure: bool = False) -> bool:
    """Whether a living process is writing this part; ``unsure``: what to answer where folders cannot be locked."""
    if os.path.lexists(part / DONE):
        return False
    try:
        descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return unsure
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def reading(path: Path, bundle: Path) -> Generator[None]:
    """Whatever is wrong with a file becomes the one error that names it."""
    try:
        yield
    except BundleError:
        raise
    except FileNotFoundError:
        raise damaged(path, bundle, "it is missing") from None
    except OSError as error:
        raise damaged(path, bundle, error.strerror or error) from None
    except Unsound as error:
        raise damaged(path, bundle, error) from None
