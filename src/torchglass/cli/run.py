"""Run a script or module, unchanged, and record what it does to its tensors.

The program behaves as under `python`: same output, arguments, exit status and traceback. The trace is kept in a
bundle, even if the program fails or is interrupted. Below the traceback of a failure stands an explanation
(--quiet omits it). Without --to the bundle is train.trace, and an earlier train.trace is renamed train-1.trace.
Child processes and the ranks of a torchrun write to the same bundle.

examples:
  torchglass run train.py --epochs 1            keep the trace in train.trace
  torchglass run --to run.trace --ops train.py  with every aten op, in run.trace
  torchglass run --ops --first-bad train.py     where does the NaN come from?
  torchglass run --against reference.trace port.py   where does it first differ from that run?
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
from typing import TYPE_CHECKING, Any

from torchglass.cli.output import print_json
from torchglass.cli.program import (
    CannotStart,
    Script,
    find_module,
    find_script,
    print_uncaught,
    watch_others,
)
from torchglass.cli.repeats import Repeats
from torchglass.cli.views import shown_names, view_name
from torchglass.errors import BundleError, TorchglassError, UsageError
from torchglass.events.spelling import clean
from torchglass.options import Options
from torchglass.views.text.style import is_terminal

if TYPE_CHECKING:
    from torchglass.answers.diff import Diff
    from torchglass.answers.finding import Finding

FAILED, WRONG_USE = 1, 2
RUN_OPTIONS = ("--to", "--show", "--quiet", "--against", "--again", "--repeat", "--json", "--keep")
"""Options of the run as a whole. Ranks get all other options too."""
FLAGS = {each.name: each for each in fields(Options) if "flag" in each.metadata}
"""The options of ``record()`` that can be given here."""
OPTIONS_WITH_VALUE = {
    "--show",
    "--against",
    "--again",
    "--repeat",
    "--keep",
    *(
        f"--{name.replace('_', '-')}"
        for name, each in FLAGS.items()
        if type(each.default) is not bool
    ),
}
"""Options that are followed by a value."""
MAX_EVENTS_CHECKED = 1_000_000
"""A run with more events than this is checked only on request."""
NOTHING_BAD = "no measured value is NaN or infinite, apart from masks and the like"
MAX_NAMES_TRIED = 100
"""How many names are tried for a bundle."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``record()``, and those of the run as a whole."""
    parser.allow_abbrev = False  # split() must know each option that is followed by a value
    parser.usage = "torchglass run [options] (SCRIPT | -m MODULE) [arguments …]"
    _add_options_of_record(parser)
    parser.add_argument(
        "--first-bad",
        action="store_true",
        help="at the end, print where the first NaN or Inf came from",
    )
    parser.add_argument(
        "--against",
        metavar="A",
        help="at the end, compare with this bundle, as `torchglass diff` does; records ops and fingerprints",
    )
    parser.add_argument(
        "--again",
        metavar="A2",
        help="with --against: a second run of A; differences between A and A2 are taken for noise",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="with --against: run the program N times, silently after the first; what its runs differ in is noise",
    )
    parser.add_argument(
        "--keep",
        dest="keep_runs",
        type=int,
        metavar="N",
        help="keep only the newest N of the renamed earlier traces (train-1.trace …); default: all",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="at the end, print a summary on stderr as one line of JSON",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="print nothing at the end, not even why the program failed",
    )
    parser.add_argument(
        "--show",
        metavar="VIEW",
        help=f"print this view at the end ({shown_names()}); without --to no bundle is kept",
    )


def _add_options_of_record(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each option. A switch that is on by default gets --no-NAME, one that is off gets --NAME."""
    for name, option in FLAGS.items():
        flag = name.replace("_", "-")
        arguments = dict[str, Any](option.metadata["flag"])
        if option.default is True:
            parser.add_argument(f"--no-{flag}", dest=name, action="store_false", **arguments)
        elif option.default is False:
            parser.add_argument(f"--{flag}", dest=name, action="store_true", **arguments)
        else:
            arguments.setdefault("default", option.default)
            parser.add_argument(f"--{flag}", **arguments)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate our own arguments from the program and its arguments, which argparse would take for ours."""
    own: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0][:2] != "-m" and rest[0] not in ("-", "--"):
        option = rest.pop(0)
        own.append(option)
        if option in OPTIONS_WITH_VALUE and rest:
            own.append(rest.pop(0))
    if rest[:1] == ["--"]:
        del rest[0]
    if rest and rest[0][:2] == "-m" and rest[0] != "-m":  # python takes -mpackage too
        rest[:1] = ["-m", rest[0][2:]]
    return own, rest


