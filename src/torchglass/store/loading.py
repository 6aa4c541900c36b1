"""Reading a bundle: finished, being written by another process, or left by one that was killed."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from pathlib import Path

from torchglass.errors import BundleError
from torchglass.events.tables import Tables
from torchglass.store.bundle import read_manifest
from torchglass.store.layout import (
    DIGEST,
    DONE,
    EVENTS,
    FULL,
    PARTS,
    SHARD,
    SOURCE_FILE,
    SOURCES,
    Unsound,
    damaged,
    is_held,
    part_paths,
    plain_size,
    read_object,
    read_small,
    reading,
)
from torchglass.store.merging import merged
from torchglass.store.opening import opened
from torchglass.store.progress import stretch
from torchglass.store.reader import Contents, SavedTensor, read_contents
from torchglass.store.tensors import Content, Maps, check_extents

Stamp = tuple[object, ...]
TRIES = 4


def load(path: Path | str) -> Loaded:
    """A bundle as a source for a ``Trace``; everything is checked now."""
    loaded = Loaded(Path(path).absolute())  # the program may change its folder before it opens a tensor
    loaded.tables()
    return loaded


def load_part(path: Path | str, part: Path) -> Loaded:
    """The same of one part alone, with its own numbers."""
    loaded = Loaded(Path(path).absolute(), part)
    loaded.tables()
    return loaded


class Loaded:
    """The tables of a bundle; those of one that is being written are read again when it has grown."""

    def __init__(self, path: Path, only: Path | None = None) -> None:
        self.path = path
        self._only = only
        self._parts: list[Path] = []
        self._maps = Maps(path)
        self._tables: Tables | None = None
        self._tensors: tuple[SavedTensor, ...] = ()
        self._stamp: Stamp = ()
        self._reads = 0
        self._running = True

    @property
    def running(self) -> bool:
        """Whether a living process is still writing to it."""
        if self._running:
            self._running = any(is_held(part) for part in self._part_paths())
        return self._running

    def progress(self) -> int:
        """Grows when there is more to read."""
        self._refresh()
        return self._reads

    def tables(self) -> Tables:
        """All parts in one."""
        self._refresh()
        assert self._tables is not None
        return self._tables

    def saved_tensors(self) -> tuple[SavedTensor, ...]:
        """The tensors whose contents were kept, in order of saving within each part."""
        self._refresh()
        return self._tensors

    def open_tensor(self, saved: SavedTensor) -> Content:
        """The bytes of a tensor, mapped from its shard, and how to look at them."""
        return self._maps.content(self._parts[saved.part], saved)

    def _part_paths(self) -> list[Path]:
        with reading(self.path, self.path):
            return part_paths(self.path)[: PARTS + 1] if self._only is None else [self._only]

    def _refresh(self) -> None:
        if self._tables is not None and not self._running:
            return
        parts = self._part_paths()[:PARTS] if self._tables is not None else []
        stamp = _stamp(parts)
        if self._tables is not None and stamp == self._stamp and self.running:
            return
        read_manifest(self.path)
        found = self._part_paths()
        parts = found[:PARTS]
        # In this order: what is written in between is seen next time.
        self._stamp, running = _stamp(parts), any(is_held(part) for part in parts)
        contents: list[Contents] = []
        for number, part in enumerate(parts):
            with stretch(number, len(parts)):
                contents.append(read_part(self.path, part))
        self._parts = parts
        self._tables, self._tensors = merged(contents, parts)
        if len(found) > PARTS:
            self._tables.notes.append(
                f"this bundle has more parts than are read, which are {PARTS:,}: the rest is left out"
            )
        if os.path.lexists(self.path / FULL):
            self._tables.notes.append(
                f"a bundle has room for {PARTS:,} processes: those that began later are not in it"
            )
        self._running = running
        self._reads += 1


def _stamp(parts: list[Path]) -> Stamp:
    """What changes whenever something is committed."""
    found: list[object] = []
    for part in parts:
        for name in (EVENTS, EVENTS + "-wal", DONE):
            try:
                status = (part / name).stat()
                found += [name, status.st_size, status.st_mtime_ns]
            except OSError:
                found.append(name)
    return tuple(found)


def read_part(bundle: Path, part: Path) -> Contents:
    """All of one part; what is just being finished is looked at once more."""
    for _ in range(TRIES - 1):
        growing = is_held(part)
        try:
            return _read_part(bundle, part)
        except BundleError:
            if not growing:
                raise
            time.sleep(0.05)
    return _read_part(bundle, part)


def _read_part(bundle: Path, part: Path) -> Contents:
    """With the texts of its sources, and a note when it has no end."""
    finished = check_seal(bundle, part)
    path = part / EVENTS
    with reading(path, bundle):
        try:
            with opened(part, finished) as connection:
                contents = Contents(Tables(complete=False)) if connection is None else read_contents(connection)
        except (sqlite3.Error, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            raise damaged(path, bundle, error if isinstance(error, Unsound) else _reason(error)) from None
    _read_sources(bundle, contents)
    check_extents(bundle, part, contents.tensors)
    if not finished and not contents.tables.complete and not is_held(part):
        contents.tables.notes.append(
            f"the recording in {part.name} has no end: its process was stopped, or could not write; "
            "what it had written is here; "
            f"`torchglass repair {bundle}` finishes the bundle"
        )
    return contents


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def check_seal(bundle: Path, part: Path) -> bool:
    """Whether the part is finished; if so, its files are those that were sealed."""
    path = part / DONE
    with reading(path, bundle):
        if plain_size(path) is None:
            return False
        sealed = read_object(read_small(path))
        for name, expected in sealed.items():
            if name == EVENTS and _sha256(bundle, part / EVENTS) != expected:
                raise damaged(part / EVENTS, bundle, "it is not what was written")
            if SHARD.fullmatch(name) and _size(bundle, part / name) != expected:
                raise damaged(part / name, bundle, "it is not as long as it was when it was finished")
        if EVENTS not in sealed:
            raise Unsound(f"it does not say what {EVENTS} is")
    return True


def _size(bundle: Path, path: Path) -> int | None:
    with reading(path, bundle):
        return plain_size(path)


def _sha256(bundle: Path, path: Path) -> str:
    with reading(path, bundle):
        if plain_size(path) is None:
            raise FileNotFoundError(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _read_sources(bundle: Path, contents: Contents) -> None:
    for file, digest in contents.digests.items():
        if not DIGEST.fullmatch(digest):
            raise damaged(bundle / SOURCES, bundle, "the name of a source text is none")
        path = bundle / SOURCES / f"{digest}.py"
        with reading(path, bundle):
            content = read_small(path, SOURCE_FILE)
            if hashlib.sha256(content).hexdigest() != digest:
                raise Unsound("it is not what was written")
            try:
                contents.tables.sources[file] = content.decode("utf-8", "surrogatepass")
            except UnicodeDecodeError:
                raise Unsound("it is no text") from None
