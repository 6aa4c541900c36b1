"""Sketches in a bundle: of several processes, of one that was killed, and saved again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchglass as tg

PROGRAM = """
import os, signal, sys
import torch
import torch.multiprocessing as mp
import torchglass as tg

def work():
    torch.arange(600.0).view(20, 30).t() * 2

if __name__ == "__main__":
    with tg.record(to="x.trace", values="stats+sketch"):
        torch.arange(600.0) * 2
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        child = mp.get_context("spawn").Process(target=work)
        child.start()
        child.join()
"""


@pytest.mark.parametrize("how", ["two processes", "killed"])
def test_what_other_processes_made_is_found(how: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    run = subprocess.run([sys.executable, "program.py", how], cwd=tmp_path, timeout=120, check=False)
    assert run.returncode == (-signal.SIGKILL if how == "killed" else 0)
    trace = tg.load(tmp_path / "x.trace")
    tg.save(trace, tmp_path / "again.trace")
    for each in (trace, tg.load(tmp_path / "again.trace")):
        found = [str(one.likeness) for one in each.find(torch.arange(600.0) * 2)]
        expected = ["equal bits", "the same numbers in another order"]
        assert found == (expected if how == "two processes" else expected[:1])


def test_what_the_ring_gave_up_has_no_sketch_and_what_it_kept_has(tmp_path: Path) -> None:
    with tg.record(values="stats+sketch", max_events=500, to=tmp_path / "x.trace") as trace:
        for number in range(3000):
            torch.full((4,), float(number))
    for each in (trace, tg.load(tmp_path / "x.trace")):
        kept = [(event, value) for event in each.events(function="full") for value in event.outputs]
        assert 300 < len(kept) <= 500
        assert all(value.sketch is not None and value.stats is not None for _, value in kept)
        assert all(value.sketch.orders[0] == pytest.approx(value.stats.mean * 4) for _, value in kept)
        assert kept[-1][1].stats.mean == 2999
