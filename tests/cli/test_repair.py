"""`torchglass repair` says what it did, and does it once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import torchglass as tg
from tests import programs
from torchglass.cli._main import build_parser
from torchglass.errors import BundleError
from torchglass.store import load
from torchglass.store.layout import part_paths


def run(*arguments: str) -> int:
    options = build_parser(["repair"]).parse_args(["repair", *arguments])
    return options.run(options)


def test_twice_is_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tg.record(to=tmp_path / "living") as trace:
        programs.load("mlp").main()
        shutil.copytree(tmp_path / "living", tmp_path / "x")
        with pytest.raises(BundleError, match="still being written"):
            run(str(tmp_path / "living"))
    (part,) = part_paths(tmp_path / "x")
    assert run(str(tmp_path / "x")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x'}: {part.name}: finished\n"
    assert len(load(tmp_path / "x").tables()) == len(trace)
    assert run(str(tmp_path / "x")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x'}: whole already, nothing was changed\n"


def test_what_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        run(str(tmp_path / "x"))
