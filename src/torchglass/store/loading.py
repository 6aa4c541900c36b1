"""Load a bundle that is finished, is being written by another process, or was left by one that was killed."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from itertools import chain
from pathlib import Path

from torchglass.errors import BundleError
from torchglass.events.notes import NO_END as NO_END_IN_PART
from torchglass.events.schema import NONE, SavedTensor
from torchglass.events.tables import Tables
from torchglass.journal.layout import Streams
from torchglass.journal.reader import BadJournal, OtherJournal, StoredFile, read_journal
from torchglass.settle.copies import stored_copies
from torchglass.settle.journal_rows import JournalRows
from torchglass.settle.settler import Settler, Source
from torchglass.settle.sources import StoredText
from torchglass.store import layout
from torchglass.store.bundle import read_manifest
from torchglass.store.checks import check_tables
from torchglass.store.merging import in_order, merged
from torchglass.store.reader import PartContents, Progress, check_saved, read_contents
from torchglass.store.sqlite_file import opened
from torchglass.store.tensors import Content, Maps, check_extents, existing_tensors, saved_rows
from torchglass.system import monotonic, sleep

Stamp = tuple[object, ...]
READ_ATTEMPTS = 4
REFRESH_SECONDS = 0.25
"""Seconds after which a part that is being written is read again."""


def no_progress(done: float) -> None:
    """Ignore progress."""


def part_of_progress(progress: Progress, number: int, count: int) -> Progress:
    """Return a progress function for part ``number`` of ``count`` equal parts of the work."""
    return lambda done: progress((number + min(done, 1.0)) / count)


def load(path: Path | str, progress: Progress = no_progress) -> Loaded:
    """Load and check a bundle as a source for a ``Trace``, and report the progress."""
    # The path is absolute, since the program may change its working directory before it opens a tensor.
    loaded = Loaded(Path(path).absolute(), progress)
    loaded.tables()
    return loaded


class Loaded:
    """The tables of a bundle. They are read again while the bundle is being written and grows."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path = path
        self._report_progress = progress
        self._parts: list[Path] = []
        self._maps = Maps(path)
        self._tables: Tables | None = None
        self._tensors: tuple[SavedTensor, ...] = ()
        self._stamp: Stamp = ()
        self._reads = 0
        self._may_grow = True
        """Whether there may be more than what was read last. It stays True until a read that began after the end."""

    @property
    def running(self) -> bool:
        """Whether a living process is still writing to it."""
        return self._may_grow and any(layout.is_held(part) for part in self._part_paths())

    def progress(self) -> int:
        """Return a number that grows each time that there was more to read."""
        self._refresh()
        return self._reads

    def tables(self) -> Tables:
        """Return the tables of all parts, merged."""
        self._refresh()
        assert self._tables is not None
        return self._tables

    def saved_tensors(self) -> tuple[SavedTensor, ...]:
        """Return the tensors whose content was saved, in the order of saving within each part."""
        self._refresh()
        return self._tensors

    def open_tensor(self, saved: SavedTensor) -> Content:
        """Return the bytes of a tensor, mapped from its shard, with its dtype and layout."""
        return self._maps.content(self._parts[saved.part], saved)

    def _part_paths(self) -> list[Path]:
        with layout.reading(self.path, self.path):
            return layout.part_paths(self.path)[: layout.PARTS + 1]

    def _refresh(self) -> None:
        if self._tables is not None and not self._may_grow:
            return
        if self._tables is not None:
            parts = self._part_paths()[: layout.PARTS]
            if _stamp(parts) == self._stamp and self.running:
                return
        read_manifest(self.path)
        all_parts = self._part_paths()
        parts = all_parts[: layout.PARTS]
        # The stamp is taken before the parts are read, so that whatever is written meanwhile is read next time.
        self._stamp = _stamp(parts)
        may_grow = any(layout.is_held(part) for part in parts)
        contents: list[PartContents] = []
        for number, part in enumerate(parts):
            contents.append(
                read_part(
                    self.path,
                    part,
                    False,
                    part_of_progress(self._report_progress, number, len(parts)),
                )
            )
            self._report_progress((number + 1) / len(parts))
        contents, self._parts = in_order(contents, parts)
        self._tables, self._tensors = merged(contents, self._parts)
        if len(all_parts) > layout.PARTS:
            self._tables.notes.append(
                f"this bundle has more parts than are read, which are {layout.PARTS:,}: the rest is left out"
            )
        if os.path.lexists(self.path / layout.FULL):
            self._tables.notes.append(
                f"a bundle has room for {layout.PARTS:,} processes: those that began later are not in it"
            )
        self._may_grow = may_grow
        self._reads += 1


