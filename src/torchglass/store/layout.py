"""Define the files of a bundle, and write and read its small files completely or not at all.

::

    run.trace/                      0700
      manifest.json                 written first; the process that creates it owns the bundle
      full                          empty; created when the bundle has as many parts as it may have
      agent00000                    for ranks: the torchrun whose ranks write here, one for each machine of the job
      rank00000-pid1234/            the part of one process
        journal-0                   what is recorded, from the beginning on
        tensors-0000.safetensors    the contents of tensors
        events.sqlite               instead of the journal, in a saved trace and in earlier formats
        done                        written last: the seal of a finished part
      sources/<sha256>.py           the source texts
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
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
from torchglass.journal.descriptors import Owned
from torchglass.journal.files import refusing_large_files
from torchglass.system import getpid

FORMAT = 8
"""The format of bundles. The format of the tables is in events/schema.py."""
HAS_LOST = "mended"
"""The entry in the seal of a repaired part that says that something of it was lost."""
MANIFEST, EVENTS, DONE, SOURCES, FULL = "manifest.json", "events.sqlite", "done", "sources", "full"
AGENT = re.compile(r"agent\d{5}", re.ASCII)
PART = re.compile(r"rank(\d{5})-pid(\d{1,10})(?:-(\d{1,4}))?", re.ASCII)
JOURNAL = re.compile(r"journal-(\d{1,6})", re.ASCII)
SHARD = re.compile(r"tensors-(\d{4})\.safetensors", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)

READ_AHEAD = 1 << 16
"""Bytes by which a file may grow while it is read."""
SMALL_FILE = 1 << 20
"""Largest size of a manifest, a seal or the header of a shard, in bytes."""
SOURCE_FILE = 1 << 26
"""Largest size of a source text, in bytes."""
EVENTS_FILE = 1 << 36
"""Largest size of an SQLite file, in bytes."""
JOURNAL_FILE = 1 << 34
"""Largest size of a journal, in bytes. The tables that are settled from it must fit into memory."""
MIN_SPARSE_FILE = 1 << 26
"""Size in bytes from which on a journal is checked for holes."""
MAX_HOLE_RATIO = 64
"""The size of such a journal may exceed its room on the disk by this factor."""
PARTS = 4096
"""Number of parts, at most, that are written to a bundle and read from it."""


class Unsound(ValueError):
    """A file of a bundle is damaged. It becomes a ``BundleError`` that names the file."""


def journal_name(recording: int) -> str:
    """Return the name of a part's journal. The part has only this recording of it."""
    return f"journal-{recording}"


def _entries(
    folder: Path, pattern: re.Pattern[str], is_folder: bool = False
) -> Iterator[tuple[Path, list[int]]]:
    """Yield the entries of a folder whose names match, with the numbers in the name. Links are left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match is None:
                continue
            if is_folder:
                is_right_kind = entry.is_dir(follow_symlinks=False)
            else:
                is_right_kind = entry.is_file(follow_symlinks=False)
            if is_right_kind:
                yield folder / entry.name, [int(group or 0) for group in match.groups()]


def find_journal(part: Path) -> tuple[Path, int] | None:
    """Return the journal of a part and the number of its recording, or None if it has no journal."""
    for path, (number,) in _entries(part, JOURNAL):
        return path, number
    return None


def record_path(part: Path) -> Path | None:
    """Return the file with the events of a part: its journal, or else its SQLite file. None if it has neither."""
    journal = find_journal(part)
    if journal is not None:
        path, _ = journal
        return path
    if plain_size(part / EVENTS) is not None:
        return part / EVENTS
    return None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, read a piece at a time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"tensors-{number:04}.safetensors"


def agent_name(number: int) -> str:
    """Return the name of the file for the torchrun of a job that has this number."""
    return f"agent{number:05}"


def spelt(path: Path | str) -> str:
    """Return a path as it may be printed."""
    return clean(str(path))


def damaged(path: Path, bundle: Path, reason: object) -> BundleError:
    """Return the error for any damage to a bundle."""
    return BundleError(
        f"{spelt(path)} cannot be read: {clean(str(reason))}; `torchglass repair {spelt(bundle)}` keeps what is sound"
    )


_drafts = itertools.count()
_TOKEN = os.urandom(4).hex()
"""Distinguishes processes with the same id on machines that share the folder."""


@contextlib.contextmanager
def drafted(path: Path) -> Generator[Path]:
    """Yield a temporary name next to a file. Remove the temporary file at the end if it is still there."""
    draft = path.with_name(f".torchglass-{getpid()}-{_TOKEN}-{next(_drafts)}")
    try:
        yield draft
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


@contextlib.contextmanager
def whole_file(path: Path) -> Generator[Path]:
    """Yield a path to write to, and rename that file to its real name when all is written.

    So readers find the complete file, the one before it, or none, even after a kill.
    """
    with drafted(path) as draft:
        yield draft
        draft.replace(path)


def system_error(error: BaseException | None) -> OSError | None:
    """Return the system's error behind an exception, which torch wraps in its own, or None if there is none."""
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
    """Write a file that does not exist yet. Raise ``FileExistsError`` if another process was faster."""
    with drafted(path) as draft:
        _write_new(draft, content)
        try:
            os.link(draft, path)
        except FileExistsError:
            raise
        except OSError:
            # This file system has no hard links.
            _write_new(path, content)


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file, refusing_large_files():
        file.write(content)
        file.flush()


