"""The source lines that a step stands under: which frames of its stack are shown, and the line that each is."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchglass.events.selection import in_package
from torchglass.events.types import Location, Value
from torchglass.views.digest import ById, shape_key
from torchglass.views.options import CodeOptions
from torchglass.views.row import SOURCE, Cell
from torchglass.views.stacks import is_own
from torchglass.views.text.cells import shape_words
from torchglass.views.text.tensors import values_words
from torchglass.views.text.words import clean, one_line

FEWEST_LEVELS = 8
"""Recursion is shown as it is up to here; a line that calls itself deeper is shown once, with a count."""
RUNNERS = frozenset(["_pytest", "execnet", "IPython", "ipykernel", "pluggy", "unittest", "xdist"])
"""Packages that run other people's code: nobody wants to see their lines."""


@dataclass(slots=True)
class Line:
    """One line of code that is shown; equal numbers are one line."""

    number: int
    where: Location
    """With the columns of all that was computed on it."""
    levels: int = 1
    """How often it stands in one stack, at most: how deep it calls itself."""
    levels_as_one: int = 1
    """How many of these are shown as one, at most: those in one call of a module."""


class Lines:
    """Which frames of a stack are shown, and the line that each is."""

    def __init__(self, options: CodeOptions) -> None:
        self._options = options
        self._numbers: dict[tuple[object, ...], int] = {}
        self._line = ById(self._number)
        self.of = ById(self._of)
        """(index of the frame, number of the line) of each frame of a stack that is shown, outermost first."""
        self.lines: list[Line] = []
        self.outer = 0
        """Frames at the outer end that are nobody's lines: a test runner's, a notebook's."""

    def _of(self, stack: tuple[Location, ...]) -> list[tuple[int, int]]:
        frames = [(index, stack[index]) for index in range(self.outer, len(stack))]
        return [(index, self._line(at)) for index, at in frames if not self._is_hidden(at)]

    def count_levels(self, stacks: Iterable[tuple[Location, ...]]) -> None:
        """Find the lines that call themselves."""
        for stack in {id(stack): stack for stack in stacks}.values():
            shown = self.of(stack)
            if len(shown) > FEWEST_LEVELS:
                for number, levels in Counter([number for _, number in shown]).items():
                    self.lines[number].levels = max(self.lines[number].levels, levels)

    def leave_out_runner(self, stacks: Iterable[tuple[Location, ...]]) -> None:
        """Leave out the frames that all stacks begin with, up to the first of the program's own files.

        Where a test runner or a notebook is among them, up to the first behind it.
        """
        if self._options.frames == "all":
            return
        different = {id(stack): stack for stack in stacks if stack}
        common = _common(list(different.values()))
        behind = max((at + 1 for at, each in enumerate(common) if _is_runner(each)), default=0)
        self.outer = next((at for at, each in enumerate(common) if at >= behind and is_own(each)), behind)

    def _is_hidden(self, at: Location) -> bool:
        if self._options.frames == "user" and at.origin in ("torch", "stdlib"):
            return True
        if self._options.frames == "own" and not is_own(at):
            return True
        return any(in_package(at.file, package) for package in self._options.hide)

    def _number(self, at: Location) -> int:
        """With its text: what is given to ``exec``, or read again after a change, has other lines at the same place."""
        columns = () if self._options.succinct else (at.col, at.end_line, at.end_col)
        key = (at.file, at.line, at.function, at.source, *columns)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.lines)
            self.lines.append(Line(number, at))
        line = self.lines[number]
        if line.where is not at:
            line.where = _both(line.where, at)
        return number


def _is_runner(at: Location) -> bool:
    return not RUNNERS.isdisjoint(at.file.replace("\\", "/").split("/"))


def _common(stacks: Sequence[tuple[Location, ...]]) -> tuple[Location, ...]:
    """The frames that all of the stacks begin with."""
    first = stacks[0] if stacks else ()
    length = len(first)
    for stack in stacks[1:]:
        length = min(length, len(stack))
        same = (one.file == two.file and one.line == two.line for one, two in zip(first, stack, strict=False))
        length = min(length, next((at for at, equal in enumerate(same) if not equal), length))
    return first[:length]


