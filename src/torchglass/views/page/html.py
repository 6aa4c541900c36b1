"""The page as one HTML file: the script, the style, and the data packed so that no browser reads it as markup."""

# What a trace keeps from users is there for its views.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import importlib
import json
import shutil
import subprocess
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from torchglass.answers.diff import Diff
from torchglass.errors import MissingExtra
from torchglass.events.spelling import clean
from torchglass.events.tables import Tables
from torchglass.program.program import program_of
from torchglass.program.recorded import HasTables, Recorded
from torchglass.views.graph.flow import Flow, flow_in, flow_of
from torchglass.views.graph.libraries import group_libraries
from torchglass.views.graph.outline import outline_of
from torchglass.views.options import GraphOptions
from torchglass.views.page.columns import TICK_NS, Boxes, PageEvents, Texts, packed_stats
from torchglass.views.page.diff import diff_data
from torchglass.views.page.sources import sources_of
from torchglass.views.page.summary import summary_html
from torchglass.views.page.trail import NonFinite, trail_data
from torchglass.views.page.training import series_data
from torchglass.views.page.verdict import Answers, verdict_data
from torchglass.views.text.words import duration

WEB = Path(__file__).resolve().parent.parent.parent / "web"
LEVEL = 7
"""The level of compression. The highest level takes more than twice as long and saves two
hundredths of the bytes.
"""
POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""The page may not use the network, and may run no scripts but its own."""

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
<div id="summary">
{summary}
</div>
<div id="page"></div>
<script type="application/octet-stream" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(trace: Recorded, options: GraphOptions | None = None) -> str:
    """Return the whole page."""
    answers = Answers(trace)
    made = PageData(trace, options, answers)
    told = {"verdict": verdict_data(answers, made.files), "series": series_data(answers.gradients)}
    return page_of({**made.data, **told}, trace.name)


def diff_page(a: Recorded, b: Recorded, diff: Diff, options: GraphOptions | None = None) -> str:
    """Return the page of A with B's code next to it, and the differences."""
    answers = Answers(a)
    made = PageData(a, options, answers)
    verdict = verdict_data(answers, made.files)
    told = diff_data(diff, b, made.files, made.places)
    name = f"{clean(a.name) or 'A'} against {clean(b.name) or 'B'}"
    return page_of(
        {**made.data, "verdict": verdict, "series": series_data(answers.gradients), "diff": told},
        name,
    )


def page_of(data: dict[str, Any], name: str) -> str:
    """Return the page for given data."""
    whole = f"(() => {{\n{script()}}})();"
    digest = base64.b64encode(hashlib.sha256(whole.encode("utf-8")).digest()).decode("ascii")
    return PAGE.format(
        policy=html.escape(POLICY.format(script=digest), quote=True),
        title=html.escape(f"{clean(name) or 'trace'} · torchglass"),
        style=built("page.css"),
        summary=summary_html(data),
        data=packed(data),
        script=whole,
    )


def packed(data: dict[str, Any]) -> str:
    """Encode the data as base64, so that no text of the program can be read as markup."""
    values = data.get("values")
    if values:
        data = {**data, "values": {**values, "stats": packed_stats(values["stats"])}}
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False, default=str)
    return base64.b64encode(gzip.compress(text.encode("ascii"), LEVEL, mtime=0)).decode("ascii")


def script() -> str:
    """Return the scripts of the page: the one that draws, and the one that runs the page."""
    return built("drawing.js") + built("page.js")


def built(name: str) -> str:
    """Return one of the built files that come with the package."""
    return (WEB / name).read_text(encoding="utf-8")


# ---------------------------------------------------------------- data

# Everything that the page shows, as one object of columns. The analysis is done here, not in the browser.

FORMAT = 1


def page_data(trace: Recorded, options: GraphOptions | None = None) -> dict[str, Any]:
    """Return the data of the page without the answers."""
    return PageData(trace, options, Answers(trace)).data


