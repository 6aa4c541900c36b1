"""A child that a C library forked, without telling Python, leaves the parent's journal alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import torchglass as tg
from torchglass.journal.forks import WIPE_ON_FORK

PROGRAM = """
import ctypes, os, sys, time, torch, torchglass as tg
from torch import nn

path, library, wanted = sys.argv[1:]
fork = getattr(ctypes, library)(None).fork

class Forks(nn.Module):
    def forward(self, x):
        self.child = fork()
        if self.child == 0:
            time.sleep(1)  # the parent is behind what it wrote itself by now
            for _ in range(50):
                x = x * 3
        return x + 1

model = Forks()
with tg.record(to=path, **{wanted: True}) as trace:
    y = model(torch.ones(3))
    if model.child == 0:
        for _ in range(3000):
            y = y - 1
        os._exit(0)
    for number in range(20):
        y = y - number
    os.waitpid(model.child, 0)
print(len(trace))
"""


@pytest.mark.skipif(sys.platform != "linux", reason=f"madvise({WIPE_ON_FORK}) is of Linux")
@pytest.mark.parametrize("wanted", ["ops", "variables"])
@pytest.mark.parametrize("library", ["PyDLL", "CDLL"])  # with Python's lock, and without
def test_the_child_of_a_c_library_writes_nothing(tmp_path: Path, library: str, wanted: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "x"), library, wanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    trace = tg.load(tmp_path / "x")
    assert len(trace) == int(done.stdout)
    assert trace.notes == ()
    assert list(trace.events(function="Tensor.mul")) == []
    assert [event.args for event in trace.events(function="Tensor.sub")] == [f"f32[3], {n}" for n in range(20)]
