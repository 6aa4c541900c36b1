"""What a kill left is finished, and nothing that was there is lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import torchglass as tg
from tests.store.samples import differences, left_by_a_kill, recorded
from torchglass.errors import BundleError
from torchglass.events.schema import NONE
from torchglass.store import load, repair, save
from torchglass.store.layout import DONE, FORMAT, MANIFEST, SOURCES, part_paths, shard_paths
from torchglass.store.shards import HEADER


def files_of(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_what_a_kill_left_is_finished(tmp_path: Path) -> None:
    path, tables = left_by_a_kill(tmp_path, "attention")
    (part,) = part_paths(path)
    (shard,) = shard_paths(part).values()
    with shard.open("ab") as file:
        file.write(bytes(1000))  # of a mark that was being written
    before = load(path)
    assert differences(tables, before.tables(), ("notes", "sources")) == []
    assert not before.tables().complete
    assert "torchglass repair" in before.tables().notes[-1]
    assert not before.running

    assert repair(path) == [f"{part.name}: finished"]
    assert {each.name for each in part.iterdir()} == {"journal-0", DONE, shard.name}
    after = load(path)
    assert differences(before.tables(), after.tables(), ("notes",)) == []
    assert not after.tables().complete
    assert "has no end" in after.tables().notes[-1]
    assert shard.stat().st_size == HEADER + 100
    assert list(load_file(shard)) == ["x@0"]
    assert bytes(after.open_tensor(after.saved_tensors()[0]).data) == bytes(range(100))
    assert any(producer != NONE for producer in after.tables().value_producer)

    files = files_of(path)
    assert repair(path) == []
    assert files_of(path) == files


def test_a_call_that_was_running(tmp_path: Path) -> None:
    class Dies(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            shutil.copytree(tmp_path / "living", tmp_path / "killed")
            return y

    with tg.record(to=tmp_path / "living"):
        Dies()(torch.ones(2, 3))
    for look in (lambda: None, lambda: repair(tmp_path / "killed")):
        look()
        trace = tg.load(tmp_path / "killed")
        call, inner = [event for event in trace.events() if event.name in ("Dies", "Tensor.add")]
        assert (call.end_ns, call.outputs, call.inputs[0].shape) == (None, (), (2, 3))
        assert (inner.parent, inner.outputs[0].shape) == (call.id, (2, 3))
        assert NONE in trace._tables.end_ns


def test_a_kill_between_any_two_steps_of_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal as it was, packed and not sealed, sealed: all of it is there each time."""
    from torchglass.store import part as module

    moments = 0

    def then_copied(name: str) -> None:
        original = getattr(module, name)

        def copied(*given: object) -> object:
            nonlocal moments
            for when in ("before", "after"):
                if when == "after":
                    original(*given)
                shutil.copytree(tmp_path / "living", tmp_path / f"killed {name} {when}")
                moments += 1
            return None

        monkeypatch.setattr(module, name, copied)

    for name in ("write_journal", "seal"):
        then_copied(name)
    with tg.record(to=tmp_path / "living") as trace:
        for _ in range(50):
            tg.mark("x", torch.ones(2))
    assert moments == 4
    for killed in tmp_path.glob("killed*"):
        for look in (lambda: None, lambda killed=killed: repair(killed)):
            look()
            found = load(killed)
            assert differences(trace._tables, found.tables(), ("notes",)) == []
            assert len(found.saved_tensors()) == 50
    assert files_of(tmp_path / "living").keys() == {
        tmp_path / "living" / each for each in (path.relative_to(killed) for path in files_of(killed))
    }


def test_a_whole_bundle_is_left_alone_and_a_living_one_too(tmp_path: Path) -> None:
    with tg.record(to=tmp_path / "x"), pytest.raises(BundleError, match="is still being written: wait"):
        repair(tmp_path / "x")
    assert repair(tmp_path / "x") == []
    with pytest.raises(BundleError, match="does not exist"):
        repair(tmp_path / "y")
    with pytest.raises(BundleError, match="is not a bundle"):
        repair(tmp_path)


def test_what_is_lost_is_shown(tmp_path: Path) -> None:
    """Tensors whose files are gone, a manifest that is none; sources that are gone cost the names."""
    path, tables = left_by_a_kill(tmp_path)
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
    after = load(path).tables()
    assert len(after) == len(tables)
    assert after.sources == {}
    assert load_file(shard) == {}
    assert repair(path) == []


def test_a_finished_bundle_whose_sources_and_seal_are_gone(tmp_path: Path) -> None:
    tables = recorded("mlp")
    save(tables, tmp_path / "x")
    (part,) = part_paths(tmp_path / "x")
    for source in (tmp_path / "x" / SOURCES).iterdir():
        source.unlink()
    (part / DONE).write_text("{")
    with pytest.raises(BundleError, match="done cannot be read"):
        load(tmp_path / "x")
    done = repair(tmp_path / "x")
    assert any("mlp.py' was lost" in each for each in done)
    after = load(tmp_path / "x").tables()
    assert differences(tables, after, ("notes", "sources")) == []
    assert after.sources == {}
    assert after.complete
    assert repair(tmp_path / "x") == []


def test_a_bundle_from_the_future_is_not_touched(tmp_path: Path) -> None:
    path, _ = left_by_a_kill(tmp_path)
    manifest = path / MANIFEST
    manifest.write_text(manifest.read_text().replace(f'"format": {FORMAT}', '"format": 9'))
    before = files_of(path)
    with pytest.raises(BundleError, match="update torchglass"):
        repair(path)
    assert files_of(path) == before


def test_a_journal_from_the_future_is_not_touched(tmp_path: Path) -> None:
    path, _ = left_by_a_kill(tmp_path)
    (part,) = part_paths(path)
    journal = part / "journal-0"
    journal.write_bytes(journal.read_bytes().replace(b"format 1", b"format 9", 1))
    before = files_of(path)
    with pytest.raises(BundleError, match="update torchglass"):
        repair(path)
    assert files_of(path) == before


def test_a_damaged_journal_is_kept_where_nothing_can_be_had_of_it(tmp_path: Path) -> None:
    path, _ = left_by_a_kill(tmp_path)
    (part,) = part_paths(path)
    (part / "journal-0").write_bytes(b"x" * 10_000)
    before = files_of(path)
    with pytest.raises(BundleError, match=r"it cannot be repaired and was left as it is: record the run again"):
        repair(path)
    assert files_of(path) == before
