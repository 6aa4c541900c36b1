"""Every line of the program that a step ran below, as a tree of frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.selection import Selection
from torchglass.events.types import Event, Location
from torchglass.source.statements import Span
from torchglass.views.digest import ById, Digest, Recorded, digest_of
from torchglass.views.listing.results import MeasuredOutput
from torchglass.views.text.tensors import is_measured

_TRANSFORMED = "<eval_with_key>"
"""How torch.fx and torch.export name the code that they write: a program of the user's in other words."""


@dataclass(slots=True)
class AlikeSteps:
    """Events that are alike: the first of them, and of those that are selected how many and how long."""

    event: Event
    frame: int
    """The innermost frame in the program; -1: none."""
    is_op: bool
    is_module: bool
    total: int = 0
    """How many of them are steps, selected or not."""
    count: int = 0
    spent_ns: int = 0
    last: int = -1
    """The id of the last of them."""
    numbers: list[int] | None = None
    """The ids of all of them; None in a trace without statistics."""
    measured: list[MeasuredOutput] = field(default_factory=list[MeasuredOutput])
    """What was in their outputs; ``[]``: nobody measured."""

    @property
    def ended_well(self) -> bool:
        return self.event.error is None and self.event.end_ns is not None

    def add(self, number: int, spent_ns: int) -> None:
        """One more that is selected."""
        self.count += 1
        self.spent_ns += spent_ns
        self.last = number
        if self.numbers is not None:
            self.numbers.append(number)

    def clear(self) -> None:
        """None is selected."""
        self.count, self.spent_ns, self.last = 0, 0, -1
        if self.numbers is not None:
            self.numbers.clear()

    def measure(self, trace: Recorded) -> None:
        """Keep the ids, for who asks what was in the outputs."""
        numbers = self.numbers = list[int]()
        self.measured = [MeasuredOutput(trace, numbers, place) for place in range(len(self.event.outputs))]


class CodePlace(NamedTuple):
    """One instruction of the program."""

    file: str
    function: str
    where: Span
    source: str
    """The line as it was when it ran; ``""``: not known. Code made while the program runs may have other
    lines at the same place."""


@dataclass(slots=True)
class Frame:
    """A place under the calls that led to it; loops come to the same frame again."""

    number: int
    parent: int
    """-1: none."""
    place: CodePlace
    called: bool
    """Whether the parent's expression may have made the call itself: no frame of torch lies between."""
    in_step: bool = False
    """Whether it ran inside a step of its parent: a hook, or the program's own code that torch's C++ called."""
    steps: list[AlikeSteps] = field(default_factory=list[AlikeSteps])
    """The selected steps that have it as their innermost frame of the program."""
    children: list[int] = field(default_factory=list[int])
    in_module: bool = True
    """Whether every step below it ran inside a module's call."""
    module_calls: list[AlikeSteps] = field(default_factory=list[AlikeSteps])
    """The module calls made here, selected or not."""
    run_by: dict[int, AlikeSteps] = field(default_factory=dict[int, AlikeSteps])
    """Where a module's call came to it first, as to a line of ``forward``: those calls, by number."""
    live: bool = False
    """Whether a selected step is in it or below it."""
    failed: bool = False
    """Whether an error left a step in it or below it."""
    unproven: bool = False
    """The file's text is not that of this code."""

    @property
    def ended_modules(self) -> bool:
        """Whether modules were called here, and every call came to its end."""
        return bool(self.module_calls) and all(each.ended_well for each in self.module_calls)


def frames_of(trace: Recorded, only: Selection | None) -> list[Frame]:
    """The tree of frames, parents before children; frames of torch and the standard library are left out.

    Every step has its frames, but only the selected ones are kept with them.
    """
    read = _Reading(trace)
    read.choose(only)
    frames = read.tree.frames
    for steps in read.steps:
        if steps.frame < 0 or not steps.total:
            continue
        if steps.is_module:
            frames[steps.frame].module_calls.append(steps)
        if not steps.ended_well:
            _note("failed", steps.frame, frames)
        if steps.count:
            frames[steps.frame].steps.append(steps)
            _note("live", steps.frame, frames)
    for inner, outer in read.inside:
        _note_module(inner, outer, read, frames)
    for inner, outer in read.under:
        _note_in_step(read.steps[inner].frame, read.steps[outer].frame, frames)
    return frames


# ---------------------------------------------------------------- events


