"""Finishing what a kill left, and keeping what is sound of what was damaged.

No committed row is dropped unless it cannot be read or what it speaks of is gone, and then a note says so. Doing it
twice is doing it once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Generator
from pathlib import Path

from torchglass._version import __version__
from torchglass.errors import BundleError
from torchglass.events.database import FORMAT, text
from torchglass.events.spelling import clean
from torchglass.store.bundle import read_manifest
from torchglass.store.checks import text_of
from torchglass.store.layout import (
    DIGEST,
    DONE,
    EVENTS,
    MANIFEST,
    SOURCE_FILE,
    SOURCES,
    Unsound,
    hold,
    is_held,
    let_go,
    part_paths,
    plain_size,
    read_object,
    read_small,
    reading,
    shard_name,
    shard_paths,
    spelt,
    write_whole,
)
from torchglass.store.loading import read_part
from torchglass.store.opening import WAIT_SECONDS, check_schema
from torchglass.store.part import new_database, seal, store_links, to_one_file
from torchglass.store.progress import stretch
from torchglass.store.reader import SavedTensor, read_contents, read_tensors
from torchglass.store.salvage import READING, is_damage, salvage
from torchglass.store.shards import HEADER, Entry, entry_key, header, padded, write_all
from torchglass.store.tensors import check_header, check_view

NO_END = (
    "the recording has no end: its process was stopped, or could not write; "
    "steps that were under way then are shown without an end"
)


def repair(path: Path | str) -> list[str]:
    """Make a bundle whole; returns what was done, nothing when it was whole already."""
    bundle = Path(path)
    done: list[str] = []
    done += _mend_manifest(bundle)
    with reading(bundle, bundle):
        parts = part_paths(bundle)
    for part in parts:
        if is_held(part):
            raise BundleError(f"{spelt(part)} is still being written: wait until its process has ended, or stop that")
    for number, part in enumerate(parts):
        with stretch(number, len(parts)), _mending(part):
            done += [f"{part.name}: {each}" for each in _mend_part(bundle, part)]
    return done


@contextlib.contextmanager
def _mending(path: Path) -> Generator[None]:
    """What keeps us from writing becomes the one error; the advice to repair would be of no use here."""
    try:
        yield
    except BundleError:
        raise
    except (OSError, sqlite3.Error, Unsound) as error:
        reason = clean(str(getattr(error, "strerror", None) or error))
        raise BundleError(
            f"{spelt(path)} cannot be repaired now: {reason}; what was written is still there: "
            "see to that, then repair again"
        ) from None


def _mend_manifest(bundle: Path) -> list[str]:
    """A bundle whose manifest was lost is known by its parts; one from the future is left alone."""
    try:
        read_manifest(bundle)
        return []
    except BundleError:
        if not bundle.is_dir() or _is_newer(bundle / MANIFEST) or not part_paths(bundle):
            raise
    content = {"torchglass": __version__, "format": FORMAT, "run": secrets.token_hex(16), "created": time.time()}
    with _mending(bundle / MANIFEST):
        write_whole(bundle / MANIFEST, json.dumps({**content, "owner": os.getpid()}, indent=1).encode())
    return [f"{MANIFEST} was made anew"]


def _is_newer(manifest: Path) -> bool:
    try:
        number = read_object(read_small(manifest)).get("format")
    except (OSError, Unsound):
        return False
    return type(number) is int and number > FORMAT


def _is_whole(bundle: Path, part: Path) -> bool:
    """Sealed, readable, and every shard with the header of an ordinary safetensors file."""
    if plain_size(part / DONE) is None:
        return False
    try:
        read_part(bundle, part)
        for path in shard_paths(part).values():
            with path.open("rb") as file:
                check_header(file.fileno(), os.fstat(file.fileno()).st_size)
    except (BundleError, OSError, Unsound):
        return False
    return True


def _mend_part(bundle: Path, part: Path) -> list[str]:
    if _is_whole(bundle, part):
        return []
    held = hold(part)
    try:
        (part / DONE).unlink(missing_ok=True)
        done = _mend_events(bundle, part)
        seal(part)
        for draft in part.glob(f".{DONE}.*"):  # left by a kill in the middle of sealing
            draft.unlink()
        return [*done, "finished"]
    finally:
        let_go(held)


def _mend_events(bundle: Path, part: Path) -> list[str]:
    path = part / EVENTS
    done = _make_readable(path)
    with _opened(path) as connection:
        notes = [*_drop_lost_sources(bundle, connection), *_drop_lost_tensors(part, connection)]
        contents = read_contents(connection)
        if not contents.linked:
            store_links(connection)
        if not contents.tables.complete:
            notes.insert(0, NO_END)
        _add_notes(connection, [note for note in notes if note not in contents.tables.notes])
        if not to_one_file(connection):
            raise BundleError(f"{spelt(path)} is being read by another program: close that first")
    _mend_shards(part, contents.tensors)
    return done + [note for note in notes if note != NO_END]


@contextlib.contextmanager
def _opened(path: Path) -> Generator[sqlite3.Connection]:
    """For writing; SQLite first brings in what it kept beside the database."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=WAIT_SECONDS)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        yield connection
    finally:
        connection.close()


