"""Whole round trips through the public functions: recorded, kept, read again, by us and by others."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import torchglass as tg
from tests.zoo import FAMILIES
from torchglass.errors import BundleError, NotRecorded

WITHOUT_TORCH = """
import sys; sys.modules["torch"] = None
import json, numpy, torchglass as tg
trace = tg.load(sys.argv[1])
found = {}
for event in trace.events(kind="mark"):
    for value in event.inputs:
        try:
            content = trace.tensor(value)
        except tg.NotRecorded as error:
            found[event.name] = str(error)
        else:
            assert type(content) is numpy.ndarray, type(content)
            found[event.name] = [str(content.dtype), content.shape, content.astype(complex).real.sum()]
print(json.dumps(found))
"""


def computed() -> dict[str, Any]:
    """What is marked, by name."""
    x = torch.arange(6.0).reshape(2, 3)
    return {
        "plain": x,
        "transposed": x.t(),
        "half": x.half(),
        "truth": x > 2,
        "complex": torch.complex(x, x),
        "brain": x.bfloat16(),
        "empty": torch.empty(0, 3),
        "array": np.arange(4).reshape(2, 2),
    }


def mark_all() -> None:
    for name, value in computed().items():
        tg.mark(name, value)


@pytest.fixture(params=["streamed", "saved"])
def bundle(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[tg.Trace, Path]:
    """A trace with marks, and where it was kept."""
    path = tmp_path / "run.trace"
    options: dict[str, Any] = {"to": path} if request.param == "streamed" else {}
    with tg.record(**options) as trace:
        mark_all()
    if request.param == "saved":
        tg.save(trace, path)
    return trace, path


def equal(one: Any, two: Any) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(two, np.ndarray) and one.dtype == two.dtype and np.array_equal(one, two)
    return isinstance(two, torch.Tensor) and one.dtype == two.dtype and torch.equal(one, two)


def test_tensors_come_back(bundle: tuple[tg.Trace, Path]) -> None:
    trace, path = bundle
    loaded = tg.load(path)
    assert list(loaded.events()) == list(trace.events())
    assert loaded.kept() == trace.kept()
    assert sorted(loaded.kept().values()) == sorted(computed())
    for event in loaded.events(kind="mark"):
        (value,) = event.inputs
        for source in (trace, loaded):
            assert equal(computed()[event.name], source.tensor(value)), event.name
            assert equal(source.tensor(value), source.tensor(value.id))


def test_a_tensor_of_a_bundle_may_be_written_to_without_harm(bundle: tuple[tg.Trace, Path]) -> None:
    _, path = bundle
    loaded = tg.load(path)
    number = next(value for value, name in loaded.kept().items() if name == "plain")
    loaded.tensor(number).add_(1)
    assert torch.equal(tg.load(path).tensor(number), computed()["plain"])


def test_kept_again(bundle: tuple[tg.Trace, Path]) -> None:
    """What was loaded can be saved, with its tensors."""
    _, path = bundle
    again = path.with_name("again.trace")
    tg.save(tg.load(path), again)
    one, two = tg.load(path), tg.load(again)
    assert list(one.events()) == list(two.events())
    assert one.kept() == two.kept() != {}
    assert all(equal(one.tensor(value), two.tensor(value)) for value in one.kept())


def test_others_read_it(bundle: tuple[tg.Trace, Path]) -> None:
    """The shards are safetensors files, the events can be had as an SQLite database."""
    trace, path = bundle
    (shard,) = path.rglob("*.safetensors")
    with safe_open(shard, "pt") as opened:
        found = {name.partition("@")[0]: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (no dict)
    for name in ("plain", "transposed", "half", "truth", "brain", "empty"):
        assert equal(computed()[name], found[name]), name
    assert found["complex"].view(torch.complex64).reshape(2, 3).equal(computed()["complex"])
    database = path.with_name("events.sqlite")
    tg.export(tg.load(path), database)
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = connection.execute("SELECT count(*) FROM events WHERE kind = 'mark'").fetchone()
    assert counted == (len(computed()),)
    assert trace.sql("SELECT count(*) FROM events WHERE kind = 'mark'") == [counted]


def test_without_torch_tensors_are_arrays(bundle: tuple[tg.Trace, Path]) -> None:
    _, path = bundle
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, str(path)], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert "install torch" in found.pop("brain")
    assert found == {
        "plain": ["float32", [2, 3], 15],
        "transposed": ["float32", [3, 2], 15],
        "half": ["float16", [2, 3], 15],
        "truth": ["bool", [2, 3], 3],
        "complex": ["complex64", [2, 3], 15],
        "empty": ["float32", [0, 3], 0],
        "array": ["int64", [2, 2], 6],
    }


SAVED_AGAIN = """
import sys; sys.modules["torch"] = None
import torchglass as tg
tg.save(tg.load(sys.argv[1]), sys.argv[2])
"""


def test_without_torch_a_bundle_is_saved_again_with_tensors_that_only_torch_knows(tmp_path: Path) -> None:
    with tg.record(to=tmp_path / "run.trace"):
        tg.mark("brain", computed()["brain"])
    command = [sys.executable, "-c", SAVED_AGAIN, str(tmp_path / "run.trace"), str(tmp_path / "again.trace")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (value,) = (again := tg.load(tmp_path / "again.trace")).kept()
    assert equal(again.tensor(value), computed()["brain"])


def test_a_transformer_with_ops(tmp_path: Path) -> None:
    model, inputs = FAMILIES["llama"]()
    with tg.record(ops=True, name="llama") as trace:
        tg.mark("result", model(**inputs)[0])
    tg.save(trace, tmp_path / "run.trace")
    loaded = tg.load(tmp_path / "run.trace")
    assert list(loaded.events()) == list(trace.events())
    assert str(loaded) == re.sub(r"\n  engine: .*", "", str(trace))  # which a bundle does not tell
    for view in ("tree", "table"):
        assert tg.render(loaded, view) == tg.render(trace, view)
    (value,) = loaded.kept()
    assert torch.equal(loaded.tensor(value), model(**inputs)[0])


def test_bad_input(tmp_path: Path) -> None:
    trace = tg.trace(torch.ones, 2)
    tg.save(trace, tmp_path / "x")
    with pytest.raises(BundleError, match="exists already"):
        tg.save(trace, tmp_path / "x")
    with pytest.raises(TypeError, match="takes a trace"):
        tg.save("trace", tmp_path / "y")  # type: ignore[arg-type]
    with pytest.raises(BundleError, match="does not exist: check the path"):
        tg.load(tmp_path / "none")
    with pytest.raises(NotRecorded, match=r"mark\(name, tensor\) keeps one"):
        tg.load(tmp_path / "x").tensor(0)
    with pytest.raises(TypeError):
        tg.load(3)  # type: ignore[arg-type]
    assert not (tmp_path / "y").exists()


def test_a_mark_without_plain_bytes_is_left_out_and_said(tmp_path: Path) -> None:
    with tg.record() as trace:
        tg.mark("dense", torch.ones(2))
        tg.mark("sparse", torch.eye(2).to_sparse())
    tg.save(trace, tmp_path / "run.trace")
    loaded = tg.load(tmp_path / "run.trace")
    assert list(loaded.kept().values()) == ["dense"]
    assert any("'sparse'" in note and "no plain bytes" in note for note in loaded.notes)
    assert trace.notes == ()


def test_a_refused_option_leaves_no_bundle_behind(tmp_path: Path) -> None:
    with pytest.raises(tg.UsageError, match="self"), tg.record(to=tmp_path / "run.trace", variables=["self.*"]):
        pass
    assert not (tmp_path / "run.trace").exists()


def test_marks_inside_the_block(tmp_path: Path) -> None:
    """A mark that has returned can be opened, saved with the trace, and read by others."""
    with tg.record(to=tmp_path / "run.trace") as trace:
        x = tg.mark("x", torch.arange(3.0))
        y = x + 1
        (number,) = trace.kept()
        assert torch.equal(trace.tensor(number), x)
        with pytest.raises(NotRecorded, match="only the shape of value"):
            trace.tensor(next(value.id for event in trace.events(function="*add*") for value in event.outputs))
        tg.save(trace, tmp_path / "inside.trace")
        assert torch.equal(tg.load(tmp_path / "run.trace").tensor(number), x)
    assert y.tolist() == [1, 2, 3]
    assert torch.equal(trace.tensor(number), x)
    tg.save(trace, tmp_path / "after.trace")
    for name in ("inside.trace", "after.trace", "run.trace"):
        loaded = tg.load(tmp_path / name)
        assert torch.equal(loaded.tensor(number), x)
        assert not any("not in the bundle" in note for note in loaded.notes)


def test_recordings_in_each_other_each_have_their_bundle(tmp_path: Path) -> None:
    """The inner one's events and marks are in both, also where the process is killed in its block."""
    with tg.record(to=tmp_path / "outer") as outer:
        tg.mark("first", torch.arange(2))
        with tg.record(to=tmp_path / "inner") as inner:
            tg.mark("second", torch.arange(3))
            shutil.copytree(tmp_path / "outer", tmp_path / "killed outer")
            shutil.copytree(tmp_path / "inner", tmp_path / "killed inner")
        tg.mark("third", torch.arange(4))
    for trace, name, count in ((outer, "outer", 3), (inner, "inner", 1)):
        names = ["first", "second", "third"][: count if count > 1 else 2][-count:]
        loaded = tg.load(tmp_path / name)
        assert list(loaded.events()) == list(trace.events())
        assert sorted(loaded.kept().values()) == sorted(names)
        assert all(torch.equal(loaded.tensor(value), trace.tensor(value)) for value in loaded.kept())
    killed = tg.load(tmp_path / "killed outer")
    assert [event.name for event in killed.events(kind="mark")] == ["first", "second"]
    assert {name: len(killed.tensor(value)) for value, name in killed.kept().items()} == {"first": 2, "second": 3}
    killed = tg.load(tmp_path / "killed inner")
    assert [event.name for event in killed.events(kind="mark")] == ["second"]
    assert {name: len(killed.tensor(value)) for value, name in killed.kept().items()} == {"second": 3}


