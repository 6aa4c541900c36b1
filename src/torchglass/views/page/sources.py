"""The source files of the page: own files whole, of installed ones the functions that ran; and what each line gave."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from torchglass.events.selection import is_installed
from torchglass.views.digest import Digest
from torchglass.views.graph.outline import Outline
from torchglass.views.page.columns import LONGEST_SOURCE, Texts
from torchglass.views.text.cells import shape_words
from torchglass.views.text.words import path_word

MOST_WORDS = 2
LONGEST_WHOLE = 3000
"""Lines up to which a file of the program itself is there whole."""

Span = tuple[int, int]
_DEFINES = re.compile(r"(?:async def|def|class) ")


def sources_of(outline: Outline, texts: Texts) -> list[dict[str, Any]]:
    """Each file that something happened in: its name, pieces of text, and for lines what happened there."""
    trace, lines = outline.digest.trace, _used_lines(outline.digest)
    margins = _margins(outline)
    found: list[dict[str, Any]] = []
    for file in _in_order(outline.digest, lines):
        text = trace.sources.get(file)
        if text is None:
            continue
        rows = text.splitlines()
        spans = _pieces(file, rows, lines[file])
        found.append(
            {
                "name": texts.number(path_word(file)),
                "path": texts.number(file),
                "pieces": [
                    [first, texts.number("\n".join(rows[first - 1 : last]), LONGEST_SOURCE)] for first, last in spans
                ],
                "lines": [
                    part
                    for line, (times, words) in sorted(margins.get(file, {}).items())
                    for part in (line, times, texts.number(_margin(words)))
                ],
            }
        )
    return found


def _in_order(digest: Digest, lines: dict[str, set[int]]) -> Iterable[str]:
    """The program's own files first."""
    return sorted(lines, key=is_installed)


def _used_lines(digest: Digest) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for event in digest.samples:
        for at in event.stack:
            if at.origin == "user":
                found.setdefault(at.file, set()).add(at.line)
        if event.location is not None:
            found.setdefault(event.location.file, set()).add(event.location.line)
    return found


def _pieces(file: str, rows: Sequence[str], used: set[int]) -> list[Span]:
    """Line numbers, first and last, of what is shown of a file."""
    whole = not is_installed(file) and len(rows) <= LONGEST_WHOLE
    if whole or not rows:
        return [(1, max(len(rows), 1))]
    spans = [span for span in _definitions(rows) if any(span[0] <= line <= span[1] for line in used)]
    heads = [(first, last if "def " in rows[first - 1] else first) for first, last in spans]
    return _joined([*heads, *[(line, line) for line in used if line <= len(rows)]])


def _definitions(rows: Sequence[str]) -> list[Span]:
    """First and last lines of functions and classes, by their indentation: a tenth of the time of a parser.

    Where that is mistaken a line too many or too few is shown; the lines that ran are there in any case.
    """
    found: list[Span] = []
    open_: list[tuple[int, int]] = []
    last = 0
    for number, row in enumerate(rows, 1):
        text = row.lstrip()
        if not text or text[0] in "#)]}":
            continue
        indent = len(row) - len(text)
        while open_ and indent <= open_[-1][0]:
            found.append((open_.pop()[1], last))
        if _DEFINES.match(text):
            open_.append((indent, number))
        last = number
    found += [(first, last) for _, first in open_]
    return found


def _joined(spans: list[Span]) -> list[Span]:
    """Without overlaps; a gap of two lines is not worth a word."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 3:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _margins(outline: Outline) -> dict[str, dict[int, tuple[int, list[str]]]]:
    """By file and line how often the outermost step there ran, and the shapes that it gave."""
    found: dict[str, dict[int, tuple[int, list[str]]]] = {}
    widest: dict[tuple[str, int], tuple[int, int]] = {}
    events = outline.events
    shown = [at for at in range(len(events)) if outline.anchors[at] == at]
    for at in shown:
        event = events[at]
        if event.location is None or event.kind in ("variable", "mark"):
            continue
        place = (event.location.file, event.location.line)
        # Of several steps on a line the one that holds the others is meant.
        extent = (event.location.end_line - event.location.line, event.location.end_col - event.location.col)
        if extent < widest.get(place, (0, 0)):
            continue
        lines = found.setdefault(place[0], {})
        if extent > widest.get(place, (-1, -1)):
            widest[place] = extent
            lines[place[1]] = (0, [])
        times, words = lines[place[1]]
        word = "✗ " + event.error.partition(":")[0] if event.error else ", ".join(shape_words(event.outputs))
        if word and word not in words:
            words.append(word)
        lines[place[1]] = (times + 1, words)
    return found


def _margin(words: list[str]) -> str:
    return " | ".join(words) if len(words) <= MOST_WORDS else f"{words[0]} | … | {words[-1]}"
