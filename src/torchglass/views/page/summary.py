"""Writes what the page shows without scripts: the verdict, a summary of the run, and its outer
steps, as plain HTML.

It is shown where scripts are not allowed (mail previews, some servers), in print, and until the
page is ready.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torchglass.events.spelling import clean
from torchglass.views.page.diff import diff_words
from torchglass.views.page.verdict import verdict_words

MOST_STEPS = 120
DEEPEST = 3
HOW = "All panes of this page need JavaScript; torchglass show prints the same as text."

Line = tuple[int, str]
"""The depth and the text of a line."""


def summary_html(data: dict[str, Any]) -> str:
    """Return the summary as HTML, with all text escaped."""
    run = data["run"]
    took = ""
    if run["took"]:
        took = f" · {run['took']}"
    state = " · incomplete"
    if run["complete"]:
        state = ""
    parts = [
        f"<h1>{_safe(run['name'] or 'trace')}</h1>",
        f"<p>{run['events']:,} events{took}{state}</p>",
    ]
    if "diff" in data:
        parts += _lines(diff_words(data["diff"]))
    if "verdict" in data:
        parts += _lines(verdict_words(data["verdict"]))
        parts += _about(data["verdict"]["about"])
    parts += [f"<p>note: {_safe(note)}</p>" for note in run["notes"]]
    steps = list(outer_steps(data))
    if steps:
        parts += ["<h2>steps</h2>", _steps(steps)]
    return "\n".join([*parts, f"<p>{HOW}</p>"])


def _lines(lines: Iterable[Line]) -> Iterator[str]:
    """Yield a heading for each line of depth 0, and a list for the lines below it."""
    is_list = False
    for depth, text in lines:
        if depth and not is_list:
            yield "<ul>"
        if not depth and is_list:
            yield "</ul>"
        is_list = depth > 0
        yield f"<li>{_safe(text)}</li>" if depth else f"<h2>{_safe(text)}</h2>"
    if is_list:
        yield "</ul>"


def _about(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not lines:
        return
    yield "<table>"
    for line in lines:
        words = line["between"].join(text for text, _ in line["parts"])
        yield f"<tr><th>{_safe(line['label'])}</th><td>{_safe(words)}</td></tr>"
    yield "</table>"


def _steps(steps: Sequence[Line]) -> str:
    rows = "\n".join(f"{'  ' * depth}{_safe(text)}" for depth, text in steps[:MOST_STEPS])
    more = len(steps) - MOST_STEPS
    return f"<pre>{rows}{f'{chr(10)}… {more:,} more' if more > 0 else ''}</pre>"


def outer_steps(data: dict[str, Any]) -> Iterator[Line]:
    """Yield the outer levels of the steps: what was written, the layer, how often, what came out."""
    items = data["items"]
    text = data["text"]
    parents: list[int] = [number - up for number, up in enumerate(items["parent"])]
    depths: list[int] = []
    children: dict[int, list[int]] = {}
    for number, parent in enumerate(parents):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        children.setdefault(parent, []).append(number)
    pending = children.get(-1, [])[::-1]
    while pending:
        number = pending.pop()
        is_layer = text[items["kind"][number]] == "module"
        if is_layer:
            names = ("title", "detail")
        else:
            names = ("code",)
        words = [text[items[name][number]] for name in (*names, "often", "only", "gives")]
        if not any(words[: len(names)]):
            words.insert(0, text[items["title"][number]] or "repeat")
        yield depths[number], "  ".join(filter(None, words))
        if depths[number] + 1 < DEEPEST:
            pending += children.get(number, [])[::-1]


def _safe(text: str) -> str:
    return html.escape(clean(text), quote=True).encode("utf-8", "replace").decode("utf-8")
