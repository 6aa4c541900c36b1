"""The source lines that a step stands under: which frames of its stack are shown, and the line that each is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from torchglass.events.selection import in_package
from torchglass.events.types import Location
from torchglass.views.code import Options
from torchglass.views.stacks import is_own

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

    def __init__(self, options: Options) -> None:
        self._options = options
        self._numbers: dict[tuple[object, ...], int] = {}
        self._known: dict[int, tuple[Location, int]] = {}
        self._stacks: dict[int, tuple[tuple[Location, ...], list[tuple[int, int]]]] = {}
        self.lines: list[Line] = []
        self.outer = 0
        """Frames at the outer end that are nobody's lines: a test runner's, a notebook's."""

    def of(self, stack: tuple[Location, ...]) -> list[tuple[int, int]]:
        """(index of the frame, number of the line) of each frame that is shown, outermost first."""
        found = self._stacks.get(id(stack))
        if found is None:
            # The stack is kept with what is known of it, so that its id stays its own.
            found = self._stacks[id(stack)] = (stack, [(at, self._line(each)) for at, each in self._shown(stack)])
        return found[1]

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

    def _shown(self, stack: tuple[Location, ...]) -> Iterator[tuple[int, Location]]:
        for index in range(self.outer, len(stack)):
            at = stack[index]
            if not self._is_hidden(at):
                yield index, at

    def _is_hidden(self, at: Location) -> bool:
        if self._options.frames == "user" and at.origin in ("torch", "stdlib"):
            return True
        if self._options.frames == "own" and not is_own(at):
            return True
        return any(in_package(at.file, package) for package in self._options.hide)

    def _line(self, at: Location) -> int:
        """By identity first: a trace makes a place once, and to hash it takes a while."""
        found = self._known.get(id(at))
        if found is None:
            found = self._known[id(at)] = (at, self._number(at))
        return found[1]

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
