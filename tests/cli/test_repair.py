"""`torchglass repair` says what it did, and does it once."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest

from tests.store.samples import recorded
from torchglass.cli import command, repair
from torchglass.errors import BundleError
from torchglass.store import load, open_writer


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add(repair, parser.add_subparsers())
    options = parser.parse_args(["repair", *arguments])
    return options.run(options)


def test_twice_is_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = recorded("mlp")
    writer = open_writer(tmp_path / "living")
    writer.write(tables)
    shutil.copytree(tmp_path / "living", tmp_path / "x")
    assert run(str(tmp_path / "x")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x'}: {writer.part.name}: finished\n"
    assert len(load(tmp_path / "x").tables()) == len(tables)
    assert run(str(tmp_path / "x")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x'}: whole already, nothing was changed\n"
    with pytest.raises(BundleError, match="still being written"):
        run(str(tmp_path / "living"))
    writer.finish(tables)


def test_what_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not there"):
        run(str(tmp_path / "x"))
