"""Finds for each frame its statement, how often it ran, and what its expression gave.

The words *frame*, *step*, *caller* and *slot* are explained in ``notes.py``.

A frame with steps has its count and its result from them. If the expression calls a function of the program instead,
the frame takes both from the frames in that function::

    h = encode(x)           # a frame without steps: ran 8 times, and gave what ``return y`` gave
    def encode(x):
        y = x.exp()         # every call runs this once, and it ran 8 times
        return y

To *settle* a frame is to find its count and its result. Frames are settled from the innermost outwards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from torchglass.events.types import Event
from torchglass.program.by_line.frames import AlikeSteps, Frame, is_lambda, is_nested
from torchglass.program.by_line.made import CALLING_BACK, last_made, last_op
from torchglass.program.by_line.results import (
    Outcome,
    changed_by,
    merged,
    module_path,
    part,
    result_of,
)
from torchglass.source.definitions import definition, runs_as_often
from torchglass.source.flow import ControlFlow, is_in_with, may_be_left
from torchglass.source.slots import AssignedSlot, slots_of
from torchglass.source.statements import Span, Statement


class UnderCaller(NamedTuple):
    """A statement or a function of a file, under one caller."""

    caller: int
    file: str
    number: int
    """The number of the statement, or of the function's ``def``."""


class _Function(NamedTuple):
    """A function of the program."""

    file: str
    number: int
    """The number of its ``def``."""


