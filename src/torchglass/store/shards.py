"""Appends the contents of tensors to safetensors files, called shards, before the program continues.

A shard begins with room for its header. While the shard grows, its header is empty, and rows in the journal or the
tables say where the bytes of each tensor are. When the part is finished, the headers are written, and any safetensors
reader can open the shards. The bytes are passed to the kernel without a copy in between, because writing them costs
less than keeping a copy in memory.
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
from torchglass.journal.backing import MAPPED_SYSTEMS
from torchglass.journal.descriptors import Owned, close_mapping, map_shared
from torchglass.journal.files import allocate, check_length, file_system, write_all
from torchglass.journal.layout import PAGE
from torchglass.store.layout import shard_name, shard_paths

HEADER = 1 << 20
"""How many bytes are reserved for the header of a shard (1 MiB). The first tensor begins there."""
SHARD = 1 << 30
"""How many bytes of tensors a shard may hold (1 GiB) before the next shard begins. A larger tensor gets its own."""
ALIGNMENT = 16
"""Tensors begin at multiples of this many bytes, so that readers can map them."""
LONGEST_NAME = 200
"""The most characters of a tensor's name in a header."""
SPACES = b" " * (1 << 16)
"""A block of the spaces that fill the rest of a header."""
PADDING = "padding"
"""The name of a header entry for the gap before a tensor."""
REGION = 1 << 25
"""The bytes of a region for small tensors (32 MiB). A tensor of more than a quarter of it gets its own region."""
COPIES = 1024
"""The most tensors in one region, because the header must have room for all their entries."""
LONGEST_ENTRY = 240
"""The most bytes in the header for a tensor without a name, including the entry for the gap before it."""
LONGEST_PADDING_ENTRY = 140
"""The most bytes in the header for the gap before a tensor."""
Region = tuple[mmap.mmap, int, int, int, int]
"""Mapped memory of a shard, the number of the shard, the offset in the shard, how many tensors the region may hold, and
the file's descriptor, which may be closed before the region is released."""

NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
"""The names of dtypes in safetensors. Tensors of all other dtypes are stored as bytes (U8)."""
SIZES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}
"""The bytes of one element, by the dtype's name in safetensors."""


def new_tensor(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    length: int,
    value: int = NONE,
    event: int = NONE,
    stride: tuple[int, ...] | None = None,
    storage_offset: int = 0,
) -> SavedTensor:
    """Return the row of a tensor to save, before it has a number, a shard and an offset."""
    return SavedTensor(NONE, name, value, event, 0, 0, length, dtype, shape, stride, storage_offset)


class Shards:
    """Appends the contents of tensors to the shards of one part. A lock makes it safe to use from several threads."""

    def __init__(self, part: Path, shard_bytes: int = SHARD) -> None:
        self.part = part
        self.saved: list[SavedTensor] = []
        self._shard_bytes = shard_bytes
        self._lock = threading.RLock()
        self._shard: _Shard | None = None
        self._count = 0
        self._mapped: dict[int, tuple[mmap.mmap, Owned]] = {}
        """The regions in use, keyed by ``id`` of the mapping: the mapping, and the ownership of its descriptor copy."""

    def append(self, new: SavedTensor, pieces: Iterable[Any]) -> SavedTensor:
        """Write the bytes of a tensor and return its row. The kernel has all bytes when this returns."""
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
        """Add the row of a tensor whose bytes are already in the file, as those of ``with_``."""
        with self._lock:
            self.saved.append(
                replace(new, id=len(self.saved), shard=with_.shard, offset=with_.offset)
            )

    def new_region(self, size: int, unused: int = -1) -> Region | None:
        """Return mapped memory for at least ``size`` bytes, or None if files cannot be mapped here.

        The caller passes the rows of the tensors in it to ``close``. ``unused`` is the offset at which the unused rest
        of the last region for small tensors begins, so that the next region reuses the rest.
        """
        if not self._may_map:
            return None
        if size > REGION // 4:
            region_size = size
            copies = 1
        else:
            region_size = REGION
            copies = COPIES
        with self._lock:
            shard = self._shard
            if shard is not None:
                shard.give_back(unused)
            if shard is None or not shard.has_room(region_size, copies, self._shard_bytes):
                shard = self._next_shard()
            mapping, offset = shard.reserve(_round_up(region_size, PAGE), copies)
        return mapping, shard.number, offset, copies, shard.file

    def release_region(self, region: mmap.mmap) -> None:
        """Release a region that is no longer written to.

        The descriptor is closed only if it is still ours, because the program may have closed it and reused its number.
        """
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
        """Write the headers, which makes the shards ordinary safetensors files.

        ``others`` are the rows of the tensors in regions.
        """
        with self._lock:
            if self._shard is not None:
                self._shard.leave()
            self._shard = None
            write_headers(self.part, [*self.saved, *others])


