"""Finishing what a kill left: tables in the place of journals, headers for shards, a seal.

A bundle need not be repaired to be read. Nothing is dropped unless what it speaks of is gone, and then a note says
so. Doing it twice is doing it once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Generator
from pathlib import Path

from torchglass.errors import BundleError
from torchglass.events.schema import FORMAT
from torchglass.events.spelling import clean
from torchglass.store import layout
from torchglass.store.bundle import new_manifest, read_manifest
from torchglass.store.loading import nobody, piece, read_part
from torchglass.store.part import fill, new_database, seal
from torchglass.store.reader import PartContents, Tell
from torchglass.store.shards import write_headers
from torchglass.store.tensors import check_header

NO_END = (
    "the recording has no end: its process was stopped, or could not write; "
    "steps that were under way then are shown without an end"
)


def repair(path: Path | str, tell: Tell = nobody) -> list[str]:
    """Make a bundle whole; returns what was done, nothing when it was whole already."""
    bundle = Path(path)
    done: list[str] = []
    done += _mend_manifest(bundle)
    with layout.reading(bundle, bundle):
        parts = layout.part_paths(bundle)
    for part in parts:
        if layout.is_held(part):
            raise BundleError(
                f"{layout.spelt(part)} is still being written: wait until its process has ended, or stop that"
            )
    for number, part in enumerate(parts):
        with _mending(part):
            done += [f"{part.name}: {each}" for each in _mend_part(bundle, part, piece(tell, number, len(parts)))]
        tell((number + 1) / len(parts))
    return done


@contextlib.contextmanager
def _mending(path: Path) -> Generator[None]:
    """What keeps us from writing becomes the one error; the advice to repair would be of no use here."""
    try:
        yield
    except BundleError:
        raise
    except (OSError, sqlite3.Error, layout.Unsound) as error:
        reason = clean(str(getattr(error, "strerror", None) or error))
        raise BundleError(
            f"{layout.spelt(path)} cannot be repaired now: {reason}; what was written is still there: "
            "see to that, then repair again"
        ) from None


def _mend_manifest(bundle: Path) -> list[str]:
    """A bundle whose manifest was lost is known by its parts; one from the future is left alone."""
    try:
        read_manifest(bundle)
        return []
    except BundleError:
        if not bundle.is_dir() or _is_newer(bundle / layout.MANIFEST) or not layout.part_paths(bundle):
            raise
    with _mending(bundle / layout.MANIFEST):
        layout.write_whole(bundle / layout.MANIFEST, new_manifest(secrets.token_hex(16)))
    return [f"{layout.MANIFEST} was made anew"]


def _is_newer(manifest: Path) -> bool:
    try:
        number = layout.read_object(layout.read_small(manifest)).get("format")
    except (OSError, layout.Unsound):
        return False
    return type(number) is int and number > FORMAT


def _is_whole(bundle: Path, part: Path, tell: Tell) -> bool:
    """Sealed, readable, and every shard with the header of an ordinary safetensors file."""
    if layout.plain_size(part / layout.DONE) is None:
        return False
    try:
        read_part(bundle, part, tell=tell)
        for path in layout.shard_paths(part).values():
            with path.open("rb") as file:
                check_header(file.fileno(), os.fstat(file.fileno()).st_size)
    except (BundleError, OSError, layout.Unsound):
        return False
    return True


def _mend_part(bundle: Path, part: Path, tell: Tell) -> list[str]:
    if _is_whole(bundle, part, tell):
        return []
    was_sealed = layout.plain_size(part / layout.DONE) is not None
    hold = layout.Hold(part)
    try:
        contents = _read_all(bundle, part, tell)
        done = [note for note in contents.tables.notes if "lost" in note]
        if not contents.tables.complete and not was_sealed:
            contents.tables.notes = [NO_END, *(note for note in contents.tables.notes if "has no end" not in note)]
        _write(part, contents)
        return [*done, "finished"]
    finally:
        hold.let_go()


def _read_all(bundle: Path, part: Path, tell: Tell) -> PartContents:
    try:
        return read_part(bundle, part, forgiving=True, tell=tell)
    except BundleError as error:
        reason = str(error).partition("; `torchglass repair")[0]
        raise BundleError(f"{reason}; it cannot be repaired, and was left as it is: record anew") from None


def _write(part: Path, contents: PartContents) -> None:
    """The new tables first, beside what is there; then they take its place."""
    draft = part / f".{layout.EVENTS}"
    with contextlib.closing(new_database(draft)) as connection:
        fill(connection, contents.tables, contents.tensors)
    (part / layout.DONE).unlink(missing_ok=True)
    draft.replace(part / layout.EVENTS)
    write_headers(part, contents.tensors)
    seal(part)
    journal = layout.find_journal(part)
    if journal is not None:
        journal[0].unlink()
    for left in part.glob(f".{layout.DONE}.*"):  # by a kill in the middle of sealing
        left.unlink()
