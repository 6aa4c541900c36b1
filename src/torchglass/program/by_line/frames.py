"""Builds the tree of frames: the lines of the program that led to each step.

A frame here is no frame of Python: it is a place in the program under the places that called it. All iterations of a
loop, and all calls from one place, have the same frame, so there are few of them, with counts::

    for x in data:          # line 1        frame    parent    place
        y = encode(x)       # line 2        0        -1        line 2
        z = encode(y)       # line 3        1        0         line 5
    def encode(x):                          2        -1        line 3
        return x.exp()      # line 5        3        2         line 5

A *step* is an event that a line of the program made; ``_StepReader`` says which events are no steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torchglass.events.selection import Selection
from torchglass.events.types import Event, Location
from torchglass.program.by_line.results import MeasuredOutput
from torchglass.program.dedup import ById, DistinctEvents
from torchglass.program.inner import nearest_around
from torchglass.program.program import program_of
from torchglass.program.recorded import Recorded
from torchglass.source.statements import Span

_TRANSFORMED = "<eval_with_key>"
"""Begins the file names of the code that torch.fx and torch.export write from the program's own."""


@dataclass(slots=True)
class AlikeSteps:
    """Events that are alike and are steps: one sample, and how many of them are selected."""

    event: Event
    """The sample."""
    frame: int
    """The innermost frame in the program; -1 if there is none."""
    is_op: bool
    is_module: bool
    total: int = 0
    """How many steps there are, selected or not."""
    count: int = 0
    """How many are selected; with those that were not kept."""
    spent_ns: int = 0
    """How long the selected ones took."""
    last: int = -1
    """The id of the last selected one."""
    numbers: list[int] | None = None
    """The ids of the selected ones; None in a trace without statistics."""
    measured: list[MeasuredOutput] = field(default_factory=list[MeasuredOutput])
    """The statistics of their outputs; ``[]`` in a trace without statistics."""

    @property
    def completed(self) -> bool:
        """Whether they ended without an error."""
        return self.event.error is None and self.event.end_ns is not None

    def add(self, number: int, spent_ns: int) -> None:
        """Add one selected step."""
        self.count += 1
        self.spent_ns += spent_ns
        self.last = number
        if self.numbers is not None:
            self.numbers.append(number)

    def clear(self) -> None:
        """Forget all selected steps."""
        self.count = 0
        self.spent_ns = 0
        self.last = -1
        if self.numbers is not None:
            self.numbers.clear()

    def measure(self, trace: Recorded) -> None:
        """Collect the ids of steps from now on, so that the statistics of their outputs can be read."""
        numbers = list[int]()
        self.numbers = numbers
        self.measured = [
            MeasuredOutput(trace, numbers, index) for index in range(len(self.event.outputs))
        ]


class CodePlace(NamedTuple):
    """One instruction of the program."""

    file: str
    function: str
    where: Span
    source: str
    """The line as it was when it ran; "" if it is not known. Code made at run time may have different lines at one
    place."""


@dataclass(slots=True)
class Frame:
    """A place in the program under the places that called it."""

    number: int
    parent: int
    """The frame that called it; -1 if there is none."""
    place: CodePlace
    called: bool
    """Whether the parent's expression may have made the call itself: no frame of torch is in between."""
    in_step: bool = False
    """Whether it ran inside a step of its parent: a hook, or code of the program that torch's C++ called."""
    steps: list[AlikeSteps] = field(default_factory=list[AlikeSteps])
    """The selected steps whose innermost frame in the program it is."""
    children: list[int] = field(default_factory=list[int])
    in_module: bool = True
    """Whether every step below it ran inside a module's call."""
    module_calls: list[AlikeSteps] = field(default_factory=list[AlikeSteps])
    """The module calls made here, selected or not."""
    run_by: dict[int, AlikeSteps] = field(default_factory=dict[int, AlikeSteps])
    """The module calls that ran it directly, as they run a line of ``forward``; by the number of their sample."""
    is_selected: bool = False
    """Whether a selected step is in it or below it."""
    failed: bool = False
    """Whether an error ended a step in it or below it."""
    has_other_text: bool = False
    """Whether the file has another text than the one that ran here."""

    @property
    def modules_completed(self) -> bool:
        """Whether modules were called here, and every call came to its end."""
        return bool(self.module_calls) and all(each.completed for each in self.module_calls)


