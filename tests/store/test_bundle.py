"""Who may write to a bundle and where one can be made; what is read when it is none."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import torchglass as tg
from tests import programs
from tests.store.samples import differences, recorded
from torchglass._trace import Trace
from torchglass.errors import BundleError, TorchglassError
from torchglass.events.tables import Tables
from torchglass.store import load, loading, open_part, save
from torchglass.store.bundle import RUN
from torchglass.store.layout import DONE, EVENTS, FORMAT, MANIFEST, part_paths


def record_to(path: Path) -> None:
    with tg.record(to=path):
        pytest.fail("the block must not begin")


def _inside(folder: Path) -> list[str]:
    if not os.path.isdir(folder):  # noqa: PTH112 - which says False also where the name is too long
        return []
    return sorted(map(str, folder.iterdir())) if folder.parts[:2] != ("/", "proc") else []


class TestMaking:
    def refused(self, path: Path, words: str) -> None:
        before = _inside(path.parent)
        for make in (open_part, record_to, lambda path: save(Tables(), path)):
            with pytest.raises(BundleError, match=words) as caught:
                make(path)
            assert "\n" not in str(caught.value)
            assert "\0" not in str(caught.value)
        assert _inside(path.parent) == before

    def test_over_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        (tmp_path / "folder").mkdir()
        (tmp_path / "link").symlink_to("nowhere")
        for name in ("file", "folder", "link"):
            self.refused(tmp_path / name, "exists already: choose another")
        assert (tmp_path / "file").read_text() == "mine"

    def test_over_a_bundle(self, tmp_path: Path) -> None:
        save(recorded("mlp"), tmp_path / "x")
        self.refused(tmp_path / "x", "never written over")

    def test_without_a_parent(self, tmp_path: Path) -> None:
        self.refused(tmp_path / "no" / "x", "parent folder is not there")
        (tmp_path / "file").write_text("")
        self.refused(tmp_path / "file" / "x", "parent is no folder")

    def test_with_a_name_too_long(self, tmp_path: Path) -> None:
        self.refused(tmp_path / ("x" * 300), "File name too long; choose another")
        self.refused(tmp_path / "/".join(["x" * 100] * 50), "too long a path")

    def test_with_an_odd_name(self, tmp_path: Path) -> None:
        self.refused(tmp_path / "a\0b", "cannot be made")
        odd = tmp_path / "a\nb \x1b[31m"
        save(recorded("mlp"), odd)
        assert len(load(odd).tables()) > 0
        self.refused(odd, r"a\\nb \\x1b\[31m exists already")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_where_writing_is_forbidden(self, tmp_path: Path) -> None:
        (tmp_path / "shut").mkdir(mode=0o500)
        self.refused(tmp_path / "shut" / "x", "may not be written to")

    def test_on_a_file_system_that_is_read_only(self) -> None:
        if not Path("/proc/self").is_dir():
            pytest.skip("no such file system here")
        self.refused(Path("/proc/self/x"), "cannot be made|parent folder is not there")


CHILD = """
import sys, torch, torchglass as tg
with tg.record(to=sys.argv[1], max_events=None) as trace:
    for _ in range(int(sys.argv[2])):
        torch.ones(3)
    tg.mark("of the child", torch.arange(4, dtype=torch.uint8))
