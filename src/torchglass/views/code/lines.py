"""Prepares a source line for the code view: its text, the expression in it that ran, and what it
assigned.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from torchglass.events.types import Location, Value
from torchglass.program.dedup import shape_key
from torchglass.views.row import SOURCE, Cell
from torchglass.views.text.cells import shape_words
from torchglass.views.text.tensors import values_words
from torchglass.views.text.words import clean, one_line

NOT_KNOWN = "(source not known)"
LONGEST_LINE = 500
"""How many characters of a line are kept. No page is wider."""
MOST_LINES = 40
"""How many lines of a long expression are read."""
MOST_VALUES = 6
"""How many assigned names are listed on a line."""
_LOOP = re.compile(r"(async\s+)?for\b")


class SourceLines:
    """The source lines of a trace, by place. An expression that spans several lines is kept whole."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._split: dict[str, list[str]] = {}
        self._known: dict[Location, Cell] = {}

    def cell(self, at: Location) -> Cell:
        """Return the source text at a place, with the expression that ran marked.

        Text is shown only if the trace proves that it is the text that ran.
        """
        if at not in self._known:
            before, expression, after = self._read(at)
            end = len(before) + len(expression)
            self._known[at] = Cell(
                SOURCE, before + expression + after, at=at, mark=(len(before), end)
            )
        return self._known[at]

    def _read(self, at: Location) -> tuple[str, str, str]:
        """Return the text before the expression, the expression, and the text after it."""
        if not at.source:
            return NOT_KNOWN, "", ""
        if at.file not in self._split:
            self._split[at.file] = self._sources.get(at.file, "").split("\n")
        lines = self._split[at.file][at.line - 1 : min(at.end_line, at.line + MOST_LINES)]
        if (
            not lines
            or lines[0].strip() != at.source
            or (at.end_line == at.line and at.col >= at.end_col)
        ):
            return _safe(at.source), "", ""
        if len(lines) > 1 and _LOOP.match(lines[0], at.col):
            return "", _safe(one_line("\n".join(_loop_head(lines))).strip()), ""
        after = lines[-1][at.end_col :]
        if len(lines) == 1:
            expression = lines[0][at.col : at.end_col]
        else:
            expression = one_line(
                "\n".join([lines[0][at.col :], *lines[1:-1], lines[-1][: at.end_col]])
            )
        return _safe(lines[0][: at.col].lstrip()), _safe(expression), _safe(after.rstrip())


def _loop_head(lines: Sequence[str]) -> Sequence[str]:
    """Return only the head of a loop.

    In Python 3.11 the instruction that takes the next item has the place of the whole loop.
    """
    for size in range(1, len(lines) + 1):
        head = "\n".join(lines[:size]).lstrip()
        try:
            ast.parse(f"{head}\n  pass")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return lines[:size]
    return lines[:1]


def _safe(text: str) -> str:
    """Cut a text to what a page can hold, and escape what a terminal would interpret."""
    return clean(text[:LONGEST_LINE].replace("\t", " "))


# ---------------------------------------------------------------- what a line assigned


def assigned_word(assigned: Mapping[tuple[str, ...], Sequence[tuple[Value, ...]]]) -> str:
    """Return the shapes that a line assigned, such as ``f32[2, 7, 32]``.

    Several names are listed with the shape of each. Shapes that differed between iterations are
    shown as a range.
    """
    return "; ".join(_values(names, _different(several)) for names, several in assigned.items())


def _different(several: Sequence[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """Return the values without those that print the same."""
    return list({tuple(map(shape_key, values)): values for values in reversed(several)}.values())[
        ::-1
    ]


def _values(names: tuple[str, ...], several: Sequence[tuple[Value, ...]]) -> str:
    words = values_words(several)
    grouped = words
    if len(several) == 1:
        grouped = shape_words(several[0])
    if len(names) == 1 or (len(names) == len(words) and len(grouped) == 1):
        return ", ".join(grouped)
    by_name = _by_name(names, several)
    if len(set(by_name.values())) > 1:
        pairs = [f"{clean(name)}: {word}" for name, word in by_name.items()]
        return ", ".join(pairs[:MOST_VALUES] + ["…"] * (len(pairs) > MOST_VALUES))
    return f"{clean(', '.join(by_name or names))}: {', '.join(dict.fromkeys(by_name.values()) or grouped)}"


def _by_name(names: tuple[str, ...], several: Sequence[tuple[Value, ...]]) -> dict[str, str]:
    """Return the shape assigned to each name. Empty if it is not certain which name got which."""
    if any(name.startswith("*") for name in names) or len({len(values) for values in several}) > 1:
        return {}
    roles = [value.role for value in several[0]]
    places = {f"out[{index}]": name for index, name in enumerate(names)}
    found = {at: places[role] for at, role in enumerate(roles) if role in places}
    if len(found) < len(roles):
        if len(names) == len(roles):
            found = dict(enumerate(names))
        else:
            found = {}
    words = values_words(several)
    return {name: words[at] for at, name in found.items() if name != "_"}
