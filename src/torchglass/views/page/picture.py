"""Pictures without a browser: the page's own layout, run by a small JavaScript engine that comes as a package.

Why so: docs/decisions/0015-the-page.md.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
from typing import Any

from torchglass.errors import MissingExtra
from torchglass.views.digest import Recorded
from torchglass.views.graph import Options
from torchglass.views.page.html import built, page_data

MOST_BOXES = 26
"""Boxes up to which groups are opened, where no depth is given."""
STACK = 64 * 1024 * 1024
SHARPNESS = 2
"""Pixels of a PNG for each of the SVG."""


def svg(trace: Recorded, options: Options) -> str:
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


def png(trace: Recorded, options: Options) -> bytes:
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
