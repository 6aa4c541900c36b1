"""See what your tensors do.

examples:
  torchglass run train.py           run a script as it is, and record it in train.trace
  torchglass check train.trace      what looks wrong; `torchglass explain NAME` says what that means
  torchglass show train.trace       show the tree; or `show train.trace code`, listing, table …
  torchglass diff a.trace b.trace   where two runs first really differ
  torchglass info train.trace       what was recorded; `values` lists the tensors that were kept
  torchglass sql train.trace "SELECT name, count(*) FROM events GROUP BY name"
  torchglass graph call_trace.txt   draw the call trace of a CallTracer
  torchglass doctor                 what is installed here, and whether recording works
  torchglass --version

With --json every command prints one JSON object, for other programs.
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
from torchglass.errors import TorchglassError, UnknownView
from torchglass.events.spelling import clean

COMMANDS = (
    "run", "check", "explain", "show", "diff", "open", "info", "values", "sql", "repair", "export", "graph", "doctor",
)  # fmt: skip
"""The modules of this package that are commands, in the order of the help."""

OK, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 failed, 2 wrong use, 130 Ctrl-C.

    Under ``run``, Ctrl-C ends the program as under python: the exception leaves, and the process ends by SIGINT.
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
        if isinstance(error, UnknownView):
            return WRONG_USE
        return FAILED
    except KeyboardInterrupt as error:
        if given[:1] == ["run"]:
            from torchglass.cli.program import raise_printed

            # Either the program ended by Ctrl-C, or the user interrupted us.
            raise_printed(error)
        return INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) has ended, which is not our failure
        _print_no_more()
        return OK
    except OSError as error:
        _print_no_more()
        print(
            f"torchglass: {clean(str(error.strerror or error))}: {_where(error)}", file=sys.stderr
        )
        return FAILED


def _run_program(given: list[str]) -> int:
    """Run the command ``run``. Its output is the program's, so nothing is changed in how it is printed."""
    from torchglass.cli import run

    own, program = run.split(given)
    return _run(["run", *own], argparse.Namespace(program=program, own=own))


def _run(given: list[str], known: argparse.Namespace) -> int:
    # Importing all commands takes longer than any of them needs to start, so only the requested one is imported.
    parser = build_parser(given[:1] if given[:1] and given[0] in COMMANDS else COMMANDS)
    _complete(parser)
    options, unknown = parser.parse_known_args(given, known)
    if unknown:
        _refuse(getattr(options, "command", parser), unknown[0])
    if not hasattr(options, "run"):
        parser.print_help(sys.stderr)
        return WRONG_USE
    return options.run(options)


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell if it asks for completions, and exit. Needs the extra ``completion``."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        argcomplete: Any = importlib.import_module("argcomplete")
    except ImportError:
        return
    argcomplete.autocomplete(parser)


def _refuse(command: argparse.ArgumentParser, unknown: str) -> NoReturn:
    """Refuse an unknown argument: print the usage, and suggest the closest option."""
    if not unknown.startswith("-"):
        command.error(f"unexpected argument: {clean(unknown)}")
    lines = re.findall(r"^  (?:-\w, )?--.*", command.format_help(), re.MULTILINE)
    near = difflib.get_close_matches(
        unknown.partition("=")[0], re.findall(r"--[a-z-]+", " ".join(lines)), n=1
    )
    hint = ""
    if near:
        hint = f"did you mean {near[0]}? "
    command.error(f"no option {clean(unknown)}; {hint}`{command.prog} --help` lists them")


def _make_printable() -> None:
    """Keep printing from failing: write ``?`` for what the encoding lacks, and nothing if stdout is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (until the process ends)
        elif name == "stdout" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _print_no_more() -> None:
    """Drop what could not be written: Python would try again at exit, and complain."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # a stream without a file, as in tests
        pass


def _where(error: OSError) -> str:
    if error.filename:
        return clean(os.fsdecode(error.filename))
    return "the output could not be written"


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return a parser with these commands."""
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
