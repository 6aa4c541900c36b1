"""What `record(to=…)` writes while the program runs is the trace itself, and the program does not notice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import torchglass as tg
from tests import programs
from tests.zoo import FAMILIES
from torchglass.capture.settling import stream
from torchglass.errors import BundleError
from torchglass.store.writer import Writer

SHORT = [name for name in programs.names() if name not in programs.SLOW]
LONGEST = 120


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look all the time, so that short programs too are settled in many pieces."""
    for name in ("FIRST_PAUSE", "PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(stream, name, 0.0005)


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("torchglass")]


def streamed(path: Path, act: Callable[[], Any], raises: type[BaseException] | None = None, **options: Any) -> tg.Trace:
    """The trace of `act`, which was written to the path meanwhile and is the same there."""
    with pytest.raises(raises) if raises else nullcontext(), tg.record(to=path, **options) as trace:
        act()
    assert ours() == []
    loaded = tg.load(path)
    assert not loaded.running
    assert loaded.tables.complete
    for one, two in zip(trace.events(), loaded.events(), strict=True):
        assert one == two
    assert loaded.modules() == trace.modules()
    assert list(loaded.values()) == list(trace.values())
    assert (loaded.notes, loaded.sources, loaded.tables.left_by) == (trace.notes, trace.sources, trace.tables.left_by)
    assert tg.render(loaded) == tg.render(trace)
    assert not [note for note in trace.notes if "failed to record" in note]
    return loaded


def outline(trace: tg.Trace) -> list[Any]:
    """All that two runs of one program have in common."""
    return [(e.kind, e.name, e.parent, e.key, e.args, e.result, e.phase, e.error, e.operands) for e in trace.events()]


