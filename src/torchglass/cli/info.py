"""Summarize a bundle: when and by which program it was recorded, how much it holds, what was lost.

examples:
  torchglass info run.trace
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchglass.cli.output import add_json, print_json
from torchglass.events.spelling import clean
from torchglass.views.text.words import plural, size, versions_word

if TYPE_CHECKING:
    from torchglass.store import Loaded


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the bundle."""
    parser.add_argument(
        "bundle", metavar="BUNDLE", help="a folder made by record(to=…), save() or torchglass run"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print a few lines."""
    from torchglass.store import load

    bundle = load(options.bundle)
    if options.json:
        print_json("info", facts(bundle))
        return 0
    for line in lines(bundle):
        print(line)
    return 0


def facts(bundle: Loaded) -> dict[str, Any]:
    """Return what is known about a bundle, as data."""
    from torchglass._trace import Trace

    tables = bundle.tables()
    trace = Trace(bundle)
    kinds: dict[str, int] = {}
    for number in tables.callee:
        kind = tables.callees[number].kind
        kinds[kind] = kinds.get(kind, 0) + 1
    saved = bundle.saved_tensors()
    failure = trace.failure_story()
    return {
        "bundle": str(bundle.path),
        "name": trace.name,
        "events": len(trace),
        "kinds": kinds,
        "duration_ns": trace.duration_ns,
        "complete": trace.complete,
        "running": trace.running,
        "measured": trace.measured,
        "started_at": tables.started_at,
        "python": tables.python,
        "torch": tables.torch,
        "processes": sorted({tables.process, *tables.thread_processes}),
        "threads": list(tables.threads),
        "roots": list(dict.fromkeys(row.root for row in tables.modules)),
        "modules": len(tables.modules),
        "failure": None if failure is None else failure.to_dict(),
        "saved_tensors": len(saved),
        "bytes": sizes(bundle.path),
        "notes": list(trace.notes),
    }


def lines(bundle: Loaded) -> Iterator[str]:
    """Return what is known about a bundle, as lines."""
    from torchglass._trace import Trace

    tables = bundle.tables()
    yield from str(Trace(bundle)).split("\n")
    processes = sorted({tables.process, *tables.thread_processes})
    shown = ", ".join(map(str, processes[:5])) + (" …" if len(processes) > 5 else "")
    yield f"  recorded {_when(tables.started_at)} by {'process' if len(processes) == 1 else 'processes'} {shown}"
    versions = versions_word(tables)
    if versions:
        yield f"  with {versions}"
    saved = bundle.saved_tensors()
    if saved:
        # Only tensors of marks have names.
        names = ", ".join(dict.fromkeys(clean(row.name) for row in saved[:1000] if row.name))
        named = ""
        if names:
            named = f": {names[:100]}{'…' if len(names) > 100 else ''}"
        yield f"  {plural(len(saved), 'saved tensor')}{named}"
    yield f"  on disk: {', '.join(f'{kind} {size(count)}' for kind, count in sizes(bundle.path).items())}"


def _when(seconds: float) -> str:
    """Return a time as people write it. A damaged bundle may hold any number as its time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "at an unknown time"


def sizes(path: Path) -> dict[str, int]:
    """Return how many bytes the bundle uses for what."""
    found = {"events": 0, "tensors": 0, "sources": 0}
    for file in path.rglob("*"):
        if file.is_symlink() or not file.is_file():
            continue
        if file.suffix == ".safetensors":
            kind = "tensors"
        elif file.suffix == ".py":
            kind = "sources"
        else:
            kind = "events"
        found[kind] += file.stat().st_size
    return {kind: count for kind, count in found.items() if count}
