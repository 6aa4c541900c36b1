"""A process that dies loses nothing that it had recorded: fifty deaths, counted by the programs that die."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).parents[2] / "benchmarks" / "kills.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the programs are forked")
def test_fifty_deaths() -> None:
    command = [sys.executable, str(KILLS), "50", "--seed", str(os.getpid() * 1000), "--longest", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    first, last = done.stdout.splitlines()
    assert first.startswith("50 deaths")
    assert int(first.rpartition(", ")[2].split()[0].replace(",", "")) > 500  # calls that had begun
    assert last == "nothing is missing, every bundle loads"
