"""What a notebook shows of a trace: the page in a frame of its own, and a few words of text.

A frame with ``srcdoc`` and a sandbox: the page can neither reach the notebook nor be reached by its styles, and the
notebook's file holds it, so that it is there when the notebook is opened again without running it.
"""

from __future__ import annotations

import html
from array import array
from dataclasses import replace

from torchglass.events.tables import Tables
from torchglass.events.trace import Trace
from torchglass.views.page.html import page

LARGEST = 2_000_000
"""Bytes up to which the whole page is put into a notebook."""
HEIGHT = 640
DEEPEST = 3
HOW = 'export(trace, "run.html") writes the whole page as a file'


def mimebundle(trace: Trace, largest: int = LARGEST) -> dict[str, str]:
    """HTML for notebooks that show it, text for the others."""
    text = str(trace)
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
        shown = page(Trace(_Fixed(replace(tables.keep(kept), notes=[*tables.notes, note]))))
        if len(shown) <= largest:
            return shown
    return None


def _depths(parents: array[int]) -> list[int]:
    found: list[int] = []
    for parent in parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


class _Fixed:
    """Tables as a source of a trace."""

    running = False

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def progress(self) -> int:
        return 0

    def tables(self) -> Tables:
        return self._tables