def _make_readable(path: Path) -> list[str]:
    """Nothing to do, as a rule: a kill damages no database."""
    size = plain_size(path)
    if size is not None:
        try:
            with _opened(path) as connection:
                if check_schema(connection):
                    connection.execute("BEGIN")
                    read_contents(connection, link=False)
                    return []
                empty = True
        except READING as error:
            if not is_damage(error):
                raise
            empty = False
        if not empty:
            return salvage(path)
        path.unlink()
    new_database(path, "TRUNCATE").close()
    return ["it had no events yet"]


def _drop_lost_sources(bundle: Path, connection: sqlite3.Connection) -> list[str]:
    notes: list[str] = []
    for row, file, cell in connection.execute("SELECT rowid, file, sha256 FROM sources").fetchall():
        digest = text_of(cell)
        path = bundle / SOURCES / f"{digest}.py"
        try:
            sound = DIGEST.fullmatch(digest) and hashlib.sha256(read_small(path, SOURCE_FILE)).hexdigest() == digest
        except (OSError, Unsound):
            sound = False
        if not sound:
            connection.execute("DELETE FROM sources WHERE rowid = ?", (row,))
            notes.append(f"the text of {text_of(file)!r} was lost")
    return notes


def _drop_lost_tensors(part: Path, connection: sqlite3.Connection) -> list[str]:
    """Rows whose bytes are not there; after a kill there are none, since the bytes come first."""
    ends = {number: path.stat().st_size for number, path in shard_paths(part).items()}
    lost: list[int] = []
    for saved in read_tensors(connection):
        try:
            check_view(saved)
            sound = saved.offset + saved.length <= ends.get(saved.shard, 0)
        except Unsound:
            sound = False
        if not sound:
            lost.append(saved.id)
    connection.executemany("DELETE FROM saved_tensors WHERE id = ?", [(number,) for number in lost])
    return [f"{len(lost):,} saved tensors were lost: their bytes are not there"] if lost else []


def _add_notes(connection: sqlite3.Connection, notes: list[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    (count,) = connection.execute("SELECT count(*) FROM notes").fetchone()
    connection.executemany("INSERT INTO notes VALUES (?, ?)", [(count + n, text(each)) for n, each in enumerate(notes)])
    connection.execute("COMMIT")


def _mend_shards(part: Path, tensors: list[SavedTensor]) -> None:
    """Cut off bytes that no row speaks of, and write the headers."""
    for number, path in shard_paths(part).items():
        rows = [saved for saved in tensors if saved.shard == number]
        entries = [
            Entry(entry_key(row.name, row.id), row.dtype, row.shape, row.offset, row.length, row.stride is None)
            for row in rows
        ]
        end = max((entry.offset + entry.length for entry in entries), default=HEADER)
        assert path.name == shard_name(number)
        with path.open("r+b") as file:
            file.truncate(end)
            write_all(file.fileno(), header(list(padded(entries))), 0)
