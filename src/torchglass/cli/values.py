"""List the tensors whose content a trace holds, or write one to a file.

examples:
  torchglass values run.trace
  torchglass values run.trace --name q --out q.npy           the last one of that name
  torchglass values run.trace --id 17 --out q.safetensors
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torchglass.cli.formats import WRITERS, reason_of, write
from torchglass.cli.progress import Bar
from torchglass.errors import NotRecorded, TorchglassError, UsageError, closest
from torchglass.events.spelling import clean

SUFFIXES = tuple(WRITERS)


def configure(parser: argparse.ArgumentParser) -> None:
    """Which bundle, which tensor, and where it goes."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a trace kept by torchglass run, record(to=…) or save()")
    parser.add_argument("--name", help="the name it was marked with; the last one counts")
    parser.add_argument("--id", type=int, metavar="N", help="the number in the list")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"write it there: {', '.join(SUFFIXES)}")


def run(options: argparse.Namespace) -> int:
    """List, or write one."""
    from torchglass.api import load
    from torchglass.store import watched

    with Bar(f"reading {options.bundle}") as bar, watched(bar):
        trace = load(options.bundle)
    if options.out is None:
        _list(trace, options)
        return 0
    if options.out.suffix not in SUFFIXES:
        raise UsageError(f"--out takes a file that ends in {', '.join(SUFFIXES)}, not {str(options.out)!r}")
    content = trace.tensor(_chosen(trace, options))
    try:
        with Bar(f"writing {options.out}"):
            write(content, options.out)
    except (OSError, RuntimeError) as error:  # torch.save has errors of its own
        if isinstance(error, TorchglassError):
            raise
        raise UsageError(f"{str(options.out)!r} cannot be written: {reason_of(error)}; choose another path") from None
    return 0


def _list(trace: Any, options: argparse.Namespace) -> None:
    from torchglass.views.text.words import plural

    kept: dict[int, str] = trace.kept()
    if options.name is not None or options.id is not None:
        _chosen(trace, options)  # what was asked for and is not there is an error, as it is with --out
    for value, given in sorted(kept.items()):
        if options.name not in (None, given) or options.id not in (None, value):
            del kept[value]
            continue
        word = clean(trace.tables.metas[trace.tables.value_meta[value]].word)
        print(f"{value:>6}  {word:<24} {clean(given)}")
    print(f"{plural(len(kept), 'tensor')} kept" + ("" if kept else "; torchglass.mark(name, tensor) keeps one"))


def _chosen(trace: Any, options: argparse.Namespace) -> int:
    kept: dict[int, str] = trace.kept()
    if options.id is not None:
        if options.id not in kept:
            raise NotRecorded(
                f"no tensor {options.id} was kept; torchglass values {clean(options.bundle)} lists those that were"
            )
        if options.name not in (None, kept[options.id]):
            raise UsageError(
                f"tensor {options.id} was kept as {kept[options.id]!r}, not as {options.name!r}: "
                f"give --id or --name alone"
            )
        return options.id
    named = [value for value, name in kept.items() if name == options.name]
    if not named:
        what = "give --name or --id to choose one" if options.name is None else f"no tensor {options.name!r} was kept"
        known = closest(clean(options.name or ""), set(map(clean, kept.values())))
        raise NotRecorded(f"{what}; {known}" + ("" if kept else ": torchglass.mark(name, tensor) keeps one"))
    return named[-1]
