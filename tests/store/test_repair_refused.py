"""Repair tells what is damaged from what only cannot be read or written now, and then leaves everything as it is."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.samples import differences, recorded
from torchglass.errors import BundleError
from torchglass.events.tables import Tables
from torchglass.store import load, open_writer, repair, repairing
from torchglass.store.layout import DONE, EVENTS, part_paths


def left_by_a_kill(tmp_path: Path) -> tuple[Path, Path, Tables]:
    """A bundle, its part, and what was written to it."""
    tables = recorded("mlp")
    writer = open_writer(tmp_path / "living")
    assert writer.write(tables)
    shutil.copytree(tmp_path / "living", tmp_path / "x")
    writer.finish(tables)
    (part,) = part_paths(tmp_path / "x")
    return tmp_path / "x", part, tables


def test_a_locked_file_is_no_damaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairing, "WAIT_SECONDS", 0.05)
    path, part, tables = left_by_a_kill(tmp_path)
    with contextlib.closing(sqlite3.connect(part / EVENTS, isolation_level=None)) as stranger:
        stranger.execute("PRAGMA locking_mode = EXCLUSIVE")
        stranger.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BundleError, match=r"cannot be repaired now: database is locked; .* repair again"):
            repair(path)
        assert not (part / (EVENTS + ".broken")).exists()
        assert not list(part.glob("*.new*"))
    repair(path)
    assert differences(tables, load(path).tables(), ("complete", "notes")) == []


def test_a_lock_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading goes on beside somebody who writes; what is to be written then is refused in one line."""
    monkeypatch.setattr(repairing, "WAIT_SECONDS", 0.05)
    path, part, _ = left_by_a_kill(tmp_path)
    with contextlib.closing(sqlite3.connect(part / EVENTS, isolation_level=None)) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(BundleError, match="cannot be repaired now: database is locked"):
            repair(path)
    assert repair(path) == [f"{part.name}: finished"]


def test_a_damaged_file_that_is_locked_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock met while rows are taken over must not look like their end."""
    path, part, _ = left_by_a_kill(tmp_path)
    repair(path)
    with contextlib.closing(sqlite3.connect(part / EVENTS)) as connection, connection:
        connection.execute("UPDATE event_rows SET stack = 99999 WHERE id = 2")
    before = (part / EVENTS).read_bytes()

    def locked(*_: object) -> str:
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error

    monkeypatch.setattr("torchglass.store.salvage._cell", locked)
    with pytest.raises(BundleError, match="cannot be repaired now: database is locked"):
        repair(path)
    assert (part / EVENTS).read_bytes() == before
    assert [each.name for each in part.iterdir()] == [EVENTS]
    monkeypatch.undo()
    assert "what could not be read was left out" in repair(path)[0]
    assert len(load(path).tables()) == 2


def test_a_digest_kept_as_bytes(tmp_path: Path) -> None:
    path, part, tables = left_by_a_kill(tmp_path)
    with contextlib.closing(sqlite3.connect(part / EVENTS)) as connection, connection:
        connection.execute("UPDATE sources SET sha256 = CAST(sha256 AS BLOB), file = CAST(file AS BLOB)")
    assert repair(path) == [f"{part.name}: finished"]
    assert load(path).tables().sources == tables.sources


FULL_DISK = """
import resource, signal, sys
from torchglass.errors import BundleError
from torchglass.store import open_writer, repair
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    {"repair": repair, "open": open_writer}[sys.argv[1]](sys.argv[2])
except BundleError as error:
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
    path, part, tables = left_by_a_kill(tmp_path)
    said = on_a_full_disk("repair", path, 20_000)
    assert str(part) in said
    assert "cannot be repaired now" in said
    assert "torchglass repair" not in said
    assert not (part / DONE).exists()
    repair(path)
    assert differences(tables, load(path).tables(), ("complete", "notes")) == []


@pytest.mark.parametrize("limit", [0, 20_000])
def test_a_bundle_that_cannot_be_made_leaves_nothing(tmp_path: Path, limit: int) -> None:
    """With no room for the manifest, and with none for the database."""
    said = on_a_full_disk("open", tmp_path / "x", limit)
    assert "cannot be made" in said
    assert list(tmp_path.iterdir()) == []
