"""Whatever is in the files: one BundleError that names the file and the cure, or a trace that can be looked at."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import torchglass as tg
from tests.store.samples import differences, left_by_a_kill
from torchglass._trace import Trace
from torchglass.errors import BundleError
from torchglass.events.schema import FORMAT
from torchglass.events.tables import Tables
from torchglass.store import load, repair
from torchglass.store.layout import DONE, EVENTS, JOURNAL_FILE, part_paths
from torchglass.store.part import seal

MUTATIONS = int(os.environ.get("TORCHGLASS_MUTATIONS", "40"))
"""Of each file, in each way; set it higher to look longer."""
BEFORE: list[Tables] = []
NAMES = ("sealed", "unsealed", "killed", "tables", "open tables")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same trace left by a kill, finished, finished but not sealed, and as tables, sealed or not."""
    folder = tmp_path_factory.mktemp("bundles")
    left_by_a_kill(folder)
    shutil.copytree(folder / "killed", folder / "sealed")
    repair(folder / "sealed")
    BEFORE[:] = [load(folder / "sealed").tables()]
    tg.save(tg.load(folder / "sealed"), folder / "tables")
    shutil.copytree(folder / "tables", folder / "open tables")
    (part,) = part_paths(folder / "open tables")
    (part / DONE).unlink()
    shutil.copytree(folder / "sealed", folder / "unsealed")
    (part,) = part_paths(folder / "unsealed")
    (part / DONE).unlink()
    return {name: folder / name for name in NAMES}


