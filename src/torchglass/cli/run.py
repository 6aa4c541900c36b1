"""Run a script or module, unchanged, and record what it does to its tensors.

The program behaves as under `python`: same output, arguments, exit status and traceback. What was recorded is
kept in a bundle, also when the program fails or is interrupted; the story of a failure stands below the traceback
(--quiet leaves it out). Without --to the newest run has the plain name; an earlier train.trace becomes
train-1.trace. Child processes and the ranks of a torchrun write to the same bundle.

examples:
  torchglass run train.py --epochs 1            keep the trace in train.trace
  torchglass run --to run.trace --ops train.py  with every aten op, in run.trace
  torchglass run --ops --first-bad train.py     where does the NaN come from?
  torchglass run --show tree -m mypackage       print the tree at the end, keep nothing
  torchglass run -m torch.distributed.run --nproc-per-node 2 train.py
  torchrun --nproc-per-node 2 --no-python torchglass run train.py
"""

from __future__ import annotations

import argparse
import atexit
import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

from torchglass.cli.program import CannotStart, Program, find_module, find_script, print_uncaught, watch_others
from torchglass.errors import BundleError, TorchglassError
from torchglass.events.spelling import clean
from torchglass.options import Options

FAILED, WRONG_USE = 1, 2
OWN = ("--to", "--show", "--quiet")
"""Options of a run as a whole; its ranks have all others too."""
FLAGS = {each.name: each for each in fields(Options) if "flag" in each.metadata}
"""The options of ``record()`` that can be given here."""
VALUED = {"--show", *(f"--{name.replace('_', '-')}" for name, each in FLAGS.items() if type(each.default) is not bool)}
"""Options that are followed by a value."""
MOST_NAMES = 100
"""How many names of our own choosing are tried."""