print(len(trace))
"""


class TestJoining:
    def run(self, path: Path, count: int, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CHILD, str(path), str(count)]
        return subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120
        )

    def test_children_have_parts_of_their_own_and_strangers_none(self, tmp_path: Path) -> None:
        with tg.record(to=tmp_path / "x") as trace:
            programs.load("attention").main()
            tg.mark("of the parent", torch.arange(8, dtype=torch.uint8))
            assert self.run(tmp_path / "x", 3, {}).stdout == "5\n"
            assert self.run(tmp_path / "x", 2, {"RANK": "3"}).stdout == "4\n"
            with pytest.raises(BundleError, match="exists already"):
                open_part(tmp_path / "x")  # not twice by one process
        stranger = self.run(tmp_path / "x", 5, {RUN: "0" * 32})
        assert "BundleError" in stranger.stderr
        assert "exists already" in stranger.stderr
        assert "exists already" in self.run(tmp_path / "x", 5, {}).stderr
        assert len(part_paths(tmp_path / "x")) == 3
        assert part_paths(tmp_path / "x")[-1].name.startswith("rank00003-")
        self.look(tmp_path / "x", trace._tables)

    def look(self, path: Path, own: Tables) -> None:
        """Events of all processes, each with its own; ids counted on."""
        bundle = load(path)
        trace = Trace(bundle)
        events = list(trace.events())
        assert [event.id for event in events] == list(range(len(own) + 9))
        assert trace._tables.complete
        by_process: dict[int, list[str]] = {}
        for event in events:
            by_process.setdefault(event.process, []).append(event.name)
            assert event.parent is None or events[event.parent].process == event.process
            for value in event.inputs:
                assert value.producer is None or events[value.producer].process == event.process
        assert sorted(map(len, by_process.values())) == sorted([4, 5, len(own)])
        assert by_process[os.getpid()] == [own.event(number).name for number in range(len(own))]
        mine = [event for event in events if event.process == os.getpid()]
        assert [(event.args, event.result, event.key, event.stack) for event in mine] == [
            (event.args, event.result, event.key, event.stack) for event in map(own.event, range(len(own)))
        ]
        rows = bundle.saved_tensors()
        assert [row.id for row in rows] == [0, 1, 2]
        assert {(row.name, bytes(bundle.open_tensor(row).data)) for row in rows} == {
            ("of the parent", bytes(range(8))),
            ("of the child", bytes(range(4))),
        }
        assert trace.sql("SELECT count(DISTINCT process) FROM threads") == [(3,)]

    def test_two_recordings_of_a_child(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        part = open_part(tmp_path / "x")
        monkeypatch.setenv(RUN, part.bundle.run)
        monkeypatch.setattr("torchglass.store.bundle.getpid", lambda: 77)
        again = [open_part(tmp_path / "x").path.name for _ in range(2)]
        assert again == ["rank00000-pid77", "rank00000-pid77-2"]


class TestNoBundle:
    def said(self, path: Path, words: str) -> None:
        with pytest.raises(BundleError, match=words) as caught:
            load(path)
        assert isinstance(caught.value, TorchglassError)
        assert "\n" not in str(caught.value)

    def test_something_else(self, tmp_path: Path) -> None:
        self.said(tmp_path / "nothing", "does not exist: check the path")
        self.said(tmp_path / ("x" * 400), "does not exist")
        self.said(tmp_path / "a\0b", "does not exist")
        (tmp_path / "file").write_text("x")
        self.said(tmp_path / "file", "is a file, but a bundle is a folder")
        self.said(tmp_path, "is not a bundle: it has no manifest.json")

    def test_from_the_future(self, tmp_path: Path) -> None:
        save(recorded("mlp"), tmp_path / "x")
        manifest = tmp_path / "x" / MANIFEST
        content = json.loads(manifest.read_text())
        assert content["format"] == FORMAT
        manifest.write_text(json.dumps({**content, "format": FORMAT + 1, "new": {"things": []}}))
        self.said(tmp_path / "x", f"has format {FORMAT + 1}, but .* reads only up to {FORMAT}: update torchglass")

    @pytest.mark.parametrize(
        "text",
        ["", "{", "[]", "null", '{"format": "2"}', '{"format": 1}', '{"format": 2, "format": 2}', '{"format": NaN}',
         "[" * 9999],
    )  # fmt: skip
    def test_a_file_that_is_no_manifest(self, tmp_path: Path, text: str) -> None:
        save(recorded("mlp"), tmp_path / "x")
        (tmp_path / "x" / MANIFEST).write_text(text)
        self.said(tmp_path / "x", r"manifest.json cannot be read: .*; `torchglass repair")

    def test_things_that_are_no_files(self, tmp_path: Path) -> None:
        """A pipe would wait for ever, a link leads elsewhere."""
        save(recorded("mlp"), tmp_path / "x")
        (part,) = part_paths(tmp_path / "x")
        source = next((tmp_path / "x" / "sources").iterdir())
        for path in (tmp_path / "x" / MANIFEST, part / DONE, part / EVENTS, source):
            away = path.with_name("away")
            path.rename(away)
            os.mkfifo(path)
            self.said(tmp_path / "x", "cannot be read: it is not a regular file")
            path.unlink()
            path.symlink_to(away)
            self.said(tmp_path / "x", "cannot be read: ")
            path.unlink()
            away.rename(path)
        load(tmp_path / "x")

    def test_a_source_that_was_changed_or_is_gone(self, tmp_path: Path) -> None:
        save(recorded("mlp"), tmp_path / "x")
        source = next((tmp_path / "x" / "sources").iterdir())
        source.write_text(source.read_text() + " ")
        self.said(tmp_path / "x", rf"{source.name} cannot be read: its content is not what was written")
        source.unlink()
        self.said(tmp_path / "x", "it is missing")

    def test_a_source_that_is_no_text(self, tmp_path: Path) -> None:
        """Its name is right, and so is the seal: somebody made it so."""
        save(recorded("mlp"), tmp_path / "x")
        (part,) = part_paths(tmp_path / "x")
        content = b"\xff\xfe"
        digest = hashlib.sha256(content).hexdigest()
        (tmp_path / "x" / "sources" / f"{digest}.py").write_bytes(content)
        with contextlib.closing(sqlite3.connect(part / EVENTS)) as connection, connection:
            connection.execute("UPDATE sources SET sha256 = ?", (digest,))
        (part / DONE).unlink()
        self.said(tmp_path / "x", rf"{digest}.py cannot be read: it is not a text")

    def test_an_empty_one(self, tmp_path: Path) -> None:
        """Killed before anything was recorded."""
        part = open_part(tmp_path / "x").path
        for _ in range(2):
            empty = load(tmp_path / "x").tables()
            assert (len(empty), empty.complete) == (0, False)
            (part / "journal-0").write_bytes(b"")
            assert len(load(tmp_path / "x").tables()) == 0
            (part / "journal-0").write_bytes(b"something else")
            with pytest.raises(BundleError, match=r"journal-0 cannot be read: it does not begin like a journal"):
                load(tmp_path / "x")
            (part / "journal-0").unlink()
        part.rmdir()
        assert load(tmp_path / "x").tables().notes == ["nothing was written to this bundle"]


def test_looking_while_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One loaded trace sees more each time, and is read again only when there may be more."""
    monkeypatch.setattr(loading, "REFRESH_SECONDS", 1e-9)
    with tg.record(to=tmp_path / "x") as mine:
        trace = Trace(load(tmp_path / "x"))
        assert len(trace) == 0
        assert trace.running
        for count in (5, 10, 15):
            for _ in range(5):
                torch.ones(2)
            assert len(trace) == count
        assert "still recording" in str(trace)
        monkeypatch.setattr(loading, "REFRESH_SECONDS", 1e9)
        assert trace._tables is trace._tables
    assert trace._tables.complete
    assert not trace.running
    assert differences(mine._tables, trace._tables) == []


