"""See what your tensors do.

examples:
  torchglass run train.py           run a script, unchanged, and keep what it does in train.trace
  torchglass show train.trace       the tree; --view code, listing, table …
  torchglass info train.trace       what is in it; `values`: the tensors kept, `repair`: finish what a kill left
  torchglass graph call_trace.txt   draw the call trace of a CallTracer
  torchglass doctor                 what is installed here, and whether recording works
  torchglass --version
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from torchglass._version import __version__
from torchglass.errors import TorchglassError
from torchglass.events.spelling import clean

COMMANDS = ("run", "show", "open", "info", "values", "repair", "export", "graph", "doctor")
"""The modules of this package that are commands, in the order of the help."""

OK, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 done, 1 failed, 2 wrong use, 130 Ctrl-C.

    A program under ``run`` that Ctrl-C stops ends as under python: by the exception, and so the process by SIGINT.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["run"]:
            return _run_program(given[1:])
        _make_printable()
        try:
            return _run(given, argparse.Namespace())
        finally:
            sys.stdout.flush()
    except TorchglassError as error:
        print(f"torchglass: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt as error:
        if given[:1] == ["run"]:
            from torchglass.cli.program import raise_printed

            raise_printed(error)  # of the program, which has ended by it, or of a user who did not wait for that
        return INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) went away: not our failure
        _print_no_more()
        return OK
    except OSError as error:
        _print_no_more()
        print(f"torchglass: {clean(str(error.strerror or error))}: {_where(error)}", file=sys.stderr)
        return FAILED


def _run_program(given: list[str]) -> int:
    """The command ``run``, whose output is the program's: nothing is changed in how that is printed."""
    from torchglass.cli import run

    own, program = run.split(given)
    return _run(["run", *own], argparse.Namespace(program=program, own=own))


def _run(given: list[str], known: argparse.Namespace) -> int:
    # Importing all commands takes longer than any of them needs to begin: the one that is meant is enough.
    parser = build_parser(given[:1] if given[:1] and given[0] in COMMANDS else COMMANDS)
    options, unknown = parser.parse_known_args(given, known)
    if unknown:
        _refuse(getattr(options, "command", parser), unknown[0])
    if not hasattr(options, "run"):
        parser.print_help(sys.stderr)
        return WRONG_USE
    return options.run(options)


def _refuse(command: argparse.ArgumentParser, unknown: str) -> NoReturn:
    """An argument that the command does not know: its usage, and the option that may have been meant."""
    if not unknown.startswith("-"):
        command.error(f"one argument too many: {clean(unknown)}")
    lines = re.findall(r"^  (?:-\w, )?--.*", command.format_help(), re.MULTILINE)
    near = difflib.get_close_matches(unknown.partition("=")[0], re.findall(r"--[a-z-]+", " ".join(lines)), n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    command.error(f"no option {clean(unknown)}; {hint}`{command.prog} --help` lists them")


def _make_printable() -> None:
    """What we print must never be what fails: ``?`` for what the encoding lacks, nothing where stdout is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (until the process ends)
        elif name == "stdout" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _print_no_more() -> None:
    """What could not be written is dropped: Python would try once more at exit, and complain."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # a stream without a file, as in tests
        pass


def _where(error: OSError) -> str:
    return clean(os.fsdecode(error.filename)) if error.filename else "what was to be printed could not be written"


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser with these commands under it."""
    parser = argparse.ArgumentParser(
        prog="torchglass",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"torchglass {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in commands:
        # A command is a module: its docstring is the help, configure() adds its arguments, run() does it.
        command: Any = importlib.import_module(f"torchglass.cli.{name}")
        text = command.__doc__.strip()
        own = subparsers.add_parser(
            name,
            help=text.partition("\n")[0].rstrip("."),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.configure(own)
        own.set_defaults(run=command.run, command=own)
    return parser
