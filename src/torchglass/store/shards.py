"""The contents of tensors, appended to safetensors files in the foreground: a tensor that was given is in the file.

A shard begins with room for its header. As long as it grows, the header is empty and rows elsewhere say where the
bytes are; when it is full or the part is finished, the header is written and any safetensors reader opens it. The
bytes go from where they lie straight to the kernel: writing them costs less than a copy that somebody keeps.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from torchglass.events.schema import NONE, SavedTensor
from torchglass.journal.homes import MAPPED_SYSTEMS, Owned, close_mapping, file_system, write_all
from torchglass.journal.layout import PAGE
from torchglass.store.layout import shard_name, shard_paths

HEADER = 1 << 20
"""Bytes before the first tensor of a shard."""
SHARD = 1 << 30
"""A shard that has grown beyond this gets no more."""
ALIGNMENT = 16
LONGEST_NAME = 200
SPACES = b" " * (1 << 16)
PADDING = "padding"
REGION = 1 << 25
"""Bytes of a shard that are handed out to be filled with small tensors; large ones get a region of their own."""
COPIES = 1024
"""So many tensors a region may take: the header must have room to name them."""
LONGEST_ENTRY = 240
"""Bytes of the header that a tensor without a name of its own takes, with the padding before it."""
Region = tuple[mmap.mmap, int, int, int, int]
"""Memory that is the file's, the number of its shard, where in that it begins, how many tensors it may take, and the
file's descriptor, which may be closed before the memory is given back."""

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


def new_tensor(
    name: str, dtype: str, shape: tuple[int, ...], length: int, value: int = NONE, event: int = NONE,
    stride: tuple[int, ...] | None = None, storage_offset: int = 0,
) -> SavedTensor:  # fmt: skip
    """A tensor to be kept: the row of it, before it has a number and its bytes a place."""
    return SavedTensor(NONE, name, value, event, 0, 0, length, dtype, shape, stride, storage_offset)


