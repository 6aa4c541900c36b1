"""torchspy's script: draw a call trace, the text file of CallTracer.save_trace, as a top-down graph.

Repeated layers are one box (layers x 12), and the last part of each path is left out, unless told
otherwise. The suffix of --out chooses the format: png, svg or pdf, or dot for Graphviz's own text,
which needs no program `dot`. `torchglass graph` is the same.

example:
  python -m torchglass.compat.torchspy.trace_to_graph --trace-file forward.txt --out net.png
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchglass.compat.torchspy import trace_graph
from torchglass.errors import MissingExtra, TorchglassError, UsageError
from torchglass.events.spelling import clean
from torchglass.store.layout import whole_file

if TYPE_CHECKING:
    from graphviz import Digraph

TEXT_SUFFIXES = (".dot", ".gv")
SUFFIXES = (*TEXT_SUFFIXES, ".pdf", ".png", ".svg")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m torchglass.compat.torchspy.trace_to_graph``, and return the exit status.

    The status is 0 if it worked, 1 if it failed and 2 if the arguments are wrong.
    """
    parser = argparse.ArgumentParser(
        prog="trace_to_graph",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    configure(parser)
    try:
        return run(parser.parse_args(arguments))
    except TorchglassError as error:
        print(f"trace_to_graph: {error}", file=sys.stderr)  # noqa: T201 (a command says what is wrong)
        return 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments, for this program and for the command ``torchglass graph``."""
    switch = argparse.BooleanOptionalAction
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "call_trace", nargs="?", type=Path, metavar="CALL_TRACE.txt", help="the call trace"
    )
    where.add_argument(
        "--trace-file", type=Path, metavar="FILE", help="the call trace, given as an option"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the picture (default: beside the call trace, .png)",
    )
    parser.add_argument(
        "--show-repetition",
        action=switch,
        default=True,
        help="label a box with how many layers it stands for",
    )
    parser.add_argument(
        "--prune-leaves", action=switch, default=True, help="leave out the last part of each path"
    )
    parser.add_argument(
        "--squash-name",
        action="store_true",
        help="draw equal names as one box, wherever they occur",
    )
    parser.add_argument(
        "--dpi", type=int, default=150, metavar="N", help="resolution of a png (default: 150)"
    )
    parser.add_argument("--figwidth", type=float, metavar="INCHES", help="width of the picture")
    parser.add_argument(
        "--figheight",
        type=float,
        metavar="INCHES",
        help="height of the picture; with --figwidth the picture is stretched",
    )
    parser.add_argument(
        "--save-json", type=Path, metavar="FILE", help="also write the tree of names as JSON"
    )
    parser.add_argument("--verbose", action="store_true", help="also print what was read")


def run(options: argparse.Namespace) -> int:
    """Draw the graph and print which files were written. Raise a ``TorchglassError`` if that fails."""
    draw(options, say)
    return 0


def draw(options: argparse.Namespace, tell: Callable[[str], None] | None) -> list[Path]:
    """Draw the graph, call ``tell`` with a message about each file, and return the files."""
    tell = tell or _keep_quiet
    source: Path = options.call_trace or options.trace_file
    out = _with_suffix(options.out or source.with_suffix(".png"))
    paths = _read(source)
    if options.verbose:
        tell(f"read {source}: {len(paths)} calls of {len(set(paths))} modules")
    tree = trace_graph.build_tree(paths)
    dot = trace_graph.render_graph(
        tree,
        show_repetition=options.show_repetition,
        prune_leaves_flag=options.prune_leaves,
        squash_name=options.squash_name,
        dpi=options.dpi,
        figwidth=options.figwidth,
        figheight=options.figheight,
    )
    picture = _picture(dot, out.suffix)
    try:
        with whole_file(out) as draft:
            draft.write_bytes(picture)
        written = [out]
        tell(f"wrote {out}")
        if options.save_json:
            trace_graph.save_tree_json(tree, options.save_json)
            written.append(options.save_json)
            tell(f"wrote {options.save_json}")
    except OSError as error:
        raise UsageError(
            f"cannot write {clean(str(out))}: {error.strerror}; --out names another place"
        ) from error
    return written


def _with_suffix(out: Path) -> Path:
    if not out.suffix:
        return out.with_name(out.name + ".png")
    if out.suffix.lower() in SUFFIXES:
        return out
    raise UsageError(
        f"cannot write a picture as {clean(out.name)!r}; choose one of the suffixes {' '.join(SUFFIXES)}"
    )


def _read(source: Path) -> list[str]:
    name = clean(str(source))
    cure = "CallTracer.save_trace() writes one after the model was called"
    try:
        return trace_graph.parse_trace(source)
    except OSError as error:
        raise UsageError(
            f"cannot read the call trace {name}: {error.strerror or 'no such file'}; {cure}"
        ) from error
    except ValueError as error:
        raise UsageError(f"{name}: {error}; {cure}") from error


def _picture(dot: Digraph, suffix: str) -> bytes:
    """Return the content of the picture's file."""
    if suffix.lower() in TEXT_SUFFIXES:
        return dot.source.encode("utf-8", "backslashreplace")
    import graphviz  # is installed, because there is a Digraph

    try:
        return dot.pipe(format=suffix[1:].lower(), quiet=True)
    except graphviz.ExecutableNotFound as error:
        raise MissingExtra(
            "drawing needs the program `dot` of Graphviz: install it (apt-get install graphviz, brew install "
            "graphviz, conda install graphviz), or write the graph as text with --out FILE.dot"
        ) from error
    except subprocess.CalledProcessError as error:
        first_line = (error.stderr or b"").decode(errors="replace").strip().partition("\n")[0]
        raise UsageError(
            f"the program `dot` failed: {clean(first_line) or error}; --out FILE.dot writes its input"
        ) from error


def _keep_quiet(text: str) -> None:
    """Print nothing, because the caller reports the files."""


def say(text: str) -> None:
    """Print a message, with control characters escaped."""
    print(clean(text))  # noqa: T201 (a command says what it wrote)


if __name__ == "__main__":
    sys.exit(main())
