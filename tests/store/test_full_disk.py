"""A disk that is full stops no program: the recording goes on in memory, says so once, and what was kept loads."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import torchglass as tg
from tests.store.samples import recorded
from torchglass.journal import backing
from torchglass.store import load, open_part, repair, save
from torchglass.store.shards import HEADER

ROUNDS = 2000
PROGRAM = """
import resource, signal, sys
import torch, torchglass as tg
from torchglass.journal import backing
path, limit, what, system = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
backing.file_system = lambda _: system
signal.signal(signal.SIGXFSZ, signal.Handlers[sys.argv[5]])
x = torch.ones(4)
with tg.record(to=path) as trace:
    x = x + 1
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    for number in range(2000):
        x = x + 1
        if what == "tensors" and number % 10 == 0:
            tg.mark("x", torch.full((5_000,), number))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
sums = [int(trace.tensor(value)[0]) for value in trace.kept()]
print(x[0].item(), len(trace), sums == list(range(0, 2000, 10)) or sums)
assert any("could not be written any more" in note and "in memory is whole" in note for note in trace.notes)
tg.save(trace, path + ".again")
"""
"""A limit on the size of files stands for the disk."""


@pytest.mark.parametrize("on_signal", ["SIG_IGN", "SIG_DFL"])
@pytest.mark.parametrize(
    ("what", "system", "limit"),
    [
        ("events", "ext4", 400_000),
        ("events", "nfs", 250_000),
        ("tensors", "ext4", HEADER + 500_000),
        ("tensors", "nfs", HEADER + 500_000),
    ],
)
def test_the_program_goes_on(tmp_path: Path, what: str, system: str, limit: int, on_signal: str) -> None:
    """Also where the signal that comes with such a limit would end the program."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "x"), str(limit), what, system, on_signal]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    events = ROUNDS + 1 if what == "events" else ROUNDS + 1 + 2 * ROUNDS // 10
    assert done.stdout == f"2002.0 {events} {True if what == 'tensors' else []}\n"
    assert done.stderr.count("RuntimeWarning") == 1
    assert "could not be written any more: File too large" in done.stderr
    self_check(tmp_path / "x", events, what)
    repair(tmp_path / "x")
    self_check(tmp_path / "x", events, what)
    again = tg.load(tmp_path / "x.again")
    assert len(again) == events
    assert len(again.kept()) == (200 if what == "tensors" else 0)


def self_check(path: Path, events: int, what: str) -> None:
    """What is in the file is the beginning, each event as it was."""
    trace = tg.load(path)
    if what == "tensors":
        assert trace.complete
        assert len(trace) == events
        assert any("'x' is not in the bundle: File too large" in note for note in trace.notes)
    else:
        assert not trace.complete
        assert any("has no end" in note for note in trace.notes)
        (lost,) = (note for note in trace.notes if "steps were not kept: the file could take no more" in note)
        assert lost.endswith("(File too large)")
        assert [int(word.replace(",", "")) for word in lost.split(" steps")[0].split(" of ")] == [
            events - len(trace),
            events,
        ]
    added = list(trace.events(function="Tensor.add"))
    assert 0 < len(added) <= ROUNDS + 1
    if what == "events":
        assert len(added) < events
    assert {(event.args, event.result) for event in added} == {("f32[4], 1", "f32[4]")} or {
        event.inputs[0].shape for event in added
    } == {(4,)}
    kept = [int(trace.tensor(value)[0]) for value in trace.kept()]
    assert kept == list(range(0, 10 * len(kept), 10))
    assert (0 < len(kept) < 200) == (what == "tensors")


def test_no_room_for_one_more_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a recording, in the living process: what comes later is in memory only."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def run() -> tg.Trace:
        with tg.record(to=tmp_path / "x") as trace:
            for _ in range(100):
                torch.ones(2)
            tg.mark("before", torch.arange(3))
            monkeypatch.setattr(backing.os, "posix_fallocate", full)
            for _ in range(5000):
                torch.zeros(2)
            tg.mark("after", torch.arange(4))
        return trace

    with pytest.warns(RuntimeWarning, match="could not be written any more: No space left on device") as told:
        trace = run()
    assert len(told) == 1
    assert len(trace) == 5104
    assert {name: trace.tensor(value).tolist() for value, name in trace.kept().items()} == {
        "before": [0, 1, 2],
        "after": [0, 1, 2, 3],
    }
    stored = tg.load(tmp_path / "x")
    assert [event.name for event in stored.events()][:101] == ["ones"] * 100 + ["arange"]
    assert 102 <= len(stored) < 5104
    assert list(stored.kept().values()) == ["before"]


def test_where_warnings_are_errors(tmp_path: Path) -> None:
    part = open_part(tmp_path / "x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        part.report(OSError(28, "No space left on device"))
    assert part.problem is not None


def test_saving_keeps_nothing(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from torchglass.store import load, save\n"
        "from torchglass.errors import BundleError\n"
        "tables = load(sys.argv[1]).tables(); signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "try: save(tables, sys.argv[2])\n"
        "except BundleError as error: print(error)\n"
    )
    save(recorded("expressions"), tmp_path / "x")
    command = [sys.executable, "-c", code, str(tmp_path / "x"), str(tmp_path / "y")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    assert "y" in done.stdout
    assert "nothing was kept" in done.stdout or "cannot be made" in done.stdout
    assert not (tmp_path / "y").exists()
    assert len(load(tmp_path / "x").tables()) > 0
