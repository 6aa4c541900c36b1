"""Run a script or module, unchanged, and record what it does to its tensors.

The program behaves as under `python`: same output, arguments, exit status and traceback. What was recorded is
kept in a bundle, also when the program fails or is interrupted.

examples:
  torchglass run train.py --epochs 1            keep the trace in train.trace
  torchglass run --to run.trace --ops train.py  with every aten op, in run.trace
  torchglass run --show tree -m mypackage       print the tree at the end, keep nothing
"""

from __future__ import annotations

import argparse
import atexit
import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from torchglass.cli.program import CannotStart, Program, find_module, find_script
from torchglass.cli.uncaught import print_uncaught, watch_others
from torchglass.errors import BundleError, TorchglassError

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130
VALUED = ("--to", "--fused", "--max-events", "--name", "--show", "--variables")
"""Options that are followed by a value."""
MOST_NAMES = 10_000
"""How many names of our own choosing are tried."""


def configure(parser: argparse.ArgumentParser) -> None:
    """What to record and where to keep it; then the program and its own arguments."""
    from torchglass.api import VIEWS

    parser.allow_abbrev = False  # split() must know each option that is followed by a value
    parser.usage = "torchglass run [options] (SCRIPT | -m MODULE) [arguments …]"
    parser.add_argument("--to", metavar="PATH", help="the bundle to write; default: the script's name with .trace")
    parser.add_argument("--ops", action="store_true", help="record the aten ops below the functions too")
    parser.add_argument(
        "--variables", metavar="NAMES", action="append", help="follow these variables: names or globs, as a,b; * is all"
    )
    parser.add_argument("--no-modules", action="store_true", help="do not record calls of modules")
    parser.add_argument("--no-functions", action="store_true", help="do not record torch functions")
    parser.add_argument("--fused", choices=["keep", "open"], default="keep", help="open: show inside fused attention")
    parser.add_argument("--no-sources", action="store_true", help="keep source texts out of the bundle")
    parser.add_argument("--max-events", type=int, default=1_000_000, metavar="N", help="the most to keep")
    parser.add_argument("--name", default="", help="a title for the trace")
    parser.add_argument("--show", choices=VIEWS, help="print this view at the end; without --to nothing is kept")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and the program with its own: argparse would take options of the program for ours."""
    own: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0][:2] != "-m" and rest[0] not in ("-", "--"):
        option = rest.pop(0)
        own.append(option)
        if option in VALUED and rest:
            own.append(rest.pop(0))
    if rest[:1] == ["--"]:
        del rest[0]
    if rest and rest[0][:2] == "-m" and rest[0] != "-m":  # python takes -mpackage too
        rest[:1] = ["-m", rest[0][2:]]
    return own, rest


def run(options: argparse.Namespace) -> int:
    """Find the program, record it from its first line to its last exit handler; returns its status."""
    try:
        program = _find(options)
    except CannotStart as error:
        return error.told()
    except Exception as error:  # it was found, and cannot be compiled, or a package around it cannot be imported
        is_module = options.program[0] == "-m"
        print_uncaught(error if is_module else error.with_traceback(None), by_runpy=is_module)
        return FAILED
    if program is None:
        print("torchglass run: which program? give a script, or -m and a module", file=sys.stderr)
        return WRONG_USE
    # Not returned: whatever python does at its end (to a closed stdout, say) is between it and the program.
    sys.exit(_record(program, options))


def _find(options: argparse.Namespace) -> Program | None:
    first, *rest = options.program or [""]
    if first == "-m":
        return find_module(rest[0], rest[1:]) if rest else None
    return find_script(first, rest) if first else None


def _record(program: Program, options: argparse.Namespace) -> int:
    frame = inspect.currentframe()
    assert frame is not None
    ending = _begun(program, options, frame)
    # Registered before the program's own exit handlers: so it runs after them, and they are recorded too.
    atexit.register(ending)
    watch_others()
    try:
        program.run()
        return 0
    except SystemExit:
        raise
    except CannotStart as error:
        return error.told()
    except BaseException as error:
        ending.error = error
    # Not in the handler: an exception of the program's own excepthook is none that was raised in answer.
    print_uncaught(ending.error, program.by_runpy)
    return INTERRUPTED if isinstance(ending.error, KeyboardInterrupt) else FAILED


def _begun(program: Program, options: argparse.Namespace, frame: FrameType) -> _Ending:
    """Begin to record; a name of our own choosing that somebody else takes at this moment gives way to the next."""
    from torchglass.api import record

    ours = not options.to and not options.show
    names = _free_names(program.title) if ours else iter([options.to or None])
    refusal: BundleError | None = None
    for to in names:
        ending = _Ending(record(to=to, **_asked_for(options)), options.show)
        try:
            ending.trace = ending.recording.begin_program(frame)
            return ending
        except BundleError as error:
            refusal = error
            if not (ours and isinstance(error.__context__, FileExistsError)):
                break
    raise BundleError(f"{refusal or 'no name is free for the bundle'}; --to PATH names another") from None


def _asked_for(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "modules": not options.no_modules,
        "functions": not options.no_functions,
        "ops": options.ops,
        "variables": tuple(name.strip() for name in ",".join(options.variables or ()).split(",") if name.strip()),
        "fused": options.fused,
        "sources": not options.no_sources,
        "max_events": options.max_events,
        "name": options.name,
    }


def _free_names(stem: str) -> Iterator[str]:
    """``train.trace``, or ``train-2.trace`` when there is one already, and so on: no name comes twice."""
    for number in range(1, MOST_NAMES + 1):
        name = f"{stem}.trace" if number == 1 else f"{stem}-{number}.trace"
        if not os.path.lexists(name):
            yield name


class _Ending:
    """What happens when the program and its exit handlers are done."""

    def __init__(self, recording: Any, view: str | None) -> None:
        self.recording = recording
        self.view = view
        self.trace: Any = None
        self.error: BaseException | None = None
        self._process = os.getpid()

    def __call__(self) -> None:
        if os.getpid() != self._process:
            return  # a forked child that ends by itself
        error = self.error
        try:
            self.recording.__exit__(type(error) if error else None, error, None)
            self._tell()
        except KeyboardInterrupt:  # somebody is in a hurry; what was recorded is kept by now
            pass
        except TorchglassError as problem:
            print(f"torchglass: {problem}", file=sys.stderr)
        except (OSError, ValueError):  # nobody reads, or the program closed it
            pass

    def _tell(self) -> None:
        if self.view:
            from torchglass.api import show

            sys.stdout.flush()
            show(self.trace, self.view)
        elif sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TORCHGLASS") != "0":
            path = self.recording.to
            print(f"torchglass: {len(self.trace):,} events kept; to see them: torchglass show {path}", file=sys.stderr)
