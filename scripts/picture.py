"""Draws docs/tree.svg, the picture in README.md, from a real run of the attention program."""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tree.svg"
WIDTH = 104
SIZE, ADVANCE, LEADING, MARGIN = 13, 8.2, 19, 18
COLORS = {"31": "#f47067", "32": "#8ddb8c", "33": "#f0b86e", "35": "#dcbdfb", "36": "#96d0ff"}
INK, PAPER = "#e6edf3", "#0d1117"
CODE = re.compile(r"\x1b\[([\d;]*)m")


def spans(line: str) -> str:
    """One line with its colours, as the text of an SVG element."""
    parts: list[str] = []
    style = ""
    for index, piece in enumerate(CODE.split(line)):
        if index % 2:
            style = _style(piece.split(";"))
        elif piece:
            text = escape(piece)
            parts.append(f"<tspan{style}>{text}</tspan>" if style else text)
    return "".join(parts)


def _style(codes: list[str]) -> str:
    color = next((COLORS[code] for code in codes if code in COLORS), None)
    bold = ' font-weight="bold"' if "1" in codes else ""
    dim = ' fill-opacity="0.55"' if "2" in codes else ""
    return f"{bold}{dim}" + (f' fill="{color}"' if color else "")


def picture(text: str) -> str:
    """The whole drawing: a dark page with one row of text a line."""
    lines = text.split("\n")
    width, height = WIDTH * ADVANCE + 2 * MARGIN, len(lines) * LEADING + 2 * MARGIN
    rows = [
        f'<text x="{MARGIN}" y="{MARGIN + LEADING * (number + 0.75):.1f}">{spans(line)}</text>'
        for number, line in enumerate(lines)
    ]
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'font-family="monospace" font-size="{SIZE}" fill="{INK}" xml:space="preserve">'
    )
    return "\n".join(
        [
            opening,
            f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
            *rows,
            "</svg>\n",
        ]
    )


def main() -> int:
    """Record, render in colour, draw; with ``--check`` only say whether the picture is as it should be."""
    sys.path.insert(0, str(ROOT))
    import torch

    import torchglass as tg
    from tests.programs.attention import MHA

    torch.manual_seed(0)
    attention = MHA(6, 6, 20, 3, 32, 0.0)
    x = torch.rand(10, 20, 6)
    with tg.record() as trace:
        y = attention(x)
    del y
    text = picture(tg.render(trace, width=WIDTH, color=True))
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