def for_ranks(own: Sequence[str]) -> list[str]:
    """Return those of our own arguments that ranks get too."""
    kept: list[str] = []
    rest = list(own)
    while rest:
        option = [rest.pop(0)]
        if option[0] in OPTIONS_WITH_VALUE and rest:
            option.append(rest.pop(0))
        name = option[0].partition("=")[0]
        if name not in RUN_OPTIONS:
            kept += option
    return kept


def run(options: argparse.Namespace) -> int:
    """Find the program and record it from its first line to its last exit handler. Return its exit status."""
    if options.show is not None:
        options.show = view_name(options.show)
    if options.keep_runs is not None and options.keep_runs < 0:
        raise UsageError(
            f"--keep {options.keep_runs}: 0 removes all earlier traces, 1 keeps the newest of them"
        )
    if options.repeat < 1 or (options.repeat > 1 and not options.against):
        raise UsageError(f"--repeat {options.repeat}: 2 or more runs, and only with --against A")
    try:
        program = _find(options)
    except CannotStart as error:
        return error.report()
    # The program was found, but it cannot be compiled, or a package around it cannot be imported.
    except Exception as error:
        is_module = options.program[0] == "-m"
        if not is_module:
            error = error.with_traceback(None)
        print_uncaught(error, by_runpy=is_module)
        return FAILED
    if program is None:
        print(
            "torchglass run: no program given: give a script, or -m and a module", file=sys.stderr
        )
        return WRONG_USE
    # Exit instead of returning, so that Python handles its end as usual (a closed stdout, for example).
    sys.exit(_record(program, options))


def _find(options: argparse.Namespace) -> Script | None:
    first, *rest = options.program or [""]
    if first == "-m":
        if rest:
            return find_module(rest[0], rest[1:])
        return None
    if first:
        return find_script(first, rest)
    return None


def _record(program: Script, options: argparse.Namespace) -> int:
    frame = inspect.currentframe()
    assert frame is not None
    ending = _start(program, options, frame)
    # Registered before the exit handlers of the program, so it runs after them and they are recorded too.
    atexit.register(ending)
    watch_others()
    try:
        program.run()
        return 0
    except SystemExit:
        raise
    except CannotStart as error:
        return error.report()
    except BaseException as error:
        ending.error = error
    # Print outside the handler. Otherwise an exception of the program's excepthook would have this one as its context.
    print_uncaught(ending.error, program.by_runpy)
    if isinstance(ending.error, KeyboardInterrupt):
        raise ending.error  # Python then ends the process by SIGINT, after its cleanup
    return FAILED


def _start(program: Script, options: argparse.Namespace, frame: FrameType) -> _Ending:
    """Start recording, and make ranks that the program starts record too."""
    from torchglass import children
    from torchglass.cli.ranks import Ranks
    from torchglass.store.bundle import RUN

    chooses = not options.to and not options.show and os.environ.get("TORCHGLASS") != "0"
    try:
        if chooses:
            ending = _start_in_free_name(program.title, options, frame)
        else:
            ending = _start_in(options.to, options, frame)
    except BundleError as error:
        raise BundleError(f"{error}; --to PATH names another") from None
    os.environ.pop(RUN, None)  # the variable was for this process, not for its children
    inherited = children.child_config()
    if inherited is not None:
        ending.set_bundle(Path(inherited["path"]))
    if os.environ.get("TORCHGLASS") != "0":
        run = ""
        if inherited is not None:
            run = inherited["run"]
        ending.ranks = Ranks(for_ranks(options.own), ending.bundle, run)
        ending.ranks.follow()
    return ending


def _start_in_free_name(title: str, options: argparse.Namespace, frame: FrameType) -> _Ending:
    """Start recording into a bundle whose name we choose. If another process takes the name first, try the next."""
    from torchglass.cli.names import free_name

    # Import the recorder now, because that takes seconds and later other processes wait for the folder.
    importlib.import_module("torchglass.capture.recorder")
    tried: list[str] = []
    while True:
        try:
            with free_name(title, tried) as name:
                tried.append(name.path.name)
                ending = _start_in(name.path, options, frame)
        except BundleError as error:
            if isinstance(error.__context__, FileExistsError) and len(tried) < MAX_NAMES_TRIED:
                continue
            raise
        if name.message and sys.stderr is not None:
            print(f"torchglass: {name.message}", file=sys.stderr)
        if options.keep_runs is not None:
            _remove_old(title, options.keep_runs)
        return ending


