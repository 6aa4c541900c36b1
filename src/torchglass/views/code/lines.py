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
        cell = self._known.get(at)
        if cell is None:
            before, expression, after = self._read(at)
            mark = (len(before), len(before) + len(expression))
            cell = Cell(SOURCE, before + expression + after, at=at, mark=mark)
            self._known[at] = cell
        return cell

    def _read(self, at: Location) -> tuple[str, str, str]:
        """Return the text before the expression, the expression, and the text after it."""
        if not at.source:
            return NOT_KNOWN, "", ""
        lines = self._lines(at)
        has_columns = at.end_line > at.line or at.end_col > at.col
        if not lines or lines[0].strip() != at.source or not has_columns:
            return _safe(at.source), "", ""
        first, *between = lines
        if not between:
            expression = first[at.col : at.end_col]
            return _safe(first[: at.col].lstrip()), _safe(expression), _after(first, at)
        if _LOOP.match(first, at.col):
            head = one_line("\n".join(_loop_head(lines)))
            return "", _safe(head.strip()), ""
        last = between.pop()
        parts = [first[at.col :], *between, last[: at.end_col]]
        expression = one_line("\n".join(parts))
        return _safe(first[: at.col].lstrip()), _safe(expression), _after(last, at)

    def _lines(self, at: Location) -> list[str]:
        """Return the lines of the file at a place."""
        if at.file not in self._split:
            self._split[at.file] = self._sources.get(at.file, "").split("\n")
        return self._split[at.file][at.line - 1 : min(at.end_line, at.line + MOST_LINES)]


def _after(line: str, at: Location) -> str:
    """Return the text after an expression, in its last line."""
    return _safe(line[at.end_col :].rstrip())


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

    ``assigned`` has, for each target, the values of every time that it was assigned. Several names
    are listed with the shape of each. Shapes that differed between iterations are shown as a range.
    """
    words: list[str] = []
    for names, several in assigned.items():
        words.append(_target_word(names, _different(several)))
    return "; ".join(words)


def _different(several: Sequence[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """Return the values without those that print the same as later ones."""
    found: dict[tuple[object, ...], tuple[Value, ...]] = {}
    for values in reversed(several):
        found[tuple(map(shape_key, values))] = values
    return list(reversed(found.values()))


def _target_word(names: tuple[str, ...], several: Sequence[tuple[Value, ...]]) -> str:
    """Return the shapes of one target: ``f32[2, 7]``, or ``a: f32[2], b: f32[7]`` for several names."""
    words = values_words(several)
    grouped = words
    if len(several) == 1:
        grouped = shape_words(several[0])
    all_alike = len(names) == len(words) and len(grouped) == 1
    if len(names) == 1 or all_alike:
        return ", ".join(grouped)
    by_name = _by_name(names, several)
    different = list(dict.fromkeys(by_name.values()))
    if len(different) <= 1:
        listed = clean(", ".join(by_name or names))
        return f"{listed}: {', '.join(different or grouped)}"
    pairs = [f"{clean(name)}: {word}" for name, word in by_name.items()]
    if len(pairs) > MOST_VALUES:
        pairs = [*pairs[:MOST_VALUES], "…"]
    return ", ".join(pairs)


def _by_name(names: tuple[str, ...], several: Sequence[tuple[Value, ...]]) -> dict[str, str]:
    """Return the shape assigned to each name. Empty if it is not certain which name got which."""
    counts = {len(values) for values in several}
    if len(counts) > 1 or any(name.startswith("*") for name in names):
        return {}
    roles = [value.role for value in several[0]]
    names_of_roles = {f"out[{index}]": name for index, name in enumerate(names)}
    found: dict[int, str] = {}
    for at, role in enumerate(roles):
        if role in names_of_roles:
            found[at] = names_of_roles[role]
    if len(found) < len(roles):
        found = {}
        if len(names) == len(roles):
            found = dict(enumerate(names))
    words = values_words(several)
    return {name: words[at] for at, name in found.items() if name != "_"}