def _stamp(parts: list[Path]) -> Stamp:
    """Return a stamp that changes when there may be more to read.

    While a part is being written it changes with time, since writes into a mapping do not update the time of a file.
    """
    sealed = tuple(os.path.lexists(part / layout.DONE) for part in parts)
    period = None
    if not all(sealed):
        period = int(monotonic() / REFRESH_SECONDS)
    return (len(parts), sealed, period)


def read_part(
    bundle: Path, part: Path, skip_lost: bool = False, progress: Progress = no_progress
) -> PartContents:
    """Read all of one part. Try again if its process is just finishing it.

    With ``skip_lost``, lost source texts and tensors are left out with a note, and the events are read even if they are
    not those that were sealed.
    """
    for _ in range(READ_ATTEMPTS - 1):
        is_growing = layout.is_held(part)
        try:
            return _read_part(bundle, part, skip_lost, progress)
        except BundleError:
            if not is_growing:
                raise
            sleep(0.05)
    return _read_part(bundle, part, skip_lost, progress)


def _read_part(bundle: Path, part: Path, skip_lost: bool, progress: Progress) -> PartContents:
    finished = is_sealed(bundle, part)
    sealed: dict[str, object] = {}
    if finished and not skip_lost:
        sealed = check_seal(bundle, part)
    skip_lost = skip_lost or layout.HAS_LOST in sealed
    with layout.reading(part, bundle):
        journal = None
        if layout.EVENTS not in sealed:
            journal = layout.find_journal(part)
    if journal is None:
        contents = _read_tables(bundle, part, progress)
        _read_sources(bundle, contents, skip_lost)
    else:
        contents = _read_journal(bundle, *journal)
        if finished or skip_lost:
            _read_sources(bundle, contents, skip_lost)
    _check_tensors(bundle, part, contents, skip_lost or not finished)
    if contents.tables.complete or layout.is_held(part):
        return contents
    if not finished:
        contents.tables.notes.append(LEFT.format(part=part.name, bundle=bundle))
    elif journal is not None:
        contents.tables.notes.append(NO_END)
    return contents


NO_END = (
    "the recording has no end: its process was stopped, or could not write; "
    "steps that were under way then are shown without an end"
)
"""The note for a part without an end that was repaired."""
LEFT = (
    NO_END_IN_PART + ": its process was stopped, or could not write; "
    "what had been written is here; `torchglass repair {bundle}` finishes the bundle"
)
"""The note for a part without an end that was not repaired."""


def _read_tables(bundle: Path, part: Path, progress: Progress) -> PartContents:
    """Read the SQLite file of a part that was saved, or written by an earlier version."""
    path = part / layout.EVENTS
    with layout.reading(path, bundle):
        try:
            with opened(part) as connection:
                if connection is None:
                    return PartContents(Tables(complete=False))
                return read_contents(connection, progress)
        except (
            sqlite3.Error,
            ValueError,
            TypeError,
            OverflowError,
            RecursionError,
            MemoryError,
        ) as error:
            if isinstance(error, layout.Unsound):
                raise layout.damaged(path, bundle, error) from None
            raise layout.damaged(path, bundle, _reason(error)) from None


def _read_journal(bundle: Path, path: Path, recording: int) -> PartContents:
    """Read the journal of a process that was stopped or is still running."""
    with layout.reading(path, bundle), layout.opened_plain(path, layout.JOURNAL_FILE) as descriptor:
        layout.check_holes(descriptor)
        try:
            streams = read_journal(StoredFile(descriptor))
            contents = settle_stored(
                streams, recording, lambda digest: _source_text(bundle, digest)
            )
        except OtherJournal as error:
            raise BundleError(f"{layout.spelt(path)} cannot be read here: {error}") from None
        except BadJournal as error:
            raise layout.Unsound(str(error)) from None
        check_tables(contents.tables)
        for saved in contents.tensors:
            check_saved(saved)
    return contents


FAULTS = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    OverflowError,
    RecursionError,
    MemoryError,
    AttributeError,
)
"""Exceptions to which meaningless numbers and texts in a journal lead."""


