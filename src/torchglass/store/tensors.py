"""Reading the contents of tensors by the rows of ``saved_tensors``: mapped from the shards, never beyond their ends."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Container, Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from torchglass.events.schema import Meta, SavedTensor
from torchglass.events.tables import Tables
from torchglass.events.types import is_contiguous
from torchglass.settle.values import Kept
from torchglass.store.layout import DONE, Unsound, read_object, reading, shard_name, shard_paths
from torchglass.store.shards import HEADER, NAMES, SIZES

ITEM_SIZES = {
    **{dtype: SIZES[name] for dtype, name in NAMES.items()},
    "complex32": 4, "complex64": 8, "complex128": 16, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes of one element; of other dtypes the length is not checked here."""


@dataclass(frozen=True)
class Content:
    """The bytes of a tensor's storage, and how the tensor lies in them (counted in elements)."""

    data: memoryview
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int


def check_extents(bundle: Path, part: Path, tensors: Iterable[SavedTensor]) -> None:
    """The bytes of every row are there, and the tensor lies within them."""
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
                raise Unsound("it is no plain file")
            if status.st_size < end:
                raise Unsound(f"it ends at byte {status.st_size:,}, and its tensors at {end:,}")


def are_there(part: Path, tensors: Iterable[SavedTensor]) -> list[SavedTensor]:
    """Those of the tensors whose bytes are there."""
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
    """A tensor lies within the bytes of its row."""
    if saved.offset < HEADER or saved.offset + saved.length >= 1 << 62:
        raise Unsound(f"the saved tensor {saved.id} begins where none can")
    item = ITEM_SIZES.get(saved.dtype)
    if item is None:
        return
    needed = 0
    if 0 not in saved.shape:
        steps = zip(saved.shape, strides_of(saved), strict=True)
        needed = saved.storage_offset + sum((size - 1) * step for size, step in steps) + 1
    if needed * item > saved.length:
        raise Unsound(f"the saved tensor {saved.id} is larger than its bytes")


def strides_of(saved: SavedTensor) -> tuple[int, ...]:
    """The strides of a tensor; side by side when the row says nothing."""
    if saved.stride is not None:
        return saved.stride
    return tuple(prod(saved.shape[at + 1 :]) for at in range(len(saved.shape)))


class Maps:
    """The shards of a bundle in memory, each mapped once; nothing is read until somebody looks at it."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle
        self._maps: dict[Path, memoryview] = {}

    def content(self, part: Path, saved: SavedTensor) -> Content:
        """The bytes of one row."""
        path = part / shard_name(saved.shard)
        end = saved.offset + saved.length
        whole = self._maps.get(path)
        if whole is None or len(whole) < end:  # not known yet, or it has grown since
            with reading(path, self._bundle):
                whole = self._maps[path] = _mapped(path, os.path.lexists(part / DONE))
                if len(whole) < end:
                    raise Unsound("it is shorter than its tensors")
        return content_in(whole, saved)


def content_in(whole: memoryview, saved: SavedTensor) -> Content:
    """The bytes of one row, of those that it lies among."""
    data = whole[saved.offset : saved.offset + saved.length]
    return Content(data, saved.dtype, saved.shape, strides_of(saved), saved.storage_offset)


def _mapped(path: Path, finished: bool) -> memoryview:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size < HEADER:
            raise Unsound("it is no shard")
        if finished:
            check_header(file, status.st_size)
        return memoryview(mmap.mmap(file, status.st_size, access=mmap.ACCESS_COPY))
    finally:
        os.close(file)


def check_header(file: int, size: int) -> None:
    """The header of a finished shard: of the one size we make, no key twice, entries side by side to the end."""
    if os.pread(file, 8, 0) != (HEADER - 8).to_bytes(8, "little"):
        raise Unsound("its header has another size than is made here")
    entries = read_object(os.pread(file, HEADER - 8, 8).rstrip(b" "))
    end = 0
    for name, entry in entries.items():
        try:
            first, last = entry["data_offsets"]
            count = prod(entry["shape"]) * SIZES[entry["dtype"]]
        except (TypeError, KeyError, ValueError):
            raise Unsound("its header is not that of a shard") from None
        if (type(first), type(last)) != (int, int) or first != end or last - first != count:
            raise Unsound(f"its header has a hole before {name[:40]!r}")
        end = last
    if HEADER + end != size:
        raise Unsound("its header does not speak of all of it")


# ---------------------------------------------------------------- kept

# Rows of saved tensors for values whose copies lie where the journal says: what they are stands with the values.


def saved_rows(
    tables: Tables, kept: Iterable[Kept], first: int = 0, present: Container[int] | None = None
) -> list[SavedTensor]:
    """In order of the values; numbered from ``first`` on. ``present``: only of these values."""
    rows: list[SavedTensor] = []
    known: dict[int, tuple[Meta, int, int]] = {}
    """By the row of what is alike in many values."""
    metas, number = tables.value_meta, first
    for value, shard, offset, length, begin in kept:
        meta, item, size = known.get(metas[value]) or known.setdefault(
            metas[value], _looked_at(tables.metas[metas[value]])
        )
        if not item or meta.shape is None or begin % item or (present is not None and value not in present):
            continue
        stride = None if length == size and not begin else meta.stride
        rows.append(
            SavedTensor(number, "", value, -1, shard, offset, length, meta.dtype, meta.shape, stride, begin // item)
        )
        number += 1
    return rows


def _looked_at(meta: Meta) -> tuple[Meta, int, int]:
    """A description, the bytes of one element (0: not known), and those of all where they lie side by side, else -1."""
    item = ITEM_SIZES.get(meta.dtype)
    if item is None or meta.shape is None:
        return meta, 0, -1
    return meta, item, prod(meta.shape) * item if is_contiguous(meta.shape, meta.stride) else -1