class PageData:
    """The data of the page, and the places of files and values in it."""

    def __init__(self, trace: Recorded, options: GraphOptions | None, answers: Answers) -> None:
        flow = page_flow(trace, options or GraphOptions())
        texts = Texts()
        first_bad = answers.first_bad
        bad = None
        if trace.measured:
            bad = NonFinite(trace, flow.values, first_bad)
        files = sources_of(flow.outline, texts, bad)
        self.files: dict[str, int] = {texts.all[file["path"]]: at for at, file in enumerate(files)}
        """The number of each file in the page, keyed by path."""
        boxes = Boxes(flow, texts, bad)
        happened = PageEvents(flow, texts, self.files)
        self.places = happened.places
        """The place of each value in the page, keyed by value."""
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "tick": TICK_NS,
            "run": _run(trace),
            "items": boxes.items(),
            "levels": boxes.levels(),
            "samples": happened.samples(),
            "events": happened.events(),
            "values": happened.values(),
            "files": files,
            "trail": trail_data(first_bad, happened.places),
        }
        self.data["text"] = texts.all


def _run(trace: Recorded) -> dict[str, Any]:
    failed = trace.failure()
    return {
        "name": clean(trace.name),
        "events": len(trace),
        "took": duration(trace.duration_ns) if trace.duration_ns else "",
        "complete": trace.complete,
        "failed": -1 if failed is None else failed.id,
        "error": "" if failed is None else clean(failed.error or ""),
        "notes": [clean(note) for note in trace.notes],
    }


def page_flow(trace: Recorded, options: GraphOptions) -> Flow:
    """Return the data flow, with the steps of libraries around a model put together unless folding
    is off.
    """
    if not options.fold:
        return flow_of(trace, options)
    outline = outline_of(trace, options)
    group_libraries(outline)
    return flow_in(outline, program_of(trace).flow)


# ---------------------------------------------------------------- notebook

# What a notebook shows of a trace: the page in a frame of its own, and a few words of text.

LARGEST = 2_000_000
"""Bytes up to which the whole page is put into a notebook."""
HEIGHT = 640
DEEPEST = 3
HOW = 'export(trace, "run.html") writes the whole page as a file'


class Cut(HasTables, Recorded, Protocol):
    """A trace that can be cut to a part."""

    @property
    def running(self) -> bool: ...

    def _with_tables(self, tables: Tables) -> Recorded: ...


def mimebundle(trace: Cut, largest: int = LARGEST) -> dict[str, str]:
    """Return HTML for notebooks that show it, and text for the others."""
    text = repr(trace)
    if trace.running or not len(trace):
        return {"text/plain": text}
    whole = page(trace)
    if len(whole) <= largest:
        shown = whole
    else:
        shown = _first_levels(trace, largest)
    if shown is None:
        return {"text/plain": f"{text}\n  the page is too large for a notebook: {HOW}"}
    return {"text/plain": text, "text/html": frame(shown)}


def frame(content: str) -> str:
    """Return a page inside an iframe, which it cannot leave."""
    style = f"width:100%;height:{HEIGHT}px;border:1px solid #ccc;border-radius:6px"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(content, quote=True)}"></iframe>'


def _first_levels(trace: Cut, largest: int) -> str | None:
    """Return the page of as many outer levels as fit."""
    tables = trace._tables
    depths = _depths(trace._tables.parent)
    for most in range(DEEPEST, -1, -1):
        kept = [event for event, depth in enumerate(depths) if depth <= most]
        if len(kept) > largest // 20:
            continue
        note = f"only the outer {most + 1} of {max(depths) + 1} levels are shown here: {HOW}"
        shown = page(trace._with_tables(replace(tables.keep(kept), notes=[*tables.notes, note])))
        if len(shown) <= largest:
            return shown
    return None


def _depths(parents: array[int]) -> list[int]:
    found: list[int] = []
    for parent in parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


# ---------------------------------------------------------------- picture

# Pictures without a browser: the page's own layout, run by a small JavaScript engine that comes as a package.

MOST_BOXES = 26
"""Boxes up to which groups are opened if no depth is given."""
STACK = 64 * 1024 * 1024
SHARPNESS = 2
"""Pixels of a PNG for each of the SVG."""


def svg(trace: Recorded, options: GraphOptions) -> str:
    """Return the data flow as an SVG; ``depth`` opens boxes down to it, by default the heaviest while there are few."""
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
    return str(
        engine.get("picture")(data, -1 if options.depth is None else options.depth, MOST_BOXES)
    )


def png(trace: Recorded, options: GraphOptions) -> bytes:
    """Return the picture as a PNG, made by the first converter that is installed."""
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
    done = subprocess.run(
        [program, f"--zoom={SHARPNESS}"], input=drawn.encode(), capture_output=True, check=False
    )
    if done.returncode == 0:
        return done.stdout
    return None
