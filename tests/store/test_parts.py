"""A bundle has room for so many parts; what comes after that is told, and what is there is read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

import torchglass as tg
from tests.store.samples import recorded
from torchglass.children import JOIN
from torchglass.events.tables import Tables
from torchglass.events.types import is_contiguous
from torchglass.store import BundleFull, Part, bundle, layout, load, open_part, repair
from torchglass.store.bundle import make_bundle, make_or_join
from torchglass.store.layout import FULL, is_held, part_paths


def many(path: Path, count: int) -> None:
    """A bundle with so many parts."""
    made = make_bundle(path)
    tables = recorded("mlp")
    for _ in range(count):
        Part(made, made.new_part(), pytest.fail).finish_tables(tables)


def test_more_parts_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PARTS", 3)
    many(tmp_path / "three", 3)
    many(tmp_path / "five", 5)
    three, five = load(tmp_path / "three").tables(), load(tmp_path / "five").tables()
    assert len(five) == len(three) > 0
    assert "more parts than are read, which are 3" in five.notes[-1]
    assert not any("more parts" in note for note in three.notes)


def test_repair_finishes_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many(tmp_path / "x", 5)
    for part in part_paths(tmp_path / "x"):
        (part / "done").unlink()
    monkeypatch.setattr(layout, "PARTS", 3)
    assert len(repair(tmp_path / "x")) == 5
    assert load(tmp_path / "x").tables().complete


def test_no_part_is_made_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PARTS", 3)
    many(tmp_path / "x", 3)
    run = str(bundle.read_manifest(tmp_path / "x")["run"])
    monkeypatch.setattr("torchglass.store.bundle.getpid", lambda: 12)
    joined = make_or_join(tmp_path / "x", run)
    assert not joined.owned
    for first in (True, False, False):
        with pytest.raises(BundleFull, match="has 3 parts") as caught:
            open_part(tmp_path / "x", run=run)
        assert caught.value.first is first
    assert len(part_paths(tmp_path / "x")) == 3
    assert (tmp_path / "x" / FULL).stat().st_size == 0
    assert "room for" in load(tmp_path / "x").tables().notes[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_children_beyond_the_limit_run_unrecorded_and_one_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(layout, "PARTS", 2)
    with tg.record(to=tmp_path / "x"):
        torch.ones(2) + 1
        for number in range(4):
            child = os.fork()
            if child == 0:
                os._exit(number)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == number
    said = capfd.readouterr().err
    assert said.count("is not recorded") == 1
    assert "has 2 parts" in said
    trace = tg.load(tmp_path / "x")
    assert len(part_paths(tmp_path / "x")) == 2
    assert len(trace) > 0


def test_a_path_that_is_loaded_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may go elsewhere before it opens a tensor."""
    monkeypatch.chdir(tmp_path)
    with tg.record(to="rel.trace"):
        x = tg.mark("x", torch.arange(3.0))
    trace = tg.load("rel.trace")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (number,) = trace.kept()
    assert torch.equal(trace.tensor(number), x)
    assert not trace.running


def test_a_part_that_could_not_be_finished_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise ValueError("odd")

    part = open_part(tmp_path / "x")
    monkeypatch.setattr("torchglass.store.part.seal", fail)
    with pytest.raises(ValueError, match="odd"):
        part.finish_tables(Tables())
    assert not is_held(part.path)


def test_an_import_error_of_a_child_that_joins_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(config: object) -> None:
        raise ImportError("odd")

    monkeypatch.setattr("torchglass.recording.join", fail)
    with pytest.raises(ImportError, match="odd"):
        exec(JOIN, {"config": {}})


def test_a_tensor_without_elements_is_contiguous() -> None:
    assert torch.empty_strided((3, 0), (1, 1)).is_contiguous()
    assert is_contiguous((3, 0), (1, 1))
    assert not is_contiguous((3, 2), (1, 1))