def settle_stored(streams: Streams, recording: int, texts: StoredText) -> PartContents:
    """Return the tables of one recording and its saved tensors. Raise ``BadJournal`` if it cannot be read."""
    journal_rows = JournalRows(streams)
    try:
        journal_rows.update()
        if recording not in journal_rows.recordings:
            if journal_rows.journal is not None:
                raise BadJournal("it does not say what was recorded")
            # The process died before it wrote anything.
            return PartContents(Tables(complete=False))
        settler = Settler(streams, recording, Source(texts, is_here=False), journal_rows)
        tables = settler.settle()
        digests: dict[str, str] = {}
        if settler.options.get("sources", True):
            digests = settler.sources.digests()
        saved = [
            SavedTensor(number, row.name, settler.values.number(row.value), NONE, row.shard, row.offset, row.length,
                        row.dtype, tuple(row.shape), None, 0)
            for (owner, number), row in sorted(journal_rows.saved.items())
            if owner == recording
        ]  # fmt: skip
        [copies] = stored_copies(streams, settler.values, recording)
        last_number = max((row.id for row in saved), default=NONE)
        saved += saved_rows(tables, copies, last_number + 1)
        if recording in journal_rows.only:
            tables = tables.keep(_numbers(journal_rows.only[recording].events, len(tables)))
    except BadJournal:
        raise
    except FAULTS as fault:
        raise BadJournal(
            f"its records contradict each other: {type(fault).__name__}: {fault}"
        ) from None
    return PartContents(tables, digests, saved)


def _numbers(ranges: list[list[int]], events: int) -> list[int]:
    """Return the events in some ranges, which must be in order."""
    ends = [0, *chain.from_iterable(ranges), events]
    if any(len(range_) != 2 for range_ in ranges) or ends != sorted(ends):
        raise BadJournal("it does not say which events it holds")
    return [number for first, last in ranges for number in range(first, last)]


def _read_source(bundle: Path, digest: str) -> str:
    """Read a source text by its digest."""
    if not layout.DIGEST.fullmatch(digest):
        raise layout.Unsound("the name of a source text is not the SHA-256 of a text")
    content = layout.read_small(bundle / layout.SOURCES / f"{digest}.py", layout.SOURCE_FILE)
    if hashlib.sha256(content).hexdigest() != digest:
        raise layout.Unsound("its content is not what was written")
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise layout.Unsound("it is not a text") from None


def _source_text(bundle: Path, digest: str) -> str | None:
    """Return a source text by its digest, or None if it is missing or damaged."""
    try:
        return _read_source(bundle, digest)
    except (OSError, layout.Unsound):
        return None


def _check_tensors(bundle: Path, part: Path, contents: PartContents, skip_lost: bool) -> None:
    if not skip_lost:
        check_extents(bundle, part, contents.tensors)
        return
    sound = existing_tensors(part, contents.tensors)
    lost = len(contents.tensors) - len(sound)
    contents.tensors = sound
    if lost:
        contents.tables.notes.append(f"{lost:,} saved tensors were lost: their bytes are not there")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def is_sealed(bundle: Path, part: Path) -> bool:
    """Return whether a part has a seal, so that it was finished."""
    with layout.reading(part / layout.DONE, bundle):
        return layout.plain_size(part / layout.DONE) is not None


def check_seal(bundle: Path, part: Path) -> dict[str, object]:
    """Check that the files of a finished part are those that were sealed, and return the content of the seal."""
    path = part / layout.DONE
    with layout.reading(path, bundle):
        sealed = layout.read_object(layout.read_small(path))
        for name, expected in sealed.items():
            with layout.reading(part / name, bundle):
                is_record = name == layout.EVENTS or layout.JOURNAL.fullmatch(name)
                if is_record and _sha256(part / name) != expected:
                    raise layout.Unsound("its content is not what was written")
                if layout.SHARD.fullmatch(name) and layout.plain_size(part / name) != expected:
                    raise layout.Unsound("it is not as long as it was when it was finished")
        record = layout.record_path(part)
        if record is not None and record.name not in sealed and layout.EVENTS not in sealed:
            raise layout.Unsound(f"it does not say what {record.name} is")
    return sealed


def _sha256(path: Path) -> str:
    if layout.plain_size(path) is None:
        raise FileNotFoundError(path)
    return layout.digest_of(path)


def _read_sources(bundle: Path, contents: PartContents, skip_lost: bool) -> None:
    for file, digest in contents.digests.items():
        text = None
        if skip_lost:
            text = _source_text(bundle, digest)
        if text is None and skip_lost:
            contents.tables.notes.append(f"the text of {file!r} was lost")
            continue
        path = bundle / layout.SOURCES / (f"{digest}.py" if layout.DIGEST.fullmatch(digest) else "")
        with layout.reading(path, bundle):
            if text is None:
                contents.tables.sources[file] = _read_source(bundle, digest)
            else:
                contents.tables.sources[file] = text
