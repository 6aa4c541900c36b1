"""Rows of saved tensors for values whose copies lie where the journal says: what they are stands with the values."""

from __future__ import annotations

from collections.abc import Container, Mapping
from math import prod
from typing import Any

from torchglass.events.schema import Meta, SavedTensor
from torchglass.events.tables import Tables
from torchglass.settle.kept import Kept
from torchglass.store.tensors import ITEM_SIZES


def saved_rows(
    tables: Tables, kept: Mapping[int, Kept], first: int = 0, present: Container[int] | None = None
) -> list[SavedTensor]:
    """In order of the values; numbered from ``first`` on. ``present``: only of these values."""
    rows: list[SavedTensor] = []
    known: dict[int, tuple[Any, int, int]] = {}
    """By the row of what is alike in many values."""
    for value, place in sorted(kept.items()):
        number = tables.value_meta[value]
        meta, item, size = known.get(number) or known.setdefault(number, _looked_at(tables.metas[number]))
        if not item or place.first % item or (present is not None and value not in present):
            continue
        rows.append(
            SavedTensor(
                first + len(rows), "", value, -1, place.shard, place.offset, place.length, meta.dtype, meta.shape,
                None if place.length == size and not place.first else meta.stride, place.first // item,
            )
        )  # fmt: skip
    return rows


def _looked_at(meta: Meta) -> tuple[Any, int, int]:
    """A description, the bytes of one element (0: not known), and those of all where they lie side by side, else -1."""
    item = ITEM_SIZES.get(meta.dtype)
    if item is None or meta.shape is None:
        return meta, 0, -1
    return meta, item, prod(meta.shape) * item if _is_contiguous(meta.shape, meta.stride) else -1


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
