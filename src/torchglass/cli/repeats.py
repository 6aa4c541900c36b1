"""Runs a program again, without its output, to measure how far apart two runs of it are (``--repeat N``)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torchglass.errors import UsageError

if TYPE_CHECKING:
    from torchglass import Trace


class Repeats:
    """Further runs of a program, in the folder and the environment in which the first one starts."""

    def __init__(
        self, run_options: Sequence[str], program: Sequence[str], number_of_runs: int
    ) -> None:
        """Take the options of ``torchglass run``, and the program with its arguments.

        Create this before the first run: the program may change the folder and the environment.
        """
        self._run_options = run_options
        self._program = program
        self._number_of_runs = number_of_runs
        self._folder = Path.cwd()
        self._environment = dict(os.environ)

    @contextmanager
    def traces(self) -> Generator[list[Trace]]:
        """Run the program as often as asked and yield the traces. Their bundles are deleted at the end of the block."""
        with tempfile.TemporaryDirectory(prefix="torchglass-") as folder:
            bundles = [Path(folder) / f"{run}.trace" for run in range(self._number_of_runs)]
            yield [self._run(bundle) for bundle in bundles]

    def _run(self, bundle: Path) -> Trace:
        from torchglass.api import load

        command = [sys.executable, "-m", "torchglass", "run", "--quiet", "--to", str(bundle)]
        process = subprocess.run(
            [*command, *self._run_options, *self._program],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if not bundle.exists():
            reason = f"exit status {process.returncode}"
            errors = process.stderr.strip().splitlines()
            if errors:
                reason = errors[-1]
            raise UsageError(f"--repeat: a further run of the program recorded nothing: {reason}")
        return load(bundle)
