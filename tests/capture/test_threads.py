"""Threads: those started inside are recorded and told apart, all others are left alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchglass as tg
from torchglass.capture.engine.log import LOGS
from torchglass.settle.settler import Settler

X = torch.ones(2, 3)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert torch._C._len_torch_function_stack() == 0
    assert LOGS == {}


def names(trace: tg.Trace) -> list[str]:
    return [event.name for event in trace.events()]


def in_thread(work: Callable[[], Any], name: str | None = None) -> None:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()


def test_threads_started_inside_are_distinguished() -> None:
    with tg.record() as trace:
        in_thread(lambda: torch.relu(X), "a")
        in_thread(lambda: nn.Linear(3, 1)(X), "b")
        torch.exp(X)
    assert {e.name: e.thread for e in trace.events()}["relu"] == "a"
    assert {e.thread for e in trace.events(kind="module")} == {"b"}
    assert list(trace.events())[-1].thread == "MainThread"
    assert "threads: " in str(trace)


def test_a_pool_a_subclass_a_timer_and_a_thread_of_a_thread() -> None:
    class Own(threading.Thread):
        def run(self) -> None:
            in_thread(lambda: torch.sigmoid(X))

    with tg.record() as trace:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(torch.relu, [X] * 4))
        own = Own()
        own.start()
        own.join()
        timer = threading.Timer(0, lambda: torch.tanh(X))
        timer.start()
        timer.join()
    assert sorted(names(trace)) == ["relu"] * 4 + ["sigmoid", "tanh"]


def test_threads_of_one_name_get_a_number() -> None:
    with tg.record() as trace:
        for _ in range(3):
            in_thread(lambda: torch.relu(X), "same")
    assert [e.thread for e in trace.events()] == ["same", "same #2", "same #3"]


def test_a_thread_that_was_there_before_is_not_recorded() -> None:
    go, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (go.wait(10), torch.relu(X), done.set()))
    thread.start()
    with tg.record() as trace:
        go.set()
        done.wait(10)
    thread.join()
    assert names(trace) == []


def test_recordings_in_several_threads_at_once() -> None:
    barrier, traces = threading.Barrier(4), {}

    def work(count: int) -> None:
        barrier.wait(10)
        with tg.record() as trace:
            barrier.wait(10)
            for _ in range(count):
                nn.Identity()(torch.relu(X))
            barrier.wait(10)
        traces[count] = trace

    workers = [threading.Thread(target=work, args=(count,)) for count in (1, 2, 3, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for count, trace in traces.items():
        assert names(trace) == ["relu", "Identity"] * count


def test_a_thread_that_outlives_the_block() -> None:
    go = threading.Event()
    with tg.record() as trace:
        thread = threading.Thread(target=lambda: (torch.relu(X), go.wait(10), torch.exp(X)))
        thread.start()
        while not names(trace):
            pass
    go.set()
    thread.join()
    assert names(trace) == ["relu"]


def test_a_thread_that_outlives_the_block_and_records_for_itself() -> None:
    """Our mode of the first recording is still on its stack then."""
    go, own = threading.Event(), []

    def work() -> None:
        go.wait(10)
        with tg.record() as trace:
            F.gumbel_softmax(X)
        own.append(trace)

    with tg.record() as first:
        thread = threading.Thread(target=work)
        thread.start()
    go.set()
    thread.join()
    with tg.record() as plain:
        F.gumbel_softmax(X)
    assert names(own[0]) == names(plain)
    assert names(first) == []


def test_a_thread_started_twice_raises_as_ever_and_keeps_no_mark() -> None:
    with tg.record():
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match="once"):
            thread.start()
    assert not [name for name in vars(thread) if "torchglass" in name]


DAEMON = """
import sys, threading, time
import torch, torchglass as tg

x = torch.ones(2)

def work():
    while True:
        x.dim()  # what lets go of Python's lock aborts without us too

recording = tg.record(ops=sys.argv[1] == "ops")
recording.__enter__()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
if sys.argv[2] == "ended":
    recording.__exit__(None, None, None)
print("end")
"""


@pytest.mark.parametrize("ended", ["ended", "running"])
@pytest.mark.parametrize("probe", ["functions", "ops"])
def test_a_daemon_thread_at_work_when_python_ends(probe: str, ended: str) -> None:
    """It is ended below our handler, where C++ cannot be left: the process aborted."""
    command = [sys.executable, "-c", DAEMON, probe, ended]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_what_is_recorded_while_somebody_looks_has_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place and its form are new: they are written before it, and so they are read behind it."""
    looked = Settler._spans

    def while_others_go_on(self: Settler) -> Any:
        monkeypatch.setattr(Settler, "_spans", looked)
        torch.ones(7, 5).flatten()
        return looked(self)

    with tg.record() as trace:
        torch.relu(X)
        monkeypatch.setattr(Settler, "_spans", while_others_go_on)
        assert names(trace) == ["relu", "ones", "Tensor.flatten"]


def test_a_call_that_ends_while_somebody_looks_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    settle, looks = Settler.settle, list[int]()

    def missing_at_first(self: Settler) -> Any:
        looks.append(len(looks))
        return settle(self) if len(looks) > 2 else self.journal_rows.forms[-7]

    with tg.record() as trace:
        torch.relu(X)
        monkeypatch.setattr(Settler, "settle", missing_at_first)
        assert names(trace) == ["relu"]
    assert len(looks) == 3
