"""What the code view is made of: which events are its steps, and the calls and source lines that each stands under."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from torchglass.errors import UsageError, WrongType
from torchglass.events.selection import Selection
from torchglass.events.types import Event, Location
from torchglass.views.digest import TellsAlike
from torchglass.views.nesting import is_inner
from torchglass.views.options import check_depth, check_only, check_switch
from torchglass.views.recorded import Recorded

STEPS = ("auto", "ops", "functions")
FRAMES = ("user", "own", "all")
FEWEST_LEVELS = 8
"""Recursion is shown as it is up to here; a line that calls itself deeper is shown once, with a count."""
RUNNERS = frozenset(["_pytest", "execnet", "IPython", "ipykernel", "pluggy", "unittest", "xdist"])
"""Packages that run other people's code: nobody wants to see their lines."""
INSTALLED = ("site-packages/", "dist-packages/")


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """What the code view shows."""

    only: Selection | None = None
    """Only the steps that are selected, or are in a function that is; with the lines that led to them."""
    steps: str = "auto"
    """What stands under the lines: ``ops``, ``functions``, or ``auto``: ops where the trace has any."""
    frames: str = "user"
    """Whose lines: ``user``: all but torch's and the standard library's; ``own``: no installed packages; ``all``."""
    hide: tuple[str, ...] = ()
    """Packages whose lines are not shown, as in ``("transformers", "transformers.utils")``."""
    depth: int | None = None
    """Levels of lines below the outermost; None: all."""
    times: bool = False
    inner: bool = False
    """Show also the ops of optimizer steps."""
    fold: bool = True
    """Show loops and equal layers once."""
    succinct: bool = True
    """One line for all that is computed on it; False: one for each expression."""

    def __post_init__(self) -> None:
        check_only(self.only)
        check_depth(self.depth)
        for name in ("times", "inner", "fold", "succinct"):
            check_switch(name, getattr(self, name))
        for name, words in (("steps", STEPS), ("frames", FRAMES)):
            if getattr(self, name) not in words:
                raise UsageError(f"{name}= takes one of {', '.join(map(repr, words))}, not {getattr(self, name)!r}")
        object.__setattr__(self, "hide", _packages(self.hide))


def _packages(given: object) -> tuple[str, ...]:
    several = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
    names = tuple(each for each in several if isinstance(each, str) and each)
    if len(names) != len(several):
        raise WrongType('hide= takes the name of a package or a tuple of them, as in hide=("transformers",)')
    return names


# ---------------------------------------------------------------- events


@dataclass(slots=True)
class Read:
    """A trace read once: small numbers for each event, and one event for each look."""

    events: list[Event] = field(default_factory=list[Event])
    """One that looks the same: all but its id, parent, times and values are its own."""
    look: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    """-1: none."""
    spent_ns: list[int] = field(default_factory=list[int])
    calls: list[int] = field(default_factory=list[int])
    """The innermost module call or optimizer step around each event; -1: none."""
    steps: list[int] = field(default_factory=list[int])
    """The events that are shown."""
    inside: dict[int, int] = field(default_factory=dict[int, int])
    """How many ops are in an optimizer's step that is shown as one."""
    left_out: int = 0
    """Steps that are not selected."""


def is_call(event: Event) -> bool:
    """Whether an event is a call that has lines and steps in it: a module's or an optimizer's."""
    return event.kind in ("module", "step")


def read_steps(trace: Recorded, options: CodeOptions) -> Read:
    """Read a trace and choose its steps."""
    read = Read()
    for event, look, parent, spent in _read(trace):
        read.events.append(event)
        read.look.append(look)
        read.parents.append(parent)
        read.spent_ns.append(spent)
        around = parent if parent >= 0 and is_call(read.events[parent]) else read.calls[parent] if parent >= 0 else -1
        read.calls.append(around)
    shown = _shown_kinds(read.events, options)
    failed_inside = {parent for event, parent in zip(read.events, read.parents, strict=True) if event.error}
    chosen = [
        number
        for number, event in enumerate(read.events)
        if (event.error and number not in failed_inside) or _is_step(read, number, shown)
    ]
    if "op" in shown:
        chosen = list(_or_what_has_no_ops(read, chosen))
    if "step" in shown:
        chosen = list(_outside_optimizers(read, chosen))
    read.steps = chosen if options.only is None else list(_selected(trace, read, chosen, options.only))
    read.left_out = len(chosen) - len(read.steps)
    return read


