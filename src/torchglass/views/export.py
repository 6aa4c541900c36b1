"""Writes a trace as a file that other programs open; the suffix of its name says which."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchglass.errors import UsageError, closest
from torchglass.views.digest import Recorded
from torchglass.views.render import check, options_for

TIMELINE = ".perfetto.json"
FORMATS = {
    ".html": "the page: code, steps, data flow and tensors, linked",
    ".svg": "a picture of the data flow",
    ".png": "the same as pixels",
    ".dot": "the data flow for Graphviz",
    ".mmd": "the data flow for Mermaid",
    TIMELINE: "the timeline for Perfetto and Chrome",
}
"""By suffix what it is; all but the timeline take the options of the view ``graph``."""


def suffix_of(path: Path) -> str:
    """The suffix that says what to write; an unknown one is an error that names those there are."""
    name = path.name.lower()
    for suffix in FORMATS:
        if name.endswith(suffix):
            return suffix
    known = ", ".join(f"{suffix} ({what})" for suffix, what in FORMATS.items())
    given = path.suffix or "no suffix"
    raise UsageError(f"cannot export to {path.name!r}: its suffix ({given}) is none of {known}")


def export(trace: Recorded, path: Path, given: Mapping[str, Any]) -> None:
    """Write the file; it is made whole before the one that was there is replaced."""
    suffix = suffix_of(path)
    options = None
    if suffix != TIMELINE:
        options = options_for("graph", given)
        check(trace, options)
    elif given:
        name = next(iter(given))
        raise UsageError(
            f"export to {suffix} takes no option {name!r}; {closest(name, ['only the trace and the path'])}"
        )
    content = _made(suffix, trace, options)
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)


def _made(suffix: str, trace: Recorded, options: Any) -> bytes:
    """The content of the file; only what makes it is imported."""
    if suffix in (".html", ".svg", ".png"):
        html = importlib.import_module("torchglass.views.page.html")
        made = {".html": html.page, ".svg": html.svg, ".png": html.png}[suffix](trace, options)
        return made if isinstance(made, bytes) else made.encode("utf-8", "replace")
    if suffix == TIMELINE:
        lines = importlib.import_module("torchglass.views.timeline").chrome_json(trace)
    else:
        from torchglass.views.graph.drawn import dot, drawn_of, mermaid
        from torchglass.views.graph.flow import flow_of

        drawn = drawn_of(flow_of(trace, options), options.depth)
        lines = dot(drawn, trace.name) if suffix == ".dot" else mermaid(drawn)
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")
