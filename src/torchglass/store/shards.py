"""The contents of tensors, appended to safetensors files by a thread of its own: bytes first, their rows after.

A shard begins with room for its header. As long as it grows, the header is empty and the rows of ``saved_tensors``
say where the bytes are; when it is full or the part is finished, the header is written and any safetensors reader
opens it. The program waits only when more bytes are on their way than allowed.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from torchglass.events.database import Row, text
from torchglass.store.descriptors import Owned
from torchglass.store.layout import shard_name
from torchglass.store.writing import LARGE, PAGE, PastCache, Ways, write_all

HEADER = 1 << 20
"""Bytes before the first tensor of a shard."""
SHARD = 1 << 30
"""A shard that has grown beyond this gets no more."""
IN_FLIGHT = 200_000_000
ALIGNMENT = 16
LONGEST_NAME = 200
PADDING = "padding@"

NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64",
    "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""The dtypes that safetensors has a name for; all others are kept as U8."""
SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One storage in a shard, as its header will name it."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int
    plain: bool = True
    """The elements lie side by side in order; else the entry is the whole storage, as one row of elements."""

    def spelt(self) -> dict[str, Any]:
        """As safetensors wants it; offsets count from behind the header."""
        name = NAMES.get(self.dtype, "U8")
        if self.length % SIZES[name]:
            name = "U8"
        count = self.length // SIZES[name]
        fits = self.plain and self.dtype in NAMES and prod(self.shape) == count
        first = self.offset - HEADER
        shape = list(self.shape) if fits else [count]
        return {"dtype": name, "shape": shape, "data_offsets": [first, first + self.length]}


@dataclass(frozen=True)
class Belongs:
    """What a saved tensor is the content of, and how it lies in the bytes given: by default side by side."""

    value: int = -1
    event: int = -1
    stride: tuple[int, ...] | None = None
    storage_offset: int = 0


@dataclass(frozen=True)
class _Job:
    key: int
    name: str
    content: memoryview
    dtype: str
    shape: tuple[int, ...]
    belongs: Belongs


class Shards:
    """Appends the contents of tensors to the shards of one part."""

    def __init__(
        self, part: Path, fail: Callable[[Exception], None], in_flight: int = IN_FLIGHT, shard_bytes: int = SHARD
    ) -> None:
        self.part = part
        self.limit = in_flight
        self.failed = False
        self._fail = fail
        self._shard_bytes = shard_bytes
        self._process = os.getpid()
        self._jobs: deque[_Job] = deque()
        self._flying = 0
        """Bytes that were given and are not yet in a file."""
        self._state = threading.Condition()
        self._next_key = 0
        self._closing = self._resting = False
        self._thread: threading.Thread | None = None
        self._rows: deque[Row] = deque()
        self._shard: _Shard | None = None
        self._ways = Ways()
        self._count = 0

    def submit(
        self, name: str, content: Any, dtype: str, shape: tuple[int, ...], belongs: Belongs | None = None
    ) -> int:
        """Hand over the bytes of a tensor, which must not change from now on; returns its id in ``saved_tensors``.

        Waits while more than the allowed bytes are on their way; a tensor bigger than that goes alone.
        """
        view = memoryview(content).cast("B")
        if os.getpid() != self._process:
            return -1  # a forked child: the lock may be held by a thread that it does not have
        with self._state:
            while self._flying and self._flying + len(view) > self.limit and not self.failed:
                self._state.wait()
            key = self._next_key
            self._next_key += 1
            if self.failed or self._closing:
                return key
            self._flying += len(view)
            self._jobs.append(_Job(key, name, view, dtype, tuple(shape), belongs or Belongs()))
            self._state.notify_all()
            self._have_thread()
        return key

    def _have_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="torchglass tensors", daemon=True)
            self._thread.start()

    def written(self) -> list[Row]:
        """The rows of those whose bytes are in a file and which were not asked for before."""
        return [self._rows.popleft() for _ in range(len(self._rows))]

    def drain(self) -> None:
        """Wait until the bytes of all that was handed over are in a file, or can never be."""
        if os.getpid() != self._process:
            return
        with self._state:
            while self._flying and not self.failed:
                self._state.wait()

    def rest(self) -> threading.Thread | None:
        """Write what is on its way and end the thread, which is returned; the next tensor begins another."""
        if os.getpid() != self._process or self._thread is None:
            return None
        with self._state:
            self._resting = True
            self._state.notify_all()
        self._thread.join()
        ended, self._thread, self._resting = self._thread, None, False
        return ended

    def close(self) -> None:
        """Write what is left, and the header of the last shard."""
        if os.getpid() != self._process:
            return
        with self._state:
            self._closing = True
            self._state.notify_all()
            if self._shard is not None and not self.failed:
                self._have_thread()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        """The thread: one tensor after the other, until there is no more or the disk gives up."""
        try:
            while (job := self._take()) is not None:
                self._write(job)
                with self._state:
                    self._flying -= len(job.content)
                    del job
                    self._state.notify_all()
            if self._closing:
                self._end_shard()
        except Exception as error:
            with self._state:
                self.failed = True
                self._jobs.clear()
                self._flying = 0
                self._state.notify_all()
            self._fail(error)

    def _take(self) -> _Job | None:
        with self._state:
            while not self._jobs:
                if self._closing or self._resting:
                    return None
                self._state.wait()
            return self._jobs.popleft()

    def _write(self, job: _Job) -> None:
        shard = self._shard
        if shard is None or shard.is_full(job, self._shard_bytes):
            self._end_shard()
            shard = self._shard = _Shard(self.part / shard_name(self._count), self._count, self._ways)
            self._count += 1
        offset = shard.append(job)
        belongs = job.belongs
        stride = None if belongs.stride is None else json.dumps(belongs.stride)
        self._rows.append((
            job.key, text(job.name), belongs.value, belongs.event, shard.number, offset, len(job.content), job.dtype,
            json.dumps(job.shape), stride, belongs.storage_offset,
        ))  # fmt: skip

    def _end_shard(self) -> None:
        if self._shard is not None:
            self._shard.finish()
            self._shard = None


