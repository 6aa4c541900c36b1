"""Child processes of a recording that writes to a bundle: each writes a part of its own, never into the parent's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from multiprocessing import spawn
from pathlib import Path

import pytest

import torchglass as tg

WORKERS = """
    import sys
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset
    import torchglass as tg


    class Videos(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            video = np.full((4, 3), index, dtype=np.uint8)
            video = torch.from_numpy(video)
            video = video.float().permute(1, 0)
            return video


    if __name__ == "__main__":
        with tg.record(to="run.trace", variables=["video"]):
            loader = DataLoader(Videos(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
            print(sum(batch.sum().item() for batch in loader))
"""


def run(folder: Path, source: str, *arguments: str) -> str:
    (folder / "program.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "program.py", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_a_dataloader(tmp_path: Path, method: str) -> None:
    assert run(tmp_path, WORKERS, method) == "180.0\n"
    trace = tg.load(tmp_path / "run.trace")
    events = list(trace.events())
    parents = {event.process for event in events if event.thread == "MainThread"}
    workers = {event.thread: event.process for event in events if event.thread != "MainThread"}
    assert set(workers) == {"DataLoader worker 0", "DataLoader worker 1"}
    assert len(parents | set(workers.values())) == 3
    changes = [event for event in events if event.kind == "variable"]
    assert len(changes) == 6 * 3
    assert {event.process for event in changes} == set(workers.values())
    for event in changes:
        if event.code == "video = torch.from_numpy(video)":
            assert (event.args, event.result) == ("u8[4, 3] numpy", "u8[4, 3]")
            producer = trace.event(event.outputs[0].producer)  # type: ignore[arg-type]
            assert (producer.name, producer.process) == ("from_numpy", event.process)
    assert trace._tables.complete


def test_a_killed_child_loses_nothing_that_it_had_written(tmp_path: Path) -> None:
    source = """
        import os, time
        import torch
        import torchglass as tg

        with tg.record(to="run.trace"):
            pid = os.fork()
            if pid == 0:
                for _ in range(20):
                    torch.ones(2).add(1)
                time.sleep(3)  # more than the writer's longest pause
                print("ready", flush=True)
                time.sleep(60)
            os.waitpid(pid, 0)
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(source))
    program = subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    parts = sorted((tmp_path / "run.trace").glob("rank*"))
    (child,) = [part for part in parts if not part.name.endswith(f"pid{program.pid}")]
    os.kill(int(child.name.rpartition("pid")[2]), signal.SIGKILL)
    assert program.wait(60) == 0
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and tg.load(tmp_path / "run.trace").running:
        time.sleep(0.1)
    trace = tg.load(tmp_path / "run.trace")
    added = [event for event in trace.events(function="Tensor.add") if event.process != program.pid]
    assert len(added) == 20
    assert any("has no end" in note for note in trace.notes)


def test_a_program_that_changes_its_folder(tmp_path: Path) -> None:
    source = """
        import os
        import torch
        import torchglass as tg

        with tg.record(to="run.trace") as trace:
            os.mkdir("elsewhere")
            os.chdir("elsewhere")
            tg.mark("x", torch.ones(2))
            pid = os.fork()
            if pid == 0:
                torch.zeros(1)
            else:
                os.waitpid(pid, 0)
        if pid:
            print(sorted(trace.kept().values()), trace.tensor(next(iter(trace.kept()))).tolist())
    """
    assert run(tmp_path, source) == "['x'] [1.0, 1.0]\n"
    trace = tg.load(tmp_path / "run.trace")
    assert len({event.process for event in trace.events()}) == 2
    assert [event.name for event in trace.events(function="zeros")] == ["zeros"]


def test_without_a_bundle_children_are_not_recorded(tmp_path: Path) -> None:
    source = """
        import os
        import torch
        import torchglass as tg

        with tg.record() as trace:
            torch.ones(1)
            if os.fork() == 0:
                torch.zeros(1)
                os._exit(0)
            os.wait()
        print([event.name for event in trace.events()], "TORCHGLASS_RUN" in os.environ)
    """
    assert run(tmp_path, source) == "['ones'] False\n"


def test_multiprocessing_is_put_back_in_whatever_order_recordings_end(tmp_path: Path) -> None:
    original = spawn.get_preparation_data
    first, second = tg.record(to=tmp_path / "a.trace"), tg.record(to=tmp_path / "b.trace")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert spawn.get_preparation_data is not original
    second.__exit__(None, None, None)
    assert spawn.get_preparation_data is original


ENVIRONMENTS = """
    import multiprocessing, os, subprocess, sys
    import torch
    import torchglass as tg

    def ours():
        return sorted(name for name in os.environ if name.startswith("TORCHGLASS"))

    def work(n):
        torch.ones(n)
        print("child:", ours(), flush=True)

    if __name__ == "__main__":
        child = [sys.executable, "-c", "import os; print('subprocess:', [n for n in os.environ if 'TORCHGLASS' in n])"]
        with tg.record(to="run.trace"):
            print("inside:", ours(), flush=True)
            subprocess.run(child, check=True)
            for method in ("fork", "spawn"):
                process = multiprocessing.get_context(method).Process(target=work, args=(2,))
                process.start()
                process.join()
        print("after:", ours())
"""


def test_the_environment_is_not_touched(tmp_path: Path) -> None:
    """Neither of the program nor of what it starts, and children of multiprocessing join all the same."""
    expected = "inside: []\nsubprocess: []\nchild: []\nchild: []\nafter: []\n"
    assert run(tmp_path, ENVIRONMENTS) == expected
    ones = list(tg.load(tmp_path / "run.trace").events(function="ones"))
    assert len({event.process for event in ones}) == 2


ITSELF = """
    import subprocess, sys
    import torch
    import torchglass as tg

    with tg.record(to="run.trace"):
        torch.ones(len(sys.argv))
        if len(sys.argv) < 3:
            subprocess.run([sys.executable, *sys.argv, "again"], check=True)
    if len(sys.argv) == 1:  # nobody records any more
        late = subprocess.run([sys.executable, *sys.argv, "a", "b", "late"], capture_output=True, text=True)
        print(late.returncode, late.stderr.splitlines()[-1].partition(" ")[2].partition(":")[0])
"""


def test_a_process_that_comes_from_a_recorded_one_may_write_to_the_same_path(tmp_path: Path) -> None:
    """It needs nothing in its environment: the process that it comes from is seen to be writing there."""
    assert run(tmp_path, ITSELF).endswith("run.trace exists already\n")
    events = list(tg.load(tmp_path / "run.trace").events())
    assert sorted(event.outputs[0].shape for event in events) == [(1,), (2,), (3,)]
    assert len({event.process for event in events}) == 3


def test_the_listing_of_a_forked_child_begins_at_the_program(tmp_path: Path) -> None:
    """Not at the console script that runs all of it."""
    (tmp_path / "forks.py").write_text(
        "import os, torch\nif os.fork() == 0:\n    torch.ones(2)\nelse:\n    os.wait()\n"
    )
    command = [str(Path(sys.executable).with_name("torchglass")), "run", "forks.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    trace = tg.load(tmp_path / "forks.trace")
    (event,) = trace.events(function="ones")
    assert [(Path(at.file).name, at.line) for at in event.stack] == [("forks.py", 3)]
    assert [Path(file).name for file in trace.sources] == ["forks.py"]
    titles = [line for line in tg.render(trace, "listing").splitlines() if line.startswith("──")]
    assert len(titles) == 1


UNCHANGED = """
    import multiprocessing, sys
    import torch

    def work(n):
        torch.full((n,), 1.0).tanh()

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        for n in (2, 3):
            process = context.Process(target=work, args=(n,))
            process.start()
            process.join()
            print(process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_a_script_that_knows_nothing_of_us(tmp_path: Path, method: str) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(UNCHANGED))
    command = [sys.executable, "-m", "torchglass", "run", "--to", "run.trace", "script.py", method]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("0\n0\n", "", 0)
    events = [event for event in tg.load(tmp_path / "run.trace").events() if event.name == "Tensor.tanh"]
    assert [event.outputs[0].shape for event in events] == [(2,), (3,)]
    assert len({event.process for event in events}) == 2


def test_a_child_started_after_the_block_is_not_recorded(tmp_path: Path) -> None:
    """Also where a forkserver is used, which keeps the environment of its beginning."""
    source = """
        import multiprocessing
        import torch
        import torchglass as tg

        def work():
            import torchglass
            torch.ones(1).tanh()

        if __name__ == "__main__":
            context = multiprocessing.get_context("forkserver")
            with tg.record(to="run.trace"):
                process = context.Process(target=work); process.start(); process.join()
            process = context.Process(target=work); process.start(); process.join()
            print([event.name for event in tg.load("run.trace").events()].count("Tensor.tanh"))
    """
    assert run(tmp_path, source) == "1\n"


def test_nothing_is_imported_by_the_first_mark(tmp_path: Path) -> None:
    """A child that is forked while another thread imports would wait for that import for ever."""
    source = """
        import sys
        import torch
        import torchglass as tg

        x = torch.ones(2)
        with tg.record(to="run.trace"):
            x.relu()
            before = set(sys.modules)
            tg.mark("x", x)
            print(sorted(set(sys.modules) - before))
    """
    assert run(tmp_path, source) == "[]\n"
