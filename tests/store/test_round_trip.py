"""What is kept is what is read: every table, of real programs and of whatever hypothesis can think of."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import torchglass as tg
from tests import programs
from tests.store.samples import differences, recorded, tables
from tests.zoo import FAMILIES
from torchglass._trace import Trace
from torchglass.events.tables import Tables
from torchglass.store import load, open_part, save
from torchglass.store.layout import EVENTS, part_paths

ROOT = Path(__file__).parents[2]
SHORT = [name for name in programs.names() if name not in programs.SLOW]


@pytest.mark.parametrize("name", SHORT)
def test_a_program(name: str, tmp_path: Path) -> None:
    before = recorded(name)
    save(before, tmp_path / "run.trace")
    after = load(tmp_path / "run.trace")
    assert differences(before, after.tables()) == []
    assert list(Trace(after).events()) == [before.event(number) for number in range(len(before))]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_anything(before: Tables) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        save(before, folder / "x")
        assert differences(before, load(folder / "x").tables()) == []
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_a_transformer(name: str, tmp_path: Path) -> None:
    model, inputs = FAMILIES[name]()
    before = tg.trace(model, **inputs)
    save(before._tables, tmp_path / "run.trace")
    after = Trace(load(tmp_path / "run.trace"))
    assert differences(before._tables, after._tables) == []
    assert tg.render(after) == tg.render(before)
    assert str(after) == re.sub(r"\n  engine: .*", "", str(before))  # which a bundle does not tell


def test_only_keeps_what_was_chosen(tmp_path: Path) -> None:
    with tg.record(only=tg.select(function="relu")) as trace:
        programs.load("mlp").main()
    save(trace._tables, tmp_path / "x")
    assert differences(trace._tables, load(tmp_path / "x").tables()) == []
    assert [e.name for e in Trace(load(tmp_path / "x")).events()] == [e.name for e in trace.events()] != []


def test_what_is_written_is_for_its_owner_only_and_one_file(tmp_path: Path) -> None:
    save(recorded("attention"), tmp_path / "run.trace")
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "run.trace", *(tmp_path).rglob("*")]}
    assert {mode for path, mode in found.items() if path.is_dir() and path != tmp_path} == {0o700}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}
    (part,) = part_paths(tmp_path / "run.trace")
    assert {path.name for path in part.iterdir()} == {"events.sqlite", "done"}
    with sqlite3.connect(part / EVENTS) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA journal_mode").fetchall() == [("delete",)]


def test_without_torch(tmp_path: Path) -> None:
    before = tg.trace(*FAMILIES["gpt2"]()[:1], **FAMILIES["gpt2"]()[1])
    save(before._tables, tmp_path / "run.trace")
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['numpy'] = None\n"
        "from torchglass.store import load, save\n"
        "from torchglass._trace import Trace\n"
        "trace = Trace(load(sys.argv[1])); save(trace._tables, sys.argv[1] + '2')\n"
        "print(len(trace), trace.event(3).name, trace.sql('SELECT count(*) FROM events')[0][0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run.trace")], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == f"{len(before)} {before.event(3).name} {len(before)}\n"
    assert differences(before._tables, load(tmp_path / "run.trace2").tables()) == []


def test_a_forked_child_finishes_nothing(tmp_path: Path) -> None:
    """Neither the part nor the lock by which others know that it is being written."""
    before = recorded("mlp")
    part = open_part(tmp_path / "x")
    child = os.fork()
    if not child:
        part.finish_tables(before)
        part.forget()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert load(tmp_path / "x").running
    assert len(load(tmp_path / "x").tables()) == 0
    part.finish_tables(before)
    assert part.problem is None
    assert differences(before, load(tmp_path / "x").tables()) == []
    assert not load(tmp_path / "x").running


def test_a_reader_at_the_end_does_not_lose_it(tmp_path: Path) -> None:
    """Somebody has the bundle open while it is finished."""
    with tg.record(to=tmp_path / "x") as trace:
        programs.load("mlp").main()
        loaded = load(tmp_path / "x")
        assert len(loaded.tables()) > 0
    assert trace.notes == ()
    assert differences(trace._tables, loaded.tables()) == []


def test_the_journal_is_what_is_left(tmp_path: Path) -> None:
    with tg.record(to=tmp_path / "x"):
        programs.load("mlp").main()
        (part,) = part_paths(tmp_path / "x")
        assert {path.name for path in part.iterdir()} == {"journal-0"}
        assert stat.S_IMODE((part / "journal-0").stat().st_mode) == 0o600
    assert {path.name for path in part.iterdir()} == {"journal-0", "done"}
    assert stat.S_IMODE((part / "journal-0").stat().st_mode) == 0o600


def test_a_selection_that_fails_costs_the_tables_alone(tmp_path: Path) -> None:
    """The program goes on; the bundle keeps everything as a journal, and the trace still says what is wrong."""

    def where(event: tg.Event) -> bool:
        raise ZeroDivisionError("of the user's")

    with tg.record(to=tmp_path / "x", only=tg.select(where=where)) as trace:
        programs.load("mlp").main()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="of the user's"):
            list(trace.events())
    stored = load(tmp_path / "x").tables()
    assert stored.complete
    assert differences(recorded("mlp"), stored)[:1] != ["callee"]
    assert len(stored) == len(recorded("mlp"))
    assert not load(tmp_path / "x").running
