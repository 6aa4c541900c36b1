"""Repair tells what is damaged from what only cannot be written now, and then leaves everything as it is."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.samples import differences, left_by_a_kill, recorded
from torchglass.store import load, repair, save
from torchglass.store.layout import DONE, EVENTS, part_paths


def test_a_digest_kept_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "tables"
    save(recorded("mlp"), path)
    (part,) = part_paths(path)
    sources = load(path).tables().sources
    with contextlib.closing(sqlite3.connect(part / EVENTS)) as connection, connection:
        connection.execute("UPDATE sources SET sha256 = CAST(sha256 AS BLOB), file = CAST(file AS BLOB)")
    (part / DONE).unlink()
    assert repair(path) == [f"{part.name}: finished"]
    assert load(path).tables().sources == sources != {}


FULL_DISK = """
import resource, signal, sys
import torchglass as tg
from torchglass.store import open_part, repair
def record(path):
    with tg.record(to=path):
        print("the block has begun")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    {"repair": repair, "record": record}[sys.argv[1]](sys.argv[2])
except tg.BundleError as error:
    print(error)
"""
"""A limit on the size of files stands for the disk."""


def on_a_full_disk(what: str, path: Path, limit: int) -> str:
    command = [sys.executable, "-c", FULL_DISK, what, str(path), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return done.stdout


def test_a_full_disk(tmp_path: Path) -> None:
    path, tables = left_by_a_kill(tmp_path)
    (part,) = part_paths(path)
    said = on_a_full_disk("repair", path, 20_000)
    assert str(part) in said
    assert "cannot be repaired now" in said
    assert "torchglass repair" not in said
    assert not (part / DONE).exists()
    assert differences(tables, load(path).tables(), ("notes", "sources")) == []
    repair(path)
    assert differences(tables, load(path).tables(), ("notes", "sources")) == []


@pytest.mark.parametrize("limit", [0, 2000, 20_000])
def test_a_bundle_that_cannot_be_made_leaves_nothing(tmp_path: Path, limit: int) -> None:
    """With no room for the manifest, for the first page of the journal, for its first chunks."""
    said = on_a_full_disk("record", tmp_path / "x", limit)
    assert "cannot be made: File too large; choose another path" in said
    assert list(tmp_path.iterdir()) == []
