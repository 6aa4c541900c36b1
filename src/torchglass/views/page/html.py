"""The page as one HTML file: the script, the style, and the data packed so that no browser reads it as markup."""

from __future__ import annotations

import base64
import gzip
import html
import importlib
import json
import shutil
import subprocess
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchglass.errors import MissingExtra
from torchglass.events.spelling import clean
from torchglass.events.tables import Tables
from torchglass.events.trace import Trace
from torchglass.views.digest import Recorded
from torchglass.views.graph.flow import flow_of
from torchglass.views.options import GraphOptions
from torchglass.views.page.columns import TICK_NS, Boxes, PageEvents, Texts
from torchglass.views.page.sources import sources_of
from torchglass.views.text.words import duration

WEB = Path(__file__).resolve().parent.parent.parent / "web"
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""The page asks the network for nothing, and may not."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="page"><noscript><p>This page needs JavaScript; torchglass show prints the same as text.</p></noscript></div>
<script type="application/octet-stream" id="data">{data}</script>
<script>(() => {{
{script}}})();</script>
</body>
</html>
"""


def page(trace: Recorded, options: GraphOptions | None = None) -> str:
    """The whole page."""
    return page_of(page_data(trace, options), trace.name)


def page_of(data: dict[str, Any], name: str) -> str:
    """The page of data that is already made."""
    return PAGE.format(
        policy=html.escape(POLICY, quote=True),
        title=html.escape(f"{name or 'trace'} · torchglass".encode("utf-8", "replace").decode()),
        style=built("page.css"),
        data=packed(data),
        script=script(),
    )


def packed(data: dict[str, Any]) -> str:
    """As base64: letters, digits and three signs, whatever the program called its things."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False, default=str)
    return base64.b64encode(gzip.compress(text.encode("ascii"), 9, mtime=0)).decode("ascii")


def script() -> str:
    """What draws, and what makes a page of it."""
    return built("drawing.js") + built("page.js")


def built(name: str) -> str:
    """One of the built files that come with the package."""
    return (WEB / name).read_text(encoding="utf-8")


# ---------------------------------------------------------------- data

# All that the page shows, as one object of columns: the analysis is done here, the browser only displays.

FORMAT = 1


def page_data(trace: Recorded, options: GraphOptions | None = None) -> dict[str, Any]:
    """The data of the page."""
    flow, texts = flow_of(trace, options), Texts()
    files = sources_of(flow.outline, texts)
    numbers: dict[str, int] = {texts.all[file["path"]]: at for at, file in enumerate(files)}
    boxes, happened = Boxes(flow, texts), PageEvents(flow, texts, numbers)
    failed = trace.failure()
    data: dict[str, Any] = {
        "format": FORMAT,
        "tick": TICK_NS,
        "run": {
            "name": clean(trace.name),
            "events": len(trace),
            "took": duration(trace.duration_ns) if trace.duration_ns else "",
            "complete": trace.complete,
            "failed": -1 if failed is None else failed.id,
            "error": "" if failed is None else clean(failed.error or ""),
            "notes": [clean(note) for note in trace.notes],
        },
        "items": boxes.items(),
        "levels": boxes.levels(),
        "samples": happened.samples(),
        "events": happened.events(),
        "values": happened.values(),
        "files": files,
    }
    return {**data, "text": texts.all}


# ---------------------------------------------------------------- notebook

# What a notebook shows of a trace: the page in a frame of its own, and a few words of text.

LARGEST = 2_000_000
"""Bytes up to which the whole page is put into a notebook."""
HEIGHT = 640
DEEPEST = 3
HOW = 'export(trace, "run.html") writes the whole page as a file'


def mimebundle(trace: Trace, largest: int = LARGEST) -> dict[str, str]:
    """HTML for notebooks that show it, text for the others."""
    text = repr(trace)
    if trace.running or not len(trace):
        return {"text/plain": text}
    whole = page(trace)
    shown = whole if len(whole) <= largest else _first_levels(trace, largest)
    if shown is None:
        return {"text/plain": f"{text}\n  the page is too large for a notebook: {HOW}"}
    return {"text/plain": text, "text/html": frame(shown)}


def frame(content: str) -> str:
    """A page inside of another one, which it cannot touch."""
    style = f"width:100%;height:{HEIGHT}px;border:1px solid #ccc;border-radius:6px"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(content, quote=True)}"></iframe>'


def _first_levels(trace: Trace, largest: int) -> str | None:
    """The page of the outer levels alone, as many as fit."""
    tables, depths = trace.tables, _depths(trace.tables.parent)
    for most in range(DEEPEST, -1, -1):
        kept = [event for event, depth in enumerate(depths) if depth <= most]
        if len(kept) > largest // 20:
            continue
        note = f"only the outer {most + 1} of {max(depths) + 1} levels are shown here: {HOW}"
        shown = page(Trace(FixedTables(replace(tables.keep(kept), notes=[*tables.notes, note]))))
        if len(shown) <= largest:
            return shown
    return None


def _depths(parents: array[int]) -> list[int]:
    found: list[int] = []
    for parent in parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


class FixedTables:
    """Tables as a source of a trace."""

    running = False

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def progress(self) -> int:
        return 0

    def tables(self) -> Tables:
        return self._tables


# ---------------------------------------------------------------- picture

# Pictures without a browser: the page's own layout, run by a small JavaScript engine that comes as a package.

MOST_BOXES = 26
"""Boxes up to which groups are opened, where no depth is given."""
STACK = 64 * 1024 * 1024
SHARPNESS = 2
"""Pixels of a PNG for each of the SVG."""


def svg(trace: Recorded, options: GraphOptions) -> str:
    """The data flow as an SVG; ``depth`` opens all boxes down to it, else the heaviest are open while there are few."""
    try:
        quickjs: Any = importlib.import_module("quickjs")
    except ImportError:
        raise MissingExtra(
            "pictures (.svg, .png) need a small JavaScript engine: pip install 'torchglass[picture]'; "
            ".html has a button that saves one, and .dot and .mmd need nothing"
        ) from None
    data = json.dumps(page_data(trace, options), ensure_ascii=True)
    engine = quickjs.Context()
    engine.set_max_stack_size(STACK)
    engine.eval(built("drawing.js") + "globalThis.picture = in_picture.picture;")
    return str(engine.get("picture")(data, -1 if options.depth is None else options.depth, MOST_BOXES))


def png(trace: Recorded, options: GraphOptions) -> bytes:
    """The same as pixels, by the first converter that is there."""
    drawn = svg(trace, options)
    for convert in (_by_resvg, _by_cairo, _by_program):
        made = convert(drawn)
        if made is not None:
            return made
    raise MissingExtra(
        "a .png needs a converter: pip install 'torchglass[picture]' (resvg-py), or cairosvg, or the program "
        "rsvg-convert; .svg needs none"
    )


def _by_resvg(drawn: str) -> bytes | None:
    try:
        resvg: Any = importlib.import_module("resvg_py")
    except ImportError:
        return None
    return bytes(resvg.svg_to_bytes(svg_string=drawn, zoom=SHARPNESS))


def _by_cairo(drawn: str) -> bytes | None:
    try:
        cairo: Any = importlib.import_module("cairosvg")
    except (ImportError, OSError):  # OSError: the package is there, the library below it is not
        return None
    return bytes(cairo.svg2png(bytestring=drawn.encode(), scale=SHARPNESS))


def _by_program(drawn: str) -> bytes | None:
    program = shutil.which("rsvg-convert")
    if program is None:
        return None
    done = subprocess.run([program, f"--zoom={SHARPNESS}"], input=drawn.encode(), capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None