def _both(one: Location, other: Location) -> Location:
    """The place that holds both, which begin on one line."""
    end = max((one.end_line, one.end_col), (other.end_line, other.end_col))
    return replace(one, end_line=end[0], col=min(one.col, other.col), end_col=end[1])


# ---------------------------------------------------------------- source

# A source line as it is shown: its text, the expression in it, and what it assigned.

NOT_KNOWN = "(source not known)"
LONGEST_LINE = 500
MOST_LINES = 40
MOST_VALUES = 6
_LOOP = re.compile(r"(async\s+)?for\b")


class SourceLines:
    """Lines of source by their place; whole expressions where they go over several lines."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._split: dict[str, list[str]] = {}
        self._known: dict[Location, Cell] = {}

    def cell(self, at: Location) -> Cell:
        """The text at a place, with the expression that ran. What the trace has no proof of is not shown."""
        if at not in self._known:
            before, expression, after = self._read(at)
            end = len(before) + len(expression)
            self._known[at] = Cell(SOURCE, before + expression + after, at=at, mark=(len(before), end))
        return self._known[at]

    def _read(self, at: Location) -> tuple[str, str, str]:
        """The text around the expression, and the expression."""
        if not at.source:
            return NOT_KNOWN, "", ""
        if at.file not in self._split:
            self._split[at.file] = self._sources.get(at.file, "").split("\n")
        lines = self._split[at.file][at.line - 1 : min(at.end_line, at.line + MOST_LINES)]
        if not lines or lines[0].strip() != at.source or (at.end_line == at.line and at.col >= at.end_col):
            return _safe(at.source), "", ""
        if len(lines) > 1 and _LOOP.match(lines[0], at.col):
            return "", _safe(one_line("\n".join(_loop_head(lines))).strip()), ""
        after = lines[-1][at.end_col :]
        if len(lines) == 1:
            expression = lines[0][at.col : at.end_col]
        else:
            expression = one_line("\n".join([lines[0][at.col :], *lines[1:-1], lines[-1][: at.end_col]]))
        return _safe(lines[0][: at.col].lstrip()), _safe(expression), _safe(after.rstrip())


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


def assigned_word(assigned: Mapping[tuple[str, ...], Sequence[tuple[Value, ...]]]) -> str:
    """``f32[2, 7, 32]``; of several names each with its shape; what differed between rounds as a range."""
    return "; ".join(_values(names, _different(several)) for names, several in assigned.items())


def _different(several: Sequence[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """Those of which not the same is said."""
    return list({tuple(map(shape_key, values)): values for values in reversed(several)}.values())[::-1]


def _values(names: tuple[str, ...], several: Sequence[tuple[Value, ...]]) -> str:
    words = values_words(several)
    grouped = shape_words(several[0]) if len(several) == 1 else words
    if len(names) == 1 or (len(names) == len(words) and len(grouped) == 1):
        return ", ".join(grouped)
    by_name = _by_name(names, several)
    if len(set(by_name.values())) > 1:
        pairs = [f"{clean(name)}: {word}" for name, word in by_name.items()]
        return ", ".join(pairs[:MOST_VALUES] + ["…"] * (len(pairs) > MOST_VALUES))
    return f"{clean(', '.join(by_name or names))}: {', '.join(dict.fromkeys(by_name.values()) or grouped)}"


def _by_name(names: tuple[str, ...], several: Sequence[tuple[Value, ...]]) -> dict[str, str]:
    """The shape that each name got; nothing where that is not certain."""
    if any(name.startswith("*") for name in names) or len({len(values) for values in several}) > 1:
        return {}
    roles = [value.role for value in several[0]]
    places = {f"out[{index}]": name for index, name in enumerate(names)}
    found = {at: places[role] for at, role in enumerate(roles) if role in places}
    if len(found) < len(roles):
        found = dict(enumerate(names)) if len(names) == len(roles) else {}
    words = values_words(several)
    return {name: words[at] for at, name in found.items() if name != "_"}