def _remove_old(title: str, keep: int) -> None:
    """Remove earlier traces of the program, and say which."""
    from torchglass.cli.names import remove_old

    removed = remove_old(title, keep)
    if removed and sys.stderr is not None:
        names = ", ".join(clean(path.name) for path in removed)
        print(f"torchglass: removed {names} (--keep {keep})", file=sys.stderr)


def _start_in(to: str | Path | None, options: argparse.Namespace, frame: FrameType) -> _Ending:
    from torchglass.api import record

    ending = _Ending(record(**_record_options(options, to)), options)
    ending.trace = ending.recording.begin_program(frame)
    return ending


def _record_options(options: argparse.Namespace, to: str | Path | None) -> dict[str, Any]:
    """Return the options as ``record()`` takes them."""
    chosen: dict[str, Any] = {name: getattr(options, name) for name in FLAGS}
    chosen["to"] = to or None
    chosen["variables"] = _words(",".join(options.variables))
    chosen["calls"] = _words(options.calls)
    values = _values(options.values)
    if not values and options.against:
        values = "stats+sketch"
    elif not values and options.first_bad:
        values = "stats"
    chosen["values"] = values or None
    if options.against:
        chosen["ops"] = True
    return chosen


def _recorded_to_compare(options: argparse.Namespace) -> list[str]:
    """Return what --against adds to the options of a run."""
    if options.values:
        return ["--ops"]
    return ["--ops", "--values", "stats+sketch"]


def _words(text: str) -> list[str]:
    """Return the words of a list with commas, without spaces around them."""
    words = [word.strip() for word in text.split(",")]
    return [word for word in words if word]


def _values(text: str | None) -> Any:
    """Return a word such as ``stats`` as it is, and a selection for ``module=encoder.*,function=softmax``.

    A pattern without a key has that of the one before: ``module=3,4``.
    """
    if text is None or "=" not in text:
        return text
    from torchglass.cli.views import selection

    patterns: list[str] = []
    key = ""
    for pattern in text.split(","):
        if "=" in pattern:
            key = pattern.partition("=")[0]
            patterns.append(pattern)
        elif key:
            patterns.append(f"{key}={pattern}")
        else:
            patterns.append(pattern)
    return selection(patterns, "--values")


def _print_empty_selections(trace: Any) -> None:
    """Print the note that --values matched nothing that ran."""
    for note in trace.notes:
        if "kept nothing: " in note and sys.stderr is not None:
            print(f"torchglass: {clean(note)}", file=sys.stderr)


