"""`torchglass info` in a few lines: what, when, how much, what was lost."""

from __future__ import annotations

import json
import platform
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import torchglass as tg
from tests import programs
from tests.store.samples import recorded
from tests.store.test_earlier import unpacked
from torchglass.cli._main import build_parser
from torchglass.store import save


def run(*arguments: str) -> int:
    options = build_parser(["info"]).parse_args(["info", *arguments])
    return options.run(options)


def test_a_whole_bundle_and_one_without_an_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tg.record(to=tmp_path / "x", name="mlp") as trace:
        programs.load("mlp").main()
        for _ in range(2):
            tg.mark("q\x1b[31m", torch.zeros(2_000_000, dtype=torch.uint8))
        shutil.copytree(tmp_path / "x", tmp_path / "killed")
    tables = trace._tables

    assert run(str(tmp_path / "x")) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"Trace of mlp: {len(tables)} events in ")
    assert "incomplete" not in printed
    assert f"by process {tables.process}\n" in printed
    versions = f"with Python {platform.python_version()}, PyTorch {torch.__version__}\n"
    assert versions in printed
    assert "  2 saved tensors: q\\x1b[31m\n" in printed
    assert "tensors 5.0 MB" in printed  # with the room for the header
    assert all(line.isprintable() for line in printed.splitlines())

    assert run(str(tmp_path / "killed")) == 0
    printed = capsys.readouterr().out
    assert " (incomplete)" in printed
    assert versions in printed
    assert "torchglass repair" in printed


def test_the_versions_are_saved_and_those_of_earlier_formats_are_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tg.record() as trace:
        torch.ones(3)
    trace.save(tmp_path / "x")
    assert run(str(tmp_path / "x"), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["python"], told["torch"]) == (platform.python_version(), torch.__version__)

    path = unpacked("format3", tmp_path)
    assert run(str(path)) == 0
    assert " with " not in capsys.readouterr().out
    assert run(str(path), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["python"], told["torch"]) == ("", "")


def test_values_that_were_kept_have_no_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tg.record(to=tmp_path / "x", values="all"):
        torch.ones(3) + torch.ones(3)
    assert run(str(tmp_path / "x")) == 0
    assert "  3 saved tensors\n" in capsys.readouterr().out


@pytest.mark.parametrize("seconds", [1e300, -1e300, float("inf")])
def test_a_time_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: float) -> None:
    tables = recorded("mlp")
    save(replace(tables, started_at=seconds), tmp_path / "x")
    assert run(str(tmp_path / "x")) == 0
    said = capsys.readouterr().out
    assert f"  recorded at an unknown time by process {tables.process}\n" in said