class SettledFrames:
    """The statement of every frame, how often it ran, and what its expression gave.

    ``caller`` is always the number of the frame that called the function of a statement (-1: none). Results are kept
    by caller until the end, because a function may return something else to each.

    To read this class, begin with ``_settle``, which is called once for each frame. The public methods answer what
    ``notes.py`` asks afterwards, and what ``_settle`` asks about frames that are settled already. What a statement
    gave to one of its slots is looked for in this order:

    1. ``_from_store``: a write of ``x[i] = y`` that was recorded at the target;
    2. ``_from_nodes``: the frames at the expressions that the value comes from;
    3. ``_from_name``, for ``return x``: what the assignment of ``x`` gave;
    4. ``_from_module``, for the only ``return`` of a ``forward``: what the call of the module gave.
    """

    def __init__(self, frames: list[Frame], sources: Mapping[str, ControlFlow]) -> None:
        self.frames = frames
        self.sources = sources
        self.statement: list[Statement | None] = [self._statement(frame) for frame in frames]
        """By frame, the statement that it is in; None if the text of its file is not known."""
        self.outcome: list[Outcome] = [Outcome()] * len(frames)
        """By frame, what its expression gave."""
        self.times_run: list[int | None] = [None] * len(frames)
        """By frame, how often its expression ran; None if that is not known."""
        self.callers: dict[tuple[str, int], dict[int, None]] = {}
        """By file and function (-1: the top level of the file), the frames that called it, in order."""
        self.below: dict[UnderCaller, list[int]] = {}
        """The frames of each statement under one caller."""
        self._at: dict[UnderCaller, dict[Span, list[int]]] = {}
        """The same, by the place of the frame in the statement."""
        self._times: dict[UnderCaller, int | None] = {}
        """Cached results of ``times``."""
        self._step_counts: dict[UnderCaller, int | None] = {}
        """Cached results of ``_times_of_neighbours``."""
        self._slots: dict[tuple[str, int], list[AssignedSlot]] = {}
        """Cached results of ``_slots_of``."""
        self._forwards: dict[UnderCaller, set[str]] = {}
        """For functions that ran as the ``forward`` of modules under one caller, the classes of these modules."""
        self._may_catch: set[UnderCaller] = set()
        """Functions in which a context manager may have caught an error."""
        for frame, statement in zip(frames, self.statement, strict=True):
            if statement is not None and frame.is_selected:
                self._register(frame, statement)
        # Callers come before what they call, so this goes from the innermost frames outwards.
        for frame in reversed(frames):
            self._settle(frame)

    def _register(self, frame: Frame, statement: Statement) -> None:
        """Enter a frame into the tables by statement and by function."""
        file = frame.place.file
        under = UnderCaller(frame.parent, file, statement.number)
        self.below.setdefault(under, []).append(frame.number)
        self._at.setdefault(under, {}).setdefault(frame.place.where, []).append(frame.number)
        callers = self.callers.setdefault((file, statement.function), {})
        if not is_nested(frame):
            callers[frame.parent] = None
        self._note_forward(frame, statement)

    def frames_at(self, caller: int, file: str, statement: int) -> list[int]:
        """Return the numbers of the frames of a statement under one caller, in order."""
        return self.below.get(UnderCaller(caller, file, statement), [])

    def outcomes_of_slots(
        self, caller: int, file: str, statement: Statement
    ) -> list[tuple[AssignedSlot, Outcome]]:
        """Return what a statement assigned to each of its targets, or returned, under one caller."""
        outcomes: list[tuple[AssignedSlot, Outcome]] = []
        for slot in self._slots_of(file, statement):
            stored = self._from_store(caller, file, statement, slot)
            if stored:
                outcomes.append((slot._replace(label=slot.whole, kind="changed"), stored))
                continue
            if slot.kind == "changed" and isinstance(statement.node, ast.Expr):
                slot = self._changed(caller, file, statement, slot)
            outcome = self._from_nodes(caller, file, statement, slot)
            if not outcome and slot.kind == "returned":
                outcome = self._from_name(caller, file, statement, slot)
                outcome = outcome or self._from_module(caller, file, statement, slot)
            if slot.part is not None and slot.length >= 0:
                outcome = part(outcome, slot.part, slot.length, slot.starred)
            outcomes.append((slot, outcome))
        return outcomes

    def _slots_of(self, file: str, statement: Statement) -> list[AssignedSlot]:
        key = (file, statement.number)
        if key not in self._slots:
            self._slots[key] = slots_of(statement.node, self.sources[file].text)
        return self._slots[key]

    def times(self, caller: int, file: str, statement: Statement) -> int | None:
        """Return how often a statement ran under one caller; None if its steps do not show it."""
        under = UnderCaller(caller, file, statement.number)
        if under not in self._times:
            most = 0
            for number in self.frames_at(*under):
                if not self._is_irregular(self.frames[number], statement):
                    most = max(most, self.times_run[number] or 0)
            self._times[under] = most or None
        return self._times[under]

    def forward_calls(self, caller: int, file: str, function: int) -> list[AlikeSteps]:
        """Return the module calls under one caller that ran a function as ``forward``, if all of them completed.

        Each of these calls ran once what every completed call runs once. If one did not complete, return ``[]``.
        """
        under = UnderCaller(caller, file, function)
        classes = self._forwards.get(under)
        if not classes or caller < 0 or under in self._may_catch:
            return []
        calls = [steps for steps in self.frames[caller].module_calls if steps.event.name in classes]
        if all(steps.completed for steps in calls):
            return calls
        return []

    def computed(self, frame: Frame) -> Outcome:
        """Return what a frame computed last, even if it is not known what became of it."""
        return self.outcome[frame.number] or _outcome(last_op(frame))

    def statement_completed(self, number: int) -> bool:
        """Return whether all runs of a frame's statement completed.

        They did if a later statement of its suite ran as often.
        """
        frame = self.frames[number]
        statement = self.statement[number]
        if statement is None or hasattr(statement.node, "body"):
            return False
        file = frame.place.file
        source = self.sources[file]
        times = self.times(frame.parent, file, statement)
        if times is None:
            return False
        for later in source.suites[statement.suite][statement.place + 1 :]:
            if self.passes(frame.parent, file, source.all[later]) == times:
                return True
        return False

    def passes(self, caller: int, file: str, statement: Statement) -> int | None:
        """Return how often a statement was reached; None for a ``while``, whose condition runs more often."""
        if isinstance(statement.node, ast.While):
            return None
        return self.times(caller, file, statement)

    def _statement(self, frame: Frame) -> Statement | None:
        source = None
        if not frame.has_other_text:
            source = self.sources.get(frame.place.file)
        if source is None:
            return None
        return source.at(frame.place.where.line, frame.place.where.col)

    def _from_nodes(
        self, caller: int, file: str, statement: Statement, slot: AssignedSlot
    ) -> Outcome:
        """Return what the nodes of a slot gave."""
        if slot.part is not None and len(slot.nodes) > 1:
            # If a tensor was unpacked, that is a step at the targets; the value itself must not be counted too.
            unpacked = self._at_nodes(caller, file, statement, slot.nodes[-1:])
            return unpacked or self._at_nodes(caller, file, statement, slot.nodes[:-1])
        return self._at_nodes(caller, file, statement, slot.nodes)

    def _at_nodes(
        self, caller: int, file: str, statement: Statement, nodes: Sequence[ast.expr | ast.stmt]
    ) -> Outcome:
        numbers = self._frames_of_nodes(caller, file, statement, nodes)
        return merged(self.outcome[number] for number in numbers)

    def _frames_of_nodes(
        self, caller: int, file: str, statement: Statement, nodes: Sequence[ast.expr | ast.stmt]
    ) -> list[int]:
        """Return the numbers of the frames at these nodes of a statement, under one caller, in order."""
        by_place = self._at.get(UnderCaller(caller, file, statement.number), {})
        source = self.sources[file]
        places = {place for node in nodes for place in source.ranges(node)}
        return sorted(number for place in places for number in by_place.get(place, ()))

    def _changed(
        self, caller: int, file: str, statement: Statement, slot: AssignedSlot
    ) -> AssignedSlot:
        """Return the slot of what ``a.b_(x)`` changed: ``a`` for a method of a tensor, ``x`` for a function.

        For any other call it is a slot of kind ``computed``.
        """
        events: list[Event] = []
        for number in self._frames_of_nodes(caller, file, statement, slot.nodes):
            events.extend(steps.event for steps in last_made(self.frames[number]))
        if events and all(event.name.startswith("Tensor.") for event in events):
            return slot
        if slot.whole and events and all(map(_changes_its_input, events)):
            return slot._replace(label=slot.whole)
        return slot._replace(label="", kind="computed")

    def _from_store(
        self, caller: int, file: str, statement: Statement, slot: AssignedSlot
    ) -> Outcome:
        """Return the tensor that ``x[i] = y`` changed; an empty outcome if ``x`` is a dict or the like."""
        if slot.target is None:
            return Outcome()
        changed: list[Outcome] = []
        for number in self._frames_of_nodes(caller, file, statement, [slot.target]):
            steps = last_made(self.frames[number])
            if steps and steps[0].event.operator == "[]=":
                changed.append(_outcome(steps))
        return merged(changed)

    def _from_name(
        self, caller: int, file: str, statement: Statement, slot: AssignedSlot
    ) -> Outcome:
        """Return what ``return x`` gave, from the statement that assigned ``x``."""
        node = None
        if slot.nodes:
            node = slot.nodes[0]
        if not isinstance(node, ast.Name):
            return Outcome()
        assignment = definition(self.sources[file], statement, node.id)
        if assignment is None or not runs_as_often(self.sources[file], assignment, statement):
            return Outcome()
        return merged(
            outcome
            for each, outcome in self.outcomes_of_slots(caller, file, assignment)
            if each.label == node.id and each.kind != "returned"
        )

    def _from_module(
        self, caller: int, file: str, statement: Statement, slot: AssignedSlot
    ) -> Outcome:
        """Return what the only ``return`` of a ``forward`` gave: what the module returned."""
        if not self.sources[file].is_only_return(statement):
            return Outcome()
        calls = self.forward_calls(caller, file, statement.function)
        returned = _outcome(steps for steps in calls if steps.count)
        if slot.part is None:
            return returned
        tuples = Outcome()
        for (result, path), times in returned.counts.items():
            if all(tensor.role.startswith("[") for tensor in result.tensors):
                tuples.add(result, path, times)
        return part(tuples, slot.part, 0)

    def _note_forward(self, frame: Frame, statement: Statement) -> None:
        """Note whether the function of a statement is the ``forward`` of the modules that ran the frame."""
        file = frame.place.file
        function = statement.function
        source = self.sources[file]
        under = UnderCaller(frame.parent, file, function)
        if frame.failed and is_in_with(source, statement):
            self._may_catch.add(under)
        if not frame.run_by or function < 0 or frame.called or is_nested(frame):
            return
        name = getattr(source.all[function].node, "name", "")
        if name == "forward" and source.is_plain_function(function):
            classes = self._forwards.setdefault(under, set())
            classes.update(steps.event.name for steps in frame.run_by.values())

    def _settle(self, frame: Frame) -> None:
        """Find how often a frame ran and what it gave, from its own steps or from the function that it called.

        An expression may do both: ``layer(x)`` calls a torch module in one run and a function of the program in
        another. Then the counts add up.
        """
        own_steps = last_made(frame)
        number = frame.number
        if not own_steps and (frame.steps or is_nested(frame)):
            return
        called = self._called_functions(frame)
        if len(called) == 1:
            self._settle_call(frame, called.pop(), is_only_call=not own_steps)
            runs = self.times_run[number]
            if own_steps and runs is not None:
                self.times_run[number] = runs + _count(own_steps)
            outcome = self.outcome[number]
            if own_steps and outcome:
                self.outcome[number] = merged([_outcome(own_steps), outcome])
        elif own_steps and not called and not self._calls_lambda(frame):
            self.times_run[number] = _count(own_steps)
            self.outcome[number] = _outcome(own_steps)

    def _calls_lambda(self, frame: Frame) -> bool:
        children = [self.frames[child] for child in frame.children]
        return any(child.called and not child.in_step and is_lambda(child) for child in children)

    def _called_functions(self, frame: Frame) -> set[_Function]:
        """Return the program's functions that a frame's expression called."""
        functions: set[_Function] = set()
        for number in frame.children:
            child = self.frames[number]
            statement = self.statement[number]
            if statement is not None and self._calls(frame, child, statement):
                functions.add(_Function(child.place.file, statement.function))
        return functions

    def _settle_call(self, frame: Frame, function: _Function, is_only_call: bool) -> None:
        """Find how often a call of one of the program's functions ran, and what it returned."""
        source = self.sources[function.file]
        statement = self.statement[frame.number]
        body = source.by_function[function.number]
        may_catch = statement is None or may_be_left(self.sources[frame.place.file], statement)
        runs: int | None = None
        for inner in body:
            if source.runs_once_per_call(inner, may_catch):
                times = self.times(frame.number, function.file, inner)
                if times is not None:
                    runs = max(runs or 0, times)
        if runs is None and is_only_call:
            runs = self._times_of_neighbours(frame)
        self.times_run[frame.number] = runs
        self.outcome[frame.number] = self._returned(frame.number, function.file, body)

    def _times_of_neighbours(self, frame: Frame) -> int | None:
        """Return how often a frame ran, by steps elsewhere in its statement; None if there are none."""
        statement = self.statement[frame.number]
        if statement is None or self._is_irregular(frame, statement):
            return None
        under = UnderCaller(frame.parent, frame.place.file, statement.number)
        if under not in self._step_counts:
            most = 0
            for number in self.frames_at(*under):
                neighbour = self.frames[number]
                if not self._is_irregular(neighbour, statement):
                    most = max(most, _count(last_made(neighbour)))
            self._step_counts[under] = most or None
        return self._step_counts[under]

    def _is_irregular(self, frame: Frame, statement: Statement) -> bool:
        """Return whether a frame may run more or less often than its statement."""
        source = self.sources[frame.place.file]
        where = frame.place.where
        return (
            is_nested(frame)
            or source.is_repeated(statement, where)
            or source.is_conditional(statement, where)
        )

    def _returned(self, caller: int, file: str, body: list[Statement]) -> Outcome:
        """Return what a function returned; an empty outcome if one of its returns may have given something else."""
        known: list[Outcome] = []
        is_one_unknown = False
        for statement in body:
            if not isinstance(statement.node, ast.Return):
                continue
            by_slot = self.outcomes_of_slots(caller, file, statement)
            outcomes = [outcome for _, outcome in by_slot]
            if not any(outcomes):
                is_one_unknown = True
                continue
            first_slot, first_outcome = by_slot[0]
            if first_slot.part is None:
                known.append(first_outcome)
            else:
                known.append(Outcome(parts=tuple(outcome or None for outcome in outcomes)))
        returned = merged(known)
        runs = self.times_run[caller]
        if is_one_unknown and (runs is None or returned.times < runs):
            return Outcome()
        return returned

    def _calls(self, caller: Frame, callee: Frame, callee_statement: Statement) -> bool:
        """Return whether the caller's expression is a call of the callee's function, and so has its result."""
        function = callee_statement.function
        if not callee.called or callee.in_step or is_nested(callee) or function < 0:
            return False
        statement = self.statement[caller.number]
        if statement is None or not self.sources[callee.place.file].is_plain_function(function):
            return False
        node = self.sources[caller.place.file].node_at(statement, caller.place.where)
        name = callee.place.function.rpartition(".")[2]
        if isinstance(node, ast.Attribute):
            return node.attr == name
        if not isinstance(node, ast.Call):
            return False
        written = _last_name(node.func)
        if written == name:
            return True
        # The function has another name here. It is an alias, unless something else calls the function: Python for
        # an operator (``__add__``), or torch or C for a function that it is given.
        is_special = name.startswith("__") and name != "__call__"
        is_argument = name in _names_in_arguments(node)
        return written not in CALLING_BACK and not is_argument and not is_special


def _count(several: Iterable[AlikeSteps]) -> int:
    return sum(steps.count for steps in several)


def _outcome(several: Iterable[AlikeSteps]) -> Outcome:
    """Return what these steps gave."""
    outcome = Outcome()
    for steps in several:
        event = steps.event
        if not steps.completed:
            continue
        if event.operator == "[]=":
            result = changed_by(event, steps.measured)
        else:
            result = result_of(event, steps.measured)
        outcome.add(result, module_path(event), steps.count)
    return outcome


def _changes_its_input(event: Event) -> bool:
    """Return whether the first output of an event has the memory of its first input."""
    inputs = event.inputs[:1]
    outputs = event.outputs[:1]
    return bool(inputs and outputs) and inputs[0].storage == outputs[0].storage


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return ""


def _names_in_arguments(call: ast.Call) -> set[str]:
    """Return all names and attributes in the arguments of a call."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return {_last_name(node) for argument in arguments for node in ast.walk(argument)}
