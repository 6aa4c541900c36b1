"""Repair the bundle of a program that was killed: write missing headers of shards, and seal unfinished parts.

A bundle can also be read without that. Only entries whose data is lost are dropped, and a note is added for each.
Repairing an intact bundle changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator
from pathlib import Path

from torchglass.errors import BundleError
from torchglass.events.spelling import clean
from torchglass.store import layout
from torchglass.store.bundle import new_manifest, read_manifest
from torchglass.store.loading import no_progress, part_of_progress, read_part
from torchglass.store.part import seal
from torchglass.store.reader import PartContents, Progress
from torchglass.store.shards import write_headers
from torchglass.store.tensors import check_header


def repair(path: Path | str, progress: Progress = no_progress) -> list[str]:
    """Repair a bundle, and return what was done, which is nothing if it was intact."""
    bundle = Path(path)
    done: list[str] = []
    done += _repair_manifest(bundle)
    with layout.reading(bundle, bundle):
        parts = layout.part_paths(bundle)
    for part in parts:
        if layout.is_held(part):
            raise BundleError(
                f"{layout.spelt(part)} is still being written: wait until its process has ended, or stop it"
            )
    for number, part in enumerate(parts):
        with _reporting_write_errors(part):
            part_progress = part_of_progress(progress, number, len(parts))
            for action in _repair_part(bundle, part, part_progress):
                done.append(f"{part.name}: {action}")
        progress((number + 1) / len(parts))
    return done


@contextlib.contextmanager
def _reporting_write_errors(path: Path) -> Generator[None]:
    """Turn errors of writing into a BundleError, without the usual advice to run ``torchglass repair``."""
    try:
        yield
    except BundleError:
        raise
    except (OSError, layout.Unsound) as error:
        reason = clean(str(getattr(error, "strerror", None) or error))
        raise BundleError(
            f"{layout.spelt(path)} cannot be repaired now: {reason}; nothing was lost: fix that, then repair again"
        ) from None


def _repair_manifest(bundle: Path) -> list[str]:
    """Write a new manifest if it is lost or damaged and there are parts. Leave a manifest of a newer format alone."""
    try:
        read_manifest(bundle)
        return []
    except BundleError:
        if (
            not bundle.is_dir()
            or _is_newer(bundle / layout.MANIFEST)
            or not layout.part_paths(bundle)
        ):
            raise
    with _reporting_write_errors(bundle / layout.MANIFEST):
        layout.write_whole(bundle / layout.MANIFEST, new_manifest(secrets.token_hex(16)))
    return [f"{layout.MANIFEST} was made anew"]


def _is_newer(manifest: Path) -> bool:
    """Return whether a manifest has a format that only newer versions read."""
    try:
        number = layout.read_object(layout.read_small(manifest)).get("format")
    except (OSError, layout.Unsound):
        return False
    return type(number) is int and number > layout.FORMAT


def _is_intact(bundle: Path, part: Path, progress: Progress) -> bool:
    """Return whether a part is sealed and readable, and every shard has a regular safetensors header."""
    if layout.plain_size(part / layout.DONE) is None:
        return False
    try:
        read_part(bundle, part, progress=progress)
        for path in layout.shard_paths(part).values():
            with path.open("rb") as file:
                check_header(file.fileno(), os.fstat(file.fileno()).st_size)
    except (BundleError, OSError, layout.Unsound):
        return False
    return True


def _repair_part(bundle: Path, part: Path, progress: Progress) -> list[str]:
    """Repair one part, and return what was done."""
    if _is_intact(bundle, part, progress):
        return []
    hold = layout.Hold(part)
    try:
        contents = _read_all(bundle, part, progress)
        lost = [note for note in contents.tables.notes if "lost" in note]
        write_headers(part, contents.tensors)
        (part / layout.DONE).unlink(missing_ok=True)
        seal(part, has_lost=bool(lost))
        return [*lost, "finished"]
    finally:
        hold.release()


def _read_all(bundle: Path, part: Path, progress: Progress) -> PartContents:
    """Read everything of a part that is not lost."""
    try:
        return read_part(bundle, part, skip_lost=True, progress=progress)
    except BundleError as error:
        reason = str(error).partition("; `torchglass repair")[0]
        raise BundleError(
            f"{reason}; it cannot be repaired and was left as it is: record the run again"
        ) from None
