"""Say what is in a bundle: when and by whom it was recorded, how much, what was lost.

examples:
  torchglass info run.trace
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torchglass.events.spelling import clean
from torchglass.views.text.words import plural, size

if TYPE_CHECKING:
    from torchglass.store import Loaded


def configure(parser: argparse.ArgumentParser) -> None:
    """The bundle to look at."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a folder made by record(to=…), save() or torchglass run")


def run(options: argparse.Namespace) -> int:
    """Print a few lines."""
    from torchglass.store import load

    for line in lines(load(options.bundle)):
        print(line)
    return 0


def lines(bundle: Loaded) -> Iterator[str]:
    """What is known of a bundle."""
    from torchglass.events.trace import Trace

    tables = bundle.tables()
    yield from str(Trace(bundle)).split("\n")
    processes = sorted({tables.process, *tables.thread_processes})
    shown = ", ".join(map(str, processes[:5])) + (" …" if len(processes) > 5 else "")
    yield f"  recorded {_when(tables.started_at)} by {'process' if len(processes) == 1 else 'processes'} {shown}"
    saved = bundle.saved_tensors()
    if saved:
        names = ", ".join(dict.fromkeys(clean(row.name) for row in saved[:1000] if row.name))  # marks have one
        named = f": {names[:100]}{'…' if len(names) > 100 else ''}" if names else ""
        yield f"  {plural(len(saved), 'saved tensor')}{named}"
    yield f"  on disk: {', '.join(f'{kind} {size(count)}' for kind, count in sizes(bundle.path).items())}"


def _when(seconds: float) -> str:
    """A time as people read it; a bundle may claim any number."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "at an unknown time"


def sizes(path: Path) -> dict[str, int]:
    """Bytes by what they are for."""
    found = {"events": 0, "tensors": 0, "sources": 0}
    for file in path.rglob("*"):
        if file.is_symlink() or not file.is_file():
            continue
        kind = "tensors" if file.suffix == ".safetensors" else "sources" if file.suffix == ".py" else "events"
        found[kind] += file.stat().st_size
    return {kind: count for kind, count in found.items() if count}