@pytest.mark.parametrize("order", ["inner ends first", "outer ends first"])
def test_a_recording_into_memory_around_one_with_a_bundle(tmp_path: Path, order: str) -> None:
    outer, inner = tg.record(), tg.record(to=tmp_path / "run.trace")
    around = outer.__enter__()
    for number in range(200):
        torch.full((2,), number)
    inside = inner.__enter__()
    for number in range(200):
        torch.full((3,), number)
    first, second = (inner, outer) if order == "inner ends first" else (outer, inner)
    first.__exit__(None, None, None)
    torch.ones(4)
    second.__exit__(None, None, None)
    shapes = [event.outputs[0].shape for event in around.events()]
    assert shapes == [(2,)] * 200 + [(3,)] * 200 + [(4,)] * (order == "inner ends first")
    assert [event.outputs[0].shape for event in inside.events()][:200] == [(3,)] * 200
    assert list(tg.load(tmp_path / "run.trace").events()) == list(inside.events())


def test_many_bundles_leave_no_descriptor_open(tmp_path: Path) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("this system does not list descriptors")
    traces: list[tg.Trace] = []
    for number in range(3):
        with tg.record() as around, tg.record(to=tmp_path / f"{number}.trace") as inside:
            tg.mark("x", torch.ones(2))
        with tg.record(to=tmp_path / f"{number}-2.trace") as alone:
            torch.ones(2)
        traces += (around, inside, alone)
    opened = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert [each for each in opened if each.startswith(str(tmp_path))] == []
    assert all(len(trace) for trace in traces)
