"""Saves a trace that is in memory, all at once, as a finished bundle."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchglass.errors import BundleError
from torchglass.events.schema import SavedTensor
from torchglass.events.tables import Tables
from torchglass.store.bundle import make_bundle
from torchglass.store.part import Part

Tensors = Iterable[tuple[SavedTensor, Any]]


def save(tables: Tables, path: Path | str, tensors: Tensors = ()) -> None:
    """Save a trace as a bundle, with the rows and bytes of tensors.

    If anything cannot be saved, remove the bundle and raise the error.
    """
    bundle = make_bundle(path)
    try:
        part = Part(bundle, bundle.new_part(), report=lambda _: None)
        copies: dict[tuple[int, int, int, int], SavedTensor | None] = {}
        """By the place of the bytes where they were saved before, the row of their copy."""
        for row, content in tensors:
            place = (row.part, row.shard, row.offset, row.length)
            copy = None
            if row.length:
                copy = copies.get(place)
            row = replace(row, length=memoryview(content).nbytes, part=0)
            if copy is None:
                copies[place] = part.copy_tensor(row, content)
            else:
                part.shards.share(row, copy)
        part.finish_tables(tables)
        if part.problem is not None:
            raise BundleError(f"{part.problem}; nothing was kept there")
    except BaseException:  # includes Ctrl-C, and errors of tensors that cannot be read
        shutil.rmtree(bundle.path, ignore_errors=True)
        raise
