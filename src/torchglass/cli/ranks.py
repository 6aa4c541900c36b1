"""Records the ranks that a launcher (torchrun) starts under `torchglass run`.

A launcher starts python once for each rank, with the rank in its environment. That command becomes `python -m
torchglass run --to THE_BUNDLE …`, and joins. Whatever else the program starts is left alone.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from torchglass.store.bundle import RUN

RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")
"""What a launcher puts into the environment of a rank, and what is missing or different in its own."""
FLAGS = re.compile(r"-[bBdEIOPqsuv]+|-[XW].+")
"""Flags of python that change nothing in how a program is found."""
BINDERS = ("numactl", "taskset")
"""Commands that run another on certain cores."""


@dataclass
class Ranks:
    """Changes commands that start ranks, so that they write to a bundle. Without one it says why they do not."""

    options: list[str]
    """The options of `torchglass run` for the ranks."""
    bundle: Path | None
    run: str = ""
    started: int = 0
    """How many ranks have been started that are recorded."""
    _said: list[str] = field(default_factory=list[str])

    def follow(self) -> None:
        """Change commands from now on, until this process ends."""
        begin = subprocess.Popen.__init__

        @functools.wraps(begin)
        def __init__(popen: Any, *given: Any, **options: Any) -> None:
            if given:
                args = given[0]
            else:
                args = options.get("args")
            try:
                changed = self.changed(args, options)
            except Exception:  # an argument is wrong: the launcher will report it
                changed = None
            if changed is not None:
                command, environment = changed
                given = (command, *given[1:])
                options = {**options, "env": environment}
                options.pop("args", None)
            begin(popen, *given, **options)

        popen_class: Any = subprocess.Popen
        popen_class.__init__ = __init__

    def changed(
        self, args: Any, options: Mapping[str, Any]
    ) -> tuple[list[str], dict[str, str]] | None:
        """Return the command and environment that record a rank, or None if that is not possible or it is no rank."""
        environment: Any = options.get("env")
        if not is_rank(environment) or isinstance(args, str | bytes) or options.get("shell"):
            return None
        command: list[str] = [os.fspath(each) for each in args]
        if Path(command[0]).name == "torchglass":
            return None
        python = python_at(command, environment)
        begin = None
        if python is not None:
            begin = program_at(command, python + 1)
        if begin is None:
            return self._say(
                f"{command[0]} is not the python of this torchglass, or does not run a file or module"
            )
        interpreter = command[:begin]
        program = command[begin:]
        if program[:2] == ["-m", "torchglass"]:
            return None
        if self.bundle is None:
            return self._say("they need a bundle, and --to PATH names one")
        self.started += 1
        ours = ["-m", "torchglass", "run", *self.options, "--to", str(self.bundle), "--"]
        return [*interpreter, *ours, *program], {**environment, RUN: self.run}

    def _say(self, reason: str) -> None:
        """Print a reason, once."""
        if reason not in self._said and sys.stderr is not None:
            self._said.append(reason)
            sys.stderr.write(
                f"torchglass: the ranks that are started here are not recorded: {reason}\n"
            )


def is_rank(environment: Any) -> bool:
    """Return whether a child with this environment is another rank than this process."""
    if not isinstance(environment, Mapping):
        return False
    of_child = [cast("Mapping[str, str]", environment).get(name) for name in RANK]
    own = [os.environ.get(name) for name in RANK]
    return None not in of_child and of_child != own


def python_at(command: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Return the position of this python in a command. Another python may not have torchglass."""
    searched = command[:1]
    if Path(command[0]).name in BINDERS:
        searched = command
    for index, word in enumerate(searched):
        if _is_this_python(word, environment):
            return index
    return None


def _is_this_python(word: str, environment: Mapping[str, str]) -> bool:
    """Compare folder and file: environments share one file, but each has a folder of its own."""
    found = shutil.which(word, path=environment.get("PATH"))
    if found is None or Path(found).absolute().parent != Path(sys.executable).parent:
        return False
    return Path(found).samefile(sys.executable)


def program_at(command: Sequence[str], begin: int) -> int | None:
    """Return the position of the program after python's own flags: of a path, or of -m and a module."""
    index = begin
    while index < len(command):
        word = command[index]
        if word[:2] == "-m" or not word.startswith("-"):
            return index
        if word in ("-X", "-W"):
            # Its value follows as a word of its own.
            index += 1
        elif not FLAGS.fullmatch(word):
            return None
        index += 1
    return None