def _read(trace: Recorded) -> Iterator[tuple[Event, int, int, int]]:
    """Each event with the number of its look, its parent and its time."""
    known: dict[Hashable, tuple[Event, int]] = {}
    if isinstance(trace, TellsAlike):
        for number, (key, parent, spent) in enumerate(trace.alike()):
            found = known.get(key)
            if found is None:
                found = known[key] = (trace.event(number), len(known))
            yield *found, parent, spent
        return
    for number, event in enumerate(trace.events()):
        yield event, number, -1 if event.parent is None else event.parent, event.duration_ns or 0


def _shown_kinds(events: Sequence[Event], options: CodeOptions) -> frozenset[str]:
    """The kinds that are steps; without ops and functions the modules that call no others must do."""
    kinds = {event.kind for event in events}
    if options.steps == "ops" or (options.steps == "auto" and "op" in kinds):
        main = "op"
    else:
        main = "function" if options.steps == "functions" or "function" in kinds else "module"
    return frozenset((main, "unseen", "mark", "" if options.inner else "step"))


def _or_what_has_no_ops(read: Read, chosen: Iterable[int]) -> Iterator[int]:
    """Ops; and what could not be looked into, as its note says, unless ops were seen in it all the same."""
    steps = set(chosen)
    around: set[int] = set()
    for number in steps:
        while (number := read.parents[number]) >= 0 and number not in around:
            around.add(number)
    for number, event in enumerate(read.events):
        if number in around and event.kind == "unseen":
            continue
        unseen = event.note and event.kind == "function" and number not in around and not _is_inner(read, number)
        if number in steps or unseen:
            yield number


def _is_inner(read: Read, number: int) -> bool:
    parent = read.parents[number]
    return parent >= 0 and is_inner(read.events[number], read.events[parent], False)


def _outside_optimizers(read: Read, chosen: Iterable[int]) -> Iterator[int]:
    """Steps but those in an optimizer's step, which are counted; a failing one is shown."""
    for number in chosen:
        call = read.calls[number]
        if call < 0 or read.events[call].kind != "step" or read.events[number].error:
            yield number
        else:
            read.inside[call] = read.inside.get(call, 0) + 1


def _is_step(read: Read, number: int, shown: frozenset[str]) -> bool:
    event, parent = read.events[number], read.parents[number]
    if event.kind not in shown:
        return False
    if event.kind == "op":
        return bool(event.inputs or event.outputs)  # the profiler's marks are nobody's business
    if event.kind == "module":
        following = read.calls[number + 1 : number + 2]
        return not following or following[0] != number or not is_call(read.events[number + 1])
    return (parent >= 0 and read.events[parent].kind == "step") or not _is_inner(read, number)


def _selected(trace: Recorded, read: Read, chosen: Iterable[int], only: Selection) -> Iterator[int]:
    """Those of the chosen events that are selected, or are in a function that is."""
    by_look: dict[int, bool] = {}

    def matches(number: int) -> bool:
        if only.where is not None:  # may ask for what events that look the same differ in
            return only.matches(trace.event(number))
        look = read.look[number]
        if look not in by_look:
            by_look[look] = only.matches(read.events[number])
        return by_look[look]

    for number in chosen:
        each = number
        while each >= 0 and not matches(each):
            each = read.parents[each]
            if each >= 0 and read.events[each].kind == "module":
                each = -1
        if each >= 0:
            yield number


# ---------------------------------------------------------------- lines


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
        self._hidden = tuple(tuple(each.split(".")) for each in options.hide)
        self._files: dict[str, bool] = {}
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
        if not self._hidden:
            return False
        if at.file not in self._files:
            parts = _module_parts(at.file)
            self._files[at.file] = any(_within(parts, package) for package in self._hidden)
        return self._files[at.file]

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


def is_own(at: Location) -> bool:
    """Whether a frame is in a file of the program itself: not torch's, not installed, not generated."""
    return at.origin == "user" and not any(folder in at.file.replace("\\", "/") for folder in INSTALLED)


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


def _module_parts(file: str) -> tuple[str, ...]:
    """The folders and the name of a file, below the folder of installed packages where it is in one."""
    path = file.replace("\\", "/")
    for folder in INSTALLED:
        path = path.rpartition(folder)[2]
    return tuple(path.removesuffix(".py").split("/"))


def _within(parts: tuple[str, ...], package: tuple[str, ...]) -> bool:
    size = len(package)
    return any(parts[at : at + size] == package for at in range(len(parts) - size + 1))