@pytest.mark.parametrize("options", [{}, {"ops": True}], ids=["functions", "ops"])
@pytest.mark.parametrize("name", SHORT)
def test_a_program(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Equal to its own trace object, and to one that was recorded in one piece."""
    raises, act = programs.RAISES.get(name), programs.load(name).main
    with suppress(raises or ZeroDivisionError):
        act()  # torch does some things only once in a process
    loaded = streamed(tmp_path / "run.trace", act, raises, **options)
    with pytest.raises(raises) if raises else nullcontext(), tg.record(**options) as whole:
        act()
    if len({event.thread for event in whole.events()}) == 1:
        assert outline(loaded) == outline(whole)
    assert len(loaded) == len(whole)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_training_a_transformer(name: str, tmp_path: Path) -> None:
    model, inputs = FAMILIES[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        for _ in range(2):
            out = model(**inputs)
            out[0].sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    loaded = streamed(tmp_path / "run.trace", train, ops=True)
    kinds = {event.kind for event in loaded.events()}
    assert kinds == {"module", "function", "op", "step"}
    assert {event.phase for event in loaded.events()} == {"forward", "backward"}


def test_threads_and_generators(tmp_path: Path) -> None:
    def numbers() -> Iterator[torch.Tensor]:
        for n in range(20):
            yield torch.ones(2) * n

    def work() -> None:
        for each in numbers():
            each.sum()
            time.sleep(0.001)

    def act() -> None:
        threads = [threading.Thread(target=work, name=f"worker {n}") for n in range(3)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()

    loaded = streamed(tmp_path / "run.trace", act)
    counts = dict.fromkeys(["MainThread", "worker 0", "worker 1", "worker 2"], 0)
    for event in loaded.events(function="mul"):
        counts[event.thread] += 1
    assert set(counts.values()) == {20}
    for name in counts:
        begun = [event.start_ns for event in loaded.events() if event.thread == name]
        assert begun == sorted(begun)


@pytest.mark.parametrize("ops", [False, True], ids=["functions", "ops"])
@pytest.mark.parametrize("name", ["training_step", "threads", "inplace_and_views", "lazy", "numpy_round_trips"])
def test_piece_by_piece_is_the_same_as_at_once(name: str, ops: bool, tmp_path: Path) -> None:
    """Two recordings of the same records, one settled while it grew: the same events, links between values too."""
    act = programs.load(name).main
    with tg.record(ops=ops) as whole, tg.record(ops=ops, to=tmp_path / "run.trace") as pieces:
        act()
    assert list(pieces.events()) == list(whole.events())
    assert list(pieces.values()) == list(whole.values())


def test_a_short_block_is_kept_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends before the first look is written once, with its links."""
    monkeypatch.setattr(stream, "FIRST_PAUSE", LONGEST)
    written: list[int] = []
    monkeypatch.setattr(Writer, "write", lambda *_: written.append(1))
    streamed(tmp_path / "run.trace", lambda: torch.nn.Linear(2, 2)(torch.ones(2)))
    assert written == []


def test_the_pause_grows_with_what_a_look_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that finds much to do is not soon followed by the next."""
    monkeypatch.setattr(stream, "LONGEST_PAUSE", LONGEST)
    looks: list[int] = []

    def slow(*_: object) -> None:
        looks.append(1)
        time.sleep(0.05)

    monkeypatch.setattr(Writer, "write", slow)
    with tg.record(to=tmp_path / "run.trace"):
        time.sleep(0.5)
    assert len(looks) == 1, "twenty times as long as it took is a second"


def test_recordings_in_each_other(tmp_path: Path) -> None:
    with tg.record(to=tmp_path / "outer") as outer:
        torch.ones(2)
        with tg.record(to=tmp_path / "inner", functions=False) as inner:
            torch.nn.Linear(2, 2)(torch.ones(2))
        with suppress(ZeroDivisionError), tg.record(to=tmp_path / "third") as third:
            print(torch.zeros(2).shape[0] / 0)
    for name, trace in {"outer": outer, "inner": inner, "third": third}.items():
        assert list(tg.load(tmp_path / name).events()) == list(trace.events())
    assert [event.kind for event in inner.events()] == ["module"]
    assert [event.name for event in third.events()] == ["zeros"]
    assert third.tables.left_by == ("ZeroDivisionError: division by zero",)
    assert {event.name for event in outer.events()} >= {"ones", "Linear", "zeros"}
    assert ours() == []


def test_a_look_inside_the_block(tmp_path: Path) -> None:
    """Through the trace, and through the file by somebody who waits for it."""
    with tg.record(to=tmp_path / "run.trace") as trace:
        layer = torch.nn.Linear(2, 2)
        layer(torch.ones(2))
        seen = len(trace)
        assert trace.running
        until = time.monotonic() + LONGEST
        while len(other := tg.load(tmp_path / "run.trace")) < seen:
            assert time.monotonic() < until
        assert other.running
        assert not other.tables.complete
        assert "Linear" in tg.render(other)
        early = [event._replace(inputs=(), outputs=()) for event in other.events()]
        torch.ones(3)
    assert early == [event._replace(inputs=(), outputs=()) for event in trace.events()][: len(early)]
    assert len(other) == len(trace), "the same object sees what came later"


READER = """
import sys, time
sys.modules["torch"] = None
from torchglass.events.trace import Trace
from torchglass.store import load
from pathlib import Path
path, seen = Path(sys.argv[1]), []
while not (path / "manifest.json").exists():
    time.sleep(0.01)
print("ready", flush=True)
while True:
    loaded = load(path)
    running = loaded.running
    seen.append(len(load(path).tables()))
    if not running:
        break
assert seen == sorted(seen), seen
print(len(set(seen)) > 2, seen[-1])
"""


def test_another_process_reads_while_it_is_written(tmp_path: Path) -> None:
    with tg.record(to=tmp_path / "run.trace") as trace:
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, str(tmp_path / "run.trace")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        until = time.monotonic() + 3
        while time.monotonic() < until:
            torch.ones(2).sum()
            time.sleep(0.002)
    out, err = reader.communicate(timeout=LONGEST)
    assert (out, err) == (f"True {len(trace)}\n", "")


def test_an_existing_path_is_refused_before_the_block(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    ran: list[int] = []
    with pytest.raises(BundleError, match="exists already"), tg.record(to=tmp_path / "there"):
        ran.append(1)
    assert ran == []
    assert ours() == []
    with tg.record() as trace:
        torch.ones(1)
    assert len(trace) == 1, "the next recording is not touched by it"


FULL = """
import resource, signal, sys, threading, time, warnings
import torch, torchglass as tg
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with tg.record(to=sys.argv[1]) as trace:
    torch.ones(2); time.sleep(1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    total = torch.zeros(1)
    for n in range(3_000):
        total = total + n
    tg.mark("big", torch.ones(1_000_000))
    time.sleep(0.2)
    total = total + 1
print(total.item(), len(trace), [each.name for each in threading.enumerate()])
print([note.partition("could not be written")[2] for note in trace.notes])
"""


def test_a_full_disk(tmp_path: Path) -> None:
    """The program finishes with the same result and one warning; the trace says that it is incomplete."""
    command = [sys.executable, "-c", FULL, str(tmp_path / "run.trace")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == 0, done.stderr
    reason = " any more: File too large; the trace there is incomplete; the one in memory is whole"
    assert done.stdout == f"4498501.0 3005 ['MainThread']\n{[reason]}\n"
    assert done.stderr.count("RuntimeWarning: torchglass: ") == 1
    assert "could not be written any more" in done.stderr
    loaded = tg.load(tmp_path / "run.trace")
    assert not loaded.tables.complete
    assert [event.name for event in loaded.events()][:1] == ["ones"]
    assert "(incomplete)" in str(loaded)


def test_a_fork_inside_the_block(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with tg.record(to=tmp_path / "run.trace") as trace:
            torch.ones(2)
            child = os.fork()
            if not child:
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            torch.zeros(2)
    assert [event.name for event in trace.events()] == ["ones", "zeros"]
    mine = [event.name for event in tg.load(tmp_path / "run.trace").events() if event.process == os.getpid()]
    assert mine == ["ones", "zeros"]
    assert ours() == []


def test_our_threads_are_not_recorded(tmp_path: Path) -> None:
    with tg.record(to=tmp_path / "run.trace") as trace:
        tg.mark("x", torch.ones(2))
        assert {"torchglass stream", "torchglass tensors"} <= set(ours())
        time.sleep(0.1)
    assert {event.thread for event in trace.events()} == {threading.current_thread().name}
    assert ours() == []


def test_a_function_without_tensors_that_goes_on_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is an event is known at its end: what it calls waits, but not for ever."""
    monkeypatch.setattr(stream, "PATIENCE_NS", 30_000_000)

    def act() -> None:
        torch.nn.init.trunc_normal_(torch.empty(3))
        torch.manual_seed(0)
        torch.autograd.functional.jacobian(lambda x: (time.sleep(0.1), x * 2)[1], torch.ones(2))

    streamed(tmp_path / "run.trace", act)


def test_only_what_was_chosen_is_written(tmp_path: Path) -> None:
    with tg.record(to=tmp_path / "run.trace", only=tg.select(function="sum")) as trace:
        torch.ones(2).sum()
    assert [event.name for event in trace.events()] == ["Tensor.sum"]
    assert [event.name for event in tg.load(tmp_path / "run.trace").events()] == ["Tensor.sum"]


def test_forks_do_not_put_off_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our thread ends before each fork and begins again after it, but keeps its appointment."""
    monkeypatch.setattr(stream, "FIRST_PAUSE", 0.2)
    with tg.record(to=tmp_path / "run.trace") as trace:
        torch.ones(2)
        until = time.monotonic() + LONGEST
        while len(tg.load(tmp_path / "run.trace")) < 1:
            assert time.monotonic() < until
            stream.pause_all()
            stream.resume_all()
            time.sleep(0.02)
    assert len(trace) == 1