def configure(parser: argparse.ArgumentParser) -> None:
    """What to record and where to keep it; then the program and its own arguments."""
    from torchglass.api import VIEWS

    parser.allow_abbrev = False  # split() must know each option that is followed by a value
    parser.usage = "torchglass run [options] (SCRIPT | -m MODULE) [arguments …]"
    for name, each in FLAGS.items():
        flag, said = name.replace("_", "-"), dict[str, Any](each.metadata["flag"])
        if type(each.default) is bool:
            switch, usual = ("no-", "false") if each.default else ("", "true")
            parser.add_argument(f"--{switch}{flag}", dest=name, action=f"store_{usual}", **said)
        else:
            said.setdefault("default", each.default)
            parser.add_argument(f"--{flag}", **said)
    parser.add_argument(
        "--first-bad", action="store_true", help="at the end, tell where the first NaN or Inf came from"
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing at the end, nor why the program failed")
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


def for_ranks(own: Sequence[str]) -> list[str]:
    """Of our own arguments those that ranks have too."""
    kept: list[str] = []
    rest = list(own)
    while rest:
        option = rest.pop(0)
        taken = [option, *(rest[:1] if option in VALUED else [])]
        del rest[: len(taken) - 1]
        if option.partition("=")[0] not in OWN:
            kept += taken
    return kept


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
    if isinstance(ending.error, KeyboardInterrupt):
        raise ending.error  # python itself then ends by SIGINT, once everything is put away
    return FAILED


def _begun(program: Program, options: argparse.Namespace, frame: FrameType) -> _Ending:
    """Begin to record, and have ranks that the program starts do so too."""
    from torchglass import children
    from torchglass.cli.ranks import Ranks
    from torchglass.store.bundle import RUN

    chooses = not options.to and not options.show and os.environ.get("TORCHGLASS") != "0"
    try:
        ending = _begun_anew(program.title, options, frame) if chooses else _begun_at(options.to, options, frame)
    except BundleError as error:
        raise BundleError(f"{error}; --to PATH names another") from None
    os.environ.pop(RUN, None)  # it was meant for this process
    told = children.told()
    if told is not None:
        ending.bundle = Path(told["path"])
    if os.environ.get("TORCHGLASS") != "0":
        ending.ranks = Ranks(for_ranks(options.own), ending.bundle, told["run"] if told is not None else "")
        ending.ranks.follow()
    return ending


def _begun_anew(title: str, options: argparse.Namespace, frame: FrameType) -> _Ending:
    """Under a name of our own choosing; one that somebody else takes at this moment gives way to the next."""
    from torchglass.cli.names import free_name

    importlib.import_module("torchglass.capture.recorder")  # it takes seconds: not while others wait for the folder
    tried: list[str] = []
    while True:
        try:
            with free_name(title, tried) as name:
                tried.append(name.path.name)
                ending = _begun_at(name.path, options, frame)
        except BundleError as error:
            if isinstance(error.__context__, FileExistsError) and len(tried) < MOST_NAMES:
                continue
            raise
        if name.said and sys.stderr is not None:
            print(f"torchglass: {name.said}", file=sys.stderr)
        return ending


def _begun_at(to: str | Path | None, options: argparse.Namespace, frame: FrameType) -> _Ending:
    from torchglass.api import record

    ending = _Ending(record(**_asked_for(options, to)), options)
    ending.trace = ending.recording.begin_program(frame)
    return ending


def _asked_for(options: argparse.Namespace, to: str | Path | None) -> dict[str, Any]:
    """The options as ``record()`` takes them."""
    asked: dict[str, Any] = {name: getattr(options, name) for name in FLAGS} | {"to": to or None}
    asked["variables"] = _words(",".join(options.variables))
    asked["calls"] = _words(options.calls)
    asked["values"] = _values(options.values) or ("stats" if options.first_bad else None)
    return asked


def _words(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _values(given: str | None) -> Any:
    """A word, or which events are meant: ``module=encoder.*,function=softmax``."""
    if given is None or "=" not in given:
        return given
    from torchglass.cli.views import selection

    return selection(given.split(","), "--values")


def _tell_what_is_missing(trace: Any) -> None:
    """Where --values named nothing that ran, the run was in vain."""
    for note in trace.notes:
        if "kept nothing: " in note and sys.stderr is not None:
            print(f"torchglass: {clean(note)}", file=sys.stderr)


class _Ending:
    """What happens when the program and its exit handlers are done."""

    def __init__(self, recording: Any, options: argparse.Namespace) -> None:
        self.recording = recording
        self.view, self.first_bad, self.is_quiet = options.show, options.first_bad, options.quiet
        self.trace: Any = None
        self.bundle: Path | None = None
        self.ranks: Any = None
        self.error: BaseException | None = None
        self._process = os.getpid()

    def __call__(self) -> None:
        if os.getpid() != self._process:
            return  # a forked child that ends by itself
        error, self.error = self.error, None  # what it holds ends as it would without us
        try:
            self.recording.__exit__(type(error) if error else None, error, None)
            self._tell(is_fault=not isinstance(error, KeyboardInterrupt))  # who pressed Ctrl-C asks for no story
        except KeyboardInterrupt:  # somebody is in a hurry; what was recorded is kept by now
            pass
        except TorchglassError as problem:
            print(f"torchglass: {problem}", file=sys.stderr)
        except (OSError, ValueError):  # nobody reads, or the program closed it
            pass
        finally:
            del error

    def _tell(self, is_fault: bool) -> None:
        from torchglass.api import first_bad, load, show

        trace = self.trace
        in_child = bool(trace.left_by) and trace.failure() is None
        if self.bundle is not None and (self.ranks.started or in_child):
            trace = load(self.bundle)  # the launcher itself does little with tensors, and a worker may have failed
        if not self.is_quiet:
            _tell_what_is_missing(trace)
        if self.view or self.first_bad:
            sys.stdout.flush()
        if self.view:
            show(trace, self.view)
        if self.first_bad:
            print(first_bad(trace) or "torchglass: no value that was measured is NaN or infinite, unless it was meant")
        if not self.view and self._is_to_say():
            failed = is_fault and trace.failure() is not None
            if failed:
                print(file=sys.stderr)
                show(trace, "failure", file=sys.stderr)
            if failed or sys.stderr.isatty():
                told = f"{len(trace):,} events kept; to see them: torchglass show {self.recording.to}"
                print(f"torchglass: {told}", file=sys.stderr)

    def _is_to_say(self) -> bool:
        """Nobody asked for silence, and of several ranks this is the first."""
        from torchglass.store.bundle import read_manifest

        if self.is_quiet or sys.stderr is None or self.bundle is None:
            return False
        return read_manifest(self.bundle)["owner"] == self._process
