"""What a kill left is finished, nothing that was committed is lost, and a full disk stops no program."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torchglass.store.writer import Writer

from tests.store.samples import differences, growing, recorded, recorded_raw
from torchglass.errors import BundleError
from torchglass.events.tables import NONE, Tables
from torchglass.events.trace import Trace
from torchglass.store import load, open_writer, repair
from torchglass.store.bundle import make_bundle
from torchglass.store.layout import DONE, EVENTS, MANIFEST, SOURCES, part_paths, shard_paths
from torchglass.store.shards import HEADER

ROOT = Path(__file__).parents[2]


def left_by_a_kill(tmp_path: Path, tables: Tables, journal: str = "WAL") -> Path:
    """A bundle as a kill leaves it: a copy, made while it is being written."""
    bundle = make_bundle(tmp_path / "living")
    writer = Writer(bundle, bundle.new_part(), pytest.fail, journal)
    writer.shards.submit("x", bytes(range(100)), "uint8", (100,))
    writer.shards.drain()
    assert writer.write(tables)
    writer.shards.submit("lost", bytes(1000), "uint8", (1000,))
    writer.shards.drain()
    shutil.copytree(tmp_path / "living", tmp_path / "x")
    writer.finish(tables)
    return tmp_path / "x"


@pytest.mark.parametrize("journal", ["WAL", "TRUNCATE"])
def test_what_a_kill_left_is_finished(tmp_path: Path, journal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, raw = recorded_raw("attention", monkeypatch)
    (middle,) = growing(raw, 1)
    path = left_by_a_kill(tmp_path, middle, journal)
    (part,) = part_paths(path)
    before = load(path)
    assert not before.tables().complete
    assert "torchglass repair" in before.tables().notes[-1]
    assert not before.running
    (shard,) = shard_paths(part).values()
    assert shard.stat().st_size > HEADER + 1000

    assert repair(path) == [f"{part.name}: finished"]
    assert {each.name for each in part.iterdir()} == {EVENTS, DONE, shard.name}
    after = load(path)
    assert differences(before.tables(), after.tables(), ("notes",)) == []
    assert NONE in after.tables().end_ns
    assert "has no end" in after.tables().notes[-1]
    assert shard.stat().st_size == HEADER + 100
    assert list(load_file(shard)) == ["x@0"]
    assert bytes(after.open_tensor(after.saved_tensors()[0]).data) == bytes(range(100))
    with sqlite3.connect(part / EVENTS) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT complete, linked FROM trace").fetchall() == [(0, 1)]
        made = connection.execute("SELECT count(*) FROM tensor_values WHERE producer IS NOT NULL").fetchone()
    connection.close()
    assert made[0] > 0

    files = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    assert repair(path) == []
    assert {each: each.read_bytes() for each in path.rglob("*") if each.is_file()} == files


def test_a_whole_bundle_is_left_alone_and_a_living_one_too(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "x")
    with pytest.raises(BundleError, match="is still being written: wait"):
        repair(tmp_path / "x")
    writer.finish(recorded("mlp"))
    assert repair(tmp_path / "x") == []
    with pytest.raises(BundleError, match="is not there"):
        repair(tmp_path / "y")
    with pytest.raises(BundleError, match="is no bundle"):
        repair(tmp_path)


def test_what_is_lost_is_told(tmp_path: Path) -> None:
    """Sources and tensors whose files are gone, a manifest that is none."""
    tables = recorded("mlp")
    path = left_by_a_kill(tmp_path, tables)
    (part,) = part_paths(path)
    for source in (path / SOURCES).iterdir():
        source.unlink()
    (shard,) = shard_paths(part).values()
    os.truncate(shard, HEADER + 50)
    (path / MANIFEST).write_text("{")
    with pytest.raises(BundleError, match="manifest"):
        load(path)
    done = repair(path)
    assert done[0] == "manifest.json was made anew"
    assert any("1 saved tensors were lost" in each for each in done)
    assert any("mlp.py' was lost" in each for each in done)
    after = load(path).tables()
    assert differences(tables, after, ("complete", "notes", "sources")) == []
    assert after.sources == {}
    assert load_file(shard) == {}
    assert repair(path) == []


def test_a_damaged_database_is_cut_back_to_what_is_sound(tmp_path: Path) -> None:
    tables = recorded("expressions")
    path = left_by_a_kill(tmp_path, tables)
    repair(path)
    (part,) = part_paths(path)
    with sqlite3.connect(part / EVENTS) as connection:
        connection.execute("UPDATE event_rows SET stack = 99999 WHERE id = 20")
    connection.close()
    done = repair(path)
    assert "what could not be read was left out" in done[0]
    after = load(path).tables()
    assert len(after) == 20
    assert [after.event(n).key for n in range(20)] == [tables.event(n).key for n in range(20)]
    assert (part / (EVENTS + ".broken")).exists()
    assert repair(path) == []


def test_a_bundle_from_the_future_is_not_touched(tmp_path: Path) -> None:
    path = left_by_a_kill(tmp_path, recorded("mlp"))
    manifest = path / MANIFEST
    manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 9'))
    before = sorted(path.rglob("*"))
    with pytest.raises(BundleError, match="update torchglass"):
        repair(path)
    assert sorted(path.rglob("*")) == before


def test_kills_at_random_moments() -> None:
    """Each acknowledged row and tensor is there after load and after repair."""
    command = [sys.executable, str(ROOT / "benchmarks" / "kills.py"), "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 bundles lost something" in done.stdout
    acknowledged = int(done.stdout.split("): ")[1].split()[0].replace(",", ""))
    assert acknowledged > 100


def test_a_journal_left_by_a_kill_is_played_back_in_a_copy(tmp_path: Path) -> None:
    """Where memory cannot be shared, a kill leaves a journal that a reader must not touch."""
    tables = recorded("mlp")
    bundle = make_bundle(tmp_path / "living")
    writer = Writer(bundle, bundle.new_part(), pytest.fail, "TRUNCATE")
    writer.write(tables)
    other = writer._connection  # pyright: ignore[reportPrivateUsage]
    other.execute("PRAGMA cache_size = 1")
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE whats SET name = name || printf('%.*c', 9000, 'x')")
    shutil.copytree(tmp_path / "living", tmp_path / "x")
    other.execute("ROLLBACK")
    (part,) = part_paths(tmp_path / "x")
    assert (part / (EVENTS + "-journal")).stat().st_size > 4096
    before = {each: each.read_bytes() for each in part.iterdir()}
    assert differences(tables, load(tmp_path / "x").tables(), ("complete", "notes")) == []
    assert {each: each.read_bytes() for each in part.iterdir()} == before
    repair(tmp_path / "x")
    assert differences(tables, load(tmp_path / "x").tables(), ("complete", "notes")) == []


class TestFullDisk:
    """A limit on the size of files stands for the disk: the writes fail, the program does not."""

    PROGRAM = """
