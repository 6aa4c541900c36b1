"""How `torchglass run` begins and ends: which name its bundle gets, and what an impatient user sees."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

import torchglass as tg
from tests.cli.test_run import end, start
from torchglass.cli import main
from torchglass.errors import BundleError

TRAIN = """
import sys, torch
print(torch.full((int(sys.argv[1]),), 1.0).sum().item(), flush=True)
sys.stdin.read()
"""
"""Says that it is recorded, and goes on until its standard input ends."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def begin(folder: Path, size: int) -> subprocess.Popen[str]:
    return start(folder, ["-m", "torchglass", "run", "train.py", str(size)])


def under_way(folder: Path, size: int) -> subprocess.Popen[str]:
    process = begin(folder, size)
    assert process.stdout is not None
    assert process.stdout.readline() == f"{size}.0\n"
    return process


def sizes(folder: Path) -> dict[str, int]:
    """By the name of each bundle: the number that its program was given."""
    found: dict[str, int] = {}
    for path in folder.glob("*.trace"):
        trace = tg.load(path)
        assert trace._tables.complete
        (full,) = trace.events(function="full")
        found[path.name] = full.outputs[0].shape[0]  # type: ignore[index]
    return found


def test_the_newest_run_has_the_plain_name(folder: Path) -> None:
    said = [end(begin(folder, size)) for size in (1, 2, 3)]
    assert [done.out for done in said] == ["1.0\n", "2.0\n", "3.0\n"]
    assert [done.err for done in said] == [
        "",
        "torchglass: the earlier train.trace is now called train-1.trace\n",
        "torchglass: the earlier train.trace is now called train-2.trace\n",
    ]
    assert sizes(folder) == {"train-1.trace": 1, "train-2.trace": 2, "train.trace": 3}


def test_a_bundle_that_is_being_written_keeps_its_name(folder: Path) -> None:
    first = under_way(folder, 1)
    second = end(begin(folder, 2))
    assert second.err == (
        "torchglass: train.trace is still being written by another run; this one is kept in train-1.trace\n"
    )
    assert end(first).err == ""
    assert sizes(folder) == {"train.trace": 1, "train-1.trace": 2}


def test_several_runs_at_once_each_have_a_bundle(folder: Path) -> None:
    """Whoever chooses a name does so alone: of an earlier bundle and three new ones none is lost or mixed."""
    end(begin(folder, 1))
    runs = [begin(folder, size) for size in (2, 3, 4)]
    said = [end(each) for each in runs]
    assert [(done.status, done.out) for done in said] == [(0, "2.0\n"), (0, "3.0\n"), (0, "4.0\n")]
    assert [done.err for done in said if done.err.count("\n") != 1] == []
    found = sizes(folder)
    assert sorted(found.values()) == [1, 2, 3, 4]
    assert set(found) == {"train.trace", "train-1.trace", "train-2.trace", "train-3.trace"}
    assert found["train.trace"] != 1


def test_what_is_no_bundle_keeps_its_name(folder: Path) -> None:
    (folder / "train.trace").write_text("somebody's notes")
    done = end(begin(folder, 1))
    reason = "train.trace is not a bundle that could be renamed"
    assert done.err == f"torchglass: {reason}; this run is kept in train-1.trace\n"
    assert (folder / "train.trace").read_text() == "somebody's notes"
    assert len(tg.load(folder / "train-1.trace")) > 0


def test_a_run_that_cannot_begin_gives_the_name_back(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    end(begin(folder, 1))

    def full(path: Path, *_: object) -> None:
        raise BundleError(f"{path} cannot be made: No space left on device; choose another path")

    monkeypatch.chdir(folder)
    monkeypatch.setattr("torchglass.store.open_part", full)
    assert "No space left" in refusal(capsys, "train.py", "2")
    assert sizes(folder) == {"train.trace": 1}


def test_nothing_is_renamed_where_recording_is_switched_off(folder: Path) -> None:
    end(begin(folder, 1))
    done = end(start(folder, ["-m", "torchglass", "run", "train.py", "2"], TORCHGLASS="0"))
    assert (done.out, done.err) == ("2.0\n", "")
    assert sizes(folder) == {"train.trace": 1}


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
    monkeypatch.setattr("torchglass.cli.run.MAX_NAMES_TRIED", 5)
    (tmp_path / "a.py").write_text("1 / 0\n")
    assert "exists already" in refusal(capsys, "a.py")
    assert tried == ["a.trace", "a-1.trace", "a-2.trace", "a-3.trace", "a-4.trace"]


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


def test_a_second_ctrl_c_prints_nothing_of_ours(answers_to_ctrl_c: None, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SLOW_END)
    done = end(start(tmp_path, ["-m", "torchglass", "run", "a.py"]))
    assert done.status == -signal.SIGINT
    assert done.err.count("Traceback") == 1
    assert done.err.endswith("KeyboardInterrupt\n")
    assert "cli/run.py" not in done.err
    assert len(tg.load(tmp_path / "a.trace")) > 0


def test_ctrl_c_before_the_program_begins_is_silent(answers_to_ctrl_c: None, tmp_path: Path) -> None:
    code = """
import os, signal, sys
from torchglass.cli import main, run

def slowly(options):
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        pass

run._find = slowly
sys.exit(main(["run", "a.py"]))
"""
    done = end(start(tmp_path, ["-c", code]))
    assert (done.status, done.out, done.err) == (-signal.SIGINT, "", "")