def test_asking_whether_it_still_grows_does_not_hide_its_end(tmp_path: Path) -> None:
    """A reader who asks only after the writer has ended still reads the rest."""
    with tg.record(to=tmp_path / "x") as mine:
        torch.ones(2)
        loaded = load(tmp_path / "x")
        trace = Trace(loaded)
        assert len(trace) == 1
        torch.ones(2).exp()
    assert not trace.running
    assert differences(mine._tables, loaded.tables()) == []
    assert len(trace) == 3
    assert trace.complete


GROWS = """
import sys, time, torch, torchglass as tg
with tg.record(to=sys.argv[1], max_events=None) as trace:
    print("began", flush=True)
    began = time.monotonic()
    rounds = 0
    while time.monotonic() - began < 3:
        for _ in range(20):
            torch.ones(2).add(rounds)
        tg.mark("round", torch.full((1000,), rounds))
        rounds += 1
print(rounds)
"""


def test_another_process_looks_while_it_grows(tmp_path: Path) -> None:
    """What was seen once is seen again, nothing is damaged, and at the end there is all of it."""
    with subprocess.Popen(
        [sys.executable, "-c", GROWS, str(tmp_path / "x")], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "began\n"
        looks: list[tuple[int, int]] = []
        while child.poll() is None:
            looks.append(self_consistent(load(tmp_path / "x")))
            time.sleep(0.01)
        rounds = int(child.stdout.read())
    assert looks == sorted(looks)
    assert len(set(looks)) > 2
    bundle = load(tmp_path / "x")
    assert self_consistent(bundle) == (42 * rounds, rounds)
    assert bundle.tables().complete
    assert not bundle.running
    assert (part_paths(tmp_path / "x")[0] / DONE).exists()


def self_consistent(bundle: Any) -> tuple[int, int]:
    """How many events and tensors there are now; each tensor has the content that it must have."""
    tables, rows = bundle.tables(), bundle.saved_tensors()
    assert not any("damaged" in note or "lost" in note for note in tables.notes)
    for number, row in list(enumerate(rows))[-3:]:
        content = torch.frombuffer(bytearray(bundle.open_tensor(row).data), dtype=torch.int64)
        assert torch.equal(content, torch.full((1000,), number))
    return len(tables), len(rows)


def test_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    """A path is bytes to the system; whatever they are, what was written there is read again."""
    path = tmp_path / os.fsdecode(b"caf\xe9.trace")
    with tg.record(to=path):
        torch.ones(2) + 1
    assert [event.name for event in tg.load(path).events()] == ["ones", "Tensor.add"]