import random, resource, signal, sys
sys.path.insert(0, "benchmarks")
from kills import add_event, first_tables
from torchglass.store import open_writer
writer = open_writer(sys.argv[1])
tables = first_tables()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
kept = 0
for _ in range(200):
    for _ in range(50):
        add_event(tables, random.Random(1))
    if sys.argv[3] == "tensors":
        writer.shards.submit("x", bytes(50_000), "uint8", (50_000,))
        writer.shards.drain()
    if writer.write(tables):
        kept = len(tables)
print(kept, writer.finish(tables))
"""

    @pytest.mark.parametrize("what", ["events", "tensors"])
    def test_the_program_goes_on(self, tmp_path: Path, what: str) -> None:
        limit = 400_000 if what == "events" else HEADER + 500_000
        command = [sys.executable, "-c", self.PROGRAM, str(tmp_path / "x"), str(limit), what]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert done.returncode == 0, done.stderr
        kept, finished = done.stdout.split()
        assert finished == "False"
        assert 0 < int(kept) < 10_000
        assert done.stderr.count("RuntimeWarning") == 1
        assert "could not be written any more" in done.stderr
        tables = load(tmp_path / "x").tables()
        assert len(tables) == int(kept)
        assert not tables.complete
        repair(tmp_path / "x")
        assert len(load(tmp_path / "x").tables()) == int(kept)
        assert len(list(Trace(load(tmp_path / "x")).events())) == int(kept)

    def test_where_warnings_are_errors(self, tmp_path: Path) -> None:
        writer = open_writer(tmp_path / "x")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not writer.write(Tables(), offset=5)
        assert writer.problem is not None

    def test_saving_keeps_nothing(self, tmp_path: Path) -> None:
        code = (
            "import resource, signal, sys; from torchglass.store import load, save\n"
            "from torchglass.errors import BundleError\n"
            "tables = load(sys.argv[1]).tables(); signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
            "try: save(tables, sys.argv[2])\n"
            "except BundleError as error: print(error)\n"
        )
        writer = open_writer(tmp_path / "x")
        writer.finish(recorded("expressions"))
        command = [sys.executable, "-c", code, str(tmp_path / "x"), str(tmp_path / "y")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.stderr == ""
        assert "y" in done.stdout
        assert "nothing was kept" in done.stdout or "cannot be made" in done.stdout
        assert not (tmp_path / "y").exists()
