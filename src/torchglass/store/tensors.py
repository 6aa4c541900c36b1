"""Reads the contents of saved tensors from the shards, by the rows of ``saved_tensors``.

The shards are mapped into memory. The rows may be damaged, so each is checked before its bytes are used.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Container, Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

from torchglass.events.schema import NONE, Meta, SavedTensor
from torchglass.events.tables import Tables
from torchglass.events.types import is_contiguous
from torchglass.settle.copies import StoredCopy
from torchglass.store.layout import DONE, Unsound, read_object, reading, shard_name, shard_paths
from torchglass.store.shards import HEADER, NAMES, SIZES

ITEM_SIZES = {
    **{dtype: SIZES[name] for dtype, name in NAMES.items()},
    "complex32": 4, "complex64": 8, "complex128": 16, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""The bytes of one element of each dtype. For other dtypes, the length of a tensor is not checked here."""

MOST_DIMENSIONS = 4096
"""The most dimensions of a tensor. Torch and numpy can do hardly anything with more than 64."""
MOST_BYTES = 1 << 62
"""The bytes of a tensor must be fewer than this, because torch counts them in 64 bits."""


@dataclass(frozen=True)
class Content:
    """The bytes of a tensor's storage, and the tensor's shape, stride and offset in it (counted in elements)."""

    data: memoryview
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int


def check_extents(bundle: Path, part: Path, tensors: Iterable[SavedTensor]) -> None:
    """Check for every row that its bytes exist, and that the tensor lies within them."""
    ends: dict[int, int] = {}
    for saved in tensors:
        with reading(part / shard_name(saved.shard), bundle):
            check_view(saved)
        ends[saved.shard] = max(ends.get(saved.shard, 0), saved.offset + saved.length)
    for number, end in ends.items():
        path = part / shard_name(number)
        with reading(path, bundle):
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                raise Unsound("it is not a regular file")
            if status.st_size < end:
                raise Unsound(f"it ends at byte {status.st_size:,}, and its tensors at {end:,}")


def existing_tensors(part: Path, tensors: Iterable[SavedTensor]) -> list[SavedTensor]:
    """Return the rows whose bytes exist and whose tensor lies within them."""
    ends = {number: path.stat().st_size for number, path in shard_paths(part).items()}
    found: list[SavedTensor] = []
    for saved in tensors:
        try:
            check_view(saved)
        except Unsound:
            continue
        if saved.offset + saved.length <= ends.get(saved.shard, 0):
            found.append(saved)
    return found


def check_view(saved: SavedTensor) -> None:
    """Check that a tensor lies within the bytes of its row."""
    if saved.offset < HEADER or saved.offset + saved.length >= MOST_BYTES:
        raise Unsound(f"the saved tensor {saved.id} begins at an impossible place")
    if len(saved.shape) > MOST_DIMENSIONS:
        raise Unsound(f"the saved tensor {saved.id} has {len(saved.shape):,} dimensions")
    item_size = ITEM_SIZES.get(saved.dtype)
    if prod(max(size, 1) for size in saved.shape) * (item_size or 1) >= MOST_BYTES:
        raise Unsound(f"the saved tensor {saved.id} has a dimension of an impossible size")
    if item_size is None:
        return
    needed = 0
    if 0 not in saved.shape:
        last = saved.storage_offset
        for size, stride in zip(saved.shape, strides_of(saved), strict=True):
            last += (size - 1) * stride
        needed = last + 1
    if needed * item_size > saved.length:
        raise Unsound(f"the saved tensor {saved.id} is larger than its bytes")


