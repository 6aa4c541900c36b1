"""`torchglass info` in a few lines: what, when, how much, what was lost."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest

from tests.store.samples import recorded
from torchglass.cli import command, info
from torchglass.store import open_writer


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add(info, parser.add_subparsers())
    options = parser.parse_args(["info", *arguments])
    return options.run(options)


def test_a_whole_bundle_and_one_without_an_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = recorded("mlp")
    writer = open_writer(tmp_path / "x")
    for _ in range(2):
        writer.shards.submit("q\x1b[31m", bytes(2_000_000), "uint8", (2_000_000,))
    writer.shards.drain()
    writer.write(tables)
    shutil.copytree(tmp_path / "x", tmp_path / "killed")
    writer.finish(tables)

    assert run(str(tmp_path / "x")) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"Trace of mlp: {len(tables)} events in ")
    assert "incomplete" not in printed
    assert f"by process {tables.process}\n" in printed
    assert "  2 saved tensors: q\\x1b[31m\n" in printed
    assert "tensors 5.1 MB" in printed  # with the room for the header, and a large tensor begins at a page
    assert all(line.isprintable() for line in printed.splitlines())

    assert run(str(tmp_path / "killed")) == 0
    printed = capsys.readouterr().out
    assert " (incomplete)" in printed
    assert "torchglass repair" in printed


@pytest.mark.parametrize("seconds", [1e300, -1e300, float("inf")])
def test_a_time_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: float) -> None:
    tables = recorded("mlp")
    before = tables.started_at
    writer = open_writer(tmp_path / "x")
    try:
        tables.started_at = seconds
        writer.write(tables)
        writer.finish(tables)
    finally:
        tables.started_at = before
    assert run(str(tmp_path / "x")) == 0
    said = capsys.readouterr().out
    assert f"  recorded at an unknown time by process {tables.process}\n" in said
