"""What is kept is what is read: every table, of real programs and of whatever hypothesis can think of."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from torchglass.store.writer import Closing, Writer, open_writer

import torchglass as tg
from tests import programs
from tests.store.samples import differences, growing, recorded, recorded_raw, tables
from tests.zoo import FAMILIES
from torchglass.events.tables import NONE, Tables
from torchglass.events.trace import Trace
from torchglass.store import load, save
from torchglass.store.bundle import make_bundle
from torchglass.store.layout import EVENTS, part_paths
from torchglass.store.part import new_database

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
    save(before.tables, tmp_path / "run.trace")
    after = Trace(load(tmp_path / "run.trace"))
    assert differences(before.tables, after.tables) == []
    assert tg.render(after) == tg.render(before)
    assert str(after) == str(before)


def test_only_keeps_what_was_chosen(tmp_path: Path) -> None:
    with tg.record(only=tg.select(function="relu")) as trace:
        programs.load("mlp").main()
    save(trace.tables, tmp_path / "x")
    assert differences(trace.tables, load(tmp_path / "x").tables()) == []
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
    save(before.tables, tmp_path / "run.trace")
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['numpy'] = None\n"
        "from torchglass.store import load, save\n"
        "from torchglass.events.trace import Trace\n"
        "trace = Trace(load(sys.argv[1])); save(trace.tables, sys.argv[1] + '2')\n"
        "print(len(trace), trace.event(3).name, trace.sql('SELECT count(*) FROM events')[0][0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run.trace")], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == f"{len(before)} {before.event(3).name} {len(before)}\n"
    assert differences(before.tables, load(tmp_path / "run.trace2").tables()) == []


STREAMED = [name for name in SHORT if name not in ("meta_and_empty",)]


@pytest.mark.parametrize("name", STREAMED)
def test_streamed_in_many_pieces(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as in one piece, links between values included; each piece can be read at once."""
    linked, raw = recorded_raw(name, monkeypatch)
    writer = open_writer(tmp_path / "run.trace")
    for known in growing(raw, 5):
        assert writer.write(known)
        seen = load(tmp_path / "run.trace")
        assert seen.running
        assert not seen.tables().complete
        ignored = ("complete", "value_storage", "value_producer", "value_address", "value_before")
        assert differences(known, seen.tables(), ignored) == []
    assert writer.finish(raw)
    assert differences(linked, load(tmp_path / "run.trace").tables()) == []
    assert writer.problem is None


def test_links_are_found_when_a_part_has_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked, raw = recorded_raw("inplace_and_views", monkeypatch)
    writer = open_writer(tmp_path / "run.trace")
    assert writer.write(raw)
    assert differences(linked, load(tmp_path / "run.trace").tables(), ("complete",)) == []
    assert max(linked.value_producer) > NONE


def test_written_events_may_be_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller keeps an offset, and closes what was open when it was forgotten."""
    from tests.store.samples import at_moment

    linked, raw = recorded_raw("attention", monkeypatch)
    writer = open_writer(tmp_path / "run.trace")
    first, closed = 0, set[int]()
    for now in sorted({*raw.start_ns, *raw.end_ns})[::7]:
        for number in range(first):
            if number not in closed and raw.end_ns[number] <= now:
                closed.add(number)
                at = raw.first_io[number] + len(raw.forms[raw.args[number]].roles)
                result = raw.result[number]
                outputs = tuple(raw.io[at : at + len(raw.forms[result].roles)]) if result != NONE else ()
                writer.close_event(number, Closing(raw.end_ns[number], result, raw.error[number], outputs))
        known = at_moment(raw, now, first)
        assert writer.write(known, first)
        closed.update(first + n for n, end in enumerate(known.end_ns) if end != NONE)
        first += len(known)
    assert first > 10
    last = at_moment(raw, max(raw.end_ns), first)
    for number in set(range(first)) - closed:
        at = raw.first_io[number] + len(raw.forms[raw.args[number]].roles)
        outputs = tuple(raw.io[at : at + len(raw.forms[raw.result[number]].roles)])
        writer.close_event(number, Closing(raw.end_ns[number], raw.result[number], raw.error[number], outputs))
    last.complete = True
    assert writer.finish(last, first)
    assert differences(linked, load(tmp_path / "run.trace").tables()) == []


def test_events_that_were_never_given_are_a_problem_not_an_error(tmp_path: Path) -> None:
    told: list[str] = []
    writer = open_writer(tmp_path / "x", told.append)
    assert not writer.write(recorded("mlp"), offset=7)
    assert "never given" in (writer.problem or "")
    assert told == [writer.problem]
    assert not writer.finish(recorded("mlp"))
    assert not load(tmp_path / "x").tables().complete


def test_where_memory_cannot_be_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain journal does the same; a fallback is found when WAL is not to be had."""
    linked, raw = recorded_raw("attention", monkeypatch)
    bundle = make_bundle(tmp_path / "x")
    writer = Writer(bundle, bundle.new_part(), pytest.fail, journal="TRUNCATE")
    assert not list(tmp_path.rglob("*-wal"))
    for known in growing(raw, 3):
        assert writer.write(known)
        assert len(load(tmp_path / "x").tables()) == len(known)
    assert writer.finish(raw)
    assert differences(linked, load(tmp_path / "x").tables()) == []
    fallen = new_database(tmp_path / "other.sqlite", "MEMORY_THAT_IS_NONE")
    assert fallen.execute("PRAGMA journal_mode").fetchone() == ("truncate",)


def test_a_reader_at_the_end_does_not_lose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as another program looks at the events they cannot become one file; they stay readable all the same."""
    monkeypatch.setattr("torchglass.store.part.PATIENCE", 0.05)
    before = recorded("mlp")
    writer = open_writer(tmp_path / "x")
    (part,) = part_paths(tmp_path / "x")
    writer.write(before)
    other = sqlite3.connect(part / EVENTS)
    other.execute("SELECT count(*) FROM events").fetchall()
    assert not writer.finish(before)
    assert writer.problem is None
    assert not (part / "done").exists()
    assert differences(before, load(tmp_path / "x").tables()) == []
    other.close()
    assert differences(before, load(tmp_path / "x").tables()) == []


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "x")
    before = recorded("mlp")
    child = os.fork()
    if not child:
        wrote = writer.write(before) or writer.finish(before)
        os._exit(int(wrote))
    assert os.waitpid(child, 0)[1] == 0
    assert len(load(tmp_path / "x").tables()) == 0
    assert writer.finish(before)
    assert differences(before, load(tmp_path / "x").tables()) == []
