"""Keeping a whole trace at once, as a finished bundle."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchglass.errors import BundleError
from torchglass.events.schema import SavedTensor
from torchglass.events.tables import Tables
from torchglass.store.bundle import make_bundle
from torchglass.store.part import Part
from torchglass.store.shards import Given

Tensors = Iterable[tuple[SavedTensor, Any]]


def save(tables: Tables, path: Path | str, tensors: Tensors = ()) -> None:
    """Keep a trace as a bundle, with tensors (their rows and their bytes); all of it, or a ``BundleError``."""
    bundle = make_bundle(path)
    try:
        part = Part(bundle, bundle.new_part(), report=lambda _: None)
        there: dict[tuple[int, int, int, int], SavedTensor | None] = {}
        for row, content in tensors:
            given = Given(
                row.name, row.dtype, row.shape, memoryview(content).nbytes, row.value, row.event, row.stride,
                row.storage_offset,
            )  # fmt: skip
            place = (row.part, row.shard, row.offset, row.length)
            known = there.get(place) if row.length else None
            if known is None:
                there[place] = part.copy_tensor(given, content)
            else:
                part.share_tensor(given, known)
        part.finish(tables, lambda value: value)
        if part.problem is not None:
            raise BundleError(f"{part.problem}; nothing was kept there")
    except BaseException:  # also Ctrl-C, or tensors that cannot be read
        shutil.rmtree(bundle.path, ignore_errors=True)
        raise
