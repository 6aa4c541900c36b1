"""Keeping a whole trace at once: the writer, used for a single batch."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchglass.errors import BundleError
from torchglass.events.tables import Tables
from torchglass.store.bundle import make_bundle
from torchglass.store.reader import SavedTensor
from torchglass.store.shards import Belongs
from torchglass.store.writer import Writer

Tensors = Iterable[tuple[SavedTensor, Any]]


def save(tables: Tables, path: Path | str, tensors: Tensors = ()) -> None:
    """Keep a trace as a bundle, with tensors (their rows and their bytes); all of it, or a ``BundleError``."""
    bundle = make_bundle(path)
    writer: Writer | None = None
    try:
        writer = Writer(bundle, bundle.new_part(), report=lambda _: None)
        for row, content in tensors:
            belongs = Belongs(row.value, row.event, row.stride, row.storage_offset)
            writer.shards.submit(row.name, content, row.dtype, row.shape, belongs)
        if not writer.finish(tables):
            raise BundleError(f"{writer.problem}; nothing was kept there")
    except BundleError:
        shutil.rmtree(bundle.path, ignore_errors=True)
        raise
    except BaseException:  # Ctrl-C, or tensors that cannot be read
        if writer is not None:
            writer.abandon()
        shutil.rmtree(bundle.path, ignore_errors=True)
        raise