class Shards:
    """Appends the contents of tensors to the shards of one part; threads take turns."""

    def __init__(self, part: Path, shard_bytes: int = SHARD) -> None:
        self.part = part
        self.saved: list[SavedTensor] = []
        self._shard_bytes = shard_bytes
        self._lock = threading.RLock()
        self._shard: _Shard | None = None
        self._count = 0
        self._mapped: dict[int, tuple[mmap.mmap, Owned]] = {}
        """Regions that are in use, by ``id``, each with the descriptor that it may keep."""

    def append(self, new: SavedTensor, pieces: Iterable[Any]) -> SavedTensor:
        """Write the bytes of a tensor; they are in the kernel's hands when this returns."""
        with self._lock:
            shard = self._shard
            if shard is None or shard.is_full(new, self._shard_bytes):
                shard = self._next_shard()
            offset = shard.append(new, pieces)
            saved = replace(new, id=len(self.saved), shard=shard.number, offset=offset)
            shard.charge(saved)
            self.saved.append(saved)
            return saved

    def share(self, new: SavedTensor, with_: SavedTensor) -> None:
        """One more tensor over bytes that are there."""
        with self._lock:
            self.saved.append(replace(new, id=len(self.saved), shard=with_.shard, offset=with_.offset))

    def new_region(self, size: int, unused: int = -1) -> Region | None:
        """Room for so many bytes at least, mapped; whoever fills it says later what is there. None: not here.

        ``unused``: where the rest of the last region begins that was handed out for small tensors, if it is no longer
        needed: a thousand of them may take no more than a few pages.
        """
        if not self._may_map:
            return None
        is_own = size > REGION // 4
        wanted, copies = (size, 1) if is_own else (REGION, COPIES)
        with self._lock:
            shard = self._shard
            if shard is not None:
                shard.give_back(unused)
            if shard is None or not shard.has_room(wanted, copies, self._shard_bytes):
                shard = self._next_shard()
            mapping, offset = shard.reserve(-(-wanted // PAGE) * PAGE, copies)
        return mapping, shard.number, offset, copies, shard.file

    def release_region(self, region: mmap.mmap) -> None:
        """Nobody writes to a region any more; never closes a file of the program's."""
        mapping, owned = self._mapped.pop(id(region), (None, None))
        if mapping is not None and owned is not None:
            close_mapping(mapping, owned.are_ours)

    @cached_property
    def _may_map(self) -> bool:
        return file_system(self.part) in MAPPED_SYSTEMS

    def _next_shard(self) -> _Shard:
        if self._shard is not None:
            self._shard.leave()
        self._shard = _Shard(self.part / shard_name(self._count), self._count, self._mapped)
        self._count += 1
        return self._shard

    def close(self, others: Iterable[SavedTensor] = ()) -> None:
        """Write the headers: from now on shards are ordinary safetensors files. ``others``: what regions hold."""
        with self._lock:
            if self._shard is not None:
                self._shard.leave()
            self._shard = None
            write_headers(self.part, [*self.saved, *others])


class _Shard:
    """One file that grows."""

    def __init__(self, path: Path, number: int, mapped: dict[int, tuple[mmap.mmap, Owned]]) -> None:
        self.number = number
        self.end = HEADER
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._owned = Owned(self.file)
        self._mapped = mapped
        self._shared: tuple[int, int] | None = None
        """The last region for small tensors: where it begins and ends."""
        self._room = HEADER - 8 - len("{}")
        try:
            write_header(self.file, [])
        except BaseException:
            self._owned.close(self.file)
            raise

    def is_full(self, new: SavedTensor, limit: int) -> bool:
        """Whether the next tensor must go into another shard: too many bytes, or no room to name it."""
        return not self._takes(new.length, limit) or self._room < _header_bytes(replace(new, offset=self.end))

    def has_room(self, size: int, copies: int, limit: int) -> bool:
        """The same for a region with so many copies in it."""
        return self._takes(size, limit) and self._room >= copies * LONGEST_ENTRY

    def _takes(self, size: int, limit: int) -> bool:
        return self.end - HEADER + size <= limit or self.end == HEADER

    def reserve(self, size: int, copies: int) -> tuple[mmap.mmap, int]:
        """A mapping of so many bytes at the end, which the disk has promised, and where it begins."""
        self._owned.check()
        offset = -(-self.end // PAGE) * PAGE
        os.posix_fallocate(self.file, offset, size)
        mapping, owned = mmap.mmap(self.file, size, offset=offset), Owned(self.file)
        owned.add_copy(self.file)  # some Pythons keep a descriptor with each mapping
        self._mapped[id(mapping)] = (mapping, owned)
        self.end, self._room = offset + size, self._room - copies * LONGEST_ENTRY
        self._shared = (offset, self.end) if copies > 1 else None
        return mapping, offset

    def give_back(self, unused: int) -> None:
        """Go on within the last region, where that was for small tensors and nothing came behind it."""
        if self._shared is not None and self._shared[1] == self.end and self._shared[0] <= unused < self.end:
            self.end, self._shared = unused, None

    def append(self, new: SavedTensor, pieces: Iterable[Any]) -> int:
        """Put the bytes at the end; returns where they are."""
        self._owned.check()
        offset = self.end + -self.end % ALIGNMENT
        at = offset
        for piece in pieces:
            write_all(self.file, piece, at)
            at += memoryview(piece).nbytes
        if at - offset != new.length:
            raise ValueError(f"a tensor of {new.length:,} bytes gave {at - offset:,}")
        self.end = at
        return offset

    def charge(self, saved: SavedTensor) -> None:
        """Remember how long the header grows."""
        self._room -= _header_bytes(saved)

    def leave(self) -> None:
        """Nothing more goes into it; its header is written when all that it holds is known."""
        self._owned.check()
        self._owned.close(self.file)


def write_headers(part: Path, tensors: Iterable[SavedTensor]) -> None:
    """Cut off bytes that no row speaks of, and write the headers of all shards."""
    by_shard: dict[int, list[SavedTensor]] = {}
    for saved in tensors:
        by_shard.setdefault(saved.shard, []).append(saved)
    for number, path in shard_paths(part).items():
        own = by_shard.get(number, [])
        end = max((saved.offset + saved.length for saved in own), default=HEADER)
        with path.open("r+b") as file:
            file.truncate(end)
            write_header(file.fileno(), own)


def write_header(file: int, tensors: Sequence[SavedTensor]) -> None:
    """The first bytes of a shard: the length of the header, then names and places, then spaces."""
    content = (HEADER - 8).to_bytes(8, "little") + f"{{{','.join(entries(tensors))}}}".encode()
    if len(content) > HEADER:
        raise ValueError(f"{len(tensors):,} tensors are more than a shard has room to name")
    write_all(file, content, 0)
    for at in range(len(content), HEADER, len(SPACES)):  # to put them behind it in memory took longer than to write
        write_all(file, SPACES[: HEADER - at], at)


def entries(tensors: Sequence[SavedTensor]) -> Iterator[str]:
    """What the header says of the tensors, in order, and of what lies between them; of the same bytes only once.

    A shard has no holes: what makes the next tensor begin at a round number is an entry itself.
    """
    end, kinds = HEADER, dict[tuple[Any, ...], str]()
    for saved in sorted(tensors, key=_place):
        offset, length = saved.offset, saved.length
        if offset < end:
            continue
        if offset > end:
            yield _entry(PADDING, end, f'"dtype":"U8","shape":[{offset - end}]', end, offset)
        alike = (saved.dtype, saved.shape, saved.stride is None, length)
        yield _entry(
            saved.name, saved.id, kinds.get(alike) or kinds.setdefault(alike, _kind(saved)), offset, offset + length
        )
        end = offset + length


def _place(saved: SavedTensor) -> tuple[int, bool, int]:
    return saved.offset, saved.length > 0, -saved.length


def _entry(name: str, number: int, kind: str, begin: int, end: int) -> str:
    """One entry: the user's name, made different from all others, and a place that counts from behind the header."""
    key = json.dumps(f"{name[:LONGEST_NAME]}@{number}") if name else f'"@{number}"'
    return f'{key}:{{{kind},"data_offsets":[{begin - HEADER},{end - HEADER}]}}'


def _kind(saved: SavedTensor) -> str:
    """Dtype and shape as safetensors wants them.

    Where the elements do not lie side by side in order, it is the whole storage, as one row of elements.
    """
    name = NAMES.get(saved.dtype, "U8")
    if saved.length % SIZES[name]:
        name = "U8"
    count = saved.length // SIZES[name]
    fits = saved.stride is None and saved.dtype in NAMES and prod(saved.shape) == count
    shape = saved.shape if fits else (count,)
    return f'"dtype":"{name}","shape":[{",".join(map(str, shape))}]'


def _header_bytes(saved: SavedTensor) -> int:
    """What it takes of the header, with the padding before it."""
    return len(_entry(saved.name, saved.id, _kind(saved), saved.offset, saved.offset + saved.length)) + 140
