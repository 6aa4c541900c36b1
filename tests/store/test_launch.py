"""Which processes belong to one torchrun, and may therefore write to one bundle."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchglass.errors import BundleError
from torchglass.store.bundle import (
    Bundle,
    find_joinable,
    is_being_written,
    make_bundle,
    make_or_join,
)
from torchglass.store.launch import Launch, ancestors, launched, rank
from torchglass.store.layout import Hold


class Job:
    """Sets the environment of a rank as torchrun does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._number = 1000

    def rank(self, agent: str = "one", group: int = 0, port: int = 29500, restarts: int = 0) -> Launch:
        """Become a new process of a job."""
        words = {
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_ERROR_FILE": f"/tmp/torchelastic_x/none_{agent}/attempt_{restarts}/0/error.json",
            "TORCHELASTIC_RESTART_COUNT": str(restarts),
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(port),
            "GROUP_RANK": str(group),
            "GROUP_WORLD_SIZE": "2",
        }
        for name, value in words.items():
            self._patch.setenv(name, value)
        self._number += 1
        number = self._number
        self._patch.setattr("torchglass.store.bundle.getpid", lambda: number)
        found = launched()
        assert found is not None
        return found


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


def refused(path: Path) -> bool:
    """Whether this process may not join."""
    joined: Bundle | None = None
    with contextlib.suppress(BundleError):
        joined = make_or_join(path)
    assert joined is None or not joined.owned
    return joined is None


def test_without_torchrun_there_is_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.setenv("RANK", "3")
    assert launched() is None
    assert rank() == 3
    for odd in ("", "-1", "x", "9" * 6, "³"):
        monkeypatch.setenv("RANK", odd)
        assert rank() == 0


def test_the_ranks_of_one_torchrun_join(tmp_path: Path, job: Job) -> None:
    job.rank()
    assert make_or_join(tmp_path / "x").owned
    assert refused(tmp_path / "x"), "a second recording of the same process, as without torchrun"
    job.rank()
    assert not refused(tmp_path / "x")
    assert refused(tmp_path / "x")


def test_a_restart_changes_nothing(tmp_path: Path, job: Job) -> None:
    """Although the port may be another, and the agent may have another number."""
    job.rank()
    make_or_join(tmp_path / "x")
    job.rank(restarts=1, port=31234, group=1)
    assert not refused(tmp_path / "x")


def test_other_agents_of_the_job_join_and_those_of_a_later_one_do_not(tmp_path: Path, job: Job) -> None:
    for agent, group in (("one", 0), ("two", 1), ("two", 1)):
        job.rank(agent, group)
        make_or_join(tmp_path / "x")
    for agent, group in (("three", 0), ("four", 1)):
        job.rank(agent, group)
        assert refused(tmp_path / "x"), "everything is the same but the agents"
    job.rank("five", 2, port=31234)
    assert refused(tmp_path / "x")
    job.rank("one", 0)
    assert not refused(tmp_path / "x")


def test_a_bundle_without_ranks_is_not_joined_by_any(tmp_path: Path, job: Job) -> None:
    make_bundle(tmp_path / "x")
    job.rank()
    assert refused(tmp_path / "x")
    assert find_joinable(tmp_path / "x") is None
    assert find_joinable(tmp_path / "nothing") is None


def test_a_rank_waits_for_the_one_that_is_making_the_bundle(
    tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the folder and its manifest there is a moment."""
    launch = job.rank()

    def meanwhile(seconds: float) -> None:
        assert seconds < 1
        (tmp_path / "x").rmdir()
        make_bundle(tmp_path / "x", launch)

    (tmp_path / "x").mkdir()
    monkeypatch.setattr("torchglass.store.bundle.sleep", meanwhile)
    assert not make_or_join(tmp_path / "x").owned


def test_a_folder_that_nobody_makes_into_a_bundle_is_refused(
    tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.rank()
    (tmp_path / "x").mkdir()
    monkeypatch.setattr("torchglass.store.bundle.PATIENCE", 0.05)
    assert refused(tmp_path / "x")


def test_the_agent_is_the_parent_where_torchrun_keeps_no_logs() -> None:
    code = "from torchglass.store.launch import launched; print(launched().agent)"
    environment = {**os.environ, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_ERROR_FILE": ""}

    def agent(*before: str) -> str:
        command = [*before, sys.executable, "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    first, second = agent(), agent()
    assert first == second != ""
    assert agent(sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])") != first


def test_ancestors_go_up_to_the_first_process() -> None:
    found = list(ancestors())
    assert found[0] == os.getppid()
    assert os.getpid() not in found
    assert len(found) == len(set(found))


def test_a_bundle_is_being_written_while_a_part_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make_bundle(tmp_path / "x")
    assert is_being_written(tmp_path / "x"), "somebody has just made it"
    monkeypatch.setattr("torchglass.store.bundle.JUST_MADE", 0.0)
    assert not is_being_written(tmp_path / "x")
    part = bundle.new_part()
    held = Hold(part)
    assert is_being_written(tmp_path / "x")
    held.release()
    assert not is_being_written(tmp_path / "x")

    def unable(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("torchglass.store.layout.fcntl.flock", unable)
    assert is_being_written(tmp_path / "x"), "it may be"
    (part / "done").touch()
    assert not is_being_written(tmp_path / "x")
