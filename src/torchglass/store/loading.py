"""Reading a bundle: finished, being written by another process, or left by one that was killed."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from torchglass.errors import BundleError
from torchglass.events import schema
from torchglass.events.schema import NONE, SavedTensor
from torchglass.events.tables import Tables
from torchglass.journal.layout import Streams
from torchglass.journal.reader import BadJournal, OtherJournal, StoredFile, read_journal
from torchglass.settle.interned import Interned
from torchglass.settle.places import Texts
from torchglass.settle.settler import Settler, Source
from torchglass.settle.values import kept_values
from torchglass.store import layout
from torchglass.store.bundle import read_manifest
from torchglass.store.checks import check_tables, opened
from torchglass.store.processes import notes_of, rank_of, tell_failure, threads_of
from torchglass.store.reader import PartContents, Tell, check_saved, read_contents
from torchglass.store.tensors import Content, Maps, are_there, check_extents, saved_rows

Stamp = tuple[object, ...]
TRIES = 4
OFTEN = 0.25
"""Seconds after which a part that is being written is looked at again."""


def nobody(done: float) -> None:
    """Nobody waits."""


def piece(tell: Tell, number: int, count: int) -> Tell:
    """Tells of one of several equal pieces of the work."""
    return lambda done: tell((number + min(done, 1.0)) / count)


def load(path: Path | str, tell: Tell = nobody) -> Loaded:
    """A bundle as a source for a ``Trace``; everything is checked now, and ``tell`` hears how far that has come."""
    loaded = Loaded(Path(path).absolute(), tell)  # the program may change its folder before it opens a tensor
    loaded.tables()
    return loaded


class Loaded:
    """The tables of a bundle; those of one that is being written are read again when it has grown."""

    def __init__(self, path: Path, tell: Tell) -> None:
        self.path = path
        self._tell = tell
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
            self._running = any(layout.is_held(part) for part in self._part_paths())
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
        with layout.reading(self.path, self.path):
            return layout.part_paths(self.path)[: layout.PARTS + 1]

    def _refresh(self) -> None:
        if self._tables is not None and not self._running:
            return
        parts = self._part_paths()[: layout.PARTS] if self._tables is not None else []
        if self._tables is not None and _stamp(parts) == self._stamp and self.running:
            return
        read_manifest(self.path)
        found = self._part_paths()
        parts = found[: layout.PARTS]
        # In this order: what is written in between is seen next time.
        self._stamp, running = _stamp(parts), any(layout.is_held(part) for part in parts)
        contents: list[PartContents] = []
        for number, part in enumerate(parts):
            contents.append(read_part(self.path, part, False, piece(self._tell, number, len(parts))))
            self._tell((number + 1) / len(parts))
        contents, self._parts = in_order(contents, parts)
        self._tables, self._tensors = merged(contents, self._parts)
        if len(found) > layout.PARTS:
            self._tables.notes.append(
                f"this bundle has more parts than are read, which are {layout.PARTS:,}: the rest is left out"
            )
        if os.path.lexists(self.path / layout.FULL):
            self._tables.notes.append(
                f"a bundle has room for {layout.PARTS:,} processes: those that began later are not in it"
            )
        self._running = running
        self._reads += 1


def _stamp(parts: list[Path]) -> Stamp:
    """What changes when there is more to read; what is stored into a mapping changes no file's time for long."""
    sealed = tuple(os.path.lexists(part / layout.DONE) for part in parts)
    return (len(parts), sealed, None if all(sealed) else int(time.monotonic() / OFTEN))


def read_part(bundle: Path, part: Path, forgiving: bool = False, tell: Tell = nobody) -> PartContents:
    """All of one part; what is just being finished is looked at once more.

    ``forgiving``: what is gone (a source text, the bytes of a tensor) is left out, with a note, and the events are
    taken as they are now, whatever the seal says.
    """
    for _ in range(TRIES - 1):
        growing = layout.is_held(part)
        try:
            return _read_part(bundle, part, forgiving, tell)
        except BundleError:
            if not growing:
                raise
            time.sleep(0.05)
    return _read_part(bundle, part, forgiving, tell)


def _read_part(bundle: Path, part: Path, forgiving: bool, tell: Tell) -> PartContents:
    finished = is_sealed(bundle, part)
    if finished and not forgiving:
        check_seal(bundle, part)
    with layout.reading(part, bundle):
        journal = None if finished else layout.find_journal(part)
    if journal is None:
        contents = _read_tables(bundle, part, tell)
        _read_sources(bundle, contents, forgiving)
    else:
        contents = _read_journal(bundle, *journal)
    _check_tensors(bundle, part, contents, forgiving or not finished)
    if not finished and not contents.tables.complete and not layout.is_held(part):
        contents.tables.notes.append(
            f"the recording in {part.name} has no end: its process was stopped, or could not write; "
            f"all that it had recorded is here; `torchglass repair {bundle}` finishes the bundle"
        )
    return contents


