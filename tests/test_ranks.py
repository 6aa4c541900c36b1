"""The ranks of one torchrun write to one bundle, whoever comes first, and no rank ever fails for our sake."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import torchglass as tg
from torchglass.store.layout import PART, part_paths

LONGEST = 300
BIN = Path(sys.executable).parent

REDUCES = """
    import os, sys
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    x = torch.full((2,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    ours = "TORCHGLASS_RUN" in os.environ
    print(f"rank {dist.get_rank()}: {x.tolist()} {sys.argv[1:]} {ours}\\n", end="", flush=True)
    dist.destroy_process_group()
"""
"""A program that knows nothing of us."""

RECORDS = """
    import os
    import torch
    import torch.distributed as dist
    import torchglass as tg

    dist.init_process_group("gloo")
    for _ in range(2):
        with tg.record(to="run.trace") as trace:
            x = torch.full((2,), dist.get_rank() + 1.0)
            dist.all_reduce(x)
        print(f"rank {dist.get_rank()}: {x.tolist()} {len(trace)}\\n", end="", flush=True)
    dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Ran:
    """What there is to see of a job from outside."""

    status: int
    out: list[str]
    """Sorted: ranks print in any order."""
    err: str

    @property
    def said(self) -> list[str]:
        """Our own lines."""
        return sorted(line for line in self.err.splitlines() if line.startswith("torchglass: "))


def start(folder: Path, *command: str, source: str = REDUCES) -> subprocess.Popen[str]:
    (folder / "job.py").write_text(textwrap.dedent(source))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [str(BIN / command[0]), *command[1:]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> Ran:
    out, err = process.communicate(timeout=LONGEST)
    return Ran(process.returncode, sorted(filter(None, out.splitlines())), err)


def ran(folder: Path, *command: str, source: str = REDUCES) -> Ran:
    return end(start(folder, *command, source=source))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def ranks(bundle: Path) -> list[int]:
    """The rank of each part."""
    return [int(name[1]) for part in part_paths(bundle) if (name := PART.fullmatch(part.name))]


def filled(bundle: Path) -> list[float]:
    """What each process that filled a tensor filled it with, in order of rank."""
    trace = tg.load(bundle)
    assert len(list(trace.events(function="*all_reduce"))) == 2
    return filled_with(trace)


def filled_with(trace: tg.Trace) -> list[float]:
    found = list(trace.events(function="full"))
    assert len({event.process for event in found}) == len(found)
    return [float(event.args.rpartition(", ")[2]) for event in found]


TWO = ("--standalone", "--nproc-per-node", "2")


def test_record_inside_of_a_script(tmp_path: Path) -> None:
    done = ran(tmp_path, "torchrun", *TWO, "job.py", source=RECORDS)
    assert (done.status, done.out) == (0, sorted([f"rank {rank}: [3.0, 3.0] 2" for rank in (0, 1)] * 2))
    assert ranks(tmp_path / "run.trace") == [0, 1]
    assert filled(tmp_path / "run.trace") == [1.0, 2.0]
    trace = tg.load(tmp_path / "run.trace")
    assert (trace._tables.complete, trace.notes) == (True, ())
    assert len(done.said) == 2, "the second recording of each rank is refused, which it says"


def test_a_later_job_is_refused_and_runs_all_the_same(tmp_path: Path) -> None:
    """Also one that looks the same: no run id, the same port."""
    job = ("torchrun", "--master-port", str(free_port()), "--nproc-per-node", "2", "job.py")
    assert ran(tmp_path, *job, source=RECORDS).status == 0
    before = filled(tmp_path / "run.trace")
    again = ran(tmp_path, *job, source=RECORDS)
    assert (again.status, again.out) == (0, sorted([f"rank {rank}: [3.0, 3.0] 2" for rank in (0, 1)] * 2))
    path = tmp_path / "run.trace"
    assert again.said == [
        f"torchglass: rank {rank} is recorded into memory only: {path} exists already: "
        "choose another path, or remove it first (a bundle is never written over)"
        for rank in (0, 1)
    ], "each once, however often it records"
    assert filled(path) == before == [1.0, 2.0]


@pytest.mark.parametrize("launcher", ["torchrun", "another"])
def test_the_trace_of_a_refused_rank_says_why_it_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], launcher: str
) -> None:
    (tmp_path / "run.trace").mkdir()
    words = {"TORCHELASTIC_RUN_ID": "none"} if launcher == "torchrun" else {"RANK": "1", "WORLD_SIZE": "2"}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torchglass.store.bundle.PATIENCE", 0.0)
    monkeypatch.setattr("torchglass.children._warned_in_memory", False)
    with tg.record(to=tmp_path / "run.trace") as trace:
        tg.mark("x", torch.ones(2))
    assert [event.name for event in trace.events()] == ["ones", "x"]
    assert trace.tensor(next(iter(trace.kept()))).tolist() == [1.0, 1.0]
    assert trace.notes[0].startswith("recorded into memory only: ")
    assert capfd.readouterr().err.count("recorded into memory only") == 1


FAILS_ONCE = """
    import os, pathlib, time
    import torch
    import torch.distributed as dist
    import torchglass as tg

    attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
    with tg.record(to="run.trace"):
        x = torch.full((2,), 10.0 * attempt + rank)
        if attempt == 0 and rank == 1:
            while not list(pathlib.Path("run.trace").glob("rank00000-*/done")):
                time.sleep(0.01)
            torch.ones(2) @ torch.ones(3)
        if attempt == 1:
            dist.init_process_group("gloo")
            dist.all_reduce(x)
            dist.destroy_process_group()
    if attempt == 0:
        time.sleep(600)  # until torchrun ends what is left of the attempt
    print(f"rank {rank}: {x.tolist()}\\n", end="", flush=True)
"""
"""Its first attempt fails before anything is connected: torch's own restart with gloo connected may hang."""


@pytest.mark.parametrize("launcher", [TWO, ("--nproc-per-node", "2", "--log-dir", "/dev/null")], ids=["c10d", "static"])
def test_after_a_restart_of_the_job_nothing_is_lost(tmp_path: Path, launcher: tuple[str, ...]) -> None:
    if "--standalone" not in launcher:
        launcher = (*launcher, "--master-port", str(free_port()))
    done = ran(tmp_path, "torchrun", "--max-restarts", "1", *launcher, "job.py", source=FAILS_ONCE)
    assert (done.status, done.out, done.said) == (0, ["rank 0: [21.0, 21.0]", "rank 1: [21.0, 21.0]"], [])
    assert ranks(tmp_path / "run.trace") == [0, 0, 1, 1]
    trace = tg.load(tmp_path / "run.trace")
    assert sorted(filled_with(trace)) == [0.0, 1.0, 10.0, 11.0]
    failure = trace.failure()
    assert failure is not None
    assert failure.code == "torch.ones(2) @ torch.ones(3)"


FAILS = """
    import os
    import torch

    x = torch.full((2,), float(os.environ["RANK"]))
    x @ torch.ones(3)
"""


EXPECTED = ["rank 0: [3.0, 3.0] ['--to', 'x'] False", "rank 1: [3.0, 3.0] ['--to', 'x'] False"]


def test_run_under_torchrun(tmp_path: Path) -> None:
    """Also a second time, when one rank renames the earlier bundle and the other finds the new one."""
    command = ["torchrun", *TWO, "--no-python", str(BIN / "torchglass"), "run", "job.py", "--to", "x"]
    first, second = ran(tmp_path, *command), ran(tmp_path, *command)
    assert [(done.status, done.out) for done in (first, second)] == [(0, EXPECTED)] * 2
    assert first.said == []
    assert second.said == ["torchglass: the earlier job.trace is now called job-1.trace"]
    assert {path.name for path in tmp_path.glob("*.trace")} == {"job.trace", "job-1.trace"}
    for name in ("job.trace", "job-1.trace"):
        assert ranks(tmp_path / name) == [0, 1]
        assert filled(tmp_path / name) == [1.0, 2.0]


def test_torchrun_under_run(tmp_path: Path) -> None:
    plain = ran(tmp_path, "python", "-m", "torch.distributed.run", *TWO, "job.py", "--to", "x")
    options = ["--to", "run.trace", "--no-modules", "--name=mine"]
    done = ran(tmp_path, "torchglass", "run", *options, "-m", "torch.distributed.run", *TWO, "job.py", "--to", "x")
    assert done == plain
    assert plain == Ran(0, EXPECTED, "")
    assert ranks(tmp_path / "run.trace") == [0, 0, 1], "the launcher has a part of its own"
    assert filled(tmp_path / "run.trace") == [1.0, 2.0]
    trace = tg.load(tmp_path / "run.trace")
    assert (trace.name, trace._tables.complete) == ("mine", True)
    for event in trace.events():
        assert [Path(at.file).name for at in event.stack if at.origin == "user"] == ["job.py"]


def test_a_rank_that_fails_under_run(tmp_path: Path) -> None:
    done = ran(tmp_path, "torchglass", "run", "-m", "torch.distributed.run", *TWO, "job.py", source=FAILS)
    assert done.status == 1
    assert "ChildFailedError" in done.err
    assert "src/torchglass/" not in done.err
    failure = tg.load(tmp_path / "torch.distributed.run.trace").failure()
    assert failure is not None
    assert failure.code == "x @ torch.ones(3)"


RAISES = """
    import os
    import torch

    x = torch.full((2,), 7.0)
    if os.environ["RANK"] == "1":
        bad = x.neg()
        raise ValueError("rank 1 is bad")
"""


def test_the_exception_of_a_rank_is_shown_where_no_call_failed(tmp_path: Path) -> None:
    ran(
        tmp_path, "torchglass", "run", "--to", "run.trace", "-m", "torch.distributed.run", *TWO, "job.py", source=RAISES
    )
    told = tg.render(tg.load(tmp_path / "run.trace"), "failure").splitlines()
    assert told[0] == "✗ ValueError: rank 1 is bad"
    assert "raised by other code in rank 1" in told[1]
    assert "job.py:8" in told[2]
    assert any("bad = x.neg()" in line for line in told[-4:]), "of the rank that failed, and not of the first"


def test_what_is_shown_at_the_end_is_of_all_ranks(tmp_path: Path) -> None:
    ours = ["torchglass", "run", "--show", "code"]
    done = ran(tmp_path, *ours, "--to", "run.trace", "-m", "torch.distributed.run", *TWO, "job.py")
    assert "all_reduce" in "".join(done.out)
    without = ran(tmp_path, *ours, "-m", "torch.distributed.run", *TWO, "job.py")
    assert without.status == 0
    assert without.said == [
        "torchglass: the ranks that are started here are not recorded: they need a bundle, and --to PATH names one"
    ]


def test_two_machines_of_one_job_write_to_one_bundle(tmp_path: Path) -> None:
    """Where they share a folder: two torchruns with one run id, each with a rank."""
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "both"]
    options = ["--nnodes", "2", "--nproc-per-node", "1", "--local-addr", "127.0.0.1", *meeting]
    machines = [start(tmp_path, "torchrun", *options, "job.py", source=RECORDS) for _ in range(2)]
    done = [end(each) for each in machines]
    assert [each.status for each in done] == [0, 0]
    assert ranks(tmp_path / "run.trace") == [0, 1]
    assert filled(tmp_path / "run.trace") == [1.0, 2.0]
    assert len(list((tmp_path / "run.trace").glob("agent*"))) == 2


AT_ONCE = """
    import sys, time
    import torch
    import torchglass as tg

    print("ready", flush=True)
    sys.stdin.readline()
    with tg.record(to="run.trace"):
        torch.ones(2)
        time.sleep(0.5)
"""


def test_without_torchrun_the_first_of_several_processes_has_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(textwrap.dedent(AT_ONCE))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    jobs = [subprocess.Popen([sys.executable, "job.py"], cwd=tmp_path, text=True, **pipes) for _ in range(3)]
    for each in jobs:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in jobs:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    said = [each.communicate(timeout=LONGEST)[1].splitlines()[-1:] for each in jobs]
    assert sorted(each.returncode for each in jobs) == [0, 1, 1]
    for (line,) in filter(None, said):
        assert line.startswith("torchglass.errors.BundleError: ")
        assert "exists already" in line
    assert [event.name for event in tg.load(tmp_path / "run.trace").events()] == ["ones"]
