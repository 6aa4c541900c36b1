"""Earlier traces of a run: `--keep N` removes the oldest, and only what is ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass.cli.names import remove_old


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three earlier traces of train.py, the newest, one of another program, and a folder that is no trace."""
    monkeypatch.chdir(tmp_path)
    for name in ("train-1", "train-2", "train-10", "train", "training-1"):
        with tg.record(to=f"{name}.trace"):
            torch.ones(1)
    (tmp_path / "train-3.trace").mkdir()
    (tmp_path / "train-3.trace" / "notes.txt").write_text("mine")
    return tmp_path


def test_the_newest_are_kept_by_number(folder: Path) -> None:
    assert remove_old("train", 2) == [Path("train-2.trace"), Path("train-1.trace")]
    left = {path.name for path in folder.iterdir()}
    assert left == {"train-10.trace", "train.trace", "training-1.trace", "train-3.trace"}


def test_what_is_no_trace_or_is_a_link_stays(folder: Path) -> None:
    (folder / "train-4.trace").symlink_to(folder / "train.trace")
    remove_old("train", 0)
    left = {path.name for path in folder.iterdir()}
    assert left == {"train.trace", "training-1.trace", "train-3.trace", "train-4.trace"}
    assert (folder / "train-3.trace" / "notes.txt").read_text() == "mine"


def test_a_trace_that_is_still_being_written_stays(folder: Path) -> None:
    with tg.record(to="train-5.trace"):
        assert Path("train-5.trace") not in remove_old("train", 0)
    assert (folder / "train-5.trace").exists()


def test_the_command_says_what_it_removes(folder: Path) -> None:
    (folder / "train.py").write_text("import torch\ntorch.ones(2)\n")
    done = subprocess.run(
        [sys.executable, "-m", "torchglass", "run", "--keep", "1", "train.py"],
        cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ},
    )  # fmt: skip
    assert done.returncode == 0
    assert "torchglass: removed train-10.trace, train-2.trace, train-1.trace (--keep 1)" in done.stderr
    assert (folder / "train-11.trace").exists()
    assert len(tg.load(folder / "train.trace")) > 0


def test_a_number_below_zero_is_refused(folder: Path) -> None:
    (folder / "train.py").write_text("print('ran')\n")
    done = subprocess.run(
        [sys.executable, "-m", "torchglass", "run", "--keep", "-1", "train.py"],
        cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert "--keep -1" in done.stderr
