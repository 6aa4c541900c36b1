"""A program that closes descriptors which it did not open keeps its own files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import torchglass as tg

PROGRAM = """
import os, sys, time
import torch, torchglass as tg

folder, marks = sys.argv[1], sys.argv[2] == "marks"
x = torch.ones(4)
with tg.record(to=folder + "/run.trace"):
    for _ in range(100):
        x = x + 1
    if marks:
        tg.mark("before", torch.ones(300_000))
    time.sleep(0.7)
    os.closerange(3, 256)
    files = [open(f"{folder}/data{number}.bin", "wb+", buffering=0) for number in range(12)]
    for file in files:
        file.write(b"x" * 300_000)
    for _ in range(2000):
        x = x + 1
    if marks:
        tg.mark("after", torch.ones(300_000))
    time.sleep(0.7)
for file in files:
    file.seek(0)
    assert file.read() == b"x" * 300_000
    file.close()
print(x[0].item())
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list descriptors")
@pytest.mark.parametrize("kind", ["events", "marks"])
def test_files_of_the_program_are_not_written_into(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "2101.0\n"), done.stderr
    assert done.stderr.count("RuntimeWarning") == 1
    assert "the program closed a file that it did not open" in done.stderr
    assert all((tmp_path / f"data{number}.bin").read_bytes() == b"x" * 300_000 for number in range(12))
    trace = tg.load(tmp_path / "run.trace")
    assert 100 <= len(trace) < 2100
    assert "incomplete" in str(trace)
