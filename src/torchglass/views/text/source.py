"""A source line as it is shown: its text, the expression in it, where it stands, and what it assigned."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torchglass.events.types import Location, Value
from torchglass.views.text.cells import shape_words
from torchglass.views.text.style import Page
from torchglass.views.text.words import clean, cut, file_name, one_line, path_word, width_of

NOT_KNOWN = "(source not known)"
LONGEST_LINE = 500
MOST_LINES = 40
SHORTEST_SOURCE = 32
FEWEST_COLUMNS = 6
MOST_VALUES = 6
_LOOP = re.compile(r"(async\s+)?for\b")


@runtime_checkable
class Sources(Protocol):
    """A trace that has the texts of the files that ran."""

    @property
    def sources(self) -> dict[str, str]: ...


class Parts(NamedTuple):
    """The text of a line around the expression that ran, and that expression."""

    before: str
    expression: str
    after: str

    def fit(self, room: int) -> Parts:
        """The same in that room."""
        text = cut("".join(self), room)
        first, second = len(self.before), len(self.before) + len(self.expression)
        return Parts(text[:first], text[first:second], text[second:])

    def painted(self, page: Page) -> str:
        """With the expression highlighted."""
        return self.before + page.paint("class", self.expression) + self.after


class SourceLines:
    """Lines of source by their place; whole expressions where they go over several lines."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._split: dict[str, list[str]] = {}
        self._known: dict[Location, Parts] = {}

    def parts(self, at: Location) -> Parts:
        """The text at a place. What the trace has no proof of is not shown."""
        if at not in self._known:
            self._known[at] = self._read(at)
        return self._known[at]

    def _read(self, at: Location) -> Parts:
        if not at.source:
            return Parts(NOT_KNOWN, "", "")
        if at.file not in self._split:
            self._split[at.file] = self._sources.get(at.file, "").split("\n")
        lines = self._split[at.file][at.line - 1 : min(at.end_line, at.line + MOST_LINES)]
        if not lines or lines[0].strip() != at.source or (at.end_line == at.line and at.col >= at.end_col):
            return Parts(_safe(at.source), "", "")
        if len(lines) > 1 and _LOOP.match(lines[0], at.col):
            return Parts("", _safe(one_line("\n".join(_loop_head(lines))).strip()), "")
        after = lines[-1][at.end_col :]
        if len(lines) == 1:
            expression = lines[0][at.col : at.end_col]
        else:
            expression = one_line("\n".join([lines[0][at.col :], *lines[1:-1], lines[-1][: at.end_col]]))
        return Parts(_safe(lines[0][: at.col].lstrip()), _safe(expression), _safe(after.rstrip()))


def _loop_head(lines: Sequence[str]) -> Sequence[str]:
    """The head of a loop: Python 3.11 gives the step to its next round the place of all of it."""
    for size in range(1, len(lines) + 1):
        head = "\n".join(lines[:size]).lstrip()
        try:
            ast.parse(f"{head}\n  pass")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return lines[:size]
    return lines[:1]


def _safe(text: str) -> str:
    """No more of it than any page can hold, with nothing that a terminal obeys."""
    return clean(text[:LONGEST_LINE].replace("\t", " "))


# ---------------------------------------------------------------- what a line assigned


def assigned_word(assigned: Sequence[tuple[tuple[str, ...], tuple[Value, ...]]]) -> str:
    """`` → f32[2, 7, 32]``; of several names each with its shape; `` … `` between first and last where it changed."""
    words: dict[tuple[str, ...], list[str]] = {}
    for names, values in assigned:
        words.setdefault(names, []).append(_values(names, values))
    told = " … ".join if len(words) == 1 else "; ".join
    each = [" … ".join(several) for several in words.values()]
    return f" → {told(each)}" if each else ""


def _values(names: tuple[str, ...], values: tuple[Value, ...]) -> str:
    words = shape_words(values)
    if len(names) == 1 or (len(names) == len(values) and len(words) == 1):
        return ", ".join(words)
    by_name = _by_name(names, values)
    if len(set(by_name.values())) > 1:
        pairs = [f"{clean(name)}: {word}" for name, word in by_name.items()]
        return ", ".join(pairs[:MOST_VALUES] + ["…"] * (len(pairs) > MOST_VALUES))
    return f"{clean(', '.join(by_name or names))}: {', '.join(dict.fromkeys(by_name.values()) or words)}"


def _by_name(names: tuple[str, ...], values: tuple[Value, ...]) -> dict[str, str]:
    """The shape that each name got; nothing where that is not certain."""
    if any(name.startswith("*") for name in names):
        return {}
    places = {f"out[{index}]": name for index, name in enumerate(names)}
    found = {places[value.role]: value for value in values if value.role in places}
    if len(found) < len(values):
        found = dict(zip(names, values, strict=False)) if len(names) == len(values) else {}
    return {name: ", ".join(shape_words((value,))) for name, value in found.items() if name != "_"}


# ---------------------------------------------------------------- where it stands


@dataclass(frozen=True, slots=True)
class Placed:
    """A source line with its place and what it assigned, to be set on the page."""

    parts: Parts
    at: Location
    known: bool
    """Whether the line before at this depth was in the same function: then the number is enough."""
    assigned: str

    def fit(self, room: int) -> tuple[Parts, str, str]:
        """What there is room for: rather a short place and no shapes than no source."""
        text = width_of("".join(self.parts))
        place, assigned = "", ""
        for place, assigned in self._choices():
            left = room - 2 - width_of(place) - width_of(assigned)
            if left >= min(text, max(SHORTEST_SOURCE, room // 2)):
                return self.parts.fit(left), place, assigned
        place = cut(place, max(room - 2 - FEWEST_COLUMNS, 1))
        return self.parts.fit(max(room - 2 - width_of(place), 1)), place, ""

    def _choices(self) -> list[tuple[str, str]]:
        at, line = self.at, f":{self.at.line}"
        whole, short = list[str](), f"# {line}"
        if not self.known:
            function = f" in {clean(at.function.rpartition('<locals>.')[2])}:"
            file, short = known_as(at.file), f"# {file_name(known_as(at.file))}{line}"
            whole = [f"# {path_word(file)}{line}{function}", f"{short}{function}"]
        return [*((place, self.assigned) for place in (*whole, short)), (short, "")]


def known_as(name: str) -> str:
    """Generated code may be named after where it comes from, at length: ``<eval_with_key>.0 from …``."""
    return name.partition(" from ")[0] if name.startswith("<") else name