def _read_tables(bundle: Path, part: Path, tell: Tell) -> PartContents:
    """From SQLite, which is there when the part was finished."""
    path = part / layout.EVENTS
    with layout.reading(path, bundle):
        try:
            with opened(part) as connection:
                return PartContents(Tables(complete=False)) if connection is None else read_contents(connection, tell)
        except (sqlite3.Error, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            raise layout.damaged(path, bundle, error if isinstance(error, layout.Unsound) else _reason(error)) from None


def _read_journal(bundle: Path, path: Path, recording: int) -> PartContents:
    """From the journal, which a process that was stopped leaves, or one that is still at work."""
    with layout.reading(path, bundle), layout.opened_plain(path, layout.JOURNAL_FILE) as descriptor:
        layout.check_holes(descriptor)
        try:
            streams = read_journal(StoredFile(descriptor))
            contents = settle_stored(streams, recording, lambda digest: _source_text(bundle, digest))
        except OtherJournal as error:
            raise BundleError(f"{layout.spelt(path)} cannot be read here: {error}") from None
        except BadJournal as error:
            raise layout.Unsound(str(error)) from None
        check_tables(contents.tables)
        for each in contents.tensors:
            check_saved(each)
    return contents


FAULTS = (ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError, MemoryError, AttributeError)
"""What comes of numbers and texts that make no sense."""


def settle_stored(streams: Streams, recording: int, texts: Texts) -> PartContents:
    """The tables of one recording, and the tensors that were kept; ``BadJournal`` where there is nothing to be had."""
    interned = Interned(streams)
    try:
        interned.update()
        if recording not in interned.recordings:
            if interned.journal is not None:
                raise BadJournal("it does not say what was recorded")
            return PartContents(Tables(complete=False))  # the process died before anything was in the file
        settler = Settler(streams, recording, Source(texts, is_here=False), interned)
        tables = settler.settle()
        saved = [
            SavedTensor(number, row.name, settler.values.number(row.value), NONE, row.shard, row.offset, row.length,
                        row.dtype, tuple(row.shape), None, 0)
            for (owner, number), row in sorted(interned.saved.items())
            if owner == recording
        ]  # fmt: skip
        [kept] = kept_values(streams, settler.values, recording)
        saved += saved_rows(tables, kept, max((each.id for each in saved), default=NONE) + 1)
    except BadJournal:
        raise
    except FAULTS as fault:
        raise BadJournal(f"its records do not fit together: {type(fault).__name__}: {fault}") from None
    return PartContents(tables, tensors=saved)


def _read_source(bundle: Path, digest: str) -> str:
    """A text that was kept under the name of its content."""
    if not layout.DIGEST.fullmatch(digest):
        raise layout.Unsound("the name of a source text is not the SHA-256 of a text")
    content = layout.read_small(bundle / layout.SOURCES / f"{digest}.py", layout.SOURCE_FILE)
    if hashlib.sha256(content).hexdigest() != digest:
        raise layout.Unsound("it is not what was written")
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise layout.Unsound("it is no text") from None


def _source_text(bundle: Path, digest: str) -> str | None:
    """The same; None where it is not there, or another."""
    try:
        return _read_source(bundle, digest)
    except (OSError, layout.Unsound):
        return None


def _check_tensors(bundle: Path, part: Path, contents: PartContents, forgiving: bool) -> None:
    if not forgiving:
        check_extents(bundle, part, contents.tensors)
        return
    sound = are_there(part, contents.tensors)
    lost = len(contents.tensors) - len(sound)
    contents.tensors = sound
    if lost:
        contents.tables.notes.append(f"{lost:,} saved tensors were lost: their bytes are not there")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def is_sealed(bundle: Path, part: Path) -> bool:
    """Whether the part was finished once."""
    with layout.reading(part / layout.DONE, bundle):
        return layout.plain_size(part / layout.DONE) is not None


def check_seal(bundle: Path, part: Path) -> None:
    """The files of a finished part are those that were sealed."""
    path = part / layout.DONE
    with layout.reading(path, bundle):
        sealed = layout.read_object(layout.read_small(path))
        for name, expected in sealed.items():
            with layout.reading(part / name, bundle):
                if name == layout.EVENTS and _sha256(part / name) != expected:
                    raise layout.Unsound("it is not what was written")
                if layout.SHARD.fullmatch(name) and layout.plain_size(part / name) != expected:
                    raise layout.Unsound("it is not as long as it was when it was finished")
        if layout.EVENTS not in sealed:
            raise layout.Unsound(f"it does not say what {layout.EVENTS} is")


def _sha256(path: Path) -> str:
    if layout.plain_size(path) is None:
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_sources(bundle: Path, contents: PartContents, forgiving: bool) -> None:
    for file, digest in contents.digests.items():
        text = _source_text(bundle, digest) if forgiving else None
        if text is None and forgiving:
            contents.tables.notes.append(f"the text of {file!r} was lost")
            continue
        path = bundle / layout.SOURCES / (f"{digest}.py" if layout.DIGEST.fullmatch(digest) else "")
        with layout.reading(path, bundle):
            contents.tables.sources[file] = _read_source(bundle, digest) if text is None else text


# ---------------------------------------------------------------- merging

# The parts of a bundle as one trace: the events of one process after those of the other, numbers counted on.

LISTS = ("whats", "forms", "metas", "texts", "operand_texts", "sites", "threads")
"""Lists that are laid one behind the other."""
POINTERS = {
    **{each.field: schema.BY_NAME[each.to].rows for each in schema.NUMBERS if each.to},
    "first_io": "io",
    "io": "value_meta",
}
"""By column: the list or column that its numbers count in."""
PLAIN = tuple(
    each.field for each in schema.NUMBERS if not each.to and not each.counts_on and each not in schema.MEASURED
)
COUNTING = tuple(each.field for each in schema.NUMBERS if each.counts_on)
"""Columns whose numbers each part begins from 0."""


def in_order(contents: list[PartContents], parts: list[Path]) -> tuple[list[PartContents], list[Path]]:
    """By rank, then as processes began: a later one may have the smaller number, since numbers begin again."""
    began = [each.tables.started_at or inf for each in contents]
    order = sorted(range(len(parts)), key=lambda number: (rank_of(parts[number].name), began[number]))
    return [contents[number] for number in order], [parts[number] for number in order]


def merged(parts: Sequence[PartContents], paths: Sequence[Path]) -> tuple[Tables, tuple[SavedTensor, ...]]:
    """One trace of all parts, and their saved tensors; a bundle of one part stays as it is."""
    if len(parts) == 1:
        return parts[0].tables, tuple(parts[0].tensors)
    whole = Tables(complete=False, notes=["nothing was written to this bundle"])
    tensors: list[SavedTensor] = []
    if parts:
        first = parts[0].tables
        whole = Tables(process=first.process, name=first.name, started_at=first.started_at)
    for number, (part, path) in enumerate(zip(parts, paths, strict=True)):
        values, events = len(whole.value_meta), len(whole)
        for saved in part.tensors:
            value = saved.value + values if saved.value != NONE else NONE
            event = saved.event + events if saved.event != NONE else NONE
            tensors.append(replace(saved, id=len(tensors), value=value, event=event, part=number))
        _append(whole, part.tables, path.name)
    seen = {whole.whats[what].name for what in set(whole.what) if whole.whats[what].kind == "variable"}
    whole.notes = notes_of(whole.notes, seen)
    whole.threads = threads_of([part.tables for part in parts], [path.name for path in paths])
    tell_failure(whole, [part.tables for part in parts])
    return whole, tuple(tensors)


def _append(whole: Tables, part: Tables, name: str) -> None:
    """Add one part; what its numbers count in has grown by what is there already."""
    values = len(whole.value_meta)
    base = {target: len(getattr(whole, target)) for target in POINTERS.values()}
    shifts = {column: base[target] for column, target in POINTERS.items()}
    shifts |= {column: max(getattr(whole, column), default=NONE) + 1 for column in COUNTING}
    for column, shift in shifts.items():
        numbers = getattr(part, column)
        getattr(whole, column).extend(
            numbers if not shift else array("q", [each if each == NONE else each + shift for each in numbers])
        )
    _append_measured(whole, part, values)
    whole.sketches |= {value + values: sketch for value, sketch in part.sketches.items()}
    for column in PLAIN:
        getattr(whole, column).extend(getattr(part, column))
    whole.stack_sites += [tuple(site + base["sites"] for site in sites) for sites in part.stack_sites]
    whole.modules += [
        replace(row, parameters=tuple((role, value + values) for role, value in row.parameters)) for row in part.modules
    ]
    whole.thread_processes += [part.process_of(thread) for thread in range(len(part.threads))]
    for field in LISTS:
        getattr(whole, field).extend(getattr(part, field))
    _append_rest(whole, part, name)


def _append_measured(whole: Tables, part: Tables, values: int) -> None:
    """What was in the values: of parts that did not measure nothing is known."""
    if not whole.value_measured and not part.value_measured:
        return
    missing = 0 if whole.value_measured else values
    for column, nothing in zip(schema.MEASURED_FIELDS, schema.NOT_MEASURED, strict=True):
        getattr(whole, column).extend([nothing] * missing)
        getattr(whole, column).extend(getattr(part, column) or [nothing] * len(part.value_meta))


def _append_rest(whole: Tables, part: Tables, name: str) -> None:
    whole.complete &= part.complete
    whole.duration_ns = max(whole.duration_ns, part.duration_ns)
    whole.notes += [note if name in note else f"{name}: {note}" for note in part.notes]
    for file, text in part.sources.items():
        # What was given to exec or to -c is no file: each process has its own.
        if whole.sources.setdefault(file, text) != text and not file.startswith("<"):
            whole.notes.append(f"{name}: {file} was another text there than in the processes before")