def frames_of(trace: Recorded, only: Selection | None) -> list[Frame]:
    """Return the tree of frames, parents before children, without frames of torch and the standard library.

    All steps have frames, but a frame lists only its selected steps.
    """
    reader = _StepReader(trace)
    reader.choose(only)
    frames = reader.tree.frames
    for steps in reader.steps:
        if steps.frame < 0 or not steps.total:
            continue
        if steps.is_module:
            frames[steps.frame].module_calls.append(steps)
        if not steps.completed:
            _mark_with_callers("failed", steps.frame, frames)
        if steps.count:
            frames[steps.frame].steps.append(steps)
            _mark_with_callers("is_selected", steps.frame, frames)
    for inner, outer in reader.modules_around:
        _note_module(inner, outer, reader.steps, frames)
    for inner, outer in reader.events_around:
        _note_in_step(reader.steps[inner].frame, reader.steps[outer].frame, frames)
    return frames


# ---------------------------------------------------------------- events


class _Around(NamedTuple):
    """Two events, one inside the other, by the numbers of their samples."""

    inner: int
    outer: int


class _StepReader:
    """Reads a trace, and decides which of its events are steps.

    An aten op inside a function at the same place is not: it only repeats the function. It is a step if it has more
    frames of the program, as in the ``backward`` of an autograd function, or if nothing else was recorded at its place.
    """

    def __init__(self, trace: Recorded) -> None:
        self.distinct: DistinctEvents = program_of(trace).distinct
        self.tree = _Tree()
        self.steps = [
            AlikeSteps(
                event,
                self.tree.number(event),
                is_op=event.kind == "op",
                is_module=event.kind == "module",
            )
            for event in self.distinct.samples
        ]
        """By the number of the sample."""
        self.modules_around: set[_Around] = set()
        """Each event with the innermost module call around it (-1: none)."""
        self.events_around: set[_Around] = set()
        """Each event with the event just around it."""
        self._repeats = bytearray()
        """By event, whether it only repeats the event around it, and so is no step."""
        if trace.measured:
            for steps in self.steps:
                steps.measure(trace)
        self._read()

    def _read(self) -> None:
        alike = self.distinct.alike
        parents = self.distinct.parents
        modules = nearest_around(parents, [self.steps[sample].is_module for sample in alike])
        for number, sample in enumerate(alike):
            parent = parents[number]
            if parent >= 0:
                self.events_around.add(_Around(sample, alike[parent]))
            module = modules[number]
            if module >= 0:
                module = alike[module]
            self.modules_around.add(_Around(sample, module))
            steps = self.steps[sample]
            only_repeats = steps.is_op and self._only_repeats(number)
            self._repeats.append(only_repeats)
            if not only_repeats:
                steps.total += 1
                steps.add(number, self.distinct.spent_ns[number])
        for sample, times in self.distinct.dropped.items():
            if self.steps[sample].total:
                self.steps[sample].count += times

    def choose(self, only: Selection | None) -> None:
        """Count only the selected steps. A selected op that is not a step selects what was called at its place."""
        if only is None:
            return
        for steps in self.steps:
            steps.clear()
        matches = self.distinct.matching(only)
        is_chosen = bytearray(len(matches))
        for number, is_match in enumerate(matches):
            if not is_match:
                continue
            selected = [number]
            if self._repeats[number]:
                selected = self._calls_of_op(number, matches)
            for step in selected:
                if not is_chosen[step]:
                    is_chosen[step] = True
                    self._steps_of(step).add(step, self.distinct.spent_ns[step])
        for sample, times in self.distinct.dropped.items():
            if self.steps[sample].count:
                self.steps[sample].count += times

    def _steps_of(self, number: int) -> AlikeSteps:
        return self.steps[self.distinct.alike[number]]

    def _only_repeats(self, number: int) -> bool:
        """Return whether an op has no tensors (a mark of torch's profiler), or is at the place of what called it."""
        op = self._steps_of(number)
        if not op.event.inputs and not op.event.outputs:
            return True
        caller = self._caller(number)
        return caller >= 0 and self._steps_of(caller).frame == op.frame

    def _caller(self, number: int) -> int:
        """Return the innermost event around an event that is not an op; -1 if there is none."""
        parents = self.distinct.parents
        caller = parents[number]
        while caller >= 0 and self._steps_of(caller).is_op:
            caller = parents[caller]
        return caller

    def _calls_of_op(self, number: int, matches: bytearray) -> list[int]:
        """Return the calls around an op at its place, up to the one that is written there.

        If one of them is selected itself, none is returned.
        """
        calls: list[int] = []
        caller = self._caller(number)
        frame = self._steps_of(number).frame
        while caller >= 0 and self._steps_of(caller).frame == frame:
            if matches[caller]:
                return []
            calls.append(caller)
            if self._steps_of(caller).event.direct:
                break
            caller = self._caller(caller)
        return calls