class _Shard:
    """The shard that is being written, which grows with each tensor."""

    def __init__(self, path: Path, number: int, mapped: dict[int, tuple[mmap.mmap, Owned]]) -> None:
        self.number = number
        self.end = HEADER
        """The offset of the next bytes."""
        self._length = HEADER
        """The least length that the file must have. Before each write it is checked that nobody has cut it off."""
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._owned = Owned(self.file)
        self._mapped = mapped
        self._small_region_at: int | None = None
        """The offset of the region for small tensors at the end of the file; None if something else is there."""
        self._room = HEADER - 8 - len("{}")
        """The bytes that are left for the header."""
        try:
            write_header(self.file, [])
        except BaseException:
            self._owned.close(self.file)
            raise

    def is_full(self, new: SavedTensor, limit: int) -> bool:
        """Return whether a tensor must go into the next shard: too many bytes, or no room for its header entry."""
        if not self._takes(new.length, limit):
            return True
        return self._room < _header_bytes(replace(new, offset=self.end))

    def has_room(self, size: int, copies: int, limit: int) -> bool:
        """Return whether a region of ``size`` bytes for up to ``copies`` tensors fits."""
        return self._takes(size, limit) and self._room >= copies * LONGEST_ENTRY

    def _takes(self, size: int, limit: int) -> bool:
        return self.end - HEADER + size <= limit or self.end == HEADER

    def reserve(self, size: int, copies: int) -> tuple[mmap.mmap, int]:
        """Reserve ``size`` bytes at the end of the file. Return a mapping of them, and the offset where they begin."""
        self._owned.check()
        check_length(self.file, self._length)
        offset = _round_up(self.end, PAGE)
        allocate(self.file, offset, size)
        mapping, copy = map_shared(self.file, size, offset)
        # The mapping owns only its own copy of the descriptor, because the shard may close its descriptor before.
        self._mapped[id(mapping)] = (mapping, Owned(*copy))
        self.end = offset + size
        self._length = self.end
        self._room -= copies * LONGEST_ENTRY
        self._small_region_at = None
        if copies > 1:
            self._small_region_at = offset
        return mapping, offset

    def give_back(self, unused: int) -> None:
        """Continue at the offset ``unused`` of the last region for small tensors, if nothing was written after it."""
        begin = self._small_region_at
        if begin is not None and begin <= unused < self.end:
            self.end = unused
            self._small_region_at = None

    def append(self, new: SavedTensor, pieces: Iterable[Any]) -> int:
        """Write the bytes of a tensor at the end, and return their offset."""
        self._owned.check()
        check_length(self.file, self._length)
        offset = _round_up(self.end, ALIGNMENT)
        end = offset
        for piece in pieces:
            write_all(self.file, piece, end)
            end += memoryview(piece).nbytes
        if end - offset != new.length:
            raise ValueError(f"a tensor of {new.length:,} bytes gave {end - offset:,}")
        self.end = end
        if new.length:
            self._length = max(self._length, end)
            self._small_region_at = None
        return offset

    def charge(self, saved: SavedTensor) -> None:
        """Subtract a tensor's entry from the room that is left in the header."""
        self._room -= _header_bytes(saved)

    def leave(self) -> None:
        """Close the file. The header is written later, when the tensors in regions are known too."""
        self._owned.check()
        self._owned.close(self.file)


def write_headers(part: Path, tensors: Iterable[SavedTensor]) -> None:
    """Cut off unused bytes at the end of each shard, and write the headers of all shards."""
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
    """Write the beginning of a shard: the length of the header, the entries of the tensors, and spaces."""
    content = (HEADER - 8).to_bytes(8, "little") + f"{{{','.join(entries(tensors))}}}".encode()
    if len(content) > HEADER:
        raise ValueError(f"{len(tensors):,} tensors are more than a shard has room to name")
    write_all(file, content, 0)
    # Writing the spaces in blocks is faster than joining them to the content in memory.
    for offset in range(len(content), HEADER, len(SPACES)):
        write_all(file, SPACES[: HEADER - offset], offset)


def entries(tensors: Sequence[SavedTensor]) -> Iterator[str]:
    """Yield the header's entries for the tensors, by offset. Tensors that share bytes get only one entry.

    Safetensors files must not have holes, so a gap between two tensors (alignment) gets an entry, too.
    """
    end = HEADER
    kinds = dict[tuple[Any, ...], str]()
    for saved in sorted(tensors, key=_order):
        begin = saved.offset
        if begin < end:
            continue
        if begin > end:
            yield _entry(PADDING, end, f'"dtype":"U8","shape":[{begin - end}]', end, begin)
        end = begin + saved.length
        key = (saved.dtype, saved.shape, saved.stride is None, saved.length)
        if key not in kinds:
            kinds[key] = _kind(saved)
        yield _entry(saved.name, saved.id, kinds[key], begin, end)


def _order(saved: SavedTensor) -> tuple[int, bool, int]:
    """Return a key that sorts tensors by offset; at one offset, empty ones first, then the longest."""
    return saved.offset, saved.length > 0, -saved.length


def _entry(name: str, number: int, kind: str, begin: int, end: int) -> str:
    """Return one entry: the user's name with a number that makes it unique, and offsets from the end of the header."""
    if name:
        key = json.dumps(f"{name[:LONGEST_NAME]}@{number}")
    else:
        key = f'"@{number}"'
    return f'{key}:{{{kind},"data_offsets":[{begin - HEADER},{end - HEADER}]}}'


def _kind(saved: SavedTensor) -> str:
    """Return dtype and shape in the form of safetensors.

    If a tensor is not contiguous, they describe its whole storage as a one-dimensional tensor.
    """
    name = NAMES.get(saved.dtype, "U8")
    if saved.length % SIZES[name]:
        name = "U8"
    count = saved.length // SIZES[name]
    shape = (count,)
    if saved.stride is None and saved.dtype in NAMES and prod(saved.shape) == count:
        shape = saved.shape
    return f'"dtype":"{name}","shape":[{",".join(map(str, shape))}]'


def _header_bytes(saved: SavedTensor) -> int:
    """Return the most bytes that a tensor takes in the header, including the entry for the gap before it."""
    end = saved.offset + saved.length
    entry = _entry(saved.name, saved.id, _kind(saved), saved.offset, end)
    return len(entry) + LONGEST_PADDING_ENTRY


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
