"""Bundles whose journals are still there, with the tables that the living process made of them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import torchglass as tg
from tests import programs
from torchglass.events.tables import Tables
from torchglass.store.layout import DONE, find_journal, part_paths


def unsealed(path: Path, name: str, **options: Any) -> Tables:
    """Record a program into a bundle that stays a journal, though it has its end; what the process itself settled."""
    expected = programs.RAISES.get(name)
    outer = pytest.raises(expected) if expected else nullcontext()
    with outer, tg.record(to=path, name=name, **options) as trace:
        programs.load(name).main()
    for part in part_paths(path):
        (part / DONE).unlink()
    return trace._tables


def journal_of(path: Path) -> Path:
    """The one journal of a bundle."""
    (part,) = part_paths(path)
    found = find_journal(part)
    assert found is not None
    return found[0]
