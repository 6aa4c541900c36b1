"""Writes a trace as a file that other programs open; the suffix of its name says which."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torchglass.errors import UsageError, closest
from torchglass.views.digest import Recorded
from torchglass.views.render import check, options_for

GRAPH, NONE = "graph", ""


def _dot(trace: Recorded, options: Any) -> Iterable[str]:
    from torchglass.views.graph.drawn import dot, drawn_of
    from torchglass.views.graph.flow import flow_of

    return dot(drawn_of(flow_of(trace, options), options.depth), trace.name)


def _mermaid(trace: Recorded, options: Any) -> Iterable[str]:
    from torchglass.views.graph.drawn import drawn_of, mermaid
    from torchglass.views.graph.flow import flow_of

    return mermaid(drawn_of(flow_of(trace, options), options.depth))


def _timeline(trace: Recorded, options: Any) -> Iterable[str]:
    return importlib.import_module("torchglass.views.timeline").chrome_json(trace)


def _page(trace: Recorded, options: Any) -> Iterable[str] | bytes:
    page: str = importlib.import_module("torchglass.views.page.html").page(trace, options)
    return page.encode("utf-8", "replace")


def _svg(trace: Recorded, options: Any) -> Iterable[str] | bytes:
    drawn: str = importlib.import_module("torchglass.views.page.html").svg(trace, options)
    return drawn.encode("utf-8", "replace")


def _png(trace: Recorded, options: Any) -> Iterable[str] | bytes:
    return importlib.import_module("torchglass.views.page.html").png(trace, options)


FORMATS: dict[str, tuple[Callable[[Recorded, Any], Iterable[str] | bytes], str, str]] = {
    ".html": (_page, GRAPH, "the page: code, steps, data flow and tensors, linked"),
    ".svg": (_svg, GRAPH, "a picture of the data flow"),
    ".png": (_png, GRAPH, "the same as pixels"),
    ".dot": (_dot, GRAPH, "the data flow for Graphviz"),
    ".mmd": (_mermaid, GRAPH, "the data flow for Mermaid"),
    ".perfetto.json": (_timeline, NONE, "the timeline for Perfetto and Chrome"),
}
"""By suffix: how it is made, the view whose options it takes, and what it is."""


def suffix_of(path: Path) -> str:
    """The suffix that says what to write; an unknown one is an error that names those there are."""
    name = path.name.lower()
    for suffix in FORMATS:
        if name.endswith(suffix):
            return suffix
    known = ", ".join(f"{suffix} ({what})" for suffix, (_, _, what) in FORMATS.items())
    given = path.suffix or "no suffix"
    raise UsageError(f"cannot export to {path.name!r}: its suffix ({given}) is none of {known}")


def export(trace: Recorded, path: Path, given: Mapping[str, Any]) -> None:
    """Write the file; it is made whole before the one that was there is replaced."""
    suffix = suffix_of(path)
    make, view, _ = FORMATS[suffix]
    if not view and given:
        name = next(iter(given))
        raise UsageError(
            f"export to {suffix} takes no option {name!r}; {closest(name, ['only the trace and the path'])}"
        )
    options = options_for(view, given) if view else None
    if options is not None:
        check(trace, options)
    made = make(trace, options)
    content = made if isinstance(made, bytes) else ("\n".join(made) + "\n").encode("utf-8", "replace")
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)