class _Ending:
    """What happens after the program and its exit handlers."""

    def __init__(self, recording: Any, options: argparse.Namespace) -> None:
        self.recording = recording
        self.view = options.show
        self.first_bad = options.first_bad
        self.is_quiet = options.quiet
        self.as_json = options.json
        self.against = options.against
        self.again = options.again
        self._repeats: Repeats | None = None
        if options.repeat > 1:
            self._repeats = Repeats(
                [*for_ranks(options.own), *_recorded_to_compare(options)],
                options.program,
                options.repeat - 1,
            )
        self.trace: Any = None
        self.bundle: Path | None = None
        self._is_owner = True
        """Whether this process made the bundle; True if there is none."""
        self.ranks: Any = None
        self.error: BaseException | None = None
        self._process = os.getpid()

    def __call__(self) -> None:
        if os.getpid() != self._process:
            return  # this is a forked child, which ends on its own
        error = self.error
        self.error = None  # so that the exception's objects are freed as early as without recording
        try:
            self.recording.__exit__(type(error) if error else None, error, None)
            # A user who pressed Ctrl-C does not want an explanation of the failure.
            self._report(is_fault=not isinstance(error, KeyboardInterrupt))
        except KeyboardInterrupt:  # the user is in a hurry, and the recording has been saved
            pass
        except TorchglassError as problem:
            print(f"torchglass: {problem}", file=sys.stderr)
        except (OSError, ValueError):  # the reader has ended, or the program closed the stream
            pass
        finally:
            del error

    def _report(self, is_fault: bool) -> None:
        from torchglass.api import load, show

        trace = self.trace
        in_child = bool(trace.left_by) and trace.failure() is None
        if self.bundle is not None and (self.ranks.started or in_child):
            # Load the whole bundle, because the launcher does little with tensors and a worker may have failed.
            trace = load(self.bundle)
        if self.as_json:
            if self._is_first_rank():
                print_json("run", self._facts(trace), sys.stderr)
            return
        if not self.is_quiet:
            _print_empty_selections(trace)
        if self.view:
            sys.stdout.flush()
            show(trace, self.view)
        if self.first_bad and sys.stderr is not None:
            found = trace.first_bad()
            if found is None:
                found = f"torchglass: {NOTHING_BAD}"
            print(found, file=sys.stderr)
        if self.against:
            self._compare(trace)
        if not self.view and self._may_print_text():
            self._explain(trace, is_fault)

    def _explain(self, trace: Any, is_fault: bool) -> None:
        """Print why the program failed or, if it ended well, what looks wrong; then how to see more."""
        from torchglass.api import show

        failed = is_fault and trace.failure() is not None
        if failed:
            print(file=sys.stderr)
            show(trace, "failure", file=sys.stderr)
        elif is_fault:
            self._check(trace)
        if failed or is_terminal(sys.stderr):
            command = f"torchglass show {self.recording.to}"
            text = f"{len(trace):,} events kept; to see them: {command}"
            print(f"torchglass: {text}", file=sys.stderr)

    def _check(self, trace: Any) -> None:
        """Print what looks wrong, if something does."""
        from torchglass.answers.findings.text import summary_lines
        from torchglass.views.text.style import page_for, writable

        if len(trace) > MAX_EVENTS_CHECKED:
            command = f"torchglass check {self.recording.to}"
            text = f"{len(trace):,} events: to look for bugs in them, {command}"
            print(f"torchglass: {text}", file=sys.stderr)
            return
        findings = self._findings(trace)
        for line in summary_lines(findings, str(self.recording.to), page_for(sys.stderr)):
            print(writable(line, sys.stderr), file=sys.stderr)

    def _compare(self, trace: Any) -> None:
        """Print where this run first differs from a kept one."""
        from torchglass.cli.diff import print_diff

        sys.stdout.flush()
        print_diff(self._diff(trace))

    def _diff(self, trace: Any) -> Diff:
        """Return where this run first differs from a kept one."""
        from torchglass.api import load

        again = []
        if self.again is not None:
            again = [load(self.again)]
        if self._repeats is None:
            return load(self.against).diff(trace, again=again)
        with self._repeats.traces() as other_again:
            return load(self.against).diff(trace, again=again, other_again=other_again)

    def _findings(self, trace: Any) -> Sequence[Finding]:
        """Return what looks wrong in a trace, unless it is too long for a check at the end of the run."""
        from torchglass.answers.findings.check import check
        from torchglass.cli.settings import ignored_names

        if len(trace) > MAX_EVENTS_CHECKED:
            return []
        return check(trace, ignored_names()).findings

    def _facts(self, trace: Any) -> dict[str, Any]:
        """Return a summary of what was recorded, as data."""
        facts: dict[str, Any] = {
            "bundle": None,
            "events": len(trace),
            "complete": trace.complete,
            "failure": _to_dict(trace.failure_story()),
            "first_bad": None,
            "findings": [finding.to_dict() for finding in self._findings(trace)],
            "diff": None,
            "view": None,
            "notes": list(trace.notes),
        }
        if self.bundle is not None:
            facts["bundle"] = str(self.bundle)
        if self.first_bad:
            facts["first_bad"] = _to_dict(trace.first_bad())
        if self.against:
            facts["diff"] = self._diff(trace).to_dict()
        if self.view:
            facts["view"] = trace.to_dict(self.view)
        return facts

    def set_bundle(self, bundle: Path) -> None:
        """Note the bundle of this run, and whether this process made it, as the first of several ranks does.

        At the end it would be too late to ask: another run may have renamed the bundle as soon as it was complete.
        """
        from torchglass.store.bundle import read_manifest

        self.bundle = bundle
        self._is_owner = read_manifest(bundle)["owner"] == self._process

    def _is_first_rank(self) -> bool:
        """Return whether this is the first of several ranks, and stderr is open."""
        return sys.stderr is not None and self._is_owner

    def _may_print_text(self) -> bool:
        """Return whether to print: not with --quiet, only for a bundle, and only in the first of several ranks."""
        return not self.is_quiet and self.bundle is not None and self._is_first_rank()


def _to_dict(answer: Any) -> dict[str, Any] | None:
    """Return an answer as data; None if there is none."""
    if answer is None:
        return None
    return answer.to_dict()
