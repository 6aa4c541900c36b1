"""The page as one HTML file: the script, the style, and the data packed so that no browser reads it as markup."""

from __future__ import annotations

import base64
import gzip
import html
import json
from pathlib import Path
from typing import Any

from torchglass.views.digest import Recorded
from torchglass.views.graph import Options
from torchglass.views.page.data import page_data

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


def page(trace: Recorded, options: Options | None = None) -> str:
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