class _Shard:
    """One file that grows."""

    def __init__(self, path: Path, number: int, ways: Ways) -> None:
        self.number = number
        self.end = HEADER
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._owned = Owned(self._file)
        self._past_cache = PastCache(path, self._file, ways)
        self._entries: list[Entry] = []
        self._room = HEADER - 8 - len("{}")
        write_all(self._file, header([]), 0)

    def is_full(self, job: _Job, limit: int) -> bool:
        """Whether the next tensor must go into another shard: too many bytes, or no room to name it."""
        return (self.end - HEADER + len(job.content) > limit and bool(self._entries)) or self._room < _header_bytes(job)

    def append(self, job: _Job) -> int:
        """Put the bytes at the end; returns where they are."""
        self._owned.check()
        gap = -self.end % (PAGE if len(job.content) >= LARGE else ALIGNMENT)
        if gap:
            # A shard has no holes: what makes the next tensor begin at a round number is an entry itself.
            self._add(Entry(f"{PADDING}{self.end}", "uint8", (gap,), self.end, gap))
            write_all(self._file, bytes(gap), self.end)
            self.end += gap
        offset = self.end
        if len(job.content) < LARGE:
            write_all(self._file, job.content, offset)
        else:
            self._past_cache.write(job.content, offset)
        plain = job.belongs.stride is None
        self._add(Entry(entry_key(job.name, job.key), job.dtype, job.shape, offset, len(job.content), plain))
        self.end = offset + len(job.content)
        return offset

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._room -= len(json.dumps({entry.key: entry.spelt()}))

    def finish(self) -> None:
        """Write the header; from now on it is an ordinary safetensors file."""
        self._owned.check()
        try:
            write_all(self._file, header(self._entries), 0)
        finally:
            self._past_cache.close()
            os.close(self._file)


def entry_key(name: str, key: int) -> str:
    """The name of a tensor in its shard: the user's, made different from all others."""
    return f"{name[:LONGEST_NAME]}@{key}"


def _header_bytes(job: _Job) -> int:
    """At least what an entry and the padding before it take in the header."""
    return 6 * min(len(job.name), LONGEST_NAME) + 21 * len(job.shape) + 400


def header(entries: Sequence[Entry]) -> bytes:
    """The first bytes of a shard: the length of the header, then names and places, then spaces."""
    content = json.dumps({entry.key: entry.spelt() for entry in entries}, separators=(",", ":")).encode()
    if len(content) > HEADER - 8:
        raise ValueError(f"{len(entries):,} tensors are more than a shard has room to name")
    return (HEADER - 8).to_bytes(8, "little") + content.ljust(HEADER - 8)


def padded(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries in order, with entries for what lies between them; those over the same bytes only once."""
    end = HEADER
    for entry in sorted(entries, key=lambda each: (each.offset, -each.length)):
        if entry.offset < end:
            continue
        if entry.offset > end:
            yield Entry(f"{PADDING}{end}", "uint8", (entry.offset - end,), end, entry.offset - end)
        yield entry
        end = entry.offset + entry.length
