"""How `torchglass run` begins and ends: which name its bundle gets, and what an impatient user sees."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchglass as tg
from tests.cli.test_run import end, start
from torchglass.cli import main
from torchglass.errors import BundleError


def test_several_runs_at_once_each_have_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nprint(torch.ones(2).sum().item())\n")
    runs = [start(tmp_path, ["-m", "torchglass", "run", "train.py"]) for _ in range(3)]
    for each in runs:
        done = end(each)
        assert (done.status, done.out, done.err) == (0, "2.0\n", "")
    made = sorted(path.name for path in tmp_path.glob("*.trace"))
    assert made == ["train-2.trace", "train-3.trace", "train.trace"]
    assert len({len(tg.load(tmp_path / name)) for name in made}) == 1


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["run", *arguments]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_a_name_that_the_user_gave_is_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("1 / 0\n")
    (tmp_path / "x.trace").mkdir()
    said = refusal(capsys, "--to", "x.trace", "a.py")
    assert "exists already" in said
    assert "--to PATH" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "x.trace"]


def test_names_that_seem_free_and_are_not_come_to_an_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def taken(path: Path, *_: object) -> None:
        tried.append(path.name)
        try:
            raise FileExistsError(path)
        except FileExistsError:
            raise BundleError(f"{path} exists already") from None

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchglass.store.open_part", taken)
    monkeypatch.setattr("torchglass.cli.run.MOST_NAMES", 5)
    (tmp_path / "a.py").write_text("1 / 0\n")
    assert "exists already" in refusal(capsys, "a.py")
    assert tried == ["a.trace", "a-2.trace", "a-3.trace", "a-4.trace", "a-5.trace"]


def test_what_no_other_name_cures_is_tried_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def full(path: Path, *_: object) -> None:
        tried.append(path.name)
        raise BundleError(f"{path} cannot be made: No space left on device; choose another path")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchglass.store.open_part", full)
    (tmp_path / "a.py").write_text("1 / 0\n")
    assert refusal(capsys, "a.py").endswith("choose another path; --to PATH names another\n")
    assert tried == ["a.trace"]


SLOW_END = """
import os, signal, torch
torch.ones(2) + 1
from torchglass.recording import Recording
stop = Recording.stop
def slow(self, error):
    os.kill(os.getpid(), signal.SIGINT)
    stop(self, error)
Recording.stop = slow
os.kill(os.getpid(), signal.SIGINT)
while True:
    pass
"""
"""Ctrl-C, and once more while the trace is being kept."""


def test_a_second_ctrl_c_prints_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SLOW_END)
    done = end(start(tmp_path, ["-m", "torchglass", "run", "a.py"]))
    assert done.status == 130
    assert done.err.count("Traceback") == 1
    assert done.err.endswith("KeyboardInterrupt\n")
    assert "cli/run.py" not in done.err
    assert len(tg.load(tmp_path / "a.trace")) > 0
