"""Rows of saved tensors for values whose copies lie where the journal says: what they are stands with the values."""

from __future__ import annotations

from collections.abc import Container, Mapping
from math import prod

from torchglass.events.schema import SavedTensor
from torchglass.events.tables import Tables
from torchglass.settle.kept import Kept
from torchglass.store.tensors import ITEM_SIZES


def saved_rows(
    tables: Tables, kept: Mapping[int, Kept], first: int = 0, present: Container[int] | None = None
) -> list[SavedTensor]:
    """In order of the values; numbered from ``first`` on. ``present``: only of these values."""
    rows: list[SavedTensor] = []
    for value, place in sorted(kept.items()):
        meta = tables.metas[tables.value_meta[value]]
        item = ITEM_SIZES.get(meta.dtype)
        if item is None or meta.shape is None or place.first % item or (present is not None and value not in present):
            continue
        stride, before = meta.stride, place.first // item
        is_plain = not before and place.length == prod(meta.shape) * item and _is_contiguous(meta.shape, stride)
        rows.append(
            SavedTensor(
                first + len(rows), "", value, -1, place.shard, place.offset, place.length, meta.dtype, meta.shape,
                None if is_plain else stride, before,
            )
        )  # fmt: skip
    return rows


def _is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...] | None) -> bool:
    """Whether elements lie side by side in their order; of an axis of one the stride says nothing."""
    if stride is None:
        return True
    if len(shape) != len(stride):
        return False
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True