@contextlib.contextmanager
def opened_plain(path: Path, limit: int) -> Generator[int]:
    """Open a regular file of limited size for reading. Refuse links, pipes and devices."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unsound("it is not a regular file")
        if status.st_size > limit:
            raise Unsound(f"it has {status.st_size:,} bytes, but at most {limit:,} are allowed")
        yield descriptor
    finally:
        os.close(descriptor)


def read_small(path: Path, limit: int = SMALL_FILE) -> bytes:
    """Return the content of a regular file of limited size."""
    with (
        opened_plain(path, limit) as descriptor,
        os.fdopen(descriptor, "rb", closefd=False) as file,
    ):
        # read() allocates this much memory at once, so it is not simply the limit.
        max_length = min(limit, os.fstat(descriptor).st_size + READ_AHEAD) + 1
        content = file.read(max_length)
        if len(content) > limit:
            raise Unsound("it grew while it was read")
        return content


def check_holes(descriptor: int) -> None:
    """Refuse a file that is nearly all holes: it takes little room on the disk, but would take much memory."""
    status = os.fstat(descriptor)
    if (
        status.st_size > MIN_SPARSE_FILE
        and status.st_size > MAX_HOLE_RATIO * status.st_blocks * 512
    ):
        raise Unsound(f"nearly all of its {status.st_size:,} bytes are holes")


def plain_size(path: Path) -> int | None:
    """Return the size of a regular file in bytes, or None if it does not exist. Refuse anything else of that name.

    The file is not opened, because closing it would release the locks that SQLite has on it in this process.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Unsound("it is not a regular file")
    return status.st_size


def read_object(content: bytes) -> dict[str, Any]:
    """Read a JSON object, and refuse one with duplicate keys."""
    try:
        parsed = json.loads(
            content.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse
        )
    except RecursionError:
        raise Unsound("it is nested too deeply") from None
    except ValueError as error:
        raise Unsound(f"its content is not what was written: {error}") from None
    if not isinstance(parsed, dict):
        raise Unsound("it is not a JSON object")
    return cast("dict[str, Any]", parsed)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) != len(pairs):
        raise Unsound("a key appears twice")
    return items


def _refuse(word: str) -> Any:
    raise Unsound(f"{word} is not a number")


def part_paths(bundle: Path) -> list[Path]:
    """Return the folders of the parts, in order of rank and process."""
    parts = [(numbers, path) for path, numbers in _entries(bundle, PART, is_folder=True)]
    return [path for _, path in sorted(parts)]


def shard_paths(part: Path) -> dict[int, Path]:
    """Return the shards of a part by number."""
    return dict(sorted((number, path) for path, (number,) in _entries(part, SHARD)))


class Hold:
    """Marks a part as being written for as long as this process lives, by a lock on its folder."""

    def __init__(self, part: Path) -> None:
        self._descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._owned = Owned(self._descriptor)
        self._process = getpid()
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def release(self) -> None:
        """Unlock the part. Closing it is not enough, since a forked child may have it open, too."""
        if self._owned.are_ours and self._process == getpid():
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.forget()

    def forget(self) -> None:
        """Close the lock without unlocking it, in a forked child. It belongs to the parent."""
        self._owned.close(self._descriptor)


def is_held(part: Path, if_unknown: bool = False) -> bool:
    """Return whether a living process is writing a part, or ``if_unknown`` if folders cannot be locked here."""
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
        return if_unknown
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def reading(path: Path, bundle: Path) -> Generator[None]:
    """Turn every error of reading a file into a ``BundleError`` that names the file."""
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