def looked_at(path: Path) -> Trace | None:
    """The trace, looked at from all sides; None when it is refused as it should be."""
    try:
        bundle = load(path)
        for row in bundle.saved_tensors():
            bundle.open_tensor(row)
    except BundleError as caught:
        refusal = str(caught)
    else:
        refusal = ""
    if refusal:
        assert str(path) in refusal
        assert "\n" not in refusal
        assert any(
            cure in refusal for cure in ("torchglass repair", "not a bundle", "update torchglass", "such a machine")
        )
        return None
    trace = Trace(bundle)
    for event in trace.events():
        assert event.key
    list(trace.values())
    trace.modules()
    trace.failure()
    trace.columns("events")
    tg.render(trace)
    str(trace)
    return trace


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, or some cut out, or the end cut off."""
    kind = chance.randrange(5)
    if kind == 0:
        return content[: chance.randrange(len(content))]
    if kind == 1:
        start = chance.randrange(len(content))
        return content[:start] + content[start + chance.randrange(1, 5000) :]
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 8, 40])):
        if kind == 2:  # the first page says where everything is
            at = chance.randrange(min(len(content), 4096))
        else:
            at = chance.randrange(len(content))
        changed[at] = chance.choice([0, 1, 127, 128, 255, changed[at] ^ (1 << chance.randrange(8))])
    return bytes(changed)


def files_of(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file())


@pytest.mark.parametrize("name", NAMES)
def test_mutated(bundles: dict[str, Path], name: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    shutil.copytree(bundles[name], path)
    chance = random.Random(name)
    refused = 0
    for file in files_of(path):
        content = file.read_bytes()
        for _ in range(MUTATIONS):
            file.write_bytes(mutated(content, chance))
            trace = looked_at(path)
            refused += trace is None
            if trace is not None and name in ("sealed", "tables") and file.suffix != ".safetensors":
                assert differences(BEFORE[0], trace._tables) == []
        file.write_bytes(content)
    # Of a journal without a seal damage costs what is damaged; a manifest is refused.
    assert refused > (MUTATIONS // 2 if name in ("unsealed", "killed") else MUTATIONS)
    assert looked_at(path) is not None


@pytest.mark.parametrize("name", NAMES)
def test_mutated_then_repaired(bundles: dict[str, Path], name: str, tmp_path: Path) -> None:
    """Repair either says that nothing can be kept, or leaves a bundle that is read without a word."""
    chance = random.Random(name + "repair")
    kept = 0
    for _ in range(MUTATIONS):
        path = tmp_path / "x"
        shutil.copytree(bundles[name], path)
        file = chance.choice(files_of(path))
        file.write_bytes(mutated(file.read_bytes(), chance))
        try:
            repair(path)
        except BundleError:
            pass
        else:
            kept += 1
            trace = looked_at(path)
            assert trace is not None
            assert repair(path) == []
        shutil.rmtree(path)
    assert kept > MUTATIONS // 3


Change = Callable[[sqlite3.Connection], object]
STATEMENTS = {
    "a number beyond": "UPDATE event_rows SET what = 1000 WHERE id = 3",
    "a negative number": "UPDATE event_rows SET what = -1 WHERE id = 3",
    "a parent that comes later": "UPDATE event_rows SET parent = id WHERE id = 3",
    "text for a number": "UPDATE event_rows SET stack = 'x' WHERE id = 3",
    "nothing for a number": "UPDATE value_rows SET meta = 'none'",
    "a fraction": "UPDATE event_rows SET module = 0.5",
    "a time beyond time": "UPDATE event_rows SET start_ns = 9223372036854775807, duration_ns = 9223372036854775807",
    "a gap": "DELETE FROM event_rows WHERE id = 3",
    "another gap": "DELETE FROM whats WHERE id = 0",
    "values that are no list": "UPDATE event_rows SET io = '{}' WHERE id = 3",
    "values that are many lists": "UPDATE event_rows SET io = io || ',[]' WHERE id = 3",
    "values nested deeply": f"UPDATE event_rows SET io = '{'[' * 50_000}' WHERE id = 3",
    "values that are not there": "UPDATE event_rows SET io = replace(io, '[', '[99999,') WHERE id = 3",
    "a number with many digits": f"UPDATE event_rows SET io = '[{'9' * 9000}]' WHERE id = 3",
    "a stack in a circle": "UPDATE stacks SET base = id",
    "a kind that is none": "UPDATE whats SET kind = 'x'",
    "a place that is none": "UPDATE sites SET line = -99",
    "a place of nobody": "UPDATE sites SET origin = 'moon'",
    "sizes that are none": "UPDATE metas SET shape = '[true]'",
    "sizes that are text": "UPDATE metas SET shape = '\"x\"'",
    "a form without its end": "DELETE FROM form_parts WHERE role IS NULL",
    "a sketch that is none": "INSERT OR REPLACE INTO sketches VALUES (0, x'00')",
    "a sketch of nothing": "INSERT OR REPLACE INTO sketches VALUES (99999, zeroblob(208))",
    "two rows for one trace": "INSERT INTO trace SELECT * FROM trace",
    "no row for the trace": "DELETE FROM trace",
    "another format": f"UPDATE trace SET format = {FORMAT + 1}",
    "a newer format": f"PRAGMA user_version = {FORMAT + 1}",
    "a source elsewhere": "UPDATE sources SET sha256 = '../../../etc/passwd'",
    "a tensor elsewhere": "UPDATE saved_tensors SET shard = 12345678",
    "a tensor before the beginning": "UPDATE saved_tensors SET offset = -5",
    "a tensor of no value": "UPDATE saved_tensors SET value = 100000",
    "a table that is a view": "ALTER TABLE texts RENAME TO t; CREATE VIEW texts AS WITH RECURSIVE f(id, text) AS "
    "(SELECT 0, 'x' UNION ALL SELECT id + 1, text FROM f) SELECT * FROM f",
    "a column that is computed": "ALTER TABLE texts RENAME TO t; CREATE TABLE texts (id INTEGER PRIMARY KEY, "
    "text TEXT NOT NULL AS (zeroblob(900000000)))",
    "a table that is missing": "DROP TABLE metas",
    "a very long text": "UPDATE texts SET text = printf('%.*c', 80000000, 'x') WHERE id = 0",
}


BIG = 1 << 40
ELSEWHERE = {
    "in the header": "UPDATE saved_tensors SET offset = 0",
    "beyond the end": "UPDATE saved_tensors SET length = 1000000, shape = '[1000000]'",
    "beyond its bytes": "UPDATE saved_tensors SET shape = '[101]'",
    "with strides beyond its bytes": "UPDATE saved_tensors SET stride = '[2]'",
    "beside a size beyond all counting": "UPDATE saved_tensors SET shape = '[0, 4611686018427387904, 8]'",
    "spread beyond all counting": f"UPDATE saved_tensors SET shape = '[{BIG}, {BIG}]', stride = '[0, 0]'",
    "with very many dimensions": f"UPDATE saved_tensors SET shape = '[{'1,' * 30_000}100]'",
}


@pytest.mark.parametrize("statement", ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_a_tensor_where_none_can_be(bundles: dict[str, Path], tmp_path: Path, statement: str) -> None:
    """Lost, and that is said; where a seal says that it is there, the bundle is refused."""
    path = tmp_path / "x"
    shutil.copytree(bundles["open tables"], path)
    (part,) = part_paths(path)
    with sqlite3.connect(part / EVENTS) as connection:
        connection.executescript(statement)
    connection.close()
    trace = looked_at(path)
    assert trace is not None
    assert load(path).saved_tensors() == ()
    assert any("1 saved tensors were lost" in note for note in trace.notes)
    seal(part)
    assert looked_at(path) is None
    assert any("1 saved tensors were lost" in each for each in repair(path))
    assert repair(path) == []


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS.keys())
def test_a_database_made_to_mislead(bundles: dict[str, Path], tmp_path: Path, statement: str) -> None:
    path = tmp_path / "x"
    shutil.copytree(bundles["open tables"], path)
    (part,) = part_paths(path)
    with sqlite3.connect(part / EVENTS) as connection:
        before = connection.total_changes
        connection.executescript(statement)
        assert connection.total_changes > before or statement.startswith(("ALTER", "DROP", "PRAGMA"))
    connection.close()
    assert looked_at(path) is None


def test_what_a_user_adds_is_not_minded(bundles: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "x"
    shutil.copytree(bundles["open tables"], path)
    (part,) = part_paths(path)
    with sqlite3.connect(part / EVENTS) as connection:
        connection.executescript(
            "CREATE INDEX mine ON event_rows (what); CREATE VIEW seen AS SELECT * FROM events; CREATE TABLE t (a);"
            "CREATE TRIGGER danger AFTER INSERT ON notes BEGIN DELETE FROM event_rows; END; ANALYZE"
        )
    connection.close()
    trace = looked_at(path)
    assert trace is not None
    assert differences(BEFORE[0], trace._tables, ("notes",)) == []


def test_the_seal_shows_that_a_file_was_changed(bundles: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "x"
    shutil.copytree(bundles["tables"], path)
    (part,) = part_paths(path)
    with sqlite3.connect(part / EVENTS) as connection:
        connection.execute("UPDATE whats SET name = 'another'")
    connection.close()
    with pytest.raises(
        BundleError, match=r"events.sqlite cannot be read: its content is not what was written; .*repair"
    ):
        load(path)
    assert repair(path) == [f"{part.name}: finished"]
    assert {event.name for event in Trace(load(path)).events()} == {"another"}


def test_reading_leaves_no_trace(bundles: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "x"
    shutil.copytree(bundles["sealed"], path)
    before = {each: each.read_bytes() for each in files_of(path)}
    looked_at(path)
    assert {each: each.read_bytes() for each in files_of(path)} == before


def test_a_journal_that_would_fill_the_memory(bundles: dict[str, Path], tmp_path: Path) -> None:
    """A file may be far longer than the room it takes on the disk."""
    path = tmp_path / "x"
    shutil.copytree(bundles["killed"], path)
    (part,) = part_paths(path)
    for length, words in ((JOURNAL_FILE + 1, "at most .* are allowed"), (JOURNAL_FILE, "are holes")):
        os.truncate(part / "journal-0", length)
        with pytest.raises(BundleError, match=rf"journal-0 cannot be read: .*{words}"):
            load(path)


def test_names_in_a_part_are_not_followed(bundles: dict[str, Path], tmp_path: Path) -> None:
    """Neither links nor names that only look like ours."""
    path = tmp_path / "x"
    shutil.copytree(bundles["killed"], path)
    (part,) = part_paths(path)
    (part / "journal-0").rename(tmp_path / "elsewhere")
    (part / "journal-0").symlink_to(tmp_path / "elsewhere")
    for odd in ("journal-", "journal-x", "journal-0 ", "journal-1234567", "journal-٣"):
        (part / odd).write_bytes((tmp_path / "elsewhere").read_bytes())
    assert len(load(path).tables()) == 0


def test_left_by_a_kill_in_a_folder_that_is_read_only(bundles: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "x"
    shutil.copytree(bundles["killed"], path)
    (part,) = part_paths(path)
    part.chmod(0o500)
    try:
        trace = looked_at(path)
        assert trace is not None
        assert differences(BEFORE[0], trace._tables, ("notes",)) == []
    finally:
        part.chmod(0o700)
