"""Which commands are changed under `torchglass run`: those by which this python starts a rank, and no other."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from torchglass.cli.ranks import Ranks, is_rank, program_at, python_at
from torchglass.cli.run import for_ranks

PYTHON = sys.executable
RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
ENVIRONMENT = {**os.environ, **RANK}
OURS = ["-m", "torchglass", "run", "--ops", "--to", "/x/run.trace", "--"]


@pytest.fixture
def ranks() -> Ranks:
    return Ranks(["--ops"], Path("/x/run.trace"), "the run")


def changed(ranks: Ranks, *command: Any, **options: Any) -> list[str] | None:
    found = ranks.changed(command, {"env": ENVIRONMENT, **options})
    if found is None:
        return None
    assert found[1] == {**ENVIRONMENT, "TORCHGLASS_RUN": "the run"}
    return found[0]


@pytest.mark.parametrize(
    ("before", "program"),
    [
        (["-u"], ["train.py", "-u", "--to", "x"]),
        ([], ["-m", "package.train", "-m"]),
        (["-OO", "-X", "utf8", "-Xdev", "-W", "error", "-uB"], ["train.py"]),
    ],
)
def test_a_program_of_python_runs_under_ours(ranks: Ranks, before: list[str], program: list[str]) -> None:
    assert changed(ranks, PYTHON, *before, *program) == [PYTHON, *before, *OURS, *program]
    bound = ["numactl", "--physcpubind=0", PYTHON]
    assert changed(ranks, *bound, *before, *program) == [*bound, *before, *OURS, *program]
    assert ranks.started == 2


@pytest.mark.parametrize(
    "command",
    [["bash", "train.sh"], [PYTHON, "-c", "print(1)"], [PYTHON, "-i", "a.py"], [PYTHON, "-"], [PYTHON], ["/no/python"]],
    ids=" ".join,
)
def test_what_cannot_be_recorded_is_left_alone_and_reported_once(
    ranks: Ranks, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    for _ in range(2):
        assert changed(ranks, *command) is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"torchglass: the ranks that are started here are not recorded: {command[0]} is not")
    assert ranks.started == 0


def test_another_python_may_have_no_torchglass(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(PYTHON)
    assert python_at([str(tmp_path / "python"), "a.py"], ENVIRONMENT) is None
    beside = {**ENVIRONMENT, "PATH": str(Path(PYTHON).parent)}
    assert python_at([Path(PYTHON).name, "a.py"], beside) == 0


def test_what_records_itself_is_left_alone_in_silence(ranks: Ranks, capsys: pytest.CaptureFixture[str]) -> None:
    assert changed(ranks, PYTHON, "-m", "torchglass", "run", "a.py") is None
    assert changed(ranks, "/somewhere/torchglass", "run", "a.py") is None
    assert capsys.readouterr().err == ""


def test_what_is_no_rank_is_left_alone(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_rank(ENVIRONMENT)
    for environment in (None, {}, {"RANK": "1"}, [("RANK", "1")]):
        assert not is_rank(environment)
        assert ranks.changed([PYTHON, "a.py"], {"env": environment}) is None
    assert ranks.changed(f"{PYTHON} a.py", {"env": ENVIRONMENT, "shell": True}) is None
    for name, value in RANK.items():
        monkeypatch.setenv(name, value)
    assert not is_rank(ENVIRONMENT), "a child of a rank, which has its environment"
    assert is_rank({**ENVIRONMENT, "RANK": "0"})


def test_where_the_program_begins() -> None:
    assert program_at(["python", "-u", "a.py"], 1) == 2
    assert program_at(["python", "-mp.q"], 1) == 1
    assert program_at(["python", "-X", "a.py"], 1) is None


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        (["--to", "x", "--ops", "--show=tree"], ["--ops"]),
        (["--to=x", "--name", "--to", "--variables", "a,b"], ["--name", "--to", "--variables", "a,b"]),
        ([], []),
    ],
)
def test_ranks_have_the_options_of_the_run(own: list[str], kept: list[str]) -> None:
    assert for_ranks(own) == kept
