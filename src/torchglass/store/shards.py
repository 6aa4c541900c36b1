"""The contents of tensors, appended to safetensors files in the foreground: a tensor that was given is in the file.

A shard begins with room for its header. As long as it grows, the header is empty and rows elsewhere say where the
bytes are; when it is full or the part is finished, the header is written and any safetensors reader opens it. The
bytes go from where they lie straight to the kernel: writing them costs less than a copy that somebody keeps.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from torchglass.events.schema import SavedTensor
from torchglass.journal.descriptors import Owned
from torchglass.journal.homes import write_all
from torchglass.store.layout import shard_name

HEADER = 1 << 20
"""Bytes before the first tensor of a shard."""
SHARD = 1 << 30
"""A shard that has grown beyond this gets no more."""
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
class ShardEntry:
    """One storage in a shard, as its header will name it."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int
    plain: bool = True
    """The elements lie side by side in order; else the entry is the whole storage, as one row of elements."""

    @classmethod
    def of(cls, saved: SavedTensor) -> ShardEntry:
        """The entry of a saved tensor."""
        key = f"{saved.name[:LONGEST_NAME]}@{saved.id}"  # the user's name, made different from all others
        return cls(key, saved.dtype, saved.shape, saved.offset, saved.length, saved.stride is None)

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

    def header_bytes(self) -> int:
        """What it takes of the header, with the padding before it."""
        return len(json.dumps({self.key: self.spelt()})) + 120


@dataclass(frozen=True)
class Given:
    """A tensor to be kept: what is known of it before its bytes have a place."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    length: int
    value: int = -1
    event: int = -1
    stride: tuple[int, ...] | None = None
    storage_offset: int = 0


class Shards:
    """Appends the contents of tensors to the shards of one part; threads take turns."""

    def __init__(self, part: Path, shard_bytes: int = SHARD) -> None:
        self.part = part
        self.saved: list[SavedTensor] = []
        self._shard_bytes = shard_bytes
        self._lock = threading.RLock()
        self._shard: _Shard | None = None
        self._count = 0

    def append(self, given: Given, pieces: Iterable[Any]) -> SavedTensor:
        """Write the bytes of a tensor; they are in the kernel's hands when this returns."""
        with self._lock:
            shard = self._shard
            if shard is None or shard.is_full(given, self._shard_bytes):
                self.close()
                shard = self._shard = _Shard(self.part / shard_name(self._count), self._count)
                self._count += 1
            offset = shard.append(given, pieces)
            saved = SavedTensor(
                len(self.saved), given.name, given.value, given.event, shard.number, offset, given.length,
                given.dtype, given.shape, given.stride, given.storage_offset,
            )  # fmt: skip
            shard.add(ShardEntry.of(saved))
            self.saved.append(saved)
            return saved

    def close(self) -> None:
        """Write the header of the last shard."""
        with self._lock:
            shard, self._shard = self._shard, None
            if shard is not None:
                shard.finish()


class _Shard:
    """One file that grows."""

    def __init__(self, path: Path, number: int) -> None:
        self.number = number
        self.end = HEADER
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._owned = Owned(self._file)
        self._entries: list[ShardEntry] = []
        self._room = HEADER - 8 - len("{}")
        try:
            write_all(self._file, header([]), 0)
        except BaseException:
            self._owned.close(self._file)
            raise

    def is_full(self, given: Given, limit: int) -> bool:
        """Whether the next tensor must go into another shard: too many bytes, or no room to name it."""
        entry = ShardEntry(given.name[:LONGEST_NAME] * 6, given.dtype, given.shape, self.end, given.length)
        return (self.end - HEADER + given.length > limit and bool(self._entries)) or self._room < entry.header_bytes()

    def append(self, given: Given, pieces: Iterable[Any]) -> int:
        """Put the bytes at the end; returns where they are."""
        self._owned.check()
        offset = self.end + -self.end % ALIGNMENT
        at = offset
        for piece in pieces:
            write_all(self._file, piece, at)
            at += memoryview(piece).nbytes
        if at - offset != given.length:
            raise ValueError(f"a tensor of {given.length:,} bytes gave {at - offset:,}")
        self.end = at
        return offset

    def add(self, entry: ShardEntry) -> None:
        """Remember what the header must say."""
        self._entries.append(entry)
        self._room -= entry.header_bytes()

    def finish(self) -> None:
        """Write the header; from now on it is an ordinary safetensors file."""
        self._owned.check()
        try:
            os.ftruncate(self._file, self.end)
            write_all(self._file, header(list(padded(self._entries))), 0)
        finally:
            self._owned.close(self._file)


def header(entries: Sequence[ShardEntry]) -> bytes:
    """The first bytes of a shard: the length of the header, then names and places, then spaces."""
    content = json.dumps({entry.key: entry.spelt() for entry in entries}, separators=(",", ":")).encode()
    if len(content) > HEADER - 8:
        raise ValueError(f"{len(entries):,} tensors are more than a shard has room to name")
    return (HEADER - 8).to_bytes(8, "little") + content.ljust(HEADER - 8)


def padded(entries: Sequence[ShardEntry]) -> Iterator[ShardEntry]:
    """The entries in order, with entries for what lies between them; those over the same bytes only once.

    A shard has no holes: what makes the next tensor begin at a round number is an entry itself.
    """
    end = HEADER
    for entry in sorted(entries, key=lambda each: (each.offset, each.length > 0, -each.length)):
        if entry.offset < end:
            continue
        if entry.offset > end:
            yield ShardEntry(f"{PADDING}{end}", "uint8", (entry.offset - end,), end, entry.offset - end)
        yield entry
        end = entry.offset + entry.length