# ---------------------------------------------------------------- frames


class _Tree:
    """The frames found so far."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._numbers: dict[tuple[int, int, bool], int] = {}
        """The number of each frame, by its caller, the number of its place, and ``called``."""
        self._place_numbers: dict[CodePlace, int] = {}
        self._innermost_of = ById(self._add_stack)
        self._place_number = ById(self._number_place)

    def number(self, event: Event) -> int:
        """Return the innermost frame of an event; -1 if it has none in the program."""
        stack = event.stack
        if not stack and event.location is not None:
            stack = (event.location,)
        return self._innermost_of(stack)

    def _number_place(self, at: Location) -> int:
        return self._place_numbers.setdefault(_place_of(at), len(self._place_numbers))

    def _add_stack(self, stack: tuple[Location, ...]) -> int:
        """Add the frames of a stack, and return the innermost."""
        parent = -1
        called = True
        for at in stack:
            if not is_shown(at):
                called = False
                continue
            key = (parent, self._place_number(at), called)
            number = self._numbers.get(key)
            if number is None:
                number = len(self.frames)
                self._numbers[key] = number
                self.frames.append(Frame(number, parent, _place_of(at), called))
                if parent >= 0:
                    self.frames[parent].children.append(number)
            parent = number
            called = True
        return parent


def is_shown(at: Location) -> bool:
    """Return whether a frame is in the program, and not in torch or the standard library."""
    return at.origin == "user" or is_transformed(at)


def is_transformed(at: Location) -> bool:
    """Return whether a frame is in code that torch wrote from the program's own."""
    return at.origin == "generated" and at.file.startswith(_TRANSFORMED)


def _place_of(at: Location) -> CodePlace:
    where = Span(at.line, at.end_line, at.col, at.end_col)
    return CodePlace(at.file, at.function, where, at.source)


def _mark_with_callers(flag: str, number: int, frames: list[Frame]) -> None:
    """Set a flag on a frame and all its callers."""
    while number >= 0 and not getattr(frames[number], flag):
        setattr(frames[number], flag, True)
        number = frames[number].parent


def _note_in_step(inner: int, outer: int, frames: list[Frame]) -> None:
    """Note that a step of the frame ``outer`` ran the frame directly below it that leads to ``inner``."""
    while inner >= 0 and frames[inner].parent != outer:
        inner = frames[inner].parent
    if inner >= 0 and outer >= 0:
        frames[inner].in_step = True


def _note_module(inner: int, outer: int, steps: list[AlikeSteps], frames: list[Frame]) -> None:
    """Note in which module's call the frames of a step ran. ``inner`` and ``outer`` are numbers of samples.

    If ``outer`` is -1 the step was outside all modules, and so were the frames that called it.
    """
    number = steps[inner].frame
    if outer < 0:
        while number >= 0 and frames[number].in_module:
            frames[number].in_module = False
            number = frames[number].parent
        return
    module = steps[outer]
    while number >= 0 and frames[number].parent != module.frame:
        number = frames[number].parent
    if number >= 0:
        frames[number].run_by[outer] = module


def is_nested(frame: Frame) -> bool:
    """Return whether a frame is a comprehension or a lambda, which runs inside a statement."""
    name = frame.place.function.rpartition(".")[2]
    return name.startswith("<") and name != "<module>"


def is_lambda(frame: Frame) -> bool:
    """Return whether a frame is a lambda, which runs when it is called, not where it is written."""
    return frame.place.function.rpartition(".")[2] == "<lambda>"