def strides_of(saved: SavedTensor) -> tuple[int, ...]:
    """Return the strides of a tensor. If its row has none, the tensor is contiguous."""
    if saved.stride is not None:
        return saved.stride
    strides: list[int] = []
    step = 1
    for size in reversed(saved.shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class Maps:
    """Maps the shards of a bundle into memory, each when it is first used."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle
        self._maps: dict[Path, memoryview] = {}

    def content(self, part: Path, saved: SavedTensor) -> Content:
        """Return the tensor of one row, with its bytes."""
        path = part / shard_name(saved.shard)
        end = saved.offset + saved.length
        shard = self._maps.get(path)
        if shard is None or len(shard) < end:  # not mapped yet, or the shard has grown since
            with reading(path, self._bundle):
                shard = _mapped(path, is_finished=os.path.lexists(part / DONE))
                self._maps[path] = shard
                if len(shard) < end:
                    raise Unsound("it is shorter than its tensors")
        return content_in(shard, saved)


def content_in(shard: memoryview, saved: SavedTensor) -> Content:
    """Return the tensor of one row, given all bytes of its shard."""
    data = shard[saved.offset : saved.offset + saved.length]
    return Content(data, saved.dtype, saved.shape, strides_of(saved), saved.storage_offset)


def _mapped(path: Path, is_finished: bool) -> memoryview:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size < HEADER:
            raise Unsound("it is not a shard")
        if is_finished:
            check_header(file, status.st_size)
        return memoryview(mmap.mmap(file, status.st_size, access=mmap.ACCESS_COPY))
    finally:
        os.close(file)


def check_header(file: int, size: int) -> None:
    """Check the header of a finished shard: its fixed size, no duplicate keys, entries without gaps to the end."""
    if os.pread(file, 8, 0) != (HEADER - 8).to_bytes(8, "little"):
        raise Unsound("its header has the wrong size")
    entries = read_object(os.pread(file, HEADER - 8, 8).rstrip(b" "))
    end = 0
    for name, entry in entries.items():
        try:
            first, last = entry["data_offsets"]
            count = prod(entry["shape"]) * SIZES[entry["dtype"]]
        except (TypeError, KeyError, ValueError):
            raise Unsound("its header is not one of a shard") from None
        if (type(first), type(last)) != (int, int) or first != end or last - first != count:
            raise Unsound(f"its header has a hole before {name[:40]!r}")
        end = last
    if HEADER + end != size:
        raise Unsound("its header does not describe all of it")


# ---------------------------------------------------------------- kept

# Makes the rows of saved tensors from the journal. The journal says where the copy of each value is. Dtype and shape
# come from the values.


def saved_rows(
    tables: Tables,
    kept: Iterable[StoredCopy],
    first: int = 0,
    present: Container[int] | None = None,
) -> list[SavedTensor]:
    """Return a row for each copy, in the same order, numbered from ``first``.

    If ``present`` is given, return only the rows of these values.
    """
    rows: list[SavedTensor] = []
    layouts: dict[int, _MemoryLayout | None] = {}
    """Keyed by the row of the metadata, which many values share."""
    for value, shard, offset, length, begin in kept:
        if present is not None and value not in present:
            continue
        meta = tables.value_meta[value]
        if meta not in layouts:
            layouts[meta] = _memory_layout(tables.metas[meta])
        layout = layouts[meta]
        if layout is None or begin % layout.item_size:
            continue
        stride = layout.stride
        if length == layout.contiguous_size and not begin:
            stride = None
        row = SavedTensor(
            id=first + len(rows),
            name="",
            value=value,
            event=NONE,
            shard=shard,
            offset=offset,
            length=length,
            dtype=layout.dtype,
            shape=layout.shape,
            stride=stride,
            storage_offset=begin // layout.item_size,
        )
        rows.append(row)
    return rows


class _MemoryLayout(NamedTuple):
    """How tensors with the same metadata are stored."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    item_size: int
    """The bytes of one element."""
    contiguous_size: int
    """The bytes of the whole tensor; -1 if it is not contiguous."""


def _memory_layout(meta: Meta) -> _MemoryLayout | None:
    """Return the layout of tensors with some metadata; None if it is not known."""
    item_size = ITEM_SIZES.get(meta.dtype)
    if item_size is None or meta.shape is None or len(meta.shape) > MOST_DIMENSIONS:
        return None
    contiguous_size = -1
    if is_contiguous(meta.shape, meta.stride):
        contiguous_size = prod(meta.shape) * item_size
    return _MemoryLayout(meta.dtype, meta.shape, meta.stride, item_size, contiguous_size)