class _Reading:
    """A trace read once: which of its events are steps of a line.

    An aten op tells again what the function says that it ran in, where both stand at the same place. It is a
    step of its own where the program's frames go deeper, as in the ``backward`` of an autograd function, and
    where nothing else was recorded at its place.
    """

    def __init__(self, trace: Recorded) -> None:
        self.digest: Digest = digest_of(trace)
        self.tree = _Tree()
        self.steps = [
            AlikeSteps(event, self.tree.number(event), event.kind == "op", event.kind == "module")
            for event in self.digest.samples
        ]
        """By the number of what is alike."""
        self.inside: set[tuple[int, int]] = set()
        """Such numbers: of an event and of the innermost module call around it (-1: none)."""
        self.under: set[tuple[int, int]] = set()
        """The same of an event and of the one just around it."""
        self._repeats = bytearray()
        """Which events tell again what the one around them says."""
        if is_measured(trace):
            for steps in self.steps:
                steps.measure(trace)
        self._read()

    def _read(self) -> None:
        steps, alike, repeats = self.steps, self.digest.alike, self._repeats
        modules: list[int] = []
        for number, (at, parent) in enumerate(zip(alike, self.digest.parents, strict=True)):
            module = -1
            if parent >= 0:
                module = alike[parent] if steps[alike[parent]].is_module else modules[parent]
                self.under.add((at, alike[parent]))
            modules.append(module)
            self.inside.add((at, module))
            again = steps[at].is_op and self._tells_again(number)
            repeats.append(again)
            if not again:
                steps[at].total += 1
                steps[at].add(number, self.digest.spent_ns[number])

    def choose(self, only: Selection | None) -> None:
        """Count the steps that are meant; an op that is no step itself means what was called at its place."""
        if only is None:
            return
        for steps in self.steps:
            steps.clear()
        matches = self.digest.matching(only)
        chosen = bytearray(len(matches))
        for number in (number for number, found in enumerate(matches) if found):
            for each in self._instead(number, matches) if self._repeats[number] else (number,):
                if not chosen[each]:
                    chosen[each] = True
                    self._of(each).add(each, self.digest.spent_ns[each])

    def _of(self, number: int) -> AlikeSteps:
        return self.steps[self.digest.alike[number]]

    def _tells_again(self, number: int) -> bool:
        op = self._of(number)
        if not op.event.inputs and not op.event.outputs:
            return True  # the profiler's marks are nobody's business
        around = self._around(number)
        return around >= 0 and self._of(around).frame == op.frame

    def _around(self, number: int) -> int:
        """The innermost event around one that is no op; -1: none."""
        around = self.digest.parents[number]
        while around >= 0 and self._of(around).is_op:
            around = self.digest.parents[around]
        return around

    def _instead(self, number: int, matches: bytearray) -> list[int]:
        """The calls around an op at its place, up to the one that is written there; none if one is selected itself."""
        found: list[int] = []
        around, frame = self._around(number), self._of(number).frame
        while around >= 0 and self._of(around).frame == frame:
            if matches[around]:
                return []
            found.append(around)
            if self._of(around).event.direct:
                break
            around = self._around(around)
        return found


# ---------------------------------------------------------------- frames


class _Tree:
    """The frames found so far."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._known: dict[tuple[int, int, bool], int] = {}
        self._numbers: dict[CodePlace, int] = {}
        self._stack = ById(self._add)
        self._place = ById[Location, int](lambda at: self._numbers.setdefault(_place_of(at), len(self._numbers)))

    def number(self, event: Event) -> int:
        """The innermost frame of an event; -1: it has none in the program."""
        return self._stack(event.stack or ((event.location,) if event.location else ()))

    def _add(self, stack: tuple[Location, ...]) -> int:
        number, called = -1, True
        for at in stack:
            if not is_shown(at):
                called = False
                continue
            key = (number, self._place(at), called)
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = len(self.frames)
                self.frames.append(Frame(found, number, _place_of(at), called))
                if number >= 0:
                    self.frames[number].children.append(found)
            number, called = found, True
        return number


def is_shown(at: Location) -> bool:
    """Whether a frame is in a line of the program: not in torch, nor in the standard library."""
    return at.origin == "user" or is_transformed(at)


def is_transformed(at: Location) -> bool:
    """Whether torch wrote the code from the program's own."""
    return at.origin == "generated" and at.file.startswith(_TRANSFORMED)


def _place_of(at: Location) -> CodePlace:
    return CodePlace(at.file, at.function, Span(at.line, at.end_line, at.col, at.end_col), at.source)


def _note(flag: str, number: int, frames: list[Frame]) -> None:
    """Of a frame, and of all that it was called from."""
    while number >= 0 and not getattr(frames[number], flag):
        setattr(frames[number], flag, True)
        number = frames[number].parent


def _note_in_step(inner: int, outer: int, frames: list[Frame]) -> None:
    """Note at the first frame below ``outer``, on the way to ``inner``, that a step of ``outer`` ran it."""
    while inner >= 0 and frames[inner].parent != outer:
        inner = frames[inner].parent
    if inner >= 0 and outer >= 0:
        frames[inner].in_step = True


def _note_module(inner: int, outer: int, read: _Reading, frames: list[Frame]) -> None:
    """Note, from the frame of a step upwards, in which module's call it ran.

    A frame that steps outside any module have may be one that is still running.
    """
    number = read.steps[inner].frame
    if outer < 0:
        while number >= 0 and frames[number].in_module:
            frames[number].in_module = False
            number = frames[number].parent
        return
    module = read.steps[outer]
    while number >= 0 and frames[number].parent != module.frame:
        number = frames[number].parent
    if number >= 0:
        frames[number].run_by[outer] = module


def is_nested(frame: Frame) -> bool:
    """A comprehension or a lambda: a frame of its own inside a statement."""
    name = frame.place.function.rpartition(".")[2]
    return name.startswith("<") and name != "<module>"


def is_lambda(frame: Frame) -> bool:
    """A function written inside a statement: it runs when it is called."""
    return frame.place.function.rpartition(".")[2] == "<lambda>"
